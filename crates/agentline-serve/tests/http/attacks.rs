//! The table of attacks. Every one is refused, and the server answers others afterwards.

use crate::{
    Test,
    acp_client::AcpClient,
    client::HttpClient,
    run, saved,
    stage::{ServerStage, directory, options},
};
use agentline_serve::{ServeError, Server};
use serde_json::{Value, json};
use std::{net::SocketAddr, time::Duration};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

pub(crate) const TESTS: &[Test] = &[
    ("attacks::requests_of_other_sites_are_refused", other_sites),
    ("attacks::tokens_are_accepted_in_two_places_only", tokens),
    ("attacks::link_signs_in_once_and_its_cookie_is_protected", login),
    ("attacks::sign_out_ends_the_streams_and_connections_of_the_browser", sign_out),
    ("attacks::other_programs_cannot_keep_a_browser_from_signing_out", sign_out_is_not_limited),
    #[cfg(unix)]
    ("attacks::paths_outside_of_the_roots_are_refused", paths),
    ("attacks::large_and_slow_requests_are_refused", large_and_slow),
    ("attacks::connections_are_limited", connections),
    ("attacks::exposed_address_needs_tls", exposed),
];

/// Sends bytes and returns the start of the answer; empty if the connection was closed without one.
async fn raw(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // A reset connection has no answer either.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}

fn other_sites() {
    run(async {
        let stage = ServerStage::start().await;
        let address = stage.client.address;
        let own = address.to_string();
        let port = address.port();
        let (bearer, cookie) = (format!("Bearer {}", stage.client.token), stage.client.sign_in().await);
        let origin = format!("http://{own}");
        // DNS rebinding: the name of another site leads here.
        let foreign_hosts = [
            "evil.example".to_owned(),
            format!("evil.example:{port}"),
            format!("127.0.0.1.evil.example:{port}"),
            "127.0.0.1:1".to_owned(),
            "127.0.0.1".to_owned(),
            format!("127.0.0.2:{port}"),
            format!("[::1]:{port}"),
            format!("user@127.0.0.1:{port}"),
            format!("localhost.:{port}x"),
        ];
        for host in &foreign_hosts {
            for path in ["/", "/v1/info"] {
                let headers = [("host", host.as_str()), ("authorization", bearer.as_str())];
                let answer = stage.client.send_plain("GET", path, &headers, None).await;
                assert_eq!(answer.status, 421, "{host} {path}");
            }
        }
        let named = format!("localhost:{port}");
        let headers = [("host", named.as_str()), ("authorization", bearer.as_str())];
        assert_eq!(stage.client.send_plain("GET", "/v1/info", &headers, None).await.status, 200);
        let two = format!(
            "GET /v1/info HTTP/1.1\r\nHost: {own}\r\nHost: evil.example\r\nAuthorization: {bearer}\r\n\
                           Connection: close\r\n\r\n"
        );
        assert_eq!(status(&raw(address, &two).await), 421);
        let none = format!("GET /v1/info HTTP/1.1\r\nAuthorization: {bearer}\r\nConnection: close\r\n\r\n");
        assert!(matches!(status(&raw(address, &none).await), 400 | 421));
        let absolute = format!(
            "GET http://evil.example/v1/info HTTP/1.1\r\nHost: {own}\r\nAuthorization: {bearer}\r\n\
                                Connection: close\r\n\r\n"
        );
        assert_eq!(status(&raw(address, &absolute).await), 421);
        // A foreign origin, even with the right token.
        for foreign in ["http://evil.example", "null", "https://127.0.0.1", "http://127.0.0.1:1", ""] {
            for credential in [("authorization", bearer.as_str()), ("cookie", cookie.as_str())] {
                let headers = [("origin", foreign), credential];
                for (method, path) in [("GET", "/v1/info"), ("POST", "/v1/runs")] {
                    let answer = stage
                        .client
                        .send_plain(method, path, &headers, Some(&json!({"prompt": "say x"})))
                        .await;
                    assert_eq!(answer.status, 403, "{foreign} {method}");
                }
            }
        }
        // A change with the cookie needs an origin; with the header it does not.
        let body = json!({"prompt": "say x"});
        let post = async |headers: &[(&str, &str)]| {
            stage.client.send_plain("POST", "/v1/runs", headers, Some(&body)).await.status
        };
        assert_eq!(post(&[("cookie", &cookie)]).await, 403);
        assert_eq!(post(&[("cookie", &cookie), ("origin", &origin)]).await, 201);
        assert_eq!(post(&[("authorization", &bearer)]).await, 201);
        // A form of another site has another type of content.
        for kind in ["application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain"] {
            let headers = [("cookie", cookie.as_str()), ("origin", origin.as_str()), ("content-type", kind)];
            assert_eq!(post(&headers).await, 400, "{kind}");
        }
        // An upgrade to a WebSocket is a change.
        let upgrade = [("cookie", cookie.as_str()), ("connection", "upgrade"), ("upgrade", "websocket")];
        assert_eq!(stage.client.send_plain("GET", "/v1/info", &upgrade, None).await.status, 403);
        let foreign: Vec<_> = upgrade.iter().copied().chain([("origin", "http://evil.example")]).collect();
        assert_eq!(stage.client.send_plain("GET", "/v1/info", &foreign, None).await.status, 403);
        let own: Vec<_> = upgrade.iter().copied().chain([("origin", origin.as_str())]).collect();
        assert_eq!(stage.client.send_plain("GET", "/v1/info", &own, None).await.status, 200);
        // No answer allows another site to read it.
        let preflight = [("origin", origin.as_str()), ("access-control-request-method", "POST")];
        let answer = stage.client.send_plain("OPTIONS", "/v1/runs", &preflight, None).await;
        assert!(answer.status >= 400);
        assert!(!answer.headers.keys().any(|name| name.as_str().starts_with("access-control")));
        for (name, value) in [("x-content-type-options", "nosniff"), ("x-frame-options", "DENY")] {
            assert_eq!(answer.headers[name], value);
        }
        assert!(
            answer.headers["content-security-policy"].to_str().unwrap().starts_with("default-src 'none'")
        );
    });
}

fn tokens() {
    run(async {
        let stage = ServerStage::start().await;
        let token = stage.client.token.clone();
        let get = async |path: &str, headers: &[(&str, &str)]| {
            stage.client.send_plain("GET", path, headers, None).await.status
        };
        for path in [
            format!("/v1/runs?token={token}"),
            format!("/v1/runs?access_token={token}"),
            format!("/v1/runs?once={token}"),
            format!("/{token}/v1/runs"),
        ] {
            assert_eq!(get(&path, &[]).await, 401, "{path}");
        }
        assert_eq!(get(&format!("/login?once={token}"), &[]).await, 403, "the token is no link");
        for path in ["/v1/info", "/openapi.json", "/docs", "/v1/none", "/nothing"] {
            assert_eq!(get(path, &[]).await, 401, "{path}");
        }
        let last = if token.ends_with('0') { '1' } else { '0' };
        let almost = format!("Bearer {}{last}", &token[..token.len() - 1]);
        let basic = format!("Basic {token}");
        for value in ["Bearer", "Bearer ", &basic, &token] {
            assert_eq!(get("/v1/info", &[("authorization", value)]).await, 401, "{value}");
        }
        // The wrong header is not replaced by the right cookie.
        let cookie = stage.client.sign_in().await;
        assert_eq!(get("/v1/info", &[("cookie", &cookie)]).await, 200);
        assert_eq!(get("/v1/info", &[("authorization", "Bearer x"), ("cookie", &cookie)]).await, 401);
        // The token itself is no cookie.
        let name = cookie.split('=').next().unwrap();
        for name in [name, "agentline_token", "agentline_session"] {
            assert_eq!(get("/v1/info", &[("cookie", &format!("{name}={token}"))]).await, 401, "{name}");
        }
        // Guesses are limited, and the right token still works.
        let mut refused = 0;
        for _ in 0..40 {
            refused += u32::from(get("/v1/info", &[("authorization", &almost)]).await == 429);
        }
        assert!(refused >= 15, "{refused}");
        assert_eq!(stage.client.get("/v1/info").await.status, 200);
    });
}

fn login() {
    run(async {
        let mut stage = ServerStage::start().await;
        let client = stage.client.clone();
        let get =
            async |headers: &[(&str, &str)]| client.send_plain("GET", "/v1/info", headers, None).await.status;
        let link = stage.server.as_ref().unwrap().login_url();
        let path = link.split_once(&stage.client.address.to_string()).unwrap().1.to_owned();
        let answer = stage.client.send_plain("GET", &path, &[], None).await;
        assert_eq!((answer.status, answer.headers["location"].to_str().unwrap()), (303, "/"));
        let cookie = answer.headers["set-cookie"].to_str().unwrap();
        for attribute in ["HttpOnly", "SameSite=Strict", "Path=/"] {
            assert!(cookie.contains(attribute), "{cookie}");
        }
        let pair = cookie.split(';').next().unwrap();
        assert_eq!(stage.client.send_plain("GET", "/v1/info", &[("cookie", pair)], None).await.status, 200);
        assert_eq!(stage.client.send_plain("GET", &path, &[], None).await.status, 403, "it works once");
        // A browser gets a text for its user, or the page if it is signed in.
        let browser = ("accept", "text/html,application/xhtml+xml;q=0.9");
        let used = stage.client.send_plain("GET", &path, &[browser], None).await;
        assert_eq!(
            (used.status, used.headers["content-type"].to_str().unwrap()),
            (403, "text/html; charset=utf-8")
        );
        assert!(used.text().contains("agentline serve --link"), "{}", used.text());
        assert!(used.headers["content-security-policy"].to_str().unwrap().contains("default-src 'none'"));
        let signed_in = stage.client.send_plain("GET", &path, &[browser, ("cookie", pair)], None).await;
        assert_eq!((signed_in.status, signed_in.headers["location"].to_str().unwrap()), (303, "/"));
        let dir = stage.dir.path().join("serve");
        let link = tokio::task::spawn_blocking(move || agentline_serve::new_login_link(&dir)).await.unwrap();
        let link = link.unwrap();
        let path = link.strip_prefix(&format!("http://{}", stage.client.address)).expect("this server");
        assert_eq!(stage.client.send_plain("GET", path, &[browser], None).await.status, 303);
        let another = stage.client.post("/v1/login-links", json!({})).await.json();
        let another = another["path"].as_str().unwrap();
        assert_eq!(stage.client.send_plain("GET", another, &[], None).await.status, 303);
        // The cookie has the port, so that two servers on one host do not replace each other's.
        let name = format!("agentline_session_{}=", stage.client.address.port());
        assert!(pair.starts_with(&name) && !pair.contains(&stage.client.token), "{pair}");
        assert!(cookie.contains("Max-Age=2592000"), "{cookie}");
        let other = stage.client.sign_in().await;
        let origin = format!("http://{}", stage.client.address);
        let headers = [("cookie", pair), ("origin", origin.as_str())];
        let out = stage.client.send_plain("POST", "/v1/logout", &headers, None).await;
        assert_eq!(out.status, 204);
        assert!(out.headers["set-cookie"].to_str().unwrap().contains("Max-Age=0"));
        assert_eq!(get(&[("cookie", pair)]).await, 401, "the session has ended");
        assert_eq!(get(&[("cookie", &other)]).await, 200, "another one has not");
        assert_eq!(stage.client.post("/v1/logout", json!({})).await.status, 204);
        // Browsers repeat the cookie of an earlier server, which is no guess at a token.
        for _ in 0..40 {
            assert_eq!(get(&[("cookie", pair)]).await, 401);
        }
        stage.restart().await;
        let info = stage.client.send_plain("GET", "/v1/info", &[("cookie", &other)], None).await;
        assert_eq!(info.status, 401, "a restart signs out");
        let actions = stage.audit_log().into_iter().map(|entry| entry["action"].clone());
        let actions: Vec<Value> = actions.filter(|action| action != "login").collect();
        assert_eq!(actions, ["login_link", "login_link", "login_link", "logout"]);
    });
}

fn sign_out() {
    run(async {
        let stage = ServerStage::start().await;
        let address = stage.client.address;
        let origin = format!("http://{address}");
        let id = stage.run("say x\nhang").await;
        let mut opened = Vec::new();
        for _ in 0..2 {
            let cookie = stage.client.sign_in().await;
            let headers = [("cookie", cookie.as_str()), ("origin", origin.as_str())];
            let mut stream = stage.client.events_as(headers[0], &id, 0).await;
            stream.next().await.expect("an event");
            let acp = AcpClient::open(address, "/acp?agent=gemini", &headers).await;
            opened.push((stream, acp.expect("a connection").initialized().await, cookie));
        }
        let (other_stream, mut other_acp, _other) = opened.pop().unwrap();
        let (stream, mut acp, cookie) = opened.pop().unwrap();
        let headers = [("cookie", cookie.as_str()), ("origin", origin.as_str())];
        // A link would outlive the sign-out.
        let link = stage.client.send_plain("POST", "/v1/login-links", &headers, None).await;
        assert_eq!(link.status, 403, "{}", link.text());
        let outcome = format!("/v1/runs/{id}/outcome?wait_ms=60000");
        let (waiting, logout) =
            tokio::join!(stage.client.send_plain("GET", &outcome, &headers, None), async {
                // The wait has begun by then, or else the request itself is refused.
                tokio::time::sleep(Duration::from_millis(300)).await;
                stage.client.send_plain("POST", "/v1/logout", &headers, None).await
            });
        assert_eq!((waiting.status, logout.status), (401, 204));
        assert!(stream.rest().await.iter().all(|event| event.event != "outcome"));
        assert_eq!(acp.next().await, None);
        // The other browser is still signed in.
        other_acp.new_session(&stage.workspace()).await.expect("a session");
        stage.client.post(&format!("/v1/runs/{id}/cancel"), json!({})).await;
        assert!(other_stream.rest().await.iter().any(|event| event.event == "outcome"));
    });
}

fn sign_out_is_not_limited() {
    run(async {
        let stage = ServerStage::with(|options| options.limits.changes_per_minute = 3).await;
        let origin = format!("http://{}", stage.client.address);
        let cookie = stage.client.sign_in().await;
        while stage.client.post("/v1/runs/none/steer", json!({"text": "x"})).await.status != 429 {}
        let headers = [("cookie", cookie.as_str()), ("origin", origin.as_str())];
        let close = stage.client.send_plain("DELETE", "/v1/conversations/none", &headers, None).await;
        assert_eq!(close.status, 404, "ending something is not limited");
        assert_eq!(stage.client.send_plain("POST", "/v1/logout", &headers, None).await.status, 204);
        assert_eq!(stage.client.send_plain("GET", "/v1/info", &headers, None).await.status, 401);
    });
}

#[cfg(unix)]
fn paths() {
    run(async {
        let stage = ServerStage::start().await;
        let client = &stage.client;
        std::fs::write(stage.dir.path().join("secret.txt"), "secret").unwrap();
        std::os::unix::fs::symlink(stage.dir.path(), stage.workspace().join("up")).unwrap();
        std::os::unix::fs::symlink(stage.dir.path().join("secret.txt"), stage.workspace().join("link"))
            .unwrap();
        let outside = stage.dir.path().to_string_lossy().into_owned();
        for dir in ["..", "/", "up", "./up/ws/..", "up/../..", &outside, "missing", "a\0b"] {
            let answer = client.post("/v1/runs", json!({"prompt": "say x", "working_dir": dir})).await;
            assert_eq!(answer.status, 403, "{dir:?}");
        }
        for (key, value) in [
            ("attachments", json!(["../secret.txt"])),
            ("include_directories", json!([".."])),
            ("prompt_file", json!("link")),
            ("output_schema", json!("up/secret.txt")),
        ] {
            let mut body = json!({"prompt": "say x"});
            body[key] = value;
            assert_eq!(client.post("/v1/runs", body).await.status, 403, "{key}");
        }
        // The database of an experiment is a link.
        saved::store_experiment(&stage.dir.path().join("experiment"));
        let linked = stage.workspace().join("linked");
        std::fs::create_dir(&linked).unwrap();
        let database = stage.dir.path().join("experiment/experiment.sqlite");
        std::os::unix::fs::symlink(database, linked.join("experiment.sqlite")).unwrap();
        assert_eq!(client.get("/v1/experiments").await.json()["experiments"], json!([]));
        for path in ["status", "report"] {
            let answer = client.get(&format!("/v1/experiments/{path}?dir=linked")).await;
            assert_eq!(answer.status, 404, "{path}");
        }
        let id = stage.run("say x").await;
        stage.outcome(&id).await;
        let absolute = stage.dir.path().join("secret.txt").to_string_lossy().into_owned();
        let encoded = absolute.replace('/', "%2F");
        for path in
            ["../secret.txt", "link", "up/secret.txt", &absolute, "%2e%2e/secret.txt", "up%2fsecret.txt", ""]
        {
            let answer = client.get(&format!("/v1/runs/{id}/file?path={path}")).await;
            assert_eq!(answer.status, 404, "{path}");
        }
        for path in [
            "/v1/directories?path=..",
            "/v1/directories?path=up",
            "/v1/experiments/report?dir=..",
            "/v1/experiments/status?dir=/",
        ] {
            assert_eq!(client.get(path).await.status, 403, "{path}");
        }
        for path in ["/assets/..%2f..%2fCargo.toml", "/assets/%2e%2e", "/assets/../index.html"] {
            assert_eq!(client.get(path).await.status, 404, "{path}");
        }
        for session in ["../secret.txt", "..%2Fsecret.txt", &encoded, ".."] {
            let answer = client.get(&format!("/v1/sessions/show?session={session}")).await;
            assert_eq!(answer.status, 400, "{session}");
        }
    });
}

fn large_and_slow() {
    run(async {
        let stage = ServerStage::with(|options| {
            options.limits.start_bytes = 100_000;
            options.limits.body_bytes = 10_000;
            options.limits.read_timeout = Duration::from_secs(1);
        })
        .await;
        let address = stage.client.address;
        let bearer = format!("Bearer {}", stage.client.token);
        let large = json!({"prompt": "x".repeat(200_000)});
        assert_eq!(stage.client.post("/v1/runs", large).await.status, 413);
        let head = |rest: &str| {
            format!(
                "POST /v1/runs HTTP/1.1\r\nHost: {address}\r\nAuthorization: {bearer}\r\n\
                                         Content-Type: application/json\r\n{rest}"
            )
        };
        // A length that is never sent, a body in pieces without an end, and a large head.
        let promised = raw(address, &head("Content-Length: 99999999999\r\n\r\n")).await;
        assert_eq!(status(&promised), 413, "{promised}");
        let pieces = format!(
            "{}{}",
            head("Transfer-Encoding: chunked\r\n\r\n"),
            format!("8000\r\n{}\r\n", " ".repeat(0x8000)).repeat(4)
        );
        assert_eq!(status(&raw(address, &pieces).await), 413);
        let fields = head(&"X-A: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n".repeat(2_000));
        assert!(matches!(status(&raw(address, &format!("{fields}\r\n")).await), 0 | 431));
        // Heads and bodies that stop half-way end in time, and do not keep others out.
        let half = raw(address, "GET / HTTP/1.1\r\nHost: ");
        let silent = raw(address, "");
        let unfinished = head("Content-Length: 50\r\n\r\n{\"prompt\": ");
        let body = raw(address, &unfinished);
        let begun = std::time::Instant::now();
        let (half, silent, body) = tokio::join!(half, silent, body);
        assert!(begun.elapsed() < Duration::from_secs(20));
        assert!(matches!((status(&half), status(&silent)), (0 | 408, 0 | 408)));
        assert_eq!(status(&body), 408, "{body}");
        assert_eq!(stage.client.get("/v1/info").await.status, 200);
    });
}

fn connections() {
    run(async {
        let stage = ServerStage::with(|options| {
            options.limits.connections = 8;
            options.limits.read_timeout = Duration::from_secs(2);
        })
        .await;
        let mut open = Vec::new();
        for _ in 0..20 {
            open.push(TcpStream::connect(stage.client.address).await.unwrap());
        }
        // Those above the limit are closed at once.
        let mut closed = 0;
        for stream in &mut open {
            let mut byte = [0];
            let read = tokio::time::timeout(Duration::from_millis(100), stream.read(&mut byte)).await;
            closed += u32::from(matches!(read, Ok(Ok(0) | Err(_))));
        }
        assert!(closed >= 12, "{closed}");
        // Idle connections are closed in time, so that others get in.
        let client: HttpClient = stage.client.clone();
        loop {
            let mut stream = TcpStream::connect(client.address).await.unwrap();
            let request = format!(
                "GET /v1/info HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\
                                   Connection: close\r\n\r\n",
                client.address, client.token
            );
            let mut answer = String::new();
            // The server may have closed it already.
            let _ = stream.write_all(request.as_bytes()).await;
            let _ = stream.read_to_string(&mut answer).await;
            if status(&answer) == 200 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
}

fn exposed() {
    run(async {
        let dir = directory();
        let mut exposed = options(dir.path());
        exposed.listen = "0.0.0.0:0".parse().unwrap();
        let refused = Server::start(crate::stage::agentline(dir.path()), exposed.clone()).await;
        let Err(ServeError::Option { key, message, hint }) = refused else { panic!("it is refused") };
        assert_eq!(key, "--listen");
        assert!(message.contains("TLS"), "{message}");
        for flag in ["--tls-cert", "--tls-key", "--insecure-plaintext"] {
            assert!(hint.contains(flag), "{hint}");
        }
        exposed.insecure_plaintext = true;
        let server = Server::start(crate::stage::agentline(dir.path()), exposed).await.expect("a server");
        let local: SocketAddr = ([127, 0, 0, 1], server.address().port()).into();
        let client = HttpClient::new(local, server.token());
        assert_eq!(client.get("/v1/info").await.status, 200);
        let info: Value = client.get("/v1/info").await.json();
        assert_eq!(info["user"], "owner");
        server.stop().await.expect("a clean stop");
    });
}
