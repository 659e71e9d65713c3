//! A running server as other programs of the same user find it: its lock, its address, and a new link from it.

use crate::options::ServeError;
use agentline_fs::{file_lock::FileLock, private_file, regular_file::read_regular};
use serde::{Deserialize, Serialize};
use std::{
    fs::{File, TryLockError},
    io::{self, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream},
    path::Path,
    time::Duration,
};

/// The maximum size of the files that are read in bytes.
const FILE_LIMIT: u64 = 4_096;
/// The maximum size of an answer in bytes.
const ANSWER_LIMIT: u64 = 64 << 10;
/// How long the server may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The name of the file with the address of a server.
const ADDRESS: &str = "address";
/// The name of the file that a server locks.
const LOCK: &str = "lock";

/// Where a server is, in the file `address` of its directory.
#[derive(Debug, Serialize, Deserialize)]
struct RunningServer {
    address: SocketAddr,
    url: String,
}

/// Locks the directory of a server. The lock ends with the process. The address of an earlier server is removed.
pub(crate) fn lock(dir: &Path) -> Result<FileLock, ServeError> {
    let path = dir.join(LOCK);
    let mut options = File::options();
    let file = options.create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(ServeError::io(path.display()))?;
    match FileLock::try_new(file) {
        Ok(lock) => {
            let address = dir.join(ADDRESS);
            match std::fs::remove_file(&address) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    Err(ServeError::io(address.display())(error))
                }
                _ => Ok(lock),
            }
        }
        Err(TryLockError::WouldBlock) => {
            let message = format!("another server uses `{}`", dir.display());
            Err(ServeError::option("--dir", message, "stop it, or name another directory"))
        }
        Err(TryLockError::Error(error)) => Err(ServeError::io(path.display())(error)),
    }
}

/// Writes where the server of a directory is.
pub(crate) fn write_address(dir: &Path, address: SocketAddr, url: String) -> Result<(), ServeError> {
    let path = dir.join(ADDRESS);
    let text = serde_json::to_string(&RunningServer { address, url }).map_err(io::Error::other);
    let written = text.and_then(|text| private_file::create_file(&path)?.write_all(text.as_bytes()));
    written.map_err(ServeError::io(path.display()))
}

/// Asks the running server of a directory for a link that signs a browser in once, and returns its URL.
///
/// # Errors
/// Fails if no server uses the directory, if it has TLS, or if it does not answer.
pub fn new_login_link(dir: &Path) -> Result<String, ServeError> {
    let nobody = || {
        let message = format!("no server uses `{}`", dir.display());
        ServeError::option(
            "--link",
            message,
            "start `agentline serve`, or name the server's directory with --dir",
        )
    };
    // Without the lock, the address may meanwhile be that of a foreign program, which must not get the token.
    let is_in_use = File::open(dir.join(LOCK))
        .is_ok_and(|file| matches!(FileLock::try_new(file), Err(TryLockError::WouldBlock)));
    if !is_in_use {
        return Err(nobody());
    }
    let read = |name| read_regular(&dir.join(name), FILE_LIMIT).map_err(|_| nobody());
    let server: RunningServer = serde_json::from_slice(&read(ADDRESS)?).map_err(|_| nobody())?;
    let token = String::from_utf8(read("token")?).map_err(|_| nobody())?;
    if server.url.starts_with("https:") {
        let hint = format!(
            "send POST {}/v1/login-links with the token, and open the path of the answer",
            server.url
        );
        return Err(ServeError::option("--link", "the server has TLS", hint));
    }
    let answer = ask(reachable(server.address), token.trim()).map_err(ServeError::io(&server.url))?;
    let path = path_of(&answer).ok_or_else(|| {
        let first = answer.lines().next().unwrap_or_default();
        ServeError::option("--link", format!("the server answered `{first}`"), "look at its terminal")
    })?;
    Ok(format!("{}{path}", server.url))
}

/// Returns an address at which a server that listens on all addresses can be reached.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

fn ask(address: SocketAddr, token: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let request = format!(
        "POST /v1/login-links HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\
         Connection: close\r\nContent-Length: 0\r\n\r\n"
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.take(ANSWER_LIMIT).read_to_string(&mut answer)?;
    Ok(answer)
}

fn path_of(answer: &str) -> Option<String> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let is_good = head.split(' ').nth(1) == Some("200");
    let body: serde_json::Value = serde_json::from_str(body).ok().filter(|_| is_good)?;
    Some(body.get("path")?.as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_server_no_link_is_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let refused = |dir: &Path| new_login_link(dir).unwrap_err().to_string();
        assert!(refused(&dir.path().join("absent")).contains("no server uses"));
        // A server was here, and another program has its port now.
        let foreign = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        drop(lock(dir.path()).unwrap());
        write_address(dir.path(), foreign.local_addr().unwrap(), "http://127.0.0.1".into()).unwrap();
        std::fs::write(dir.path().join("token"), "secret").unwrap();
        assert!(refused(dir.path()).contains("no server uses"));
        foreign.set_nonblocking(true).unwrap();
        assert!(foreign.accept().is_err(), "nothing was sent");
        let _next = lock(dir.path()).unwrap();
        assert!(!dir.path().join(ADDRESS).exists(), "the next server has another address");
    }

    #[test]
    fn address_of_all_interfaces_is_reached_on_loopback() {
        for (listen, reached) in
            [("0.0.0.0:7", "127.0.0.1:7"), ("[::]:7", "[::1]:7"), ("10.0.0.1:7", "10.0.0.1:7")]
        {
            assert_eq!(reachable(listen.parse().unwrap()), reached.parse().unwrap());
        }
    }

    #[test]
    fn only_a_good_answer_has_a_path() {
        let body = "\r\n\r\n{\"path\":\"/login?once=1\"}";
        assert_eq!(path_of(&format!("HTTP/1.1 200 OK{body}")).as_deref(), Some("/login?once=1"));
        assert_eq!(path_of(&format!("HTTP/1.1 403 Forbidden{body}")), None);
    }
}
