//! The words with which a prompt can script its turn.

/// One word of a script.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ScriptWord {
    /// The word itself.
    pub name: &'static str,
    /// Its syntax. A word without arguments must be alone on its line.
    pub usage: &'static str,
    /// A one-line description.
    pub description: &'static str,
}

const fn word(name: &'static str, usage: &'static str, description: &'static str) -> ScriptWord {
    ScriptWord { name, usage, description }
}

/// Every word. In a text, `\n` means a new line. A relative path starts from the session's directory.
#[rustfmt::skip]
pub const WORDS: &[ScriptWord] = &[
    word("say", "say TEXT", "a piece of the answer"),
    word("think", "think TEXT", "a thought"),
    word("chunks", "chunks N TEXT", "N pieces of the answer; `{n}` in the text is the number"),
    word("big", "big BYTES", "one piece of the answer with this many bytes"),
    word("image", "image", "a small image as a piece of the answer"),
    word("audio", "audio", "a small audio clip as a piece of the answer"),
    word("tool", "tool NAME ARGS", "a tool without a permission request: write_file PATH TEXT, read_file PATH, delete_file PATH, run CMD"),
    word("ask", "ask NAME ARGS", "the same, after `session/request_permission`"),
    word("run", "run CMD", "a shell command in its own session; short for `tool run CMD`"),
    word("call", "call SERVER TOOL JSON", "a tool of an MCP server of this session; prints the result"),
    word("ask_call", "ask_call SERVER TOOL JSON", "the same, after `session/request_permission`"),
    word("list_tools", "list_tools", "prints the tools that the session's MCP servers list"),
    word("fs_read", "fs_read PATH [LINE LIMIT]", "asks the client to read a file; prints the response"),
    word("fs_write", "fs_write PATH TEXT", "asks the client to write a file; prints the response"),
    word("terminal", "terminal", "asks the client for a terminal; prints the response"),
    word("request", "request METHOD JSON", "sends any request to the client; prints the response"),
    word("plan", "plan", "a plan of three entries"),
    word("commands", "commands", "the list of slash commands"),
    word("mode", "mode ID", "the agent changes its mode by itself"),
    word("config", "config", "the options of the session"),
    word("info", "info", "a title for the session"),
    word("unknown", "unknown", "an update of an unknown kind"),
    word("usage", "usage IN [OUT CACHED THOUGHT]", "token counts in the response to the prompt"),
    word("used", "used N [SIZE COST]", "a `usage_update`"),
    word("quota", "quota IN [OUT]", "token counts in `_meta.quota` of the response, as in Gemini CLI"),
    word("stderr", "stderr TEXT", "a line on standard error"),
    word("stderr_flood", "stderr_flood BYTES", "this many bytes on standard error"),
    word("half_line", "half_line", "half of a message, without a line end"),
    word("sleep", "sleep MS", "waits, unless cancelled"),
    word("repeat", "repeat N WORD", "executes another word N times, with `{n}` for the number"),
    word("after", "after MS WORD", "executes another word this long after the response to the prompt; plain text is printed"),
    word("trickle", "trickle EVERY_MS FOR_MS TEXT", "prints a text repeatedly after the response to the prompt"),
    word("update", "update JSON", "an update of this session, unchanged"),
    word("raw", "raw LINE", "a raw line, in which `{session}` and `{id}` are replaced by those of the prompt"),
    word("env", "env NAME", "prints a variable of its environment"),
    word("hold", "hold PATH", "opens a file and never closes it"),
    word("cwd", "cwd", "prints the directory of the session"),
    word("echo_servers", "echo_servers", "prints the `mcpServers` of the session"),
    word("echo_client", "echo_client", "prints the parameters of `initialize`"),
    word("echo_prompt", "echo_prompt", "prints the blocks of the prompt, with the length of their content"),
    word("state", "state", "prints session, mode, model, number of prompts and process as JSON"),
    word("history", "history", "prints the prompts of this session so far as a JSON list"),
    word("stop", "stop REASON", "ends the turn with this stop reason"),
    word("refused", "refused N FILE MESSAGE", "ends the turn with error 429 the first N times, counted in a file"),
    word("error", "error CODE MESSAGE", "ends the turn with an error"),
    word("result", "result JSON", "ends the turn with this result"),
    word("failure", "failure JSON", "ends the turn with this error, unchanged"),
    word("die", "die CODE", "the process exits"),
    word("killed", "killed", "the process is killed by SIGKILL"),
    word("close_stdout", "close_stdout", "closes its output and keeps running"),
    word("hang", "hang", "nothing more, until cancelled"),
];

/// Parses a line of a script, or returns `None`.
pub(super) fn parse(line: &str) -> Option<(&'static str, &str)> {
    let line = line.trim();
    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let word = WORDS.iter().find(|word| word.name == name)?;
    let takes_arguments = word.usage.contains(' ');
    (rest.is_empty() != takes_arguments).then_some((word.name, rest.trim_start()))
}

/// Returns whether a prompt contains at least one line of a script.
pub(super) fn is_script(prompt: &str) -> bool {
    prompt.lines().any(|line| parse(line).is_some())
}

/// Returns a text as the argument of a word.
pub(super) fn on_one_line(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n")
}

/// Returns the text of an argument.
pub(super) fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some('n') => out.push('\n'),
                Some('t') => out.push('\t'),
                Some(other) => out.push(other),
                None => out.push('\\'),
            },
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{is_script, on_one_line, parse, unescape};

    #[test]
    fn script_lines_are_parsed() {
        assert_eq!(parse("say  hello there"), Some(("say", "hello there")));
        assert_eq!(parse("plan"), Some(("plan", "")));
        // Words in ordinary prompts are not a script.
        assert_eq!(parse("plan the work"), None);
        assert_eq!(parse("say"), None);
        assert_eq!(parse("Say hello"), None);
        assert!(!is_script("What is 2+2?\nThink hard."));
        assert!(is_script("Some rules first.\nsay hi"));
    }

    #[test]
    fn text_round_trips_on_one_line() {
        let text = "a\nb\\n\\";
        assert_eq!(unescape(&on_one_line(text)), text);
        assert_eq!(unescape("hi\\n"), "hi\n");
    }
}
