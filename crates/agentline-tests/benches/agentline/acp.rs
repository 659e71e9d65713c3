//! The latency that the program `agentline acp` adds: a request and its response, and an update, beside a direct connection.

use agentline_acp::AcpTransport;
use agentline_tests::FakeStage;
use serde_json::{Value, json};
use std::{
    process::Stdio,
    time::{Duration, Instant},
};
use tokio::process::Command;

const AGENTLINE: &str = env!("CARGO_BIN_EXE_agentline-under-test");
const FAKE: &str = env!("CARGO_BIN_EXE_fake-acp");
/// The number of measured round trips.
const ROUNDS: usize = 2_000;

pub(crate) fn run() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let stage = FakeStage::new(FAKE);
        let ws = stage.workspace().to_string_lossy().into_owned();
        let direct = measure(direct(&stage), &ws).await;
        let proxied = measure(proxied(&stage), &ws).await;
        for (name, direct, proxied) in
            [("request and response", &direct.0, &proxied.0), ("update of a turn", &direct.1, &proxied.1)]
        {
            println!("{name}: {ROUNDS} times");
            for (label, part) in [("p50", 0.5), ("p99", 0.99)] {
                let (without, with) = (quantile(direct, part), quantile(proxied, part));
                let added = with.saturating_sub(without);
                println!("  {label}: direct {without:?}, proxy {with:?}, added {added:?}");
            }
        }
    });
}

fn quantile(sorted: &[Duration], part: f64) -> Duration {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a small index"
    )]
    let at = (sorted.len() as f64 * part) as usize;
    sorted[at.min(sorted.len() - 1)]
}

/// Starts the fake agent without a proxy.
fn direct(stage: &FakeStage) -> AcpTransport {
    start(stage, Command::new(FAKE))
}

/// Starts the fake agent behind the program.
fn proxied(stage: &FakeStage) -> AcpTransport {
    let mut command = Command::new(AGENTLINE);
    command.args(["acp", "--env", "SOME_API_KEY=a-secret-that-is-searched-for", "--", FAKE]);
    start(stage, command)
}

fn start(stage: &FakeStage, mut command: Command) -> AcpTransport {
    command.env_clear().envs(stage.variables()).current_dir(stage.workspace());
    let mut program =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn().expect("the program");
    let (reader, writer) = (program.stdout.take().expect("a pipe"), program.stdin.take().expect("a pipe"));
    tokio::spawn(async move { program.wait().await });
    AcpTransport::lines(reader, writer)
}

/// Measures requests, and the time between the updates of one turn and their arrival.
async fn measure(mut client: AcpTransport, ws: &str) -> (Vec<Duration>, Vec<Duration>) {
    call(&mut client, 1, "initialize", json!({"protocolVersion": 1, "clientCapabilities": {}})).await;
    let opened = call(&mut client, 2, "session/new", json!({"cwd": ws, "mcpServers": []})).await;
    let session = opened["result"]["sessionId"].clone();
    let mut requests = Vec::new();
    for id in 0..ROUNDS {
        let began = Instant::now();
        let params = json!({"sessionId": session, "modeId": "default"});
        call(&mut client, 10 + id, "session/set_mode", params).await;
        requests.push(began.elapsed());
    }
    // The agent asks the client in its turn, and the answer comes back as an update.
    let script = "request x/ping {}\n".repeat(ROUNDS);
    let params = json!({"sessionId": session, "prompt": [{"type": "text", "text": script}]});
    let prompt = json!({"jsonrpc": "2.0", "id": 5, "method": "session/prompt", "params": params});
    assert!(client.send(prompt.to_string()).await);
    let (mut updates, mut answered) = (Vec::new(), None::<Instant>);
    loop {
        let frame: Value = serde_json::from_slice(&client.receive().await.expect("a frame")).expect("JSON");
        if frame["method"] == "x/ping" {
            let answer = json!({"jsonrpc": "2.0", "id": frame["id"], "result": {}});
            answered = Some(Instant::now());
            assert!(client.send(answer.to_string()).await);
        } else if frame["method"] == "session/update" {
            updates.extend(answered.take().map(|when| when.elapsed()));
        } else if frame["id"] == 5 {
            break;
        }
    }
    requests.sort();
    updates.sort();
    (requests, updates)
}

async fn call(client: &mut AcpTransport, id: usize, method: &str, params: Value) -> Value {
    let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
    assert!(client.send(request.to_string()).await);
    loop {
        let frame: Value = serde_json::from_slice(&client.receive().await.expect("a frame")).expect("JSON");
        if frame["id"] == id && frame.get("method").is_none() {
            return frame;
        }
    }
}
