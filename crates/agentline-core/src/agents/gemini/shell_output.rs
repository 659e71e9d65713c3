//! The output of a shell command without what Gemini CLI adds to it for the model.
//!
//! 0.61.0 sends `<untrusted_context>`, `Output: …`, then `Error`, `Exit Code`, `Signal`, `Background PIDs` and `Process
//! Group PGID` if they apply. Versions before 0.36 begin with `Command` and `Directory` and send every field.

/// The native name of the shell tool.
const SHELL: &str = "run_shell_command";

/// The fields after the output, last first, with the values that say nothing.
const FIELDS: &[(&str, &[&str])] = &[
    ("Process Group PGID: ", &[]),
    ("Background PIDs: ", &["(none)"]),
    ("Signal: ", &["(none)", "0"]),
    ("Exit Code: ", &["(none)", "0"]),
    ("Error: ", &["(none)"]),
];

/// The output of a command as a person would see it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ShellOutput {
    /// The output, followed by the fields that say more than that the command succeeded.
    pub(super) text: String,
    /// Whether the record says that the command failed: an exit code, a signal or an error.
    pub(super) failed: bool,
}

/// Reads the output of a tool. Returns `None` if it is not the output of a shell command in the known form.
///
/// `displayed` is the text that the CLI showed to the user: a last line that is in it was printed by the command.
pub(super) fn read(tool: &str, output: &str, displayed: Option<&str>) -> Option<ShellOutput> {
    if tool != SHELL {
        return None;
    }
    let inner = output.trim().strip_prefix("<untrusted_context>");
    let text =
        inner.and_then(|inner| inner.trim_end().strip_suffix("</untrusted_context>")).unwrap_or(output);
    let text = text.trim_matches('\n');
    let Some(mut rest) = after_output(text) else {
        return inner.map(|_| ShellOutput { text: text.to_owned(), failed: false });
    };
    let (mut kept, mut failed) = (Vec::new(), false);
    for (field, silent) in FIELDS {
        // The first line is output.
        let Some((before, last)) = rest.rsplit_once('\n') else { break };
        let Some(value) = last.strip_prefix(field) else { continue };
        if displayed.is_some_and(|shown| shown.trim_end().ends_with(last.trim_end())) {
            break;
        }
        rest = before;
        let value = value.trim();
        if !field.starts_with("Process") && !silent.contains(&value) {
            failed |= !field.starts_with("Background");
            kept.push(last.trim());
        }
    }
    let mut lines: Vec<&str> =
        Some(rest).filter(|rest| *rest != "(empty)" && !rest.is_empty()).into_iter().collect();
    kept.reverse();
    lines.append(&mut kept);
    Some(ShellOutput { text: lines.join("\n"), failed })
}

/// Returns the text after `Output: `, which follows the command and its directory in old versions.
fn after_output(text: &str) -> Option<&str> {
    if let Some(rest) = text.strip_prefix("Output: ") {
        return Some(rest);
    }
    let (_, rest) = text.strip_prefix("Command: ")?.split_once("\nDirectory: ")?;
    rest.split_once("\nOutput: ").map(|(_, rest)| rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(output: &str, displayed: Option<&str>) -> (String, bool) {
        let read = read(SHELL, output, displayed).expect("a shell output");
        (read.text, read.failed)
    }

    #[test]
    fn only_the_output_of_the_command_is_left() {
        let new = "<untrusted_context>\nOutput: out\nerr\nProcess Group PGID: 17848\n</untrusted_context>";
        assert_eq!(of(new, Some("out\nerr")), ("out\nerr".into(), false));
        let old = "Command: echo a\nDirectory: (root)\nOutput: a   \nb\nError: (none)\nExit Code: 0\nSignal: 0\n\
                   Background PIDs: (none)\nProcess Group PGID: 12872";
        assert_eq!(of(old, None), ("a   \nb".into(), false));
        let empty = "<untrusted_context>\nOutput: (empty)\nProcess Group PGID: 1\n</untrusted_context>";
        assert_eq!(of(empty, None), (String::new(), false));
        let cancelled = "<untrusted_context>\nCommand was cancelled by user.\n</untrusted_context>";
        assert_eq!(of(cancelled, None), ("Command was cancelled by user.".into(), false));
    }

    #[test]
    fn exit_codes_signals_and_errors_are_failures() {
        let new =
            "<untrusted_context>\nOutput: (empty)\nExit Code: 3\nProcess Group PGID: 1\n</untrusted_context>";
        assert_eq!(of(new, Some("Command exited with code: 3")), ("Exit Code: 3".into(), true));
        let old = "Command: exit 3\nDirectory: (root)\nOutput: no\nError: (none)\nExit Code: 3\nSignal: 0\n\
                   Background PIDs: (none)\nProcess Group PGID: 1";
        assert_eq!(of(old, None), ("no\nExit Code: 3".into(), true));
        let killed = "Output: up\nSignal: 9\nBackground PIDs: 4, 5\nProcess Group PGID: 1";
        assert_eq!(of(killed, None), ("up\nSignal: 9\nBackground PIDs: 4, 5".into(), true));
    }

    #[test]
    fn lines_that_the_command_printed_are_not_fields() {
        let output =
            "<untrusted_context>\nOutput: a\nExit Code: 3\nProcess Group PGID: 1\n</untrusted_context>";
        assert_eq!(of(output, Some("a\nExit Code: 3\n")), ("a\nExit Code: 3".into(), false));
        assert_eq!(of("Output: Exit Code: 3\nProcess Group PGID: 1", None), ("Exit Code: 3".into(), false));
    }

    #[test]
    fn other_tools_and_unknown_forms_are_unchanged() {
        assert_eq!(read("read_file", "Output: x", None), None);
        assert_eq!(read(SHELL, "plain text", None), None);
    }
}
