//! Permission requests of OpenCode, and the host's decisions on them.

use super::{super::tools::TOOLS, Call, Serve, turn::ServeStep};
use crate::{
    Diff, HostRequest, HostResponse, PermissionRequest, RunId, Sink, ToolKind,
    wire::{List, Str, wire},
};
use serde_json::{json, value::RawValue};

wire! { struct PermissionWire<'a> {
    id: Str<'a> = "id", session: Str<'a> = "sessionID", permission: Str<'a> = "permission",
    metadata: PermissionMetadata<'a> = "metadata", call: CallWire<'a> = "tool",
} }
wire! { struct CallWire<'a> { message: Str<'a> = "messageID", id: Str<'a> = "callID" } }
wire! { struct PermissionMetadata<'a> {
    path: Str<'a> = "filepath", command: Option<Str<'a>> = "command", directories: List<Str<'a>> = "directories",
    files: List<FileWire<'a>> = "files", diff: Str<'a> = "diff",
} }
wire! { struct FileWire<'a> { path: Str<'a> = "filePath" } }
wire! { struct CommandInput<'a> { command: Option<Str<'a>> = "command" } }

/// A permission request that waits for the host.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) run: RunId,
    id: String,
    message: String,
    call: String,
}

impl Serve {
    /// Handles a permission request.
    pub(super) fn permission_asked(&mut self, run: RunId, raw: &RawValue, sink: &mut Sink) {
        let request = serde_json::from_str::<PermissionWire<'_>>(raw.get()).unwrap_or_default();
        let Some(turn) = self.turns.get_mut(&run) else { return };
        if turn.step != ServeStep::Working || turn.stopping {
            return self.reply(run, &request.id, Some("the run was stopped"), sink);
        }
        let tool = turn.calls.announced(&request.call.message, &request.call.id);
        if tool.is_none() && !request.call.id.is_empty() {
            // OpenCode asks while it reports the call, so the arguments may arrive later.
            turn.early_requests.push(raw.to_owned());
            return sink.alive(run);
        }
        let ask = permission_request(&request, tool);
        let ask = sink.ask(run, HostRequest::Permission(Box::new(ask)));
        let question = Question {
            run,
            id: request.id.own(),
            message: request.call.message.own(),
            call: request.call.id.own(),
        };
        self.questions.insert(ask, question);
    }

    /// Handles the requests whose calls are announced by now.
    pub(super) fn ask_early_requests(&mut self, run: RunId, sink: &mut Sink) {
        let early = self.turns.get_mut(&run).map(|turn| std::mem::take(&mut turn.early_requests));
        for request in early.into_iter().flatten() {
            self.permission_asked(run, &request, sink);
        }
    }

    /// Handles the end of a request that OpenCode has answered itself: a rejection rejects all requests of its session.
    pub(super) fn permission_replied(&mut self, id: &str, sink: &mut Sink) {
        let open = self.questions.iter().find(|(_, question)| question.id == id).map(|(ask, _)| *ask);
        if let Some(ask) = open
            && let Some(question) = self.questions.remove(&ask)
        {
            sink.withdraw(question.run, ask);
        }
    }

    /// Sends the host's decision.
    pub(super) fn decided(&mut self, question: Question, answer: &HostResponse, sink: &mut Sink) {
        let run = question.run;
        let refusal = match answer {
            HostResponse::PermissionDecided(decision) if decision.allow => None,
            HostResponse::PermissionDecided(decision) => {
                let reason = decision.reason.clone().unwrap_or_else(|| "denied".to_owned());
                Some(
                    decision.rule.as_ref().map_or_else(|| reason.clone(), |rule| format!("{reason}: {rule}")),
                )
            }
            _ => Some("denied".to_owned()),
        };
        let Some(turn) = self.turns.get_mut(&run) else { return };
        match refusal {
            None => self.reply(run, &question.id, None, sink),
            Some(reason) => {
                turn.calls.refuse(&question.message, &question.call, reason.clone());
                turn.rejections.push((question.id, reason));
            }
        }
        if self.questions.values().any(|other| other.run == run) {
            return;
        }
        let rejections = self.turns.get_mut(&run).map(|turn| std::mem::take(&mut turn.rejections));
        for (id, reason) in rejections.into_iter().flatten() {
            self.reply(run, &id, Some(&reason), sink);
        }
    }

