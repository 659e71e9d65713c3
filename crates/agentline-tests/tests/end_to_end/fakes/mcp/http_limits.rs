//! The limits of the server over HTTP: its connections, slow requests, and clients that do nothing.

use super::http::{McpHttpServer, TOKEN};
use agentline_tests::{PATIENCE, wait_until};
use serde_json::{Value, json};
use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::TcpStream,
    time::{Duration, Instant},
};

/// The number of connections that the server accepts at the same time.
const CONNECTIONS: usize = 256;

fn connect(server: &McpHttpServer) -> TcpStream {
    let stream = TcpStream::connect(&server.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Returns whether the server has neither answered nor closed the connection.
fn is_open(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let seen = stream.peek(&mut [0]);
    stream.set_nonblocking(false).unwrap();
    seen.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

/// Waits until the server closes the connection. Returns what it sent before.
fn read_to_close(mut stream: &TcpStream) -> String {
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("the connection is open: {error}"),
        _ => String::from_utf8_lossy(&answer).into_owned(),
    }
}

#[test]
fn connections_over_the_limit_are_closed_and_silent_ones_end() {
    let server = McpHttpServer::start(&[]);
    let silent: Vec<TcpStream> = (0..CONNECTIONS).map(|_| connect(&server)).collect();
    assert_eq!(read_to_close(&connect(&server)), "", "there is one connection too many");
    assert!(silent.iter().all(is_open), "a connection within the limit was closed");
    // They have sent nothing, so they make room for others after a while.
    for stream in &silent {
        let answer = read_to_close(stream);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
    }
    server.open();
}

#[test]
fn slow_heads_of_requests_end_and_delay_no_one() {
    let server = McpHttpServer::start(&[]);
    let mut slow = connect(&server);
    slow.write_all(b"POST /mcp HTTP/1.1\r\n").unwrap();
    server.open();
    let begun = Instant::now();
    // One byte at a time resets no clock. A write fails after the server has closed the connection.
    while is_open(&slow) && slow.write_all(b"x").is_ok() {
        assert!(begun.elapsed() < PATIENCE, "the head may take as long as it likes");
        std::thread::sleep(Duration::from_millis(100));
    }
    server.open();
}

#[test]
fn connection_without_a_further_request_ends() {
    let server = McpHttpServer::start(&[]);
    for (path, token, status) in [("/mcp", "wrong", "401"), ("/other", TOKEN, "404")] {
        let mut stream = connect(&server);
        let host = &server.address;
        let head = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let answer = read_to_close(&stream);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
    }
}

/// Starts a run that would take long, and waits until its tool works.
fn start_long_run(call: impl Fn(&str, &Value) -> Value) {
    call("agent_start", &json!({"prompt": "say up\nrun sleep 600"}));
    wait_until("the tool", || call("agent_result", &json!({"run": "run-1"}))["progress"]["tool_calls"] == 1);
}

#[test]
fn session_without_requests_and_streams_ends_after_the_configured_time() {
    let idle_end = Duration::from_secs(2);
    let server = McpHttpServer::start(&["--idle-end", "2s"]);
    let session = server.open();
    start_long_run(|tool, args| server.tool(&session, tool, args));
    let last_request = Instant::now();
    let listed = server.tool(&session, "agent_list", &json!({}));
    assert_eq!(listed["runs"][0]["status"], "running", "{listed}");
    wait_until("the end of the run", || server.stage.living().len() <= 1);
    assert!(last_request.elapsed() >= idle_end, "it ended after {:?}", last_request.elapsed());
    let ping = json!({"jsonrpc": "2.0", "id": 2, "method": "ping"});
    assert_eq!(server.post(&[("mcp-session-id", &session)], &ping).status, 404);
}

#[test]
fn request_in_progress_keeps_its_session() {
    let server = McpHttpServer::start(&["--idle-end", "500ms"]);
    let session = server.open();
    let result = server.tool(&session, "agent_run", &json!({"prompt": "sleep 3000\nsay late"}));
    assert_eq!((&result["verdict"], &result["text"]), (&json!("done"), &json!("late")), "{result}");
}

#[test]
fn runs_of_clients_without_a_session_end_when_none_of_them_has_a_request() {
    let server = McpHttpServer::start(&["--idle-end", "1s"]);
    let call = |tool: &str, args: &Value| server.tool_without_session(tool, args);
    start_long_run(call);
    wait_until("the end of the run", || server.stage.living().len() <= 1);
    assert_eq!(call("agent_list", &json!({}))["runs"], json!([]), "the next client begins anew");
}
