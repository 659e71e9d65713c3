//! The latency that `agentline acp` adds: a request and its response, and an update, beside a direct connection.

use crate::transport;
use agentline::{Agentline, RunRequest, agents::AgentRegistry, detect::HostEnv};
use agentline_acp::{AcpServer, AcpTransport, Workspace};
use agentline_core::agents::CustomAgent;
use serde_json::{Value, json};
use std::{
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::process::Command;

/// The value of the variable with which this program is the fake agent.
pub(crate) const NAME: &str = "acp-agent";
/// The number of measured round trips.
const ROUNDS: usize = 2_000;

/// Runs the fake agent.
pub(crate) fn child() {
    std::process::exit(i32::from(agentline_fakes::fake_acp::main()));
}

pub(crate) fn run() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let dir = tempfile::tempdir().expect("a directory");
        let ws = dir.path().to_string_lossy().into_owned();
        let direct = measure(direct(), &ws).await;
        let proxied = measure(proxied(dir.path()), &ws).await;
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
fn direct() -> AcpTransport {
    let mut agent = Command::new(std::env::current_exe().expect("this program"))
        .env(transport::CHILD, NAME)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("the fake agent");
    let (reader, writer) = (agent.stdout.take().expect("a pipe"), agent.stdin.take().expect("a pipe"));
    tokio::spawn(async move { agent.wait().await });
    AcpTransport::lines(reader, writer)
}

/// Starts the fake agent behind a server.
fn proxied(dir: &std::path::Path) -> AcpTransport {
    let program = std::env::current_exe().expect("this program").to_string_lossy().into_owned();
    let mut registry = AgentRegistry::default();
    registry.register(Arc::new(CustomAgent::new("fake", [program]))).expect("a new agent");
    let env = [("PATH".to_owned(), std::env::var("PATH").unwrap_or_default())].into();
    let agentline = Agentline::new(HostEnv::new(env, dir, dir)).agents(registry);
    let server = AcpServer::new(move |directory| {
        let mut request = RunRequest::default().agent("fake").working_dir(directory);
        request.env.insert(transport::CHILD.to_owned(), NAME.to_owned());
        request.env.insert("SOME_API_KEY".to_owned(), "a-secret-that-is-searched-for".to_owned());
        Ok(Workspace::new(agentline.clone(), request))
    });
    let (ours, theirs) = AcpTransport::pair();
    let dir = dir.to_owned();
    tokio::spawn(async move { server.serve(dir, theirs).await });
    ours
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
