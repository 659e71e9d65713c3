//! The items of a turn, as `app-server` and `exec` report them, as tool calls and their results. The two spell the same
//! fields differently.

use super::tools::TOOLS;
use crate::{
    Diff, ToolFact, ToolKind, ToolLocation, ToolResult, ToolStatus, ToolUse,
    acp::blocks::{ContentPiece, pieces},
    wire::{List, Str, Tolerant as _, wire},
};
use serde_json::{
    Value, json,
    value::{RawValue, to_raw_value},
};

wire! {
    /// An item. Only the fields of its type are set.
    pub(super) struct ThreadItem<'a> {
        kind: Str<'a> = "type", id: Str<'a> = "id", text: Str<'a> = "text", message: Str<'a> = "message",
        status: Str<'a> = "status", command: Str<'a> = "command", actions: List<Action<'a>> = "commandActions",
        output: Option<Str<'a>> = "aggregatedOutput", exec_output: Option<Str<'a>> = "aggregated_output",
        changes: List<Change<'a>> = "changes", server: Str<'a> = "server", tool: Str<'a> = "tool",
        arguments: Option<&'a RawValue> = "arguments", result: Option<&'a RawValue> = "result",
        error: ItemError<'a> = "error", query: Str<'a> = "query", path: Str<'a> = "path", prompt: Str<'a> = "prompt",
        summary: List<Str<'a>> = "summary",
    }
}
wire! { pub(super) struct Action<'a> { kind: Str<'a> = "type", path: Option<Str<'a>> = "path" } }
wire! { pub(super) struct Change<'a> { path: Str<'a> = "path", kind: PatchKind<'a> = "kind", diff: Option<Str<'a>> = "diff" } }
wire! { pub(super) struct ItemError<'a> { message: Str<'a> = "message" } }
wire! { struct KindOfChange<'a> { name: Str<'a> = "type", moved: Option<Str<'a>> = "move_path" } }
wire! { struct McpResult<'a> { content: Option<&'a RawValue> = "content" } }

/// The kind of a change: a word in `exec`, an object in `app-server`.
#[derive(Debug, Default)]
pub(super) struct PatchKind<'a> {
    name: Str<'a>,
    moved: Option<String>,
}

impl<'de> serde::Deserialize<'de> for PatchKind<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(d)?.get();
        let object = serde_json::from_str::<KindOfChange<'_>>(raw).unwrap_or_default();
        if object.is_object() {
            let moved = object.moved.map(Str::own).filter(|path| !path.is_empty());
            return Ok(Self { name: object.name, moved });
        }
        Ok(Self { name: serde_json::from_str(raw).unwrap_or_default(), moved: None })
    }
}

