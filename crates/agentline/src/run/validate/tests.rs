//! Tests answers that are valid immediately, after a repair or never, and tasks that complete immediately,
//! later or never.

use crate::run::validate::*;
use serde_json::json;
use std::sync::atomic::{AtomicU32, Ordering};

const LONG: Duration = Duration::from_secs(60);

fn counts() -> Schema {
    let count =
        json!({"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]});
    Schema::from_value(count).unwrap()
}

fn validator() -> Validator {
    Validator::new("/ws").schema(counts(), true)
}

async fn answer(validator: &mut Validator, text: &str, value: Option<Value>) -> HostResponse {
    validator.validate(text, value.map(|v| v.to_string()).as_deref(), LONG).await.answer
}

fn accept(value: Value) -> HostResponse {
    HostResponse::Accept { value: Some(value.to_string()) }
}

#[tokio::test]
async fn validator_without_requirements_accepts_everything() {
    let mut none = Validator::new("/ws");
    assert!(!none.is_needed() && validator().is_needed());
    assert_eq!(answer(&mut none, "text", None).await, HostResponse::Accept { value: None });
}

#[tokio::test]
async fn value_is_taken_from_the_tool_or_the_text() {
    let good = json!({"count": 3});
    let table = [
        ("", Some(json!({"data": good}))),
        ("", Some(good.clone())),
        ("other {\"count\": 9}", Some(json!({"data": good}))),
        ("{\"count\": 3}", None),
        ("It is\n```json\n{\"count\": 3}\n```\nas [1] says", None),
        ("{\"data\": {\"count\": 3}}", None),
        // The longest value is not the one that matches.
        ("from {\"numbers\": [1, 2, 3, 4, 5]} follows {\"count\": 3}", None),
        // The submitted value is invalid; the one in the text is valid.
        ("{\"count\": 3}", Some(json!({"data": {"count": "three"}}))),
    ];
    for (text, value) in table {
        assert_eq!(
            answer(&mut validator(), text, value.clone()).await,
            accept(good.clone()),
            "{text} {value:?}"
        );
    }
    let word = Schema::from_value(json!({"enum": ["yes", "no"]})).unwrap();
    let mut word = Validator::new("/ws").schema(word, false);
    assert_eq!(answer(&mut word, " yes\n", None).await, accept(json!("yes")));
    assert!(matches!(answer(&mut word, "maybe", None).await, HostResponse::Again(_)));
}

#[tokio::test]
async fn invalid_value_is_sent_back_up_to_the_limit() {
    let mut validator = validator();
    let first = validator.validate("about three", None, LONG).await;
    let HostResponse::Again(prompt) = &first.answer else { panic!("{first:?}") };
    assert!(prompt.contains("- the answer contains no JSON value"), "{prompt}");
    assert!(prompt.contains("Call the tool `structured_output`") && prompt.contains("\"count\""), "{prompt}");
    assert_eq!(first.notices.len(), 1);
    assert_eq!(first.notices[0].code, "repair");
    assert!(first.notices[0].message.contains("(repair 1 of 2)"), "{:?}", first.notices);

    let second = answer(&mut validator, "{\"count\": \"three\"}", None).await;
    let HostResponse::Again(prompt) = second else { panic!("{second:?}") };
    assert!(prompt.contains("- at `/count`: expected integer, found \"three\""), "{prompt}");

    let text = format!("three {}", "é".repeat(5000));
    let third = validator.validate(&text, Some("{\"data\": {}}"), LONG).await;
    let HostResponse::Reject(failure) = third.answer else { panic!("{third:?}") };
    assert_eq!(failure.kind, FailureKind::InvalidOutput);
    let message = failure.message;
    assert!(
        message.starts_with(
            "the answer does not match the schema after 2 repair turns: at `/data`: `count` is missing"
        ),
        "{message}"
    );
    assert!(
        message.contains("the text starts with: three éé") && message.chars().count() < 2300,
        "{message}"
    );
    assert!(third.notices.is_empty());
}

#[tokio::test]
async fn repair_asks_for_text_without_the_tool_and_never_without_repairs() {
    let mut by_text = Validator::new("/ws").schema(counts(), false);
    let HostResponse::Again(prompt) = answer(&mut by_text, "", None).await else {
        panic!("the agent is not re-prompted")
    };
    assert!(prompt.contains("Answer again") && !prompt.contains(STRUCTURED_OUTPUT), "{prompt}");
    let HostResponse::Reject(failure) = answer(&mut validator().limits(0, 0), "", None).await else {
        panic!("not refused")
    };
    assert_eq!(
        failure.message,
        "the answer does not match the schema: the answer contains no JSON value; the text is empty"
    );
}

/// Returns a check that fails this many times, then passes.
fn fails(times: u32) -> CompletionCheck {
    let asked = std::sync::Arc::new(AtomicU32::new(0));
    CompletionCheck::new(move |_| {
        let before = asked.fetch_add(1, Ordering::Relaxed);
        async move {
            if before < times {
                CheckResult::Continue(format!("{} left", times - before))
            } else {
                CheckResult::Done
            }
        }
    })
}

#[tokio::test]
async fn agent_is_reprompted_until_the_check_passes() {
    let mut validator = Validator::new("/ws").until(fails(2)).limits(0, 2);
    for round in 1..=2 {
        let sent = validator.validate("done", None, LONG).await;
        let HostResponse::Again(prompt) = &sent.answer else { panic!("{sent:?}") };
        assert!(prompt.contains(&format!("{} left", 3 - round)) && !prompt.contains("submit"), "{prompt}");
        assert_eq!(sent.notices[0].code, "round");
        assert!(sent.notices[0].message.contains(&format!("(round {round} of 2)")), "{sent:?}");
    }
    assert_eq!(answer(&mut validator, "done", None).await, HostResponse::Accept { value: None });
}

#[tokio::test]
async fn failing_check_ends_the_run_at_its_limit() {
    let mut validator = Validator::new("/ws").until(fails(99)).limits(0, 1);
    assert!(matches!(answer(&mut validator, "", None).await, HostResponse::Again(_)));
    let HostResponse::Reject(failure) = answer(&mut validator, "", None).await else { panic!("not refused") };
    assert_eq!(failure.kind, FailureKind::MaxRounds);
    assert_eq!(failure.message, "the check still fails after round 1: 98 left");
    let panics = CompletionCheck::new(|_| async { panic!("no") });
    let HostResponse::Reject(failure) = answer(&mut Validator::new("/ws").until(panics), "", None).await
    else {
        panic!("not refused")
    };
    assert_eq!(failure.kind, FailureKind::Tool);
}

#[tokio::test]
async fn check_gets_only_valid_values() {
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let sees = std::sync::Arc::clone(&seen);
    let checker = CompletionCheck::new(move |input: CheckInput| {
        let value = input.value.unwrap();
        let enough = value["count"].as_i64() > Some(2);
        sees.lock().unwrap().push(value);
        async move { if enough { CheckResult::Done } else { CheckResult::Continue("more".into()) } }
    });
    let mut validator = validator().until(checker);
    assert!(matches!(answer(&mut validator, "{\"count\": null}", None).await, HostResponse::Again(_)));
    let HostResponse::Again(prompt) = answer(&mut validator, "{\"count\": 1}", None).await else {
        panic!("the agent is not re-prompted")
    };
    assert!(prompt.contains("more") && prompt.contains("submit the complete answer again"), "{prompt}");
    assert_eq!(answer(&mut validator, "{\"count\": 3}", None).await, accept(json!({"count": 3})));
    assert_eq!(*seen.lock().unwrap(), [json!({"count": 1}), json!({"count": 3})]);
}
