//! A package registry on loopback that serves what a test publishes, for the real npm.

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha512};
use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

/// A registry that is stopped with the process of the test.
#[derive(Clone, Debug)]
pub struct FakeRegistry {
    port: u16,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// The published versions by package and version: `package.json` and the tarball.
    packages: BTreeMap<(String, String), (Value, Vec<u8>)>,
    /// The paths of all requests.
    requests: Vec<String>,
    /// Whether requests for tarballs get no answer.
    hangs: bool,
}

impl FakeRegistry {
    /// Starts an empty registry.
    ///
    /// # Panics
    /// Panics if no port is free.
    #[must_use]
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("the address").port();
        let registry = Self { port, state: Arc::default() };
        let served = registry.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let registry = served.clone();
                // A client that goes away ends only its own connection.
                thread::spawn(move || registry.serve(&stream));
            }
        });
        registry
    }

    /// Returns the address.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    /// Publishes a version with these fields of `package.json` and these executable files.
    pub fn publish(&self, name: &str, version: &str, fields: &Value, files: &[(&str, &str)]) {
        let mut package = json!({"name": name, "version": version});
        for (key, value) in fields.as_object().into_iter().flatten() {
            package[key] = value.clone();
        }
        let manifest = package.to_string();
        let files = [("package.json", &*manifest)].into_iter().chain(files.iter().copied());
        let mut tar: Vec<u8> = files.flat_map(|(name, text)| tar_entry(name, text.as_bytes())).collect();
        tar.extend([0; 1024]);
        self.lock().packages.insert((name.to_owned(), version.to_owned()), (package, tar));
    }

    /// Makes requests for tarballs hang from now on, or answers them again.
    pub fn hang(&self, hangs: bool) {
        self.lock().hangs = hangs;
    }

    /// Returns the paths of all requests for tarballs.
    #[must_use]
    pub fn downloads(&self) -> Vec<String> {
        self.lock().requests.iter().filter(|path| path.ends_with(".tgz")).cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, stream: &TcpStream) -> Option<()> {
        let mut reader = BufReader::new(stream);
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
            let path = line.split(' ').nth(1)?.replace("%2f", "/");
            while reader.read_line(&mut line).ok()? > 2 {}
            self.lock().requests.push(path.clone());
            if path.ends_with(".tgz") && self.lock().hangs {
                // The client is killed while it waits.
                loop {
                    thread::park();
                }
            }
            let (status, body) = self.answer(&path);
            let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", body.len());
            let mut out = stream;
            out.write_all(head.as_bytes()).and_then(|()| out.write_all(&body)).ok()?;
        }
    }

    fn answer(&self, path: &str) -> (&'static str, Vec<u8>) {
        let state = self.lock();
        let path = path.trim_start_matches('/');
        if let Some((name, file)) = path.split_once("/-/") {
            let found = state
                .packages
                .iter()
                .find(|((package, version), _)| package == name && file == format!("{version}.tgz"));
            return found.map_or(("404 Not Found", Vec::new()), |(_, (_, tar))| ("200 OK", tar.clone()));
        }
        let mut versions = Map::new();
        for ((name, version), (package, tar)) in state.packages.iter().filter(|((name, _), _)| name == path) {
            let mut package = package.clone();
            let tarball = format!("{}{name}/-/{version}.tgz", self.url());
            package["dist"] = json!({"tarball": tarball, "integrity": integrity(tar)});
            versions.insert(version.clone(), package);
        }
        if versions.is_empty() {
            return ("404 Not Found", b"{}".to_vec());
        }
        let latest = versions.keys().next_back().cloned();
        let packument = json!({"name": path, "versions": versions, "dist-tags": {"latest": latest}});
        ("200 OK", packument.to_string().into_bytes())
    }
}

/// Returns the hash of a tarball as npm writes it.
fn integrity(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digest = Sha512::digest(bytes);
    let mut text = String::from("sha512-");
    for chunk in digest.chunks(3) {
        let bits = chunk.iter().chain(&[0, 0]).take(3).fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
        for place in 0..4 {
            let digit = usize::try_from(bits >> (18 - 6 * place) & 63).unwrap_or_default();
            text.push(if place <= chunk.len() { char::from(DIGITS[digit]) } else { '=' });
        }
    }
    text
}

/// Returns an executable file of a tarball.
fn tar_entry(name: &str, content: &[u8]) -> Vec<u8> {
    let mut header = [0_u8; 512];
    let mut put = |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, &format!("package/{name}"));
    put(100, "0000755\0");
    put(108, "0000000\0");
    put(116, "0000000\0");
    put(124, &format!("{:011o}\0", content.len()));
    put(136, "00000000000\0");
    put(148, "        ");
    put(156, "0");
    put(257, "ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut entry = header.to_vec();
    entry.extend(content);
    entry.resize(entry.len().next_multiple_of(512), 0);
    entry
}
