//! Tests of artifacts in a bucket, with a small server that speaks the part of the S3 protocol that is used.

use super::*;
use crate::{MAX_ARTIFACT, TreeLimits, download_tree, upload_tree};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// The number of objects in one page of a list.
const PAGE: usize = 2;

/// A server with the bucket `bucket`, for the user `user`.
#[derive(Clone, Debug, Default)]
struct Server {
    objects: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
}

impl Server {
    /// Starts the server and returns its endpoint.
    async fn start(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let server = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(server.clone().serve(stream));
            }
        });
        endpoint
    }

    /// Answers the requests of a connection.
    async fn serve(self, stream: TcpStream) {
        let mut stream = BufReader::new(stream);
        loop {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                if stream.read_line(&mut head).await.is_ok_and(|length| length == 0) {
                    return;
                }
            }
            let header = |name: &str| {
                let mut lines = head.lines().filter_map(|line| line.split_once(": "));
                lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value)
            };
            let mut body = vec![0; header("content-length").parse().unwrap_or_default()];
            stream.read_exact(&mut body).await.expect("a body");
            let mut words = head.split(' ');
            let (method, target) = (words.next().expect("a method"), words.next().expect("a path"));
            let is_user = header("authorization").starts_with("AWS4-HMAC-SHA256 Credential=user/");
            let (status, content) =
                if is_user { self.answer(method, target, body) } else { (403, Vec::new()) };
            let length = content.len();
            let head = format!(
                "HTTP/1.1 {status} x\r\ncontent-length: {length}\r\netag: \"x\"\r\n\
                 last-modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).await.expect("a written head");
            if method != "HEAD" {
                stream.write_all(&content).await.expect("a written body");
            }
        }
    }

    /// Returns the status and the content of the response.
    fn answer(&self, method: &str, target: &str, body: Vec<u8>) -> (u16, Vec<u8>) {
        let mut objects = self.objects.lock().expect("the objects");
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let Some(key) = path.strip_prefix("/bucket") else { return (404, Vec::new()) };
        let key = key.trim_start_matches('/');
        match method {
            "GET" if key.is_empty() => (200, list(&objects, query).into_bytes()),
            "GET" | "HEAD" => objects.get(key).map_or((404, Vec::new()), |content| (200, content.clone())),
            "PUT" => {
                objects.insert(key.to_owned(), body);
                (200, Vec::new())
            }
            "DELETE" => (if objects.remove(key).is_some() { 204 } else { 404 }, Vec::new()),
            _ => (405, Vec::new()),
        }
    }
}

fn list(objects: &BTreeMap<String, Vec<u8>>, query: &str) -> String {
    let parameter = |name: &str| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(key, _)| *key == name).map_or(String::new(), |(_, value)| value.replace("%2F", "/"))
    };
    let (prefix, after) = (parameter("prefix"), parameter("continuation-token"));
    let keys: Vec<_> = objects.keys().filter(|key| key.starts_with(&prefix) && **key > after).collect();
    let mut entries = String::new();
    for key in keys.iter().take(PAGE) {
        entries += &format!(
            "<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>\
             <ETag>x</ETag><Size>{}</Size></Contents>",
            objects[*key].len()
        );
    }
    let next = keys.get(PAGE - 1).filter(|_| keys.len() > PAGE);
    let next = next.map(|key| format!("<NextContinuationToken>{key}</NextContinuationToken>"));
    let is_truncated = next.is_some();
    let next = next.unwrap_or_default();
    format!("<ListBucketResult><IsTruncated>{is_truncated}</IsTruncated>{next}{entries}</ListBucketResult>")
}

fn artifacts(address: &str, user: &str) -> Result<S3Artifacts, QueueError> {
    let environment = AmazonS3Builder::new().with_access_key_id(user).with_secret_access_key("secret");
    S3Artifacts::with_environment(environment, address, &ConnectOptions::default())
}

#[tokio::test]
async fn artifacts_are_stored_in_a_bucket() {
    let server = Server::default();
    let address = format!("s3://bucket/some/prefix/?endpoint={}&region=eu-west-1", server.start().await);
    let store = artifacts(&address, "user").expect("a store");
    let mut names = Vec::new();
    for content in ["a", "b", "c", "d", "e"] {
        names.push(store.put("one", content.as_bytes()).await.expect("an artifact"));
    }
    let other = store.put("one-more", b"other").await.expect("an artifact");
    assert_eq!(store.put("one", b"a").await.expect("the same artifact"), names[0]);
    let keys: Vec<_> = server.objects.lock().expect("the objects").keys().cloned().collect();
    assert!(keys.contains(&format!("some/prefix/one/{}", names[0])), "{keys:?}");
    assert_eq!(store.get("one", &names[2]).await.expect("an answer").as_deref(), Some(&b"c"[..]));
    assert_eq!(store.get("one", &other).await.expect("an answer"), None);
    assert!(store.has("one-more", &other).await.expect("an answer"));
    assert!(!store.has("one", &other).await.expect("an answer"));
    let mut listed = store.names("one").await.expect("a list");
    listed.sort();
    names.sort();
    assert_eq!(listed, names);
    for name in &names {
        store.remove("one", name).await.expect("a removed artifact");
        store.remove("one", name).await.expect("nothing to remove");
    }
    assert_eq!(store.names("one").await.expect("a list"), [""; 0]);
    assert_eq!(store.names("one-more").await.expect("a list"), [other]);
}

