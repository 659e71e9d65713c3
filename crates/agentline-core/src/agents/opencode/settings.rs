//! The settings of a process, in the variable that overrides all of OpenCode's files.

use crate::{Plan, Problem, Surface, SystemMode, Trust};
use serde_json::{Map, Value, json};

/// The variable for settings that override all files.
pub(super) const CONTENT: &str = "OPENCODE_CONFIG_CONTENT";

/// The agents of OpenCode that work on prompts.
const PROMPTED: &[&str] = &["build", "plan"];

/// Returns the settings of a plan, merged into the caller's value of the same variable.
///
/// # Errors
/// Returns a problem if the caller's value is not a JSON object.
pub(super) fn content(plan: &Plan, content: Option<&str>) -> Result<String, Problem> {
    let wrong = || {
        Problem::new("env", format!("{CONTENT} is not a JSON object")).hint(format!("fix or unset {CONTENT}"))
    };
    let mut settings = match content.filter(|text| !text.trim().is_empty()) {
        Some(text) => serde_json::from_str::<Map<String, Value>>(text).map_err(|_| wrong())?,
        None => Map::new(),
    };
    let request = &plan.request;
    if request.trust != Trust::Full {
        // OpenCode starts formatters and language servers from the workspace's own `node_modules` or virtual
        // environment.
        settings.insert("formatter".into(), false.into());
        settings.insert("lsp".into(), false.into());
    }
    // The title of a session would cost a request that no run reports.
    set(&mut settings, &["agent", "title", "disable"], true.into());
    if plan.surface == Surface::Acp {
        // A denied tool would end the turn without an answer.
        set(&mut settings, &["experimental", "continue_loop_on_deny"], true.into());
        // The summary of a compaction would be part of the answer.
        set(&mut settings, &["compaction", "auto"], false.into());
    }
    if let Some(system) =
        request.system_prompt.as_ref().filter(|_| request.system_mode == SystemMode::Replace)
    {
        for agent in PROMPTED {
            set(&mut settings, &["agent", agent, "prompt"], json!(system));
        }
    }
    Ok(Value::from(settings).to_string())
}

/// Sets a value in nested objects. Anything else on the way is replaced.
fn set(settings: &mut Map<String, Value>, path: &[&str], value: Value) {
    match path {
        [] => {}
        [key] => _ = settings.insert((*key).to_owned(), value),
        [key, rest @ ..] => {
            let entry = settings.entry(*key).or_insert_with(|| json!({}));
            if !entry.is_object() {
                *entry = json!({});
            }
            if let Value::Object(inner) = entry {
                set(inner, rest, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RunRequest;

    fn settings(request: RunRequest, surface: Surface, text: Option<&str>) -> Value {
        serde_json::from_str(&content(&Plan::new(request, surface), text).unwrap()).unwrap()
    }

    #[test]
    fn workspace_programs_are_disabled_despite_caller_settings() {
        let own = r#"{"model": "a/b", "lsp": {"x": {}}, "agent": {"title": 7, "mine": {"prompt": "p"}}}"#;
        let request = RunRequest::new("x");
        let merged = settings(request.clone(), Surface::Serve, Some(own));
        assert_eq!(
            (&merged["formatter"], &merged["lsp"], &merged["model"]),
            (&json!(false), &json!(false), &json!("a/b"))
        );
        assert_eq!(merged["agent"], json!({"title": {"disable": true}, "mine": {"prompt": "p"}}));
        let trusted = settings(request.clone().trust(Trust::Full), Surface::Serve, Some(own));
        assert_eq!(trusted["lsp"], json!({"x": {}}));
        assert_eq!(
            settings(request.clone(), Surface::Acp, Some(" ")),
            settings(request.clone(), Surface::Acp, None)
        );
        let plan = Plan::new(request, Surface::Acp);
        assert_eq!(content(&plan, Some("[1]")).unwrap_err().key, "env");
    }

    #[test]
    fn acp_continues_after_a_denial_and_a_system_prompt_can_be_replaced() {
        let acp = settings(RunRequest::new("x"), Surface::Acp, None);
        assert_eq!(
            (&acp["experimental"]["continue_loop_on_deny"], &acp["compaction"]["auto"]),
            (&json!(true), &json!(false))
        );
        let serve = settings(RunRequest::new("x"), Surface::Serve, None);
        assert_eq!((serve.get("experimental"), serve.get("compaction")), (None, None));
        let mut request = RunRequest::new("x");
        (request.system_prompt, request.system_mode) = (Some("only this".into()), SystemMode::Replace);
        let replaced = settings(request, Surface::Serve, None);
        assert_eq!(replaced["agent"]["build"]["prompt"], "only this");
    }
}
