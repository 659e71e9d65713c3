//! Requests that are damaged at random: whatever arrives, the server answers without a failure of its own, or closes
//! the connection, and serves others.

use crate::{Test, client::HttpClient, run, stage::ServerStage};
use std::time::Duration;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

pub(crate) const TESTS: &[Test] = &[("fuzz::damaged_requests_are_answered_or_refused", damaged)];

/// The number of requests; `SERVE_FUZZ_REQUESTS` sets another one.
const REQUESTS: u64 = 600;
/// Far more than an answer takes, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// What damaged requests contain in addition to their own bytes: what our code splits at, and values at its limits.
const PIECES: &[&str] = &[
    "\r\n",
    "\r\n\r\n",
    "\0",
    "\u{ff}",
    " ",
    ":",
    "/",
    "//",
    "../",
    "%2e%2e%2f",
    "%",
    "?",
    "&",
    "=",
    ";",
    ",",
    "\"",
    "\\",
    "{",
    "[[[[[[[[",
    "}",
    "null",
    "-1",
    "18446744073709551616",
    "1e999",
    "9223372036854775807",
    "Host: evil.example\r\n",
    "Cookie: agentline_session_1=x; ;=;agentline_session_\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Content-Length: 99999999999\r\n",
    "Last-Event-ID: 18446744073709551615\r\n",
    "Range: bytes=5-1\r\n",
    "Upgrade: websocket\r\nConnection: Upgrade\r\n",
    "[::1]:",
    "Bearer",
];

/// RandomNumbers that look random and are the same in each run.
pub(crate) struct RandomNumbers(u64);

impl RandomNumbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self, below: usize) -> usize {
        // The constants are those of SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % below.max(1) as u64).unwrap()
    }

    /// Changes, removes, repeats and inserts bytes and pieces.
    pub(crate) fn damage(&mut self, request: &str, pieces: &[&str]) -> Vec<u8> {
        let mut bytes = request.as_bytes().to_vec();
        for _ in 0..=self.next(5) {
            let at = self.next(bytes.len());
            let end = at + self.next(bytes.len() - at).min(24);
            match self.next(4) {
                0 => bytes[at] = u8::try_from(self.next(256)).unwrap(),
                1 if bytes.len() > 64 => drop(bytes.drain(at..end)),
                2 => drop(bytes.splice(at..at, bytes[at..end].to_vec())),
                _ => drop(bytes.splice(at..at, pieces[self.next(pieces.len())].bytes())),
            }
        }
        bytes
    }
}

/// Returns valid requests of all kinds. None of them starts an agent, also when it is damaged.
fn requests(client: &HttpClient, cookie: &str, finished_run: &str) -> Vec<String> {
    let common = format!(
        "Host: {}\r\nAuthorization: Bearer {}\r\nConnection: close\r\n",
        client.address, client.token
    );
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\n{common}\r\n");
    let post = |path: &str, body: &str| {
        let length = body.len();
        format!(
            "POST {path} HTTP/1.1\r\n{common}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        )
    };
    vec![
        get("/"),
        get("/v1/info"),
        get("/v1/runs?limit=5"),
        get(&format!("/v1/runs/{finished_run}/outcome?wait_ms=1")),
        get(&format!("/v1/runs/{finished_run}/poll?after=1&wait_ms=1")),
        get(&format!("/v1/runs/{finished_run}/file?path=a.txt")),
        get("/v1/directories?path=%2Fother"),
        get("/v1/sessions/show?agent=gemini&session=a%2Fb"),
        get("/v1/experiments/status?dir=e"),
        format!("GET /v1/runs/{finished_run}/events HTTP/1.1\r\n{common}Last-Event-ID: 2\r\n\r\n"),
        get("/v1/sessions?limit=3"),
        post("/v1/sessions/search", r#"{"query":"a b","limit":3}"#),
        get("/login?code=0123456789abcdef"),
        post("/v1/runs", r#"{"agent":"unknown-agent","prompt":"a \u00e9","cwd":"/nowhere","timeout_ms":5}"#),
        post(&format!("/v1/runs/{finished_run}/permissions/1"), r#"{"decision":"allow"}"#),
        post(&format!("/v1/runs/{finished_run}/cancel"), "{}"),
        format!(
            "GET /v1/info HTTP/1.1\r\nHost: {}\r\nCookie: a=b; {cookie}\r\nConnection: close\r\n\r\n",
            client.address
        ),
    ]
}

/// Sends bytes and the end of the input, and returns the status of the answer; 0 if there is none.
async fn exchange(client: &HttpClient, request: &[u8]) -> u16 {
    let mut stream = TcpStream::connect(client.address).await.unwrap();
    // The server may have refused the request before its end.
    let _ = stream.write_all(request).await;
    let _ = stream.shutdown().await;
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("the server closes");
    let line = String::from_utf8_lossy(&answer[..answer.len().min(16)]).into_owned();
    line.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}

fn damaged() {
    run(async {
        let stage = ServerStage::start().await;
        let id = stage.run("say done").await;
        stage.outcome(&id).await;
        let cookie = stage.client.sign_in().await;
        let requests = requests(&stage.client, &cookie, &id);
        let mut numbers = RandomNumbers::new(17);
        let count = std::env::var("SERVE_FUZZ_REQUESTS").ok().and_then(|count| count.parse().ok());
        let (mut answered, mut refused) = (0, 0);
        for _ in 0..count.unwrap_or(REQUESTS) {
            let chosen = numbers.next(requests.len());
            let request = numbers.damage(&requests[chosen], PIECES);
            let status = exchange(&stage.client, &request).await;
            assert!(status < 500, "{status}: {}", String::from_utf8_lossy(&request));
            match status {
                200..400 => answered += 1,
                _ => refused += 1,
            }
        }
        assert!(answered > 0 && refused > 0, "{answered} answered, {refused} refused");
        assert_eq!(stage.client.get("/v1/info").await.status, 200);
        let runs = stage.client.get("/v1/runs").await.json();
        assert_eq!(runs["runs"].as_array().unwrap().len(), 1, "{runs}");
    });
}
