//! The rules of a request as OpenCode's permissions, which say what it may do without asking.

use crate::{
    NativeDecision, PermissionMode, Problem, Rule, RunRequest, ToolUseContext, agents::adapter,
    policy::Exceptions,
};
use serde_json::{Map, Value, json};

/// Tools that OpenCode uses without asking: they change nothing and run nothing.
const FREE: &[&str] = &["read", "glob", "grep", "list", "todowrite", "todoread", "skill", "lsp"];

/// The OpenCode permission of each tool name in rules.
const PERMISSIONS: &[(&[&str], &str)] = &[
    (&["Write", "Edit", "MultiEdit", "write", "edit", "patch"], "edit"),
    (&["Bash", "Shell", "bash"], "bash"),
    (&["Read", "read"], "read"),
    (&["Glob", "glob"], "glob"),
    (&["Grep", "grep"], "grep"),
    (&["LS", "list"], "list"),
    (&["WebFetch", "webfetch"], "webfetch"),
    (&["WebSearch", "websearch"], "websearch"),
    (&["Task", "Agent", "task"], "task"),
];

/// Returns the permission that applies to a tool of a rule.
fn permission_of(tool: &str) -> Option<&'static str> {
    PERMISSIONS.iter().find(|(tools, _)| tools.contains(&tool)).map(|(_, name)| *name)
}

/// Returns OpenCode's permissions for a request, which say what it may do without asking.
pub(super) fn permissions(request: &RunRequest) -> Result<Value, Vec<Problem>> {
    let mut all = Map::new();
    if request.permission_mode == PermissionMode::Bypass && request.deny.is_empty() && request.ask.is_empty()
    {
        return Ok(json!({"*": "allow"}));
    }
    all.insert("*".into(), "ask".into());
    all.extend(FREE.iter().map(|name| ((*name).to_owned(), "allow".into())));
    let mut problems = Vec::new();
    let exceptions = Exceptions::of(request);
    for (key, rules) in [("ask", &request.ask), ("deny", &request.deny)] {
        for rule in rules {
            let Some(name) = permission_of(rule.tool()) else { continue };
            match rule.pattern() {
                // OpenCode asks about the tool instead, and the host applies both rules.
                None if !FREE.contains(&name) && exceptions.outrank(rule) => {}
                None => _ = all.insert(name.to_owned(), key.into()),
                // Patterns are applied by the host when OpenCode asks. For other tools, it reports too little to apply
                // them.
                Some(_) if FREE.contains(&name) => problems.push(
                    Problem::new(
                        key,
                        format!(
                            "`{rule}` cannot be enforced: OpenCode does not report a file before it reads it"
                        ),
                    )
                    .hint(format!("write `{}` without a pattern", rule.tool())),
                ),
                Some(_) => {}
            }
        }
    }
    if problems.is_empty() { Ok(all.into()) } else { Err(problems) }
}

/// Shell builtins that start no program and that OpenCode runs without asking.
const UNASKED_BUILTINS: &[&str] = &[
    "cd", "chdir", "declare", "export", "local", "popd", "pushd", "readonly", "typeset", "unset", "[", "[[",
];

/// Returns why a `deny` or `ask` rule cannot be enforced, and what to write instead.
pub(super) fn unenforced(rule: &Rule) -> Option<(String, String)> {
    let Some(permission) = permission_of(rule.tool()) else {
        let reason = "OpenCode has no such tool, or uses it without asking";
        let names: Vec<&str> = PERMISSIONS.iter().map(|(tools, _)| tools[0]).collect();
        return (!rule.tool().starts_with("mcp__"))
            .then(|| (reason.into(), format!("use one of: {}", names.join(", "))));
    };
    let program = rule.pattern().filter(|_| permission == "bash")?.split([' ', ':']).next()?;
    (program.contains(['*', '?']) || UNASKED_BUILTINS.contains(&program)).then(|| {
        let reason = "OpenCode does not ask about commands that start no program: redirections, assignments, `cd`, `export`";
        (reason.into(), "name a program, or write `Bash` without a pattern".into())
    })
}

/// Returns a problem for each rule of a prompt that cannot be enforced in a session that was opened without it.
pub(super) fn unenforced_in_session(opened: &RunRequest, prompt: &RunRequest) -> Vec<Problem> {
    let configured = permissions(opened).unwrap_or_default();
    adapter::unenforced_in_session(opened, prompt, |rule| {
        let name = permission_of(rule.tool()).unwrap_or("*");
        configured.get(name).or_else(|| configured.get("*")) != Some(&json!("allow"))
    })
}

/// Returns how OpenCode itself decides on a tool use, before it asks for permission.
pub(super) fn native_decision(request: &RunRequest, prospect: &ToolUseContext<'_>) -> NativeDecision {
    let configured = permissions(request).unwrap_or_default();
    let tool = prospect.ask.tool.as_str();
    let name = permission_of(tool).unwrap_or("*");
    match configured.get(name).or_else(|| configured.get("*")).and_then(Value::as_str) {
        // It asks about paths outside the workspace, unless everything is allowed.
        _ if !prospect.inside && configured.get("*") != Some(&json!("allow")) => NativeDecision::Asks,
        Some("allow") => NativeDecision::Runs("is configured to use the tool without asking"),
        Some("deny") => NativeDecision::Refuses("is configured to deny the tool"),
        _ => NativeDecision::Asks,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn non_harmless_tools_ask_and_rules_are_passed_on() {
        let all =
            permissions(&RunRequest::new("x").deny("WebFetch").ask("Read").deny("Write(src/**)")).unwrap();
        assert_eq!(
            (&all["*"], &all["glob"], &all["read"], &all["webfetch"]),
            (&json!("ask"), &json!("allow"), &json!("ask"), &json!("deny"))
        );
        assert_eq!(all.get("edit"), None, "the agent asks about each edit, and agentline decides");
        let bypass = RunRequest::new("x").permission_mode(PermissionMode::Bypass);
        assert_eq!(permissions(&bypass).unwrap(), json!({"*": "allow"}));
        assert_eq!(permissions(&bypass.deny("Bash(rm *)")).unwrap()["*"], "ask");
        let specific = permissions(&RunRequest::new("x").deny("Bash").allow("Bash(git *)")).unwrap();
        assert_eq!(specific.get("bash"), None, "agentline decides for each command");
        let refused = permissions(&RunRequest::new("x").deny("Read(secret/**)")).unwrap_err();
        assert_eq!(refused[0].key, "deny");
    }
}