#[tokio::test]
async fn trees_travel_through_a_bucket() {
    let server = Server::default();
    let address = format!("s3://bucket?endpoint={}", server.start().await);
    let store = artifacts(&address, "user").expect("a store");
    let dir = tempfile::tempdir().expect("a directory");
    let large: Vec<u8> = (0..9_000_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let (file, copy) = (dir.path().join("file"), dir.path().join("copy"));
    std::fs::write(&file, &large).expect("a file");
    let tree = upload_tree(&store, "e", &file, TreeLimits::default()).await.expect("a tree");
    download_tree(&store, "e", &tree, &copy, TreeLimits::default()).await.expect("a copy");
    assert!(std::fs::read(&copy).expect("a file") == large);
}

#[tokio::test]
async fn content_that_does_not_match_its_name_is_refused() {
    let server = Server::default();
    let address = format!("s3://bucket/p?endpoint={}", server.start().await);
    let store = artifacts(&address, "user").expect("a store");
    let name = artifact_name(b"content");
    for content in [b"other".to_vec(), vec![0; MAX_ARTIFACT + 1]] {
        server.objects.lock().expect("the objects").insert(format!("p/e/{name}"), content);
        let error = store.get("e", &name).await.expect_err("a refusal");
        assert!(matches!(error, QueueError::Damaged(_)), "{error}");
    }
    let error = store.put("e", &vec![0; MAX_ARTIFACT + 1]).await.expect_err("a refusal");
    assert!(matches!(error, QueueError::TooLarge { .. }), "{error}");
    assert!(matches!(store.get("../e", &name).await, Err(QueueError::InvalidName(_))));
}

#[tokio::test]
async fn refused_users_and_missing_buckets_are_permanent_errors() {
    let server = Server::default();
    let endpoint = server.start().await;
    let store = artifacts(&format!("s3://bucket?endpoint={endpoint}"), "stranger").expect("a store");
    let error = store.put("e", b"x").await.expect_err("a refusal");
    assert!(matches!(error, QueueError::Unauthorized(_)), "{error}");
    assert!(!error.to_string().contains("secret"), "{error}");
    let store = artifacts(&format!("s3://missing?endpoint={endpoint}"), "user").expect("a store");
    let error = store.put("e", b"x").await.expect_err("a refusal");
    assert!(matches!(error, QueueError::Refused(_)), "{error}");
}

#[test]
fn addresses_have_a_bucket_and_no_credentials() {
    let parsed = Location::parse("s3://b/p/q/?region=r&endpoint=https://h:9000/").expect("an address");
    let endpoint = Some("https://h:9000");
    assert_eq!(parsed, Location { bucket: "b", prefix: "p/q", endpoint, region: Some("r") });
    for (address, expected) in [
        ("s3:///p", "has no bucket"),
        ("s3://key:secret@bucket", "must not contain credentials"),
        ("s3://bucket?endpoint=https://key:secret@host", "must not contain credentials"),
        ("s3://bucket?endpoint=host", "neither `http://` nor `https://`"),
        ("s3://bucket?secret_access_key=secret", "not `endpoint=URL` or `region=NAME`"),
    ] {
        let error = artifacts(address, "user").expect_err("a refusal").to_string();
        assert!(error.contains(expected) && !error.contains("key:"), "{error}");
        assert!(!error.contains("=secret"), "{error}");
    }
}

#[test]
fn plaintext_is_for_loopback_only() {
    for endpoint in ["", "https://host", "http://localhost:9000", "http://127.0.0.1", "http://[::1]:9000/x"] {
        check_endpoint(endpoint, false).expect("an endpoint");
    }
    for endpoint in
        ["http://host", "http://10.0.0.1:9000", "http://localhost.example", "http://[2001:db8::1]"]
    {
        let error = check_endpoint(endpoint, false).expect_err("a refusal");
        assert!(matches!(error, QueueError::Plaintext(_)), "{error}");
        check_endpoint(endpoint, true).expect("an endpoint");
    }
    let environment = AmazonS3Builder::new().with_endpoint("http://host").with_allow_http(true);
    let opened = S3Artifacts::with_environment(environment, "s3://bucket", &ConnectOptions::default());
    assert!(matches!(opened, Err(QueueError::Plaintext(_))), "{opened:?}");
}
