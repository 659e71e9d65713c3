//! Extracts from a tool call what a reader needs: its name, target, change and output.

use super::diff::ShownChange;
use agentline_core::{
    SavedDiff, SavedTool, ToolKind, ToolStatus, ToolUse,
    terminal_text::{plain, uncoloured},
};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::{borrow::Cow, collections::BTreeMap};

/// A tool call as it is shown.
#[derive(Debug)]
pub(super) struct ShownCall<'a> {
    /// The canonical name, or the agent's own.
    pub(super) name: Cow<'a, str>,
    /// The file, pattern or address of the call.
    pub(super) target: Option<String>,
    /// The command.
    pub(super) command: Option<String>,
    /// The change.
    pub(super) change: Option<ShownChange>,
    /// The input, if it contains more than the fields above.
    pub(super) input: Option<&'a str>,
    /// The status; `None` if there is no result.
    pub(super) status: Option<ToolStatus>,
    /// The output.
    pub(super) output: Cow<'a, str>,
}

/// The relevant fields of an input. All other fields are skipped.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Input<'a> {
    #[serde(borrow)]
    command: Option<&'a RawValue>,
    #[serde(borrow)]
    file_path: Option<&'a RawValue>,
    #[serde(borrow)]
    path: Option<&'a RawValue>,
    #[serde(borrow)]
    dir_path: Option<&'a RawValue>,
    #[serde(borrow)]
    pattern: Option<&'a RawValue>,
    #[serde(borrow)]
    url: Option<&'a RawValue>,
    #[serde(borrow)]
    query: Option<&'a RawValue>,
    #[serde(borrow)]
    description: Option<&'a RawValue>,
    #[serde(borrow)]
    prompt: Option<&'a RawValue>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    old_string: Option<&'a RawValue>,
    #[serde(borrow)]
    new_string: Option<&'a RawValue>,
}

impl<'a> ShownCall<'a> {
    /// Extracts what is shown of a call. Paths inside the workspace are relative to it.
    pub(super) fn of(tool: &'a SavedTool, workspace: Option<&str>) -> Self {
        let call = &tool.call;
        let raw = call.input.as_ref().or(call.raw_input.as_ref()).map(|raw| raw.get());
        let input: Input<'_> = raw.and_then(|raw| serde_json::from_str(raw).ok()).unwrap_or_default();
        let is_shell = call.kind == ToolKind::Shell || (input.command.is_some() && call.path.is_none());
        let command = input.command.filter(|_| is_shell).and_then(text);
        let path = |raw: Option<&RawValue>| Some(relative(&text(raw?)?, workspace).to_owned());
        let word = |raw: Option<&RawValue>| text(raw?);
        let target = call.path.as_deref().map(|path| relative(path, workspace).to_owned());
        let target = target
            .or_else(|| path(input.file_path))
            .or_else(|| {
                let pattern = word(input.pattern)?;
                let scope = path(input.path).or_else(|| path(input.dir_path)).filter(|scope| scope != ".");
                Some(scope.map_or_else(|| pattern.clone(), |scope| format!("{pattern} in {scope}")))
            })
            .or_else(|| path(input.path))
            .or_else(|| path(input.dir_path))
            .or_else(|| word(input.url))
            .or_else(|| word(input.query))
            .or_else(|| word(input.description))
            .or_else(|| word(input.prompt))
            // An agent may show its calls without their input.
            .or_else(|| call.locations.first().map(|location| relative(&location.path, workspace).to_owned()))
            .or_else(|| call.title.clone());
        let status = tool.result.as_ref().map(|result| result.status);
        let failed = status.is_some_and(ToolStatus::is_error);
        let requested = || if failed { None } else { ShownChange::of(&requested_change(call.kind, &input)?) };
        let reported = || call.diffs.first().filter(|_| !failed).and_then(ShownChange::of_call);
        let change = tool.diff.as_ref().and_then(ShownChange::of).or_else(reported).or_else(requested);
        let change = change.map(|mut change| {
            if change.path.is_empty() {
                // A change derived from the call's input has no line numbers of the file, unless the whole file was
                // written.
                change.path = target.clone().unwrap_or_default();
                change.numbered &= call.kind == ToolKind::Write;
            }
            change
        });
        let is_shown = command.is_some() || change.is_some();
        let output = tool.result.as_ref().map(|result| uncoloured(&result.content));
        Self {
            name: plain(if tool.has_call() { call_name(call) } else { "(unknown tool)" }),
            target: target.filter(|_| command.is_none()),
            command,
            change,
            input: raw.filter(|raw| !is_shown && has_details(raw)),
            status,
            output: output.unwrap_or_default(),
        }
    }