    /// Answers a request. A rejection with a message lets the model continue.
    fn reply(&mut self, run: RunId, id: &str, rejection: Option<&str>, sink: &mut Sink) {
        let body = match rejection {
            None => json!({"reply": "once"}),
            Some(reason) => json!({"reply": "reject", "message": format!("permission denied ({reason})")}),
        };
        self.request(run, Call::Other, ("POST", &format!("/permission/{id}/reply")), Some(body), sink);
    }
}

fn permission_request(request: &PermissionWire<'_>, tool: Option<&crate::ToolUse>) -> PermissionRequest {
    let mut ask = PermissionRequest::default();
    let native = tool.map_or(&*request.permission, |tool| &*tool.native_name);
    let plain = TOOLS.tool_use(request.call.id.to_string(), native, None);
    let tool = tool.unwrap_or(&plain);
    ask.tool_use_id.clone_from(&tool.id);
    ask.tool.clone_from(&tool.name);
    ask.native_tool.clone_from(&tool.native_name);
    ask.title = tool.title.clone().unwrap_or_default();
    ask.kind = tool.kind;
    ask.input.clone_from(&tool.input);
    ask.diffs.clone_from(&tool.diffs);
    if ask.diffs.is_empty() {
        ask.diffs = hunks(&request.metadata.path, &request.metadata.diff);
    }
    ask.server =
        TOOLS.server_tool(native).filter(|_| tool.kind == ToolKind::Mcp).map(|(server, _)| server.to_owned());
    let command = || {
        let input = tool.raw_input.as_ref()?;
        serde_json::from_str::<CommandInput<'_>>(input.get()).ok()?.command.map(Str::own)
    };
    ask.command = request.metadata.command.as_ref().map(|text| text.to_string()).or_else(command);
    ask.command = ask.command.filter(|_| tool.kind == ToolKind::Shell);
    let files = request.metadata.files.0.iter().map(|file| file.path.to_string());
    let directories = request.metadata.directories.0.iter().map(|path| path.to_string());
    let named = tool.path.clone().into_iter().chain([request.metadata.path.to_string()]);
    for path in named.chain(files).chain(directories) {
        if !path.is_empty() && !ask.paths.contains(&path) {
            ask.paths.push(path);
        }
    }
    ask
}

/// Returns the parts of a file that a unified diff changes. A new file has no old text.
fn hunks(path: &str, diff: &str) -> Vec<Diff> {
    let mut hunks: Vec<Diff> = Vec::new();
    for line in diff.split_inclusive('\n') {
        if line.starts_with("@@ ") {
            let old = (!line.starts_with("@@ -0,0 ")).then(String::new);
            hunks.push(Diff { path: path.to_owned(), old, new: String::new() });
        } else if let Some(hunk) = hunks.last_mut()
            && let Some((mark, text)) = line.split_at_checked(1)
        {
            if mark != "+"
                && mark != "\\"
                && let Some(old) = &mut hunk.old
            {
                old.push_str(text);
            }
            if mark != "-" && mark != "\\" {
                hunk.new.push_str(text);
            }
        }
    }
    hunks
}

#[cfg(test)]
mod tests {
    use super::hunks;

    #[test]
    fn hunks_have_the_old_and_the_new_text() {
        let new = hunks("/w/a", "Index: /w/a\n--- /w/a\n+++ /w/a\n@@ -0,0 +1,1 @@\n+new\n");
        assert_eq!((new.len(), &new[0].old, &*new[0].new, &*new[0].path), (1, &None, "new\n", "/w/a"));
        let changed = hunks("/w/a", "@@ -1,2 +1,2 @@\n a\n-b\n+c\n\\ No newline at end of file\n");
        assert_eq!((changed[0].old.as_deref(), &*changed[0].new), (Some("a\nb\n"), "a\nc\n"));
        assert_eq!(hunks("/w/a", "").len(), 0);
    }
}
