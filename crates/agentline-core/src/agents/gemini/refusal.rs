//! Detects which failed tool calls were denials, and their reasons.

use super::tools;

/// The prefix of the message in a policy rule, which lets a denial name the caller's own rule.
pub(super) const RULE_MARK: &str = "agentline rule: ";

/// Returns the reason for a denial by the error type of a `tool_result` event.
pub(super) fn of_type(kind: &str, tool: &str, message: &str) -> Option<String> {
    match kind {
        "tool_not_registered" => tools::TOOLS.is_own(tool).then(|| "not_offered".to_owned()),
        "policy_violation" => Some(by_policy(message)),
        _ if is_outside_plans(message) => Some("policy".to_owned()),
        "unhandled_exception" => needs_confirmation(message).then(|| "confirmation_required".to_owned()),
        "invalid_tool_params" => is_outside(message).then(|| "outside_workspace".to_owned()),
        _ => None,
    }
}

/// Returns the reason for a denial by the message alone, which is all that the session file has.
pub(super) fn of_message(tool: &str, message: &str) -> Option<String> {
    if is_outside(message) {
        return Some("outside_workspace".to_owned());
    }
    if needs_confirmation(message) {
        return Some("confirmation_required".to_owned());
    }
    if is_outside_plans(message) {
        return Some("policy".to_owned());
    }
    if message.contains("denied by policy") {
        return Some(by_policy(message));
    }
    (message.starts_with("Tool \"") && message.contains("\" not found") && tools::TOOLS.is_own(tool))
        .then(|| "not_offered".to_owned())
}

/// Returns the reason for a denial that is reported as a success: a command with `$(…)`, backticks or `<(…)`.
///
/// The stream contains the displayed text, the session file the text for the model.
pub(super) fn of_success(tool: &str, output: &str) -> Option<String> {
    let output = output.trim();
    let is_blocked = output == "Blocked: command substitution detected in shell command."
        || output.starts_with("Command injection detected: command substitution syntax");
    (tool == "run_shell_command" && is_blocked).then(|| "command_substitution".to_owned())
}

fn is_outside(message: &str) -> bool {
    // Versions before 0.25 have the second form, for files and for directories.
    message.starts_with("Path not in workspace")
        || message.contains("ath must be within one of the workspace directories: ")
}

/// Returns whether a write was refused because the mode `plan` allows only the agent's own directory for plans.
fn is_outside_plans(message: &str) -> bool {
    message.starts_with("Access denied: plan path")
}

/// Returns whether an allowed command does more than is allowed, such as redirecting its output to a file.
fn needs_confirmation(message: &str) -> bool {
    message.contains("requires user confirmation, which is not supported")
        || message.ends_with("is not in the list of allowed tools for non-interactive mode.")
}

/// Returns the reason, with the rule if the message names it: `policy: Bash(rm *)`.
fn by_policy(message: &str) -> String {
    match message.split_once(RULE_MARK) {
        Some((_, rule)) => format!("policy: {}", rule.trim()),
        None => "policy".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_built_in_tools_can_be_withheld() {
        assert_eq!(of_type("tool_not_registered", "write_file", "").as_deref(), Some("not_offered"));
        assert_eq!(of_type("tool_not_registered", "made_up", ""), None);
        assert_eq!(
            of_message("write_file", "Tool \"write_file\" not found. Did you mean …").as_deref(),
            Some("not_offered")
        );
    }

    #[test]
    fn tool_requiring_confirmation_counts_as_refused() {
        let message = "Tool execution for \"Shell\" requires user confirmation, which is not supported in non-interactive mode.";
        let reason = Some("confirmation_required".to_owned());
        assert_eq!(of_type("unhandled_exception", "run_shell_command", message), reason);
        assert_eq!(of_message("run_shell_command", message), reason);
        assert_eq!(of_type("unhandled_exception", "run_shell_command", "it broke"), None);
    }

    #[test]
    fn blocked_command_is_not_a_success() {
        let reason = Some("command_substitution".to_owned());
        let shell = |output| of_success("run_shell_command", output);
        assert_eq!(shell("Blocked: command substitution detected in shell command."), reason);
        assert_eq!(
            shell("Command injection detected: command substitution syntax ($(), backticks, …) found in …"),
            reason
        );
        assert_eq!(shell("Output: Blocked: command substitution detected in shell command."), None);
        assert_eq!(of_success("read_file", "Blocked: command substitution detected in shell command."), None);
    }

    #[test]
    fn denial_reports_the_rule_named_in_the_message() {
        let message = "Tool execution denied by policy. agentline rule: Bash(rm *)";
        assert_eq!(
            of_type("policy_violation", "run_shell_command", message).as_deref(),
            Some("policy: Bash(rm *)")
        );
        assert_eq!(
            of_type("invalid_tool_params", "write_file", "Path not in workspace: …").as_deref(),
            Some("outside_workspace")
        );
        let old = "File path must be within one of the workspace directories: /w";
        assert_eq!(of_type("invalid_tool_params", "write_file", old).as_deref(), Some("outside_workspace"));
        assert_eq!(of_message("write_file", old).as_deref(), Some("outside_workspace"));
        assert_eq!(of_type("invalid_tool_params", "write_file", "params must have …"), None);
        let plan = "Access denied: plan path (/w/a.txt) must be within the designated plans directory (/p).";
        assert_eq!(of_type("invalid_tool_params", "write_file", plan).as_deref(), Some("policy"));
        assert_eq!(of_message("write_file", plan).as_deref(), Some("policy"));
    }
}
