//! The options that only Gemini CLI has: its extensions, and sign-in with Google Cloud.

use crate::{AgentOption, OptionKind, RunRequest};

const EXTENSIONS: &str = "extensions";
const GOOGLE_CLOUD_PROJECT: &str = "google_cloud_project";
const USE_VERTEX_AI: &str = "use_vertex_ai";

/// The options, in the order of the documentation.
pub(super) static OPTIONS: &[AgentOption] = &[
    AgentOption::new(
        EXTENSIONS,
        OptionKind::List,
        r#"["my-extension"]"#,
        "The agent's extensions to load; defaults to those that you set up.",
    ),
    AgentOption::new(
        GOOGLE_CLOUD_PROJECT,
        OptionKind::Text,
        r#""my-project""#,
        "The Google Cloud project for sign-in with Vertex AI.",
    )
    .aliases(&["googleCloudProject"]),
    AgentOption::new(USE_VERTEX_AI, OptionKind::Flag, "true", "Sign in with Vertex AI.")
        .aliases(&["useVertexAI"]),
];

/// Returns the extensions that a request names. `None` stands for those that the user set up.
pub(super) fn extensions(request: &RunRequest) -> Option<Vec<&str>> {
    let names = request.agent_options.get(EXTENSIONS)?.as_array()?;
    Some(names.iter().filter_map(|name| name.as_str()).collect())
}

/// Returns the Google Cloud project of a request.
pub(super) fn google_cloud_project(request: &RunRequest) -> Option<&str> {
    request.agent_options.get(GOOGLE_CLOUD_PROJECT)?.as_str()
}

/// Returns whether a request selects sign-in with Vertex AI, if it says so.
pub(super) fn use_vertex_ai(request: &RunRequest) -> Option<bool> {
    request.agent_options.get(USE_VERTEX_AI)?.as_bool()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Plan, agents};
    use serde_json::json;

    fn request() -> RunRequest {
        RunRequest::new("x")
            .agent_option(EXTENSIONS, vec!["a"])
            .agent_option(GOOGLE_CLOUD_PROJECT, "p")
            .agent_option(USE_VERTEX_AI, true)
    }

    #[test]
    fn options_are_accepted_here_and_refused_by_every_other_agent() {
        let mut refused = 0;
        for agent in agents::built_in() {
            let result = Plan::of(request(), &*agent);
            if agent.info().id == "gemini" {
                assert!(result.is_ok(), "{result:?}");
                continue;
            }
            refused += 1;
            let problems = result.unwrap_err().0;
            let keys: Vec<&str> = problems.iter().map(|problem| problem.key.as_str()).collect();
            assert_eq!(keys, [EXTENSIONS, GOOGLE_CLOUD_PROJECT, USE_VERTEX_AI]);
            for problem in problems.iter().map(ToString::to_string) {
                let title = agent.info().title;
                assert!(problem.contains(&format!("is not supported by {title}")), "{problem}");
                assert!(problem.contains("remove it, or use the agent `gemini`"), "{problem}");
            }
        }
        assert_eq!(refused, 3);
    }

    #[test]
    fn options_are_fields_of_a_serialized_request() {
        let written = serde_json::to_value(request()).unwrap();
        assert_eq!(written[EXTENSIONS], json!(["a"]));
        assert_eq!(written[GOOGLE_CLOUD_PROJECT], "p");
        assert_eq!(written[USE_VERTEX_AI], true);
        assert_eq!(serde_json::from_value::<RunRequest>(written).unwrap(), request());
        let unset =
            json!({"prompt": "x", "extensions": null, "google_cloud_project": null, "use_vertex_ai": null});
        assert_eq!(serde_json::from_value::<RunRequest>(unset).unwrap(), RunRequest::new("x"));
    }
}
