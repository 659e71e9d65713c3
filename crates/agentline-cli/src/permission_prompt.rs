//! Asks the user at the terminal whether a tool may run.
//!
//! Characters in the agent's text that could hide or overwrite the question are escaped.

use crate::ui::Ui;
use agentline::{
    Permission, PermissionHandler, PermissionMode, PermissionRequest, Policy, Rule, RunRequest, ToolKind,
};
use agentline_core::Diff;
use std::{
    io::{self, BufRead, IsTerminal},
    path::Path,
    task::{Context, Poll},
};
use tokio::sync::{
    mpsc::{UnboundedReceiver, unbounded_channel},
    oneshot,
};

/// The number of lines of a change that are shown without `details`.
const MAX_PREVIEW_LINES: usize = 20;

/// The output on which questions are shown.
pub(crate) trait PromptScreen {
    /// Shows a complete line.
    fn line(&mut self, line: &str);
    /// Shows a line after which the answer is typed.
    fn prompt(&mut self, line: &str);
}

impl PromptScreen for Ui {
    fn line(&mut self, line: &str) {
        Self::line(self, line);
    }

    fn prompt(&mut self, line: &str) {
        Self::prompt(self, line);
    }
}

/// A question that is waiting for its answer.
struct Open {
    ask: PermissionRequest,
    reply: oneshot::Sender<Permission>,
}

/// Shows the permission requests of a run and reads the answers.
pub(crate) struct PermissionPrompt {
    questions: UnboundedReceiver<Open>,
    lines: UnboundedReceiver<String>,
    current: Option<Open>,
    /// The rules that the user allowed for the whole run.
    always: Vec<Rule>,
}

/// Returns a handler that asks on this terminal, or `None` if the run cannot ask or there is no terminal.
pub(crate) fn at_terminal(request: &RunRequest) -> Option<(PermissionHandler, PermissionPrompt)> {
    let may_ask = request.permission_mode == PermissionMode::Prompt || !request.ask.is_empty();
    if !may_ask || !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return None;
    }
    let (typed, lines) = unbounded_channel();
    // The thread is never joined, because a read from a terminal cannot be cancelled.
    let reader = move || {
        for line in io::stdin().lock().lines() {
            if line.ok().and_then(|line| typed.send(line).ok()).is_none() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("terminal".into()).spawn(reader).ok()?;
    Some(PermissionPrompt::new(lines))
}

impl PermissionPrompt {
    fn new(lines: UnboundedReceiver<String>) -> (PermissionHandler, Self) {
        let (put, questions) = unbounded_channel();
        let handler = PermissionHandler::new(move |ask| {
            let (reply, answer) = oneshot::channel();
            // If the receiver is gone, the reply channel is closed, which denies the request.
            let _ = put.send(Open { ask, reply });
            async move { answer.await.unwrap_or_else(|_| Permission::Deny("nobody_answered".into())) }
        });
        (handler.at_terminal(), Self { questions, lines, current: None, always: Vec::new() })
    }

    /// Shows questions and reads answers. It never completes; the caller stops polling when the run is over.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, screen: &mut impl PromptScreen) {
        loop {
            if self.current.as_mut().is_some_and(|open| open.reply.poll_closed(cx).is_ready()) {
                screen.line("the request was withdrawn");
                self.current = None;
            }
            let Some(open) = &self.current else {
                let Poll::Ready(Some(open)) = self.questions.poll_recv(cx) else { return };
                self.begin(open, screen);
                continue;
            };
            match self.lines.poll_recv(cx) {
                Poll::Pending => return,
                Poll::Ready(None) => self.reply(Permission::Deny("nobody_answered".into())),
                Poll::Ready(Some(line)) => match line.trim().to_lowercase().as_str() {
                    "y" | "yes" => self.reply(Permission::Allow),
                    "" | "n" | "no" => self.reply(Permission::Deny("refused".into())),
                    "a" | "always" if !rules(&open.ask).is_empty() => {
                        self.always.extend(rules(&open.ask));
                        self.reply(Permission::Allow);
                    }
                    "d" | "details" => {
                        details(&open.ask).iter().for_each(|line| screen.line(line));
                        screen.prompt(&choices(&open.ask));
                    }
                    _ => screen.prompt(&choices(&open.ask)),
                },
            }
        }
    }

    fn begin(&mut self, open: Open, screen: &mut impl PromptScreen) {
        if self.is_always(&open.ask) {
            // The run may have dropped the request.
            let _ = open.reply.send(Permission::Allow);
            return;
        }
        // Input typed before the question was shown is not an answer.
        while self.lines.try_recv().is_ok() {}
        question(&open.ask).iter().for_each(|line| screen.line(line));
        screen.prompt(&choices(&open.ask));
        self.current = Some(open);
    }

    fn reply(&mut self, permit: Permission) {
        if let Some(open) = self.current.take() {
            let _ = open.reply.send(permit);
        }
    }

    /// Returns whether an earlier `always` covers this request.
    fn is_always(&self, ask: &PermissionRequest) -> bool {
        let mut request = RunRequest::new("").permission_mode(PermissionMode::Deny);
        request.allow.clone_from(&self.always);
        // Path limits were checked before the user was asked.
        let policy = Policy::new(&request, Path::new("/"));
        policy.is_ok_and(|policy| policy.decide(ask, &|path| policy.resolve(path)).ruling().allow)
    }
}

