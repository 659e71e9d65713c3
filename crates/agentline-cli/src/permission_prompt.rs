//! Asks the user at the terminal whether a tool may run. One key answers.
//!
//! Characters in the agent's text that could hide or overwrite the question are escaped.

use crate::{
    keyboard::{self, TypingMode},
    ui::{Paint, Ui},
};
use agentline::{
    Permission, PermissionHandler, PermissionMode, PermissionRequest, Policy, Rule, RunRequest, ToolKind,
};
use agentline_core::{Diff, terminal_text::painted};
use agentline_fs::disk_fs::canonicalize;
use agentline_sessions::render::{TextRenderer, TextStyle};
use std::{
    io::{self, IsTerminal},
    path::Path,
    task::{Context, Poll},
};
use tokio::sync::{
    mpsc::{UnboundedReceiver, unbounded_channel},
    oneshot,
};

/// The output on which questions are shown.
pub(crate) trait PromptScreen {
    /// Shows a complete line.
    fn line(&mut self, line: &str);
    /// Shows a line after which the answer is typed.
    fn prompt(&mut self, line: &str);
    /// Returns whether colors are shown.
    fn is_coloured(&self) -> bool;
}

impl PromptScreen for Ui {
    fn line(&mut self, line: &str) {
        Self::line(self, line);
    }

    fn prompt(&mut self, line: &str) {
        Self::prompt(self, line);
    }

    fn is_coloured(&self) -> bool {
        self.has_coloured_status()
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
    typed: UnboundedReceiver<char>,
    current: Option<Open>,
    /// The reason for a denial, while it is typed.
    reason: Option<String>,
    /// The rules that the user allowed for the whole run.
    always: Vec<Rule>,
    /// The workspace, to which paths are relative.
    workspace: Option<String>,
}

/// Returns a handler that asks on this terminal, or `None` if the run cannot ask or there is no terminal.
pub(crate) fn at_terminal(request: &RunRequest) -> Option<(PermissionHandler, PermissionPrompt)> {
    let may_ask = request.permission_mode == PermissionMode::Prompt || !request.ask.is_empty();
    if !may_ask || !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return None;
    }
    let cwd = request.working_dir.clone().or_else(|| std::env::current_dir().ok());
    let cwd = cwd.and_then(|cwd| canonicalize(&cwd).ok()).map(|cwd| cwd.to_string_lossy().into_owned());
    Some(PermissionPrompt::new(keyboard::start()?, cwd))
}

impl Drop for PermissionPrompt {
    fn drop(&mut self) {
        keyboard::set_mode(TypingMode::Lines);
    }
}

impl PermissionPrompt {
    fn new(typed: UnboundedReceiver<char>, workspace: Option<String>) -> (PermissionHandler, Self) {
        let (put, questions) = unbounded_channel();
        let handler = PermissionHandler::new(move |ask| {
            let (reply, answer) = oneshot::channel();
            // If the receiver is gone, the reply channel is closed, which denies the request.
            let _ = put.send(Open { ask, reply });
            async move { answer.await.unwrap_or_else(|_| Permission::Deny("nobody_answered".into())) }
        });
        let prompt = Self { questions, typed, current: None, reason: None, always: Vec::new(), workspace };
        (handler.at_terminal(), prompt)
    }

