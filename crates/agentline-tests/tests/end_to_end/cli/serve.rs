//! Tests `agentline serve` on the command line: the browser that it opens, and the addresses that it refuses.

use crate::cli::user::User;

#[cfg(unix)]
#[test]
fn open_starts_the_browser_once_with_the_link() {
    use agentline_tests::wait_until;
    use std::{
        fs,
        io::{BufRead, BufReader},
        os::unix::fs::PermissionsExt,
        process::{Command, Stdio},
    };
    let user = User::new();
    let (program, calls) = (user.path("../browser"), user.path("../browser.calls"));
    fs::write(&program, "#!/bin/sh\necho \"$@\" >> \"$0.calls\"\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let program = program.canonicalize().unwrap();
    let user = user.env("BROWSER", program.to_string_lossy());
    let args = ["serve", "--listen", "127.0.0.1:0", "--dir", "../serve", "--open"];
    let mut server = user.command(&args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut link = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut link).unwrap();
    wait_until("the browser", || fs::read_to_string(&calls).is_ok_and(|text| text.ends_with('\n')));
    let status = Command::new("kill").args(["-s", "TERM", &server.id().to_string()]).status();
    assert!(status.unwrap().success());
    server.wait().unwrap();
    assert!(link.contains("/login?once="), "{link}");
    assert_eq!(fs::read_to_string(&calls).unwrap(), link);
}

#[test]
fn exposed_address_without_tls_is_refused_with_the_flags() {
    let user = User::new();
    let refused = user.agentline(&["serve", "--listen", "0.0.0.0:0", "--dir", "../serve"]);
    assert_ne!(refused.code, 0);
    for flag in ["--listen", "--tls-cert", "--tls-key", "--insecure-plaintext"] {
        assert!(refused.err.contains(flag), "{flag}: {}", refused.err);
    }
}

#[test]
fn link_without_a_server_is_refused() {
    let user = User::new();
    let refused = user.agentline(&["serve", "--link", "--dir", "../serve"]);
    assert_ne!(refused.code, 0);
    assert!(refused.out.is_empty());
    for part in ["--link", "no server uses", "--dir"] {
        assert!(refused.err.contains(part), "{part}: {}", refused.err);
    }
    assert!(!user.path("../serve").exists());
}