/// Returns the rules that `always` adds, or none if they would allow too much.
fn rules(ask: &PermissionRequest) -> Vec<Rule> {
    let texts = rule_texts(ask);
    texts.iter().filter_map(|text| Rule::parse(text).ok()).collect()
}

fn rule_texts(ask: &PermissionRequest) -> Vec<String> {
    if let Some(command) = &ask.command {
        let program = command.split_whitespace().next().unwrap_or_default();
        let simple = |c: char| c.is_ascii_alphanumeric() || "._/-".contains(c);
        let one = !command.contains(['\n', ';', '|', '&', '(', '`', '$', '<', '>']);
        let known = one && !program.is_empty() && program.chars().all(simple);
        return known.then(|| format!("Bash({program} *)")).into_iter().collect();
    }
    match (&ask.server, ask.kind) {
        (Some(server), _) => {
            let tool = ask.tool.strip_prefix(&format!("mcp__{server}__")).unwrap_or(&ask.tool);
            vec![format!("mcp__{server}__{tool}")]
        }
        (None, ToolKind::Write | ToolKind::Edit) => vec!["Write".into(), "Edit".into()],
        (None, _) if !ask.diffs.is_empty() => vec!["Write".into(), "Edit".into()],
        (None, _) => vec![ask.tool.clone()],
    }
}

fn choices(ask: &PermissionRequest) -> String {
    let rules = rules(ask);
    let always = if rules.is_empty() {
        String::new()
    } else {
        let texts: Vec<&str> = rules.iter().map(Rule::as_str).collect();
        format!(", a(lways in this run: {})", plain(&texts.join(", ")))
    };
    format!("allow? y(es), N(o){always}, d(etails): ")
}

/// Returns the lines of a question.
fn question(ask: &PermissionRequest) -> Vec<String> {
    let mut lines = vec![format!("the agent wants to use {}", named(ask))];
    if let Some(command) = &ask.command {
        lines.extend(command.lines().map(|line| format!("    {}", plain(line))));
    } else if ask.diffs.is_empty() {
        lines.extend(ask.paths.iter().map(|path| format!("    {}", plain(path))));
    }
    for diff in &ask.diffs {
        lines.extend(changed(diff, MAX_PREVIEW_LINES));
    }
    lines
}

/// Returns all details of a request.
fn details(ask: &PermissionRequest) -> Vec<String> {
    let mut lines = Vec::new();
    let mut put = |label: &str, text: &str| {
        if !text.is_empty() {
            lines.push(format!("  {label:<9} {}", plain(text)));
        }
    };
    put("tool", &ask.tool);
    put("native", &ask.native_tool);
    put("server", ask.server.as_deref().unwrap_or_default());
    put("title", &ask.title);
    put("command", ask.command.as_deref().unwrap_or_default());
    ask.paths.iter().for_each(|path| put("file", path));
    put("arguments", ask.input.as_deref().map_or("", |input| input.get()));
    for diff in &ask.diffs {
        lines.extend(changed(diff, usize::MAX));
    }
    lines
}

