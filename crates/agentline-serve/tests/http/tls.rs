//! The server with a certificate.

use crate::{
    Test,
    client::{HttpClient, HttpReply},
    run,
    stage::{ServerStage, agentline, directory, options},
};
use agentline_serve::{ServeError, Server};
use http_body_util::{BodyExt as _, Empty};
use hyper::{Request, body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

pub(crate) const TESTS: &[Test] = &[
    ("tls::client_that_trusts_the_certificate_gets_an_answer", trusted),
    ("tls::plain_http_gets_no_answer", plain),
    ("tls::exposed_address_is_served_with_a_certificate", exposed),
    ("tls::missing_files_are_named", missing),
];

const REQUEST: &str = "\
[req]
distinguished_name = name
x509_extensions = extensions
prompt = no
[name]
CN = localhost
[extensions]
basicConstraints = critical, CA:FALSE
subjectAltName = DNS:localhost, IP:127.0.0.1
";

/// Creates a certificate for loopback and its key. `None` if there is no `openssl`.
fn certificate(dir: &Path) -> Option<(PathBuf, PathBuf)> {
    let (request, certificate, key) = (dir.join("request"), dir.join("cert.pem"), dir.join("key.pem"));
    std::fs::write(&request, REQUEST).unwrap();
    let words = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
    let made = Command::new("openssl")
        .args(words)
        .args(["-days", "2", "-config"])
        .arg(&request)
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .output();
    match made {
        Ok(made) if made.status.success() => Some((certificate, key)),
        Ok(made) => panic!("{}", String::from_utf8_lossy(&made.stderr)),
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "`openssl` is not installed: {error}");
            println!("skipped: `openssl` is not installed");
            None
        }
    }
}

/// Connects with TLS. The client trusts this certificate only.
async fn connect(address: SocketAddr, certificate: Option<&Path>) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    if let Some(certificate) = certificate {
        roots.add(CertificateDer::from_pem_file(certificate).unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

async fn get(stream: TlsStream<TcpStream>, host: &str, path: &str, token: &str) -> HttpReply {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::builder().uri(path).header("host", host);
    let request = request.header("authorization", format!("Bearer {token}"));
    let answer = sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap();
    let (parts, body) = answer.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    HttpReply { status: parts.status.as_u16(), headers: parts.headers, body }
}

fn trusted() {
    run(async {
        let files = directory();
        let Some((certificate, key)) = certificate(files.path()) else { return };
        let stage = ServerStage::with(|options| options.tls = Some((certificate.clone(), key))).await;
        let HttpClient { address, token } = &stage.client;
        let host = format!("localhost:{}", address.port());
        let stream = connect(*address, Some(&certificate)).await.expect("a connection");
        let info = get(stream, &host, "/v1/info", token).await;
        assert_eq!((info.status, info.json()["user"].as_str()), (200, Some("owner")));
        // The cookie is for TLS only.
        let link = stage.server.as_ref().unwrap().login_url();
        let path = link.strip_prefix(&format!("https://{address}")).expect("an address with https");
        let stream = connect(*address, Some(&certificate)).await.expect("a connection");
        let login = get(stream, &host, path, "").await;
        assert_eq!(login.status, 303);
        assert!(login.headers["set-cookie"].to_str().unwrap().ends_with("; Secure"));
        // A client that does not trust the certificate breaks off, and others are served.
        assert!(connect(*address, None).await.is_err());
        let stream = connect(*address, Some(&certificate)).await.expect("a connection");
        assert_eq!(get(stream, &host, "/v1/info", token).await.status, 200);
    });
}

fn plain() {
    run(async {
        let files = directory();
        let Some(pair) = certificate(files.path()) else { return };
        let stage = ServerStage::with(|options| options.tls = Some(pair)).await;
        let HttpClient { address, token } = &stage.client;
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request =
            format!("GET /v1/info HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // The server closes the connection, at most after an alert of TLS.
        let _ = stream.read_to_end(&mut answer).await;
        assert!(!String::from_utf8_lossy(&answer).contains("HTTP/1.1"), "{answer:?}");
        assert!(answer.len() <= 16, "{answer:?}");
    });
}

fn exposed() {
    run(async {
        let dir = directory();
        let Some((certificate, key)) = certificate(dir.path()) else { return };
        let mut options = options(dir.path());
        options.listen = "0.0.0.0:0".parse().unwrap();
        options.tls = Some((certificate.clone(), key));
        let server = Server::start(agentline(dir.path()), options).await.expect("a server");
        let local: SocketAddr = ([127, 0, 0, 1], server.address().port()).into();
        let stream = connect(local, Some(&certificate)).await.expect("a connection");
        assert_eq!(get(stream, &local.to_string(), "/v1/info", server.token()).await.status, 200);
        server.stop().await.expect("a clean stop");
    });
}

fn missing() {
    run(async {
        let dir = directory();
        let Some((certificate, key)) = certificate(dir.path()) else { return };
        let none = dir.path().join("none.pem");
        for (files, flag) in [((none.clone(), key), "--tls-cert"), ((certificate, none), "--tls-key")] {
            let mut options = options(dir.path());
            options.tls = Some(files);
            let Err(ServeError::Option { key, message, .. }) =
                Server::start(agentline(dir.path()), options).await
            else {
                panic!("it is refused")
            };
            assert_eq!(key, flag);
            assert!(message.contains("none.pem"), "{message}");
        }
    });
}
