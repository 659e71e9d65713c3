//! Tests what a request keeps and shows.

use super::*;

#[test]
fn text_that_is_not_a_rule_is_refused_even_after_serialization() {
    let request = RunRequest::new("x").deny("Bash(git").allow("Read");
    assert_eq!((request.deny.len(), request.allow.len()), (0, 1));
    let sent = serde_json::to_value(&request).unwrap();
    for request in [request, serde_json::from_value(sent).unwrap()] {
        let problems = request.check().unwrap_err().0;
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].key, "deny");
        assert!(problems[0].message.contains("`Bash(git` is not a valid rule"), "{}", problems[0]);
    }
    let valid = serde_json::to_value(RunRequest::new("x").deny("Bash(git *)")).unwrap();
    assert_eq!((&valid["deny"][0], valid.get("invalid_rules")), (&"Bash(git *)".into(), None));
}

#[test]
fn debug_output_contains_no_secrets() {
    let server = McpServer::Url {
        url: "https://u:hunter2hunter2@mcp.test/?token=hunter2hunter2".into(),
        headers: [("X-Anything".to_owned(), "hunter2hunter2".to_owned())].into(),
    };
    let mut request = RunRequest::new("hello").api_key("hunter2hunter2").env("MY_TOKEN", "hunter2hunter2");
    request = request.mcp_server("docs", server.clone());
    for text in [format!("{request:?}"), format!("{server:?}")] {
        assert!(!text.contains("hunter2"), "{text}");
    }
    assert!(format!("{request:?}").contains("hello"));
}
