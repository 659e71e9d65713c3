//! Agents that break the protocol: the connection continues, or ends with a response to every request.

use crate::{
    Test,
    client::{TestClient, processes_of, prompt, run},
};
use agentline_acp::ConnectionEnd;
use serde_json::Value;

pub(crate) const TESTS: &[Test] = &[
    ("a_huge_frame_passes", a_huge_frame_passes),
    ("a_flood_of_updates_arrives_in_order", a_flood_of_updates_arrives_in_order),
    ("a_flood_ends_with_its_client", a_flood_ends_with_its_client),
    ("duplicate_ids_end_nothing", duplicate_ids_end_nothing),
    ("invalid_lines_end_nothing", invalid_lines_end_nothing),
    ("an_agent_that_closes_its_output_is_gone", an_agent_that_closes_its_output_is_gone),
];

const HUGE: usize = 12 << 20;
const FLOOD: usize = 5_000;

fn a_huge_frame_passes() {
    run(async {
        let mut client = TestClient::start(|_| ());
        let session = client.open().await;
        client.prompt(&session, &format!("big {HUGE}\nsay over")).await.expect("an answer");
        assert_eq!(client.text().len(), HUGE + "over".len());
        client.disconnect().await;
    });
}

fn a_flood_of_updates_arrives_in_order() {
    run(async {
        let mut client = TestClient::start(|_| ());
        let session = client.open().await;
        client.prompt(&session, &format!("chunks {FLOOD} {{n}};")).await.expect("an answer");
        let expected: String = (1..=FLOOD).map(|n| format!("{n};")).collect();
        assert_eq!(client.text(), expected);
        client.disconnect().await;
    });
}

fn a_flood_ends_with_its_client() {
    run(async {
        let mut client = TestClient::start(|_| ());
        let session = client.open().await;
        // Much more than all buffers can hold.
        let script = format!("repeat 64 big {}\nsay over", 1 << 20);
        client.begin("session/prompt", prompt(&session, &script)).await;
        client.leave().await;
        while !processes_of(client.dir.path()).is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    });
}

fn duplicate_ids_end_nothing() {
    run(async {
        let mut client = TestClient::start(|_| ());
        client.picks = Some("allow_once");
        let session = client.open().await;
        let ask = r#"{"jsonrpc":"2.0","id":"twice","method":"session/request_permission","params":{"sessionId":"{session}","toolCall":{"toolCallId":"t"},"options":[{"optionId":"allow_once","name":"A","kind":"allow_once"}]}}"#;
        let answered = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        let script = format!("raw {answered}\nraw {answered}\nraw {ask}\nraw {ask}\nsay over");
        let answer = client.prompt(&session, &script).await.expect("an answer");
        assert_eq!(answer["stopReason"], "end_turn", "{answer}");
        // A request whose id is in use is refused, and the first one keeps its response.
        let id = client.begin("session/prompt", prompt(&session, "say slow\nsleep 300\nsay done")).await;
        let again = serde_json::json!({
            "jsonrpc": "2.0", "id": id, "method": "session/prompt", "params": prompt(&session, "say never"),
        });
        client.send(again.to_string()).await;
        assert_eq!(client.response(id).await.expect_err("a duplicate")["code"], -32600);
        assert_eq!(client.response(id).await.expect("an answer")["stopReason"], "end_turn");
        assert!(!client.text().contains("never"), "{}", client.text());
        client.disconnect().await;
    });
}

fn invalid_lines_end_nothing() {
    run(async {
        let mut client = TestClient::start(|_| ());
        let session = client.open().await;
        let lines = [
            "{",
            "[]",
            "null",
            "\"text\"",
            "{\"jsonrpc\":\"2.0\"}",
            "{\"id\":{},\"result\":1}",
            "{\"method\":5}",
            "{\"jsonrpc\":\"2.0\",\"method\":\"session/update\"}",
            "{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{\"sessionId\":7,\"update\":[]}}",
            "{\"jsonrpc\":\"2.0\",\"id\":8,\"method\":\"session/request_permission\",\"params\":[]}",
        ];
        let script: String = lines.iter().map(|line| format!("raw {line}\n")).collect();
        client.prompt(&session, &format!("{script}say over")).await.expect("an answer");
        assert_eq!(client.text(), "over");
        // What is an object passes, also if its fields have the wrong types.
        let is_message =
            |frame: &String| serde_json::from_str::<Value>(frame).is_ok_and(|frame| frame.is_object());
        assert!(client.seen.iter().all(is_message), "{:#?}", client.seen);
        client.disconnect().await;
    });
}

fn an_agent_that_closes_its_output_is_gone() {
    run(async {
        let mut client = TestClient::start(|_| ());
        let session = client.open().await;
        client.prompt(&session, "say half\nclose_stdout\nhang").await.expect_err("no answer");
        let (end, dir) = client.end().await;
        assert_eq!(end, ConnectionEnd::AgentExited);
        assert!(processes_of(dir.path()).is_empty());
    });
}