fn named(ask: &PermissionRequest) -> String {
    let name = if ask.tool.is_empty() { "a tool" } else { &ask.tool };
    match &ask.server {
        Some(server) => format!("{} of MCP server {}", plain(name), plain(server)),
        None => plain(name),
    }
}

/// Returns the removed and added lines of a change, without the common lines at both ends.
fn changed(diff: &Diff, most: usize) -> Vec<String> {
    let old: Vec<&str> = diff.old.as_deref().unwrap_or_default().lines().collect();
    let new: Vec<&str> = diff.new.lines().collect();
    let same = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let (old, new) = (&old[same..], &new[same..]);
    let end = old.iter().rev().zip(new.iter().rev()).take_while(|(a, b)| a == b).count();
    let (old, new) = (&old[..old.len() - end], &new[..new.len() - end]);
    let kind = if diff.old.is_none() { "new file" } else { "change" };
    let mut lines = vec![format!("    {} ({kind}, line {})", plain(&diff.path), same + 1)];
    let all = old.iter().map(|line| ('-', line)).chain(new.iter().map(|line| ('+', line)));
    lines.extend(all.take(most).map(|(sign, line)| format!("    {sign} {}", plain(line))));
    let hidden = (old.len() + new.len()).saturating_sub(most);
    if hidden > 0 {
        lines.push(format!("    … {hidden} more lines"));
    }
    lines
}

