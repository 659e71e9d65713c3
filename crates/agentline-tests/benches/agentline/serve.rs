//! Measures the delay from the publication of an event to its arrival at each of many clients, and the memory per
//! client, of `agentline serve` and of a bare `axum` handler over a broadcast channel. Each server is a process of its
//! own; this process is the clients.

use crate::{median, transport::CHILD};
use agentline::{Agentline, HostEnv};
use agentline_serve::{ServeOptions, Server, internals::PublishedRun};
use axum::{Router, body::Body, response::IntoResponse as _, routing::get};
use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, broadcast},
};

pub(crate) const NAME: &str = "serve";
/// Chooses the server of the child.
const KIND: &str = "AGENTLINE_BENCH_SERVE_KIND";
const RUN: &str = "0123456789abcdef0123456789abcdef";
const EVENTS: u32 = 200;
const INTERVAL: Duration = Duration::from_millis(50);
/// How long clients may take to connect.
const CONNECT: Duration = Duration::from_secs(8);

pub(crate) fn run() {
    raise_file_limit();
    for clients in [50, 1_000] {
        println!("{clients} clients, {EVENTS} events at {} per second:", 1_000 / INTERVAL.as_millis());
        // The order alternates, so that a slow phase of the machine does not hit one of them alone.
        let mut ratios = Vec::new();
        for round in 0..3 {
            let kinds = if round % 2 == 0 { ["bare", "serve"] } else { ["serve", "bare"] };
            let figures = kinds.map(|kind| (kind, measure(kind, clients)));
            let p99 = |name: &str| figures.iter().find(|(kind, _)| *kind == name).map_or(0.0, |(_, f)| f.p99);
            ratios.push(p99("serve") / p99("bare"));
            for (kind, figure) in figures {
                println!(
                    "  {kind:<6} p50 {:.1} ms, p99 {:.1} ms, {:.1} KB per client, {} of {} received",
                    figure.p50,
                    figure.p99,
                    figure.kilobytes,
                    figure.received,
                    clients * EVENTS as usize
                );
            }
        }
        println!("  p99 of serve / bare: {:.2} (median of 3)", median(&ratios));
    }
}

struct Figure {
    p50: f64,
    p99: f64,
    kilobytes: f64,
    received: usize,
}

fn measure(kind: &str, clients: usize) -> Figure {
    let program = std::env::current_exe().expect("a path");
    let mut child = Command::new(program)
        .env(CHILD, NAME)
        .env(KIND, kind)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a server");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("an address");
    let mut words = line.split_whitespace();
    let address: SocketAddr = words.next().and_then(|word| word.parse().ok()).expect("an address");
    let token = words.next().unwrap_or("none").to_owned();
    let before = resident(&child);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (mut delays, after) = runtime.block_on(async {
        let slots = Arc::new(Semaphore::new(100));
        let tasks: Vec<_> =
            (0..clients).map(|_| tokio::spawn(receive(address, token.clone(), Arc::clone(&slots)))).collect();
        tokio::time::sleep(CONNECT).await;
        let after = resident(&child);
        // The server publishes when its input ends.
        drop(child.stdin.take());
        let mut delays = Vec::new();
        for task in tasks {
            delays.extend(task.await.expect("a client"));
        }
        (delays, after)
    });
    child.kill().expect("a signal");
    child.wait().expect("an exit");
    delays.sort_by(f64::total_cmp);
    let at = |share: f64| delays.get((delays.len() as f64 * share) as usize).copied().unwrap_or(f64::NAN);
    let kilobytes = after.saturating_sub(before) as f64 / clients as f64;
    Figure { p50: at(0.5), p99: at(0.99), kilobytes, received: delays.len() }
}

/// Receives all events and returns the delay of each in milliseconds.
async fn receive(address: SocketAddr, token: String, slots: Arc<Semaphore>) -> Vec<f64> {
    let slot = slots.acquire().await.expect("it is open");
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let request = format!(
        "GET /v1/runs/{RUN}/events HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.expect("a request");
    let mut bytes = vec![0; 4_096];
    let mut text = String::new();
    let mut delays = Vec::new();
    let mut slot = Some(slot);
    while delays.len() < EVENTS as usize {
        let Ok(count @ 1..) = stream.read(&mut bytes).await else { break };
        slot.take();
        let now = micros();
        text.push_str(&String::from_utf8_lossy(&bytes[..count]));
        while let Some((event, rest)) = text.split_once("}\n\n") {
            let published = event.rsplit_once(':').and_then(|(_, time)| time.parse::<u64>().ok());
            delays.extend(published.map(|published| now.saturating_sub(published) as f64 / 1e3));
            text = rest.to_owned();
        }
    }
    delays
}

/// The process with a server.
pub(crate) fn child() {
    raise_file_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let is_bare = std::env::var(KIND).is_ok_and(|kind| kind == "bare");
    runtime.block_on(async { if is_bare { bare().await } else { served().await } });
}

/// Waits until the clients are connected.
async fn input_ends() {
    let mut input = tokio::io::stdin();
    // An error counts as the end.
    let _ = input.read(&mut [0]).await;
}

fn event() -> String {
    format!("{{\"type\":\"text\",\"text\":\"{}\",\"at_us\":{}}}", "x".repeat(100), micros())
}

async fn served() {
    let dir = tempfile::tempdir().expect("a directory");
    let home = dir.path().to_owned();
    let agentline = Agentline::new(HostEnv::new(BTreeMap::new(), home.clone(), home.clone()));
    let mut options = ServeOptions::new(home.join("serve"));
    options.roots = vec![home];
    let server = Server::start(agentline, options).await.expect("a server");
    let run = PublishedRun::new(&server, RUN).await;
    println!("{} {}", server.address(), server.token());
    input_ends().await;
    for number in 1..=EVENTS {
        run.publish(&server, event(), number == EVENTS).await;
        tokio::time::sleep(INTERVAL).await;
    }
    std::future::pending::<()>().await;
}

/// What an application would write: a broadcast channel, and a stream of what each client receives.
async fn bare() {
    let (sender, _) = broadcast::channel::<String>(1_024);
    let events = sender.clone();
    let handler = move || {
        let receiver = events.subscribe();
        async move {
            let stream = futures_util::stream::unfold(receiver, |mut receiver| async move {
                let text = receiver.recv().await.ok()?;
                Some((Ok::<_, std::convert::Infallible>(text), receiver))
            });
            // Like the real server, it sends the head at once.
            let start = futures_util::stream::iter([Ok("retry: 1000\n\n".to_owned())]);
            let body = Body::from_stream(futures_util::StreamExt::chain(start, stream));
            ([("content-type", "text/event-stream")], body).into_response()
        }
    };
    let router: Router = Router::new().route("/v1/runs/{run}/events", get(handler));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("an address");
    println!("{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move { axum::serve(listener, router).await });
    input_ends().await;
    for id in 1..=EVENTS {
        // Without clients, nothing is received.
        let _ = sender.send(format!("id: {id}\nevent: text\ndata: {}\n\n", event()));
        tokio::time::sleep(INTERVAL).await;
    }
    std::future::pending::<()>().await;
}

fn micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Returns the resident memory of a process in kilobytes.
fn resident(child: &Child) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Allows one open file per client.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let current = Some(maximum.map_or(65_536, |maximum| maximum.min(65_536)));
    setrlimit(Resource::Nofile, Rlimit { current, maximum }).expect("a limit within the maximum");
}