    /// Returns the name and target in one line.
    pub(super) fn line(&self) -> String {
        match self.command.as_ref().or(self.target.as_ref()) {
            Some(target) => {
                let line = target.lines().next().unwrap_or_default();
                let more = if target.lines().nth(1).is_some() { " …" } else { "" };
                format!("{} {}{more}", self.name, plain(line))
            }
            None => self.name.clone().into_owned(),
        }
    }

    /// Returns whether the output says more than the displayed change.
    pub(super) fn has_news(&self) -> bool {
        let is_known = self.change.is_some() && self.status == Some(ToolStatus::Ok);
        !is_known && !self.output.trim().is_empty()
    }
}

fn call_name(call: &ToolUse) -> &str {
    if call.name.is_empty() { &call.native_name } else { &call.name }
}

/// Returns a path relative to the workspace if it is inside.
pub(super) fn relative<'p>(path: &'p str, workspace: Option<&str>) -> &'p str {
    let inside = workspace.and_then(|workspace| path.strip_prefix(workspace.trim_end_matches(['/', '\\'])));
    match inside {
        Some("") => ".",
        Some(rest) => rest.strip_prefix(['/', '\\']).filter(|rest| !rest.is_empty()).unwrap_or(path),
        None => path,
    }
}

/// Returns whether an input contains more than the target. Short inputs with one field do not.
fn has_details(raw: &str) -> bool {
    let fields = serde_json::from_str::<BTreeMap<&str, &RawValue>>(raw);
    raw.len() > 200 || !fields.is_ok_and(|fields| fields.len() <= 1)
}

/// Returns the status as a word.
pub(super) fn word(status: Option<ToolStatus>) -> &'static str {
    match status {
        Some(ToolStatus::Ok) => "ok",
        Some(ToolStatus::Denied) => "denied",
        Some(ToolStatus::Cancelled) => "cancelled",
        Some(_) => "failed",
        None => "no result",
    }
}

/// Returns the requested change, for agents that do not save the actual one.
fn requested_change(kind: ToolKind, input: &Input<'_>) -> Option<SavedDiff> {
    let mut diff = SavedDiff::default();
    match kind {
        ToolKind::Write => diff.new = Some(text(input.content?)?),
        ToolKind::Edit => {
            diff.old = Some(text(input.old_string?)?);
            diff.new = Some(text(input.new_string?)?);
        }
        _ => return None,
    }
    Some(diff)
}

/// Returns a string, or the joined strings of a list.
fn text(raw: &RawValue) -> Option<String> {
    let string = serde_json::from_str::<String>(raw.get()).ok();
    string
        .or_else(|| serde_json::from_str::<Vec<String>>(raw.get()).ok().map(|list| list.join(" ")))
        .filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentline_core::{SavedResult, ToolUse};

    fn tool(kind: ToolKind, input: &str) -> SavedTool {
        let mut call = ToolUse::new("1", "Tool", "own", kind);
        call.input = serde_json::from_str(input).ok();
        SavedTool::new(call)
    }

    #[test]
    fn tool_call_is_summarized_by_its_main_argument() {
        let shell = tool(ToolKind::Shell, r#"{"command":["ls","-l"],"description":"d"}"#);
        let shown = ShownCall::of(&shell, None);
        assert_eq!((shown.line(), shown.input, word(shown.status)), ("Tool ls -l".into(), None, "no result"));
        let search = tool(ToolKind::Search, r#"{"pattern":"a\nb","deep":{"a":1}}"#);
        let shown = ShownCall::of(&search, None);
        assert_eq!((&*shown.line(), shown.input.is_some()), ("Tool a …", true));
        assert_eq!(ShownCall::of(&tool(ToolKind::Other, "{}"), None).line(), "Tool");
    }

    #[test]
    fn paths_are_relative_and_a_search_shows_its_pattern() {
        let line = |input: &str| ShownCall::of(&tool(ToolKind::Search, input), Some("/ws/")).line();
        assert_eq!(line(r#"{"pattern":"fn main","path":"/ws/src"}"#), "Tool fn main in src");
        assert_eq!(line(r#"{"pattern":"fn main","dir_path":"/ws"}"#), "Tool fn main");
        assert_eq!(line(r#"{"file_path":"/ws/a.rs"}"#), "Tool a.rs");
        assert_eq!(line(r#"{"file_path":"/wss/a.rs"}"#), "Tool /wss/a.rs");
        assert_eq!(line(r#"{"path":"/ws"}"#), "Tool .");
    }

    #[test]
    fn requested_change_is_shown_unless_it_failed() {
        let mut edit = tool(ToolKind::Edit, r#"{"file_path":"x","old_string":"a","new_string":"b"}"#);
        let change = ShownCall::of(&edit, None).change.unwrap();
        assert_eq!((&*change.path, change.added, change.removed), ("x", 1, 1));
        edit.result = Some(SavedResult::new(ToolStatus::Error, "no match"));
        let shown = ShownCall::of(&edit, None);
        assert!(shown.change.is_none() && shown.has_news());
    }
}