    /// Shows questions and reads answers. It never completes; the caller stops polling when the run is over.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, screen: &mut impl PromptScreen) {
        loop {
            if self.current.as_mut().is_some_and(|open| open.reply.poll_closed(cx).is_ready()) {
                screen.line("\nthe request was withdrawn");
                self.end();
            }
            if self.current.is_none() {
                let Poll::Ready(Some(open)) = self.questions.poll_recv(cx) else { return };
                self.begin(open, screen);
                continue;
            }
            match self.typed.poll_recv(cx) {
                Poll::Pending => return,
                Poll::Ready(None) => self.reply(Permission::Deny("nobody_answered".into())),
                Poll::Ready(Some(character)) if self.reason.is_some() => self.reason_typed(character),
                Poll::Ready(Some(key)) => self.key(key, screen),
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
        keyboard::set_mode(TypingMode::Keys);
        while self.typed.try_recv().is_ok() {}
        let texts = self.texts(screen);
        texts.question(&open.ask).iter().for_each(|line| screen.line(line));
        screen.prompt(&texts.choices(&open.ask));
        self.current = Some(open);
    }

    fn key(&mut self, key: char, screen: &mut impl PromptScreen) {
        let Some(open) = &self.current else { return };
        let texts = self.texts(screen);
        let rules = rules(&open.ask);
        match key.to_ascii_lowercase() {
            'y' => self.answer("yes", Permission::Allow, screen),
            // Enter, Escape and Ctrl-D deny as well.
            'n' | '\n' | '\r' | '\u{1b}' | '\u{4}' => {
                self.answer("no", Permission::Deny("refused".into()), screen);
            }
            'a' if !rules.is_empty() => {
                self.always.extend(rules);
                self.answer("always", Permission::Allow, screen);
            }
            'b' => {
                keyboard::set_mode(TypingMode::Lines);
                self.reason = Some(String::new());
                screen.prompt("no, because ");
            }
            'd' => {
                screen.line("details");
                texts.details(&open.ask).iter().for_each(|line| screen.line(line));
                screen.prompt(&texts.choices(&open.ask));
            }
            _ if key.is_whitespace() => {}
            _ => {
                screen.line("");
                screen.prompt(&texts.choices(&open.ask));
            }
        }
    }

    /// Takes a character of the reason, which ends with the line.
    fn reason_typed(&mut self, character: char) {
        match character {
            '\n' | '\r' => {
                let reason = self.reason.take().unwrap_or_default();
                self.reply(match reason.trim() {
                    "" => Permission::Deny("refused".into()),
                    reason => Permission::DenyWithFeedback(reason.to_owned()),
                });
            }
            _ => self.reason.get_or_insert_default().push(character),
        }
    }

    /// Shows the answer of a key, which the terminal does not show itself.
    fn answer(&mut self, word: &str, permit: Permission, screen: &mut impl PromptScreen) {
        if keyboard::hides_keys() {
            screen.line(word);
        }
        self.reply(permit);
    }

    fn reply(&mut self, permit: Permission) {
        if let Some(open) = self.current.take() {
            let _ = open.reply.send(permit);
        }
        self.end();
    }

    /// Ends the question.
    fn end(&mut self) {
        (self.current, self.reason) = (None, None);
        keyboard::set_mode(TypingMode::Lines);
    }

    /// Returns whether an earlier `always` covers this request.
    fn is_always(&self, ask: &PermissionRequest) -> bool {
        let mut request = RunRequest::new("").permission_mode(PermissionMode::Deny);
        request.allow.clone_from(&self.always);
        // Path limits were checked before the user was asked.
        let policy = Policy::new(&request, Path::new("/"));
        policy.is_ok_and(|policy| policy.decide(ask, &|path| policy.resolve(path)).ruling().allow)
    }

    fn texts(&self, screen: &impl PromptScreen) -> Texts<'_> {
        Texts { is_coloured: screen.is_coloured(), workspace: self.workspace.as_deref() }
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

/// Writes the texts of a question.
struct Texts<'a> {
    is_coloured: bool,
    workspace: Option<&'a str>,
}

impl Texts<'_> {
    fn paint(&self, paint: Paint, text: &str) -> String {
        painted(self.is_coloured, paint, text)
    }

    /// Returns the keys that answer.
    fn choices(&self, ask: &PermissionRequest) -> String {
        let key = |key: &str, word: &str| format!("{} {word}", self.paint(Paint::Bold, key));
        let mut keys = vec![key("y", "yes"), key("n", "no"), key("b", "no, because …")];
        let rules = rules(ask);
        if !rules.is_empty() {
            let texts: Vec<&str> = rules.iter().map(Rule::as_str).collect();
            keys.push(key("a", &format!("always in this run: {}", plain(&texts.join(", ")))));
        }
        keys.push(key("d", "details"));
        format!("{} {}: ", self.paint(Paint::Yellow, "allow?"), keys.join(" · "))
    }

    /// Returns the lines of a question.
    fn question(&self, ask: &PermissionRequest) -> Vec<String> {
        let wants = format!("the agent wants to use {}", self.paint(Paint::Bold, &tool_name(ask)));
        let mut lines = vec![format!("{} {wants}", self.paint(Paint::Yellow, "?"))];
        if let Some(command) = &ask.command {
            lines.extend(command.lines().map(|line| format!("  {}", self.paint(Paint::Bold, &plain(line)))));
        } else if ask.diffs.is_empty() {
            lines.extend(ask.paths.iter().map(|path| format!("  {}", plain(path))));
        }
        lines.extend(self.changes(ask, TextStyle::brief()));
        lines
    }

    /// Returns all details of a request.
    fn details(&self, ask: &PermissionRequest) -> Vec<String> {
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
        lines.extend(self.changes(ask, TextStyle::complete()));
        lines
    }