impl ThreadItem<'_> {
    /// Returns the call that the item describes, if it is one.
    pub(super) fn call(&self) -> Option<ToolUse> {
        let id = &*self.id;
        Some(match &*self.kind {
            "commandExecution" | "command_execution" => {
                let mut tool = ToolUse::new(id, "Bash", "exec_command", ToolKind::Shell);
                tool.input = raw(&json!({"command": script(&self.command)}));
                let read = self.actions.0.iter().filter(|action| &*action.kind == "read");
                let read = read.filter_map(|action| action.path.as_ref());
                tool.locations = read.map(|path| ToolLocation::new(&**path, None)).collect();
                tool
            }
            "fileChange" | "file_change" => self.file_change(),
            "mcpToolCall" | "mcp_tool_call" => {
                let name = format!("mcp__{}__{}", &*self.server, &*self.tool);
                let mut tool = ToolUse::new(id, name.clone(), name, ToolKind::Mcp);
                tool.input = self.arguments.map(ToOwned::to_owned);
                tool
            }
            "webSearch" | "web_search" => {
                TOOLS.tool_use(id, "web_search", raw(&json!({"query": &*self.query})).as_deref())
            }
            "imageView" => TOOLS.tool_use(id, "view_image", raw(&json!({"path": &*self.path})).as_deref()),
            "collabAgentToolCall" | "collab_tool_call" => {
                let native = snake_case(&self.tool);
                let arguments =
                    if self.prompt.is_empty() { json!({}) } else { json!({"message": &*self.prompt}) };
                TOOLS.tool_use(id, &native, raw(&arguments).as_deref())
            }
            _ => return None,
        })
    }

    /// A patch is reported by the changes that it makes, never by its text.
    fn file_change(&self) -> ToolUse {
        let adds = |change: &Change<'_>| &*change.kind.name == "add";
        let creates = !self.changes.0.is_empty() && self.changes.0.iter().all(adds);
        let (name, kind) = if creates { ("Write", ToolKind::Write) } else { ("Edit", ToolKind::Edit) };
        let mut tool = ToolUse::new(&*self.id, name, "apply_patch", kind);
        let paths = self.paths();
        tool.path = paths.first().cloned();
        tool.locations = paths.iter().map(|path| ToolLocation::new(path, None)).collect();
        tool.diffs = self.diffs();
        tool.input = match (&*tool.diffs, &*self.changes.0) {
            ([diff], [change]) if adds(change) => raw(&json!({"file_path": diff.path, "content": diff.new})),
            ([diff], [_]) => {
                let old = diff.old.as_deref().unwrap_or_default();
                raw(&json!({"file_path": diff.path, "old_string": old, "new_string": diff.new}))
            }
            ([], _) => raw(&json!({"file_path": tool.path})),
            (several, _) => {
                let edit = |diff: &Diff| -> Value {
                    json!({"file_path": diff.path, "old_string": diff.old, "new_string": diff.new})
                };
                raw(&json!({"file_path": tool.path, "edits": several.iter().map(edit).collect::<Vec<_>>()}))
            }
        };
        tool
    }

    /// Returns the files that a patch changes.
    pub(super) fn paths(&self) -> Vec<String> {
        let of = |change: &Change<'_>| {
            std::iter::once(change.path.to_string()).chain(change.kind.moved.clone()).collect::<Vec<_>>()
        };
        self.changes.0.iter().flat_map(of).filter(|path| !path.is_empty()).collect()
    }

    /// Returns the changes of a patch.
    pub(super) fn diffs(&self) -> Vec<Diff> {
        self.changes.0.iter().flat_map(diffs).collect()
    }

    /// Returns the files of a patch besides the first, which the call names.
    pub(super) fn more_files(&self) -> Option<ToolFact> {
        let paths: Vec<String> = self.paths().into_iter().skip(1).collect();
        (!paths.is_empty()).then(|| ToolFact { paths, ..ToolFact::new(&*self.id) })
    }

    /// Returns the MCP server of a call.
    pub(super) fn mcp_server(&self) -> Option<String> {
        Some(self.server.to_string()).filter(|server| !server.is_empty())
    }

    /// Returns the result of a call that has ended. `refused` is the reason of the host for a denial.
    pub(super) fn ended(&self, refused: Option<String>) -> ToolResult {
        let id = &*self.id;
        let mut result = match (&*self.status, refused) {
            ("declined", Some(reason)) => ToolResult::refused(id, reason, self.content()),
            ("declined", None) => ToolResult::refused(id, "agent", self.content()),
            ("failed", Some(reason)) => ToolResult::refused(id, reason, self.content()),
            ("failed", None) => ToolResult::new(id, ToolStatus::Error, self.content()),
            _ => ToolResult::new(id, ToolStatus::Ok, self.content()),
        };
        if !result.is_error {
            result.diffs = self.diffs();
            result.raw_output = self.result.filter(|raw| raw.get() != "null").map(ToOwned::to_owned);
        }
        result
    }

    /// Returns the output of a call.
    fn content(&self) -> Option<String> {
        let error = Some(self.error.message.to_string()).filter(|message| !message.is_empty());
        let output = self.output.as_ref().or(self.exec_output.as_ref()).map(|text| text.to_string());
        error.or(output).or_else(|| {
            let content = serde_json::from_str::<McpResult<'_>>(self.result?.get()).ok()?.content?;
            let texts = pieces(content).into_iter().filter_map(|piece| match piece {
                ContentPiece::Text(text) => Some(text),
                ContentPiece::Other(_) => None,
            });
            Some(texts.collect())
        })
    }
}

fn raw(value: &Value) -> Option<Box<RawValue>> {
    to_raw_value(value).ok()
}

