//! Takes the pictures of an experiment's page that the documentation shows.

use crate::cli::batch::{batch, user};
use agentline_tests::{Browser, has_browser};
use base64::{Engine, prelude::BASE64_STANDARD};
use std::{fs, path::Path};

const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");

/// The largest picture in bytes.
const LARGEST: usize = 200_000;

/// The pictures: their names, the size of the window and the color scheme.
const PICTURES: [(&str, (u32, u32), &str); 4] = [
    ("report-light.png", (1280, 1000), "light"),
    ("report-dark.png", (1280, 1000), "dark"),
    ("report-phone-light.png", (390, 844), "light"),
    ("report-phone-dark.png", (390, 844), "dark"),
];

/// The tasks of the experiment, and how many of three attempts solve them with each variant.
const TASKS: [(&str, u32, u32); 10] = [
    ("brackets", 3, 3),
    ("cache", 1, 3),
    ("chunk", 2, 3),
    ("csv", 0, 2),
    ("days", 0, 0),
    ("median", 1, 3),
    ("rename", 3, 3),
    ("roman", 2, 3),
    ("slugify", 1, 2),
    ("words", 0, 3),
];

/// To take the pictures again, run
/// `UPDATE_DOCS=1 cargo test -p agentline-tests --test end_to_end cli::report_pictures`.
#[test]
fn pictures_of_the_report_are_small_and_shown_in_the_docs() {
    if std::env::var_os("UPDATE_DOCS").is_some() {
        take_pictures();
    }
    let page = fs::read_to_string(Path::new(DOCS).join("batch.md")).unwrap();
    for (name, ..) in PICTURES {
        let picture = fs::read(Path::new(DOCS).join(name)).unwrap();
        assert!(picture.starts_with(b"\x89PNG\r\n") && picture.len() < LARGEST, "{name}: {}", picture.len());
        assert!(page.contains(name), "docs/batch.md does not show {name}");
    }
}

fn take_pictures() {
    assert!(has_browser(), "the pictures need a browser");
    let user = user();
    // An attempt counts its predecessors in a file, because all attempts have the same prompt.
    let counts = user.path("counts");
    fs::create_dir(&counts).unwrap();
    let solved = |id: &str, variant: &str, times: u32| {
        let file = counts.join(format!("{id}-{variant}"));
        let file = file.display();
        format!("run echo x >> {file}; test $(wc -l < {file}) -gt {times} || echo solved > {id}.mjs")
    };
    let cases: String = TASKS
        .iter()
        .map(|(id, short, long)| {
            let short = format!(
                "used 2100 340 0.011\\n{}\\nsay I have changed the file.",
                solved(id, "short", *short)
            );
            let long = format!("used 3900 810 0.019\\n{}\\nsay The plan is done.", solved(id, "long", *long));
            format!("- {{id: {id}, vars: {{task: \"{short}\", steps: \"{long}\"}}, checks: [{{file_exists: {id}.mjs}}]}}\n")
        })
        .collect();
    user.write(
        "suite.yaml",
        &format!(
            "name: coding-tasks\ndescription: Ten small coding tasks, with and without a plan\ndefaults: {{agent: fake, quiet_period_ms: 0, permission_mode: bypass}}\nrepeat: 3\nvariants:\n\
             - {{id: short prompt, prompt: \"Solve the task.\\n{{{{task}}}}\"}}\n\
             - {{id: with a plan, prompt: \"Write a plan, then follow it.\\n{{{{steps}}}}\"}}\n\
             cases:\n{cases}"
        ),
    );
    let done = batch(&user, &[]);
    assert_eq!(done.code, 1, "{}{}", done.out, done.err);
    let done = user.agentline(&["report", "exp", "-o", "html", "--to", "page.html"]);
    assert_eq!(done.code, 0, "{}", done.err);
    let page = user.path("page.html").canonicalize().unwrap();
    for (name, size, scheme) in PICTURES {
        let mut browser = Browser::open(&page, size);
        browser.prefer(scheme, "screen");
        browser.until("document.querySelectorAll('svg').length > 0");
        let picture = BASE64_STANDARD.decode(browser.picture(false)).unwrap();
        fs::write(Path::new(DOCS).join(name), picture).unwrap();
    }
}
