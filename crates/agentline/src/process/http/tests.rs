//! Tests the transport against a server in the same process, with broken and hostile answers.

use super::*;
use std::sync::Mutex;
use tokio::{io::AsyncReadExt as _, net::TcpListener};

/// A server that records the head and body of each request and answers it with the bytes for its path. The connection of
/// an event stream stays open until `hang_up` is notified.
struct TestServer {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
    hang_up: Arc<tokio::sync::Notify>,
}

async fn server(answers: &'static [(&'static str, &'static str)]) -> TestServer {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (seen, hang_up) = (Arc::new(Mutex::new(Vec::new())), Arc::new(tokio::sync::Notify::new()));
    let (requests, end) = (Arc::clone(&seen), Arc::clone(&hang_up));
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (requests, end) = (Arc::clone(&requests), Arc::clone(&end));
            tokio::spawn(async move {
                let mut bytes = vec![0; 4096];
                let count = stream.read(&mut bytes).await.unwrap();
                let text = String::from_utf8_lossy(&bytes[..count]).into_owned();
                let path = text.split(' ').nth(1).unwrap_or_default().to_owned();
                requests.lock().unwrap().push(text);
                let answer = answers.iter().find(|(of, _)| *of == path).map_or("", |(_, answer)| answer);
                let _ = stream.write_all(answer.as_bytes()).await;
                if path == "/events" {
                    end.notified().await;
                }
            });
        }
    });
    TestServer { address, seen, hang_up }
}

fn transport() -> HttpTransport {
    HttpTransport::start(HttpService::new("listening on ", "/events", "me", "secret-password"))
}

async fn text(transport: &mut HttpTransport) -> String {
    let next = timeout(Duration::from_secs(20), transport.next()).await.expect("a message in time");
    String::from_utf8(next.expect("a message")).unwrap()
}

const STREAM: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {\"type\":\n\ndata: {\"n\":1}\n\n";

#[tokio::test]
async fn frames_become_requests_and_responses_and_events_become_lines() {
    let server = server(&[
        ("/events", STREAM),
        ("/session", "HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n{\n \"id\": \"ses\"\n}"),
        ("/bad", "HTTP/1.1 400 Bad Request\r\n\r\nnot \"JSON\"\n"),
        ("/none", "HTTP/1.1 204 No Content\r\n\r\n"),
    ])
    .await;
    let mut transport = transport();
    transport
        .write(b"{\"id\":1,\"method\":\"POST\",\"path\":\"/session\",\"body\":{\"a\":\"b\"}}\n".to_vec());
    transport.printed(b"warning: something\nlisten");
    transport.printed(format!("ing on http://{}\n", server.address).as_bytes());
    assert_eq!(text(&mut transport).await, "{\"stream\":\"open\"}\n");
    let mut rest = [text(&mut transport).await, text(&mut transport).await, text(&mut transport).await];
    rest.sort();
    let event = "{\"event\":\"{\\\"type\\\":\"}\n";
    assert_eq!(
        rest,
        [event, "{\"event\":{\"n\":1}}\n", "{\"id\":1,\"status\":200,\"body\":{  \"id\": \"ses\" }}\n"]
    );
    for (frame, expected) in [
        (
            r#"{"id":2,"method":"GET","path":"/bad"}"#,
            "{\"id\":2,\"status\":400,\"body\":\"not \\\"JSON\\\"\\n\"}\n",
        ),
        (r#"{"id":"x","method":"DELETE","path":"/none"}"#, "{\"id\":\"x\",\"status\":204,\"body\":null}\n"),
    ] {
        transport.write(frame.as_bytes().to_vec());
        assert_eq!(text(&mut transport).await, expected);
    }
    let seen = server.seen.lock().unwrap().clone();
    let authorization = format!("Authorization: Basic {}\r\n", STANDARD.encode("me:secret-password"));
    assert!(seen.iter().all(|request| request.contains(&authorization)), "{seen:?}");
    assert!(seen[0].starts_with("GET /events HTTP/1.1\r\n"), "the stream is opened first: {seen:?}");
    assert!(seen[1].ends_with("Content-Length: 9\r\n\r\n{\"a\":\"b\"}"), "{seen:?}");
}

#[tokio::test]
async fn a_request_cannot_inject_headers_and_a_lost_one_is_answered() {
    let server =
        server(&[("/events", STREAM), ("/cut", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort")]).await;
    let mut transport = transport();
    transport.printed(format!("listening on http://{}\n", server.address).as_bytes());
    for _ in 0..3 {
        text(&mut transport).await;
    }
    for path in ["/a b", "/a\\r\\nX: y", "relative", "/\\u0000", "/é"] {
        transport.write(format!("{{\"id\":1,\"method\":\"GET\",\"path\":\"{path}\"}}").into_bytes());
        let answer = text(&mut transport).await;
        assert!(answer.starts_with("{\"id\":1,\"error\":"), "{path}: {answer}");
    }
    for path in ["/cut", "/empty"] {
        transport.write(format!("{{\"id\":2,\"method\":\"GET\",\"path\":\"{path}\"}}").into_bytes());
        let answer = text(&mut transport).await;
        assert!(answer.starts_with("{\"id\":2,\"error\":"), "{path}: {answer}");
    }
    assert_eq!(server.seen.lock().unwrap().len(), 3, "the invalid requests were not sent");
}

#[tokio::test]
async fn a_broken_event_stream_is_opened_again_until_the_agent_exits() {
    let server = server(&[("/events", STREAM)]).await;
    let mut transport = transport();
    transport.printed(format!("listening on http://{}/\n", server.address).as_bytes());
    for _ in 0..2 {
        assert_eq!(text(&mut transport).await, "{\"stream\":\"open\"}\n");
        text(&mut transport).await;
        assert_eq!(text(&mut transport).await, "{\"event\":{\"n\":1}}\n");
        server.hang_up.notify_one();
    }
    text(&mut transport).await;
    transport.end();
    server.hang_up.notify_one();
    while timeout(Duration::from_secs(20), transport.next()).await.expect("an end").is_some() {}
}

#[tokio::test]
async fn only_a_loopback_address_at_the_start_of_a_line_is_used() {
    for printed in
        ["listening on http://192.0.2.1:80\n", "listening on 0.0.0.0:80\n", "listening on somewhere\n"]
    {
        let mut transport = transport();
        transport.printed(printed.as_bytes());
        let message = text(&mut transport).await;
        assert!(message.starts_with("{\"error\":\"the agent listens on"), "{message}");
        assert_eq!(transport.next().await, None);
    }
    let mut transport = transport();
    transport.printed(b"x listening on http://127.0.0.1:1\n");
    transport.printed(&vec![b'x'; 1 << 20]);
    assert!(
        transport.line.as_ref().is_some_and(|line| line.len() <= MAX_LINE),
        "an endless line is not kept"
    );
    let debug = format!("{:?}", transport.service);
    assert!(!debug.contains("secret-password"), "{debug}");
}