/// Converts the change of one file: the whole content of a new or deleted file, or one diff for each hunk.
fn diffs(change: &Change<'_>) -> Vec<Diff> {
    let Some(text) = &change.diff else { return Vec::new() };
    let path = change.kind.moved.clone().unwrap_or_else(|| change.path.to_string());
    match &*change.kind.name {
        "add" => vec![Diff { path, old: None, new: text.to_string() }],
        "delete" => vec![Diff { path, old: Some(text.to_string()), new: String::new() }],
        _ => hunks(text)
            .into_iter()
            .map(|(old, new)| Diff { path: path.clone(), old: Some(old), new })
            .collect(),
    }
}

/// Returns the old and the new text of each hunk of a unified diff.
fn hunks(diff: &str) -> Vec<(String, String)> {
    let mut hunks: Vec<(String, String)> = Vec::new();
    for line in diff.split_inclusive('\n') {
        if line.starts_with("@@") {
            hunks.push(Default::default());
            continue;
        }
        let Some((old, new)) = hunks.last_mut() else { continue };
        let (sign, rest) = line.split_at(line.chars().next().map_or(0, char::len_utf8));
        match sign {
            "-" => old.push_str(rest),
            "+" => new.push_str(rest),
            " " => [old, new].into_iter().for_each(|text| text.push_str(rest)),
            // "\ No newline at end of file" is about the line before it.
            "\\" => [old, new].into_iter().for_each(|text| {
                if text.ends_with('\n') {
                    text.pop();
                }
            }),
            _ => {}
        }
    }
    hunks
}

/// Returns the script of a command line such as `/bin/bash -lc 'echo a'`, or the line itself.
pub(super) fn script(command: &str) -> String {
    let unwrapped = || {
        let (shell, rest) = command.split_once(' ')?;
        let name = shell.rsplit('/').next()?;
        let rest = rest.strip_prefix("-lc ").or_else(|| rest.strip_prefix("-c "))?;
        matches!(name, "bash" | "sh" | "zsh").then(|| unquoted(rest)).flatten()
    };
    unwrapped().unwrap_or_else(|| command.to_owned())
}

/// Returns the value of a text that is one word of a POSIX shell without expansions.
fn unquoted(text: &str) -> Option<String> {
    let mut value = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\'' => loop {
                match chars.next()? {
                    '\'' => break,
                    inner => value.push(inner),
                }
            },
            '"' => loop {
                match chars.next()? {
                    '"' => break,
                    '\\' if chars.peek().is_some_and(|next| matches!(next, '"' | '\\' | '$' | '`')) => {
                        value.push(chars.next()?);
                    }
                    inner => value.push(inner),
                }
            },
            '\\' => value.push(chars.next()?),
            c if c.is_whitespace() => return None,
            c => value.push(c),
        }
    }
    Some(value)
}