    /// Returns the lines of the requested changes.
    fn changes(&self, ask: &PermissionRequest, style: TextStyle) -> Vec<String> {
        let style = style.coloured(self.is_coloured);
        let style = self.workspace.iter().fold(style, |style, workspace| style.workspace(*workspace));
        let renderer = TextRenderer::new(style);
        let mut shown = Vec::new();
        for diff in &ask.diffs {
            let diff = escaped(diff);
            // Writing to memory cannot fail.
            let _ = renderer.requested_change(&mut shown, &diff);
        }
        String::from_utf8_lossy(&shown).lines().map(str::to_owned).collect()
    }
}

/// Returns a change whose control characters are escaped.
fn escaped(diff: &Diff) -> Diff {
    let mut shown = Diff::default();
    let lines = |text: &str| text.split('\n').map(plain).collect::<Vec<_>>().join("\n");
    (shown.path, shown.old, shown.new) =
        (plain(&diff.path), diff.old.as_deref().map(lines), lines(&diff.new));
    shown
}

fn tool_name(ask: &PermissionRequest) -> String {
    let name = if ask.tool.is_empty() { "a tool" } else { &ask.tool };
    match &ask.server {
        Some(server) => format!("{} of MCP server {}", plain(name), plain(server)),
        None => plain(name),
    }
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

        fn is_coloured(&self) -> bool {
            false
        }
    }

    struct Stage {
        permission_prompt: PermissionPrompt,
        keys: Option<UnboundedSender<char>>,
        put: UnboundedSender<Open>,
        paper: Paper,
    }

    impl Stage {
        fn new() -> Self {
            let (keys, typed) = unbounded_channel();
            let (put, questions) = unbounded_channel();
            let (always, workspace) = (Vec::new(), Some("/ws".to_owned()));
            let permission_prompt =
                PermissionPrompt { questions, typed, current: None, reason: None, always, workspace };
            Self { permission_prompt, keys: Some(keys), put, paper: Paper::default() }
        }

        fn ask(&mut self, ask: PermissionRequest) -> oneshot::Receiver<Permission> {
            let (reply, answer) = oneshot::channel();
            self.put.send(Open { ask, reply }).ok().unwrap();
            self.poll();
            answer
        }

        fn type_in(&mut self, text: &str) {
            text.chars().for_each(|key| self.keys.as_ref().unwrap().send(key).unwrap());
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
    fn one_key_answers() {
        for (keys, permit) in [
            ("y", Permission::Allow),
            ("Y", Permission::Allow),
            ("n", refused("refused")),
            ("\n", refused("refused")),
            ("\u{1b}", refused("refused")),
            ("a", Permission::Allow),
            ("b\n", refused("refused")),
            ("b use git\n", Permission::DenyWithFeedback("use git".into())),
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
            "? the agent wants to use Bash\n  rm -rf build\n\
             allow? y yes · n no · b no, because … · a always in this run: Bash(rm *) · d details: "
        );
        stage.type_in("w");
        assert!(stage.shown().starts_with("\nallow?"));
        stage.type_in("d");
        assert!(stage.shown().contains("  command   rm -rf build"));
        assert!(answer.try_recv().is_err());
    }

    #[test]
    fn colors_mark_the_question_and_its_keys() {
        let texts = Texts { is_coloured: true, workspace: None };
        let shown = [texts.question(&command("ls")), vec![texts.choices(&command("ls"))]].concat().join("\n");
        assert!(
            shown.contains("\u{1b}[33m?\u{1b}[0m") && shown.contains("\u{1b}[1my\u{1b}[0m yes"),
            "{shown}"
        );
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
    fn prompt_shows_the_diff_of_an_edit() {
        let mut ask = PermissionRequest::default();
        (ask.tool, ask.kind) = ("Edit".into(), ToolKind::Edit);
        let mut diff = Diff::default();
        diff.path = "/ws/src/a".into();
        diff.old = Some("one\ntwo\nthree\n".into());
        diff.new = "one\n2\u{1b}\nzwei\nthree\n".into();
        let long: String = (0..30).map(|i| format!("{i}\n")).collect();
        let mut new = Diff::default();
        (new.path, new.new) = ("b".into(), long);
        ask.diffs = vec![diff, new];
        let mut stage = Stage::new();
        let _answer = stage.ask(ask);
        let shown = stage.shown();
        let edit = "  src/a (+2 -1)\n  1  one\n  2 -two\n  2 +2\\u{1b}\n  3 +zwei\n  4  three\n";
        assert!(shown.contains(edit), "{shown}");
        assert!(shown.contains("  b (new file, +30 -0)\n   1 +0\n"), "{shown}");
        assert!(shown.contains("  24 +23\n  … 6 more lines\n"), "{shown}");
        stage.type_in("d");
        assert!(stage.shown().contains("  30 +29"));
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
