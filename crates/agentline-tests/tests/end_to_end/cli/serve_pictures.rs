//! Takes the pictures of the server's page that the documentation shows.

use crate::cli::serve_page::{PageServer, start_run, until_status};
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::json;
use std::{fs, path::Path};

const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");

/// The largest picture in bytes.
const LARGEST: usize = 200_000;

/// The pictures: their names, the size of the window and the color scheme.
const PICTURES: [(&str, (u32, u32), &str); 3] = [
    ("page-light.png", (1280, 800), "light"),
    ("page-dark.png", (1280, 800), "dark"),
    ("page-phone-light.png", (390, 844), "light"),
];

/// The prompt in the pictures.
const PROMPT: &str = "primes.py lists 1 as a prime. Correct the range, and run the tests.";

/// What the agent does in the pictures.
const WORK: &str = "think The range starts at 1, which is not a prime.\\nI correct it and run the tests.\n\
    say I correct the range in `primes.py` and then run the tests.\n\
    tool write_file primes.py def primes(limit):\\n    return [n for n in range(2, limit) if is_prime(n)]\\n\n\
    ask run python3 -m unittest\n\
    say Done. The range starts at **2** now:\\n\\n- `primes.py` is corrected\\n- the tests pass";

/// To take the pictures again, run
/// `UPDATE_DOCS=1 cargo test -p agentline-tests --test end_to_end cli::serve_pictures`.
#[test]
fn pictures_of_the_page_are_small_and_shown_in_the_docs() {
    if std::env::var_os("UPDATE_DOCS").is_some() {
        take_pictures();
    }
    let page = fs::read_to_string(Path::new(DOCS).join("serve.md")).unwrap();
    for (name, ..) in PICTURES {
        let picture = fs::read(Path::new(DOCS).join(name)).unwrap();
        assert!(picture.starts_with(b"\x89PNG\r\n") && picture.len() < LARGEST, "{name}: {}", picture.len());
        assert!(page.contains(name), "docs/serve.md does not show {name}");
    }
}

fn take_pictures() {
    let server = PageServer::start().expect("the pictures need a browser");
    let mut browser = server.open();
    start_run(&mut browser, "Make the parser accept comments.");
    until_status(&mut browser, "done");
    server.user.write(".fake-acp-script", WORK);
    server
        .user
        .write("primes.py", "def primes(limit):\n    return [n for n in range(1, limit) if is_prime(n)]\n");
    let request = json!({"agent": "fake", "name": "Correct the range of the primes", "prompt": PROMPT});
    let start = format!(
        "fetch('/v1/runs', {{method: 'POST', headers: {{'Content-Type': 'application/json'}}, \
         body: JSON.stringify({request})}}).then(answer => answer.json()).then(({{run}}) => '#/runs/' + run)"
    );
    let run = browser.eval(&start);
    let run = run.as_str().unwrap();
    for (name, (width, height), scheme) in PICTURES {
        browser.size(width, height);
        browser.prefer(scheme, "screen");
        browser.eval(&format!("location.hash = {run:?}; 0"));
        browser.until("!!document.querySelector('.permission:not(.unread)')");
        browser.until("document.querySelectorAll('.row-tool').length === 2");
        // On a phone, the sidebar moves away.
        browser.until(
            "innerWidth > 800 || document.querySelector('#sidebar').getBoundingClientRect().right <= 0",
        );
        let picture = BASE64_STANDARD.decode(browser.picture(false)).unwrap();
        fs::write(Path::new(DOCS).join(name), picture).unwrap();
    }
}