/// Converts a name such as `spawnAgent` to the spelling of the model's tool.
fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(raw: &str) -> ThreadItem<'_> {
        serde_json::from_str(raw).unwrap()
    }

    #[test]
    fn commands_are_shown_without_their_shell() {
        for (line, expected) in [
            ("/bin/bash -lc 'cat a; exit 3'", "cat a; exit 3"),
            (r#"/bin/bash -lc "echo 'a' \"b\"""#, r#"echo 'a' "b""#),
            (r"/usr/bin/zsh -lc 'it'\''s'", "it's"),
            ("bash -c ls", "ls"),
            ("/bin/bash -lc 'unbalanced", "/bin/bash -lc 'unbalanced"),
            ("/bin/bash -lc echo a", "/bin/bash -lc echo a"),
            ("python3 -c 'print(1)'", "python3 -c 'print(1)'"),
            ("", ""),
        ] {
            assert_eq!(script(line), expected, "{line}");
        }
    }

    #[test]
    fn changes_are_read_in_both_spellings() {
        let update = item(
            r#"{"type":"fileChange","id":"c","status":"completed","changes":[{"path":"/w/a","kind":{"type":"update","move_path":null},
            "diff":"@@ -1,2 +1,2 @@\n hello\n-world\n+there\n@@ -9 +9 @@\n-x\n\\ No newline at end of file\n+y\n"}]}"#,
        );
        let tool = update.call().unwrap();
        assert_eq!((&*tool.name, tool.kind, tool.path.as_deref()), ("Edit", ToolKind::Edit, Some("/w/a")));
        let diff =
            |old: &str, new: &str| Diff { path: "/w/a".into(), old: Some(old.into()), new: new.into() };
        assert_eq!(tool.diffs, [diff("hello\nworld\n", "hello\nthere\n"), diff("x", "y\n")]);
        let add = item(
            r#"{"type":"fileChange","id":"c","status":"declined","changes":[{"path":"/w/b","kind":{"type":"add"},"diff":"x\n"}]}"#,
        );
        let tool = add.call().unwrap();
        assert_eq!(
            (&*tool.name, &*tool.input.unwrap().get().to_owned()),
            ("Write", r#"{"content":"x\n","file_path":"/w/b"}"#)
        );
        let moved = item(
            r#"{"type":"fileChange","id":"c","changes":[{"path":"/w/a","kind":{"type":"update","move_path":"/w/z"},"diff":""},
            {"path":"/w/d","kind":{"type":"delete"},"diff":"gone\n"}]}"#,
        );
        assert_eq!(moved.paths(), ["/w/a", "/w/z", "/w/d"]);
        assert_eq!(moved.more_files().unwrap().paths, ["/w/z", "/w/d"]);
        assert_eq!(
            moved.diffs(),
            [Diff { path: "/w/d".into(), old: Some("gone\n".into()), new: String::new() }]
        );
        // `exec` reports neither the content nor the difference.
        let exec = item(
            r#"{"type":"file_change","id":"item_1","changes":[{"path":"/w/a","kind":"add"}],"status":"completed"}"#,
        );
        let tool = exec.call().unwrap();
        assert_eq!((&*tool.name, &*tool.path.unwrap(), tool.diffs.len()), ("Write", "/w/a", 0));
    }

    #[test]
    fn results_have_the_output_and_the_reason_of_a_denial() {
        let status = |result: ToolResult| (result.status, result.content, result.reason);
        let ended = |raw: &str, refused: Option<&str>| status(item(raw).ended(refused.map(str::to_owned)));
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(
            ended(
                r#"{"type":"commandExecution","id":"c","status":"failed","aggregatedOutput":"err\n","exitCode":3}"#,
                None
            ),
            (ToolStatus::Error, text("err\n"), None)
        );
        assert_eq!(
            ended(r#"{"type":"fileChange","id":"c","status":"declined"}"#, Some("mode")),
            (ToolStatus::Denied, None, text("mode"))
        );
        assert_eq!(
            ended(r#"{"type":"commandExecution","id":"c","status":"declined"}"#, None),
            (ToolStatus::Denied, None, text("agent"))
        );
        let mcp = r#"{"type":"mcp_tool_call","id":"i","server":"s","tool":"t","arguments":{"a":1},"status":"completed",
            "result":{"content":[{"type":"text","text":"one"},{"type":"text","text":"two"}],"structured_content":null}}"#;
        assert_eq!(ended(mcp, None), (ToolStatus::Ok, text("onetwo"), None));
        assert_eq!(&*item(mcp).call().unwrap().name, "mcp__s__t");
        let failed = r#"{"type":"mcpToolCall","id":"i","server":"s","tool":"t","status":"failed","error":{"message":"no"}}"#;
        assert_eq!(ended(failed, None), (ToolStatus::Error, text("no"), None));
    }

    #[test]
    fn other_items_are_named_by_the_models_tools() {
        let tool = item(r#"{"type":"collabAgentToolCall","id":"a","tool":"spawnAgent","prompt":"do it"}"#)
            .call()
            .unwrap();
        assert_eq!((&*tool.name, &*tool.native_name), ("Task", "spawn_agent"));
        // `exec` prints the key `id` twice; the last one wins.
        let tool = item(r#"{"id":"item_0","type":"web_search","id":"ws_1","query":"q"}"#).call().unwrap();
        assert_eq!((&*tool.id, &*tool.name), ("ws_1", "WebSearch"));
        assert!(item(r#"{"type":"userMessage","id":"u"}"#).call().is_none());
    }
}