/// Escapes characters that move the cursor, are invisible, or change the order of text.
fn plain(text: &str) -> String {
    let turns = |c: char| matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
    let mut out = String::new();
    for c in text.chars() {
        if (c.is_control() && c != '\t') || turns(c) {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::mpsc::UnboundedSender;

    #[derive(Default)]
    struct Paper(Vec<String>);

    impl PromptScreen for Paper {
        fn line(&mut self, line: &str) {
            self.0.push(line.to_owned());
        }

        fn prompt(&mut self, line: &str) {
            self.0.push(line.to_owned());
        }
    }

    struct Stage {
        permission_prompt: PermissionPrompt,
        keys: Option<UnboundedSender<String>>,
        put: UnboundedSender<Open>,
        paper: Paper,
    }

    impl Stage {
        fn new() -> Self {
            let (keys, lines) = unbounded_channel();
            let (put, questions) = unbounded_channel();
            let permission_prompt = PermissionPrompt { questions, lines, current: None, always: Vec::new() };
            Self { permission_prompt, keys: Some(keys), put, paper: Paper::default() }
        }

        fn ask(&mut self, ask: PermissionRequest) -> oneshot::Receiver<Permission> {
            let (reply, answer) = oneshot::channel();
            self.put.send(Open { ask, reply }).ok().unwrap();
            self.poll();
            answer
        }

        fn type_in(&mut self, line: &str) {
            self.keys.as_ref().unwrap().send(line.to_owned()).unwrap();
            self.poll();
        }

        fn poll(&mut self) {
            self.permission_prompt.poll(&mut Context::from_waker(std::task::Waker::noop()), &mut self.paper);
        }

        fn shown(&mut self) -> String {
            std::mem::take(&mut self.paper.0).join("\n")
        }
    }

    fn command(text: &str) -> PermissionRequest {
        let mut ask = PermissionRequest::default();
        (ask.tool, ask.kind, ask.command) = ("Bash".into(), ToolKind::Shell, Some(text.into()));
        ask
    }

    fn refused(word: &str) -> Permission {
        Permission::Deny(word.into())
    }

    #[test]
    fn answers_are_recognized_by_their_first_letter() {
        for (keys, permit) in [
            ("y", Permission::Allow),
            (" YES ", Permission::Allow),
            ("n", refused("refused")),
            ("", refused("refused")),
            ("a", Permission::Allow),
        ] {
            let mut stage = Stage::new();
            let mut answer = stage.ask(command("rm -rf build"));
            assert!(answer.try_recv().is_err());
            stage.type_in(keys);
            assert_eq!(answer.try_recv(), Ok(permit), "{keys}");
        }
    }

    #[test]
    fn prompt_shows_the_request_and_details_on_demand() {
        let mut stage = Stage::new();
        let mut answer = stage.ask(command("rm -rf build"));
        assert_eq!(
            stage.shown(),
            "the agent wants to use Bash\n    rm -rf build\n\
             allow? y(es), N(o), a(lways in this run: Bash(rm *)), d(etails): "
        );
        stage.type_in("what?");
        assert!(stage.shown().starts_with("allow?"));
        stage.type_in("d");
        assert!(stage.shown().contains("  command   rm -rf build"));
        assert!(answer.try_recv().is_err());
    }

    #[test]
    fn always_applies_to_the_run_and_states_its_scope() {
        let mut stage = Stage::new();
        let _first = stage.ask(command("git log"));
        stage.type_in("a");
        stage.shown();
        let mut second = stage.ask(command("git status"));
        assert_eq!((second.try_recv(), stage.shown().as_str()), (Ok(Permission::Allow), ""));
        let mut third = stage.ask(command("git status; rm x"));
        assert!(third.try_recv().is_err() && !stage.shown().contains("always"));
        // The choice is not offered here, so it is not an answer.
        stage.type_in("a");
        assert!(third.try_recv().is_err());
        stage.type_in("n");
        let mut tool = PermissionRequest::default();
        (tool.tool, tool.server, tool.kind) = ("get".into(), Some("docs".into()), ToolKind::Mcp);
        let _fourth = stage.ask(tool.clone());
        assert!(stage.shown().contains("mcp__docs__get"));
        stage.type_in("a");
        assert_eq!(stage.ask(tool).try_recv(), Ok(Permission::Allow));
    }

    #[test]
    fn prompt_shows_the_changed_lines_of_an_edit() {
        let mut ask = PermissionRequest::default();
        (ask.tool, ask.kind) = ("Edit".into(), ToolKind::Edit);
        let mut diff = Diff::default();
        diff.path = "src/a".into();
        diff.old = Some("one\ntwo\nthree\n".into());
        diff.new = "one\n2\nzwei\nthree\n".into();
        let long: String = (0..30).map(|i| format!("{i}\n")).collect();
        let mut new = Diff::default();
        (new.path, new.new) = ("b".into(), long);
        ask.diffs = vec![diff, new];
        let mut stage = Stage::new();
        let _answer = stage.ask(ask);
        let shown = stage.shown();
        assert!(shown.contains("    src/a (change, line 2)\n    - two\n    + 2\n    + zwei\n    b (new file, line 1)\n    + 0\n"), "{shown}");
        assert!(shown.contains("    + 19\n    … 10 more lines\n"), "{shown}");
        stage.type_in("d");
        assert!(stage.shown().contains("    + 29"));
    }

    #[test]
    fn agent_text_cannot_overwrite_the_prompt() {
        let mut stage = Stage::new();
        let _answer = stage.ask(command("rm x\u{1b}[1A\u{1b}[2Kls\r \u{202e}txt.exe"));
        let shown = stage.shown();
        assert!(shown.contains("rm x\\u{1b}[1A\\u{1b}[2Kls\\u{d} \\u{202e}txt.exe"), "{shown}");
    }

    #[test]
    fn early_input_closed_input_and_a_dropped_request_permit_nothing() {
        let mut stage = Stage::new();
        stage.type_in("y");
        let mut answer = stage.ask(command("ls"));
        assert!(answer.try_recv().is_err(), "typed before the question");
        drop(stage.keys.take());
        stage.poll();
        assert_eq!(answer.try_recv(), Ok(refused("nobody_answered")));

        let mut stage = Stage::new();
        drop(stage.ask(command("ls")));
        stage.poll();
        assert!(stage.shown().ends_with("the request was withdrawn"));
        assert!(stage.permission_prompt.current.is_none());
    }
}
