//! Tests what the page of `agentline serve` says about permission requests, tool calls that wait, numbers that are not known
//! yet, and the newline at the end of a file.

use crate::cli::serve_page::{CARD, PageServer, allow, assert_clean, start_run, until_status};
use serde_json::json;

/// What Enter does, as the card says it.
const ENTERS: &str = "document.querySelector('.permission .enters').innerText";

/// The button that allows always: its text, its title and the line below it.
const ALWAYS: &str = "(button => [button.firstChild.data, button.title, \
    button.closest('.permission').querySelector('.card-actions + .note').innerText])(document.querySelector('.permission .always'))";

#[test]
fn always_names_its_tool_and_covers_it_in_this_run_only() {
    let Some(server) = PageServer::start_with("tools = { Writing = 'Write' }\n") else { return };
    let mut browser = server.open();
    let prompt =
        "ask write_file one.txt 1\\n\nask write_file two.txt 2\\n\nask run touch three.txt\nsay Done.";
    start_run(&mut browser, prompt);
    browser.until(CARD);
    let covered = "Always: every further use of Write in this run, with any input. Other tools still ask.";
    assert_eq!(browser.eval(ALWAYS), json!(["Always allow Write", covered, covered]));
    browser.click(".permission .always");
    // The second file needs no answer; another tool asks.
    browser.until(&format!("{CARD} && ({ALWAYS})[0] === 'Always allow Bash'"));
    assert_eq!(server.user.read("two.txt"), "2\n");
    assert!(!server.user.path("three.txt").exists());
    allow(&mut browser);
    until_status(&mut browser, "done");
    // The next run asks again.
    start_run(&mut browser, "ask write_file four.txt 4\\n\nsay Done.");
    browser.until(CARD);
    assert!(!server.user.path("four.txt").exists());
    allow(&mut browser);
    until_status(&mut browser, "done");
    assert_clean(&mut browser, &server);
}

#[test]
fn always_covers_a_description_if_the_agent_names_no_tool() {
    let Some(server) = PageServer::start() else { return };
    let mut browser = server.open();
    let again = "ask run echo one >> one.txt\n".repeat(2);
    start_run(&mut browser, &format!("{again}ask run touch two.txt\nsay Done."));
    browser.until(CARD);
    let covers = |command: &str| {
        let text = format!("Always: further uses of Bash that the agent calls “{command}");
        let end = " in this run, with any input. Others still ask.";
        format!("({ALWAYS})[2].startsWith({text:?}) && ({ALWAYS})[2].endsWith({end:?})")
    };
    assert_eq!(browser.eval(&covers("echo one >> one.txt")), json!(true));
    browser.click(".permission .always");
    browser.until(&format!("{CARD} && {}", covers("touch two.txt")));
    assert_eq!(server.user.read("one.txt"), "one\none\n");
    assert!(!server.user.path("two.txt").exists());
    allow(&mut browser);
    until_status(&mut browser, "done");
    assert_clean(&mut browser, &server);
}

#[test]
fn keyboard_answers_lead_to_the_next_request_and_then_to_the_timeline() {
    let Some(server) = PageServer::start() else { return };
    let mut browser = server.open();
    start_run(&mut browser, "ask run touch first\nask run touch second\nask run touch third\nsay Done.");
    browser.until(CARD);
    // All buttons look the same, and Enter does nothing yet.
    let backgrounds = "new Set([...document.querySelectorAll('.permission button')].map(one => getComputedStyle(one).backgroundColor)).size";
    assert_eq!(browser.eval(backgrounds), json!(1));
    assert_eq!(browser.eval(ENTERS), json!(""));
    browser.eval("document.activeElement.blur(); 0");
    for (key, answer) in [("a", "Allow"), ("d", "Deny")] {
        browser.until(CARD);
        browser.press("p", false);
        browser.until("document.activeElement.matches('.permission.armed')");
        browser.press(key, false);
        browser.until(&format!("{ENTERS} === 'Enter: {answer}'"));
        browser.eval("window.answered = document.querySelector('.permission'); 0");
        browser.press("Enter", false);
        browser.until("(card => !!card && card !== answered && document.activeElement === card)(document.querySelector('.permission'))");
        assert_eq!(browser.eval(ENTERS), json!(""), "Enter answers no request that was not selected");
    }
    browser.until(CARD);
    browser.eval("document.querySelector('.deny-group input').focus(); 0");
    assert_eq!(browser.eval(ENTERS), json!("Enter: Deny"));
    browser.press("Enter", false);
    browser.until("!document.querySelector('.permission') && document.activeElement.matches('.scroller')");
    until_status(&mut browser, "done_with_denials");
    let exists = ["first", "second", "third"].map(|name| server.user.path(name).exists());
    assert_eq!(exists, [true, false, false]);
    assert_clean(&mut browser, &server);
}

#[test]
fn waiting_call_is_closed_and_the_panel_says_what_is_known_when() {
    let Some(server) = PageServer::start() else { return };
    let mut browser = server.open();
    start_run(&mut browser, "ask write_file made.txt text\\n\nsay Done.");
    browser.until("document.querySelector('.row-tool .tool-time')?.innerText === 'waits for your answer'");
    assert_eq!(browser.eval("document.querySelector('.row-tool details').open"), json!(false));
    let panel = "(() => { const text = selector => document.querySelector(selector)?.innerText; \
        return [text('.panel .number strong'), text('.panel-files .note')]; })()";
    let later = "Known at the end of the run";
    assert_eq!(browser.eval(panel), json!(["Not known yet", later]));
    browser.until(CARD);
    browser.click(".permission .danger");
    until_status(&mut browser, "done_with_denials");
    browser.until(&format!("JSON.stringify({panel}) === '[\"Not known\",\"No files changed\"]'"));
    browser.until("document.querySelector('.row-tool .tool-time').innerText.startsWith('Denied')");
    // Details are rows between the others; each row has its own position.
    let positions = "[...document.querySelectorAll('.row')].map(row => Number(row.ariaPosInSet))";
    let before = browser.eval(positions);
    browser.click(".search-bar .check input");
    browser.until(&format!("{positions}.length > {}", before.as_array().unwrap().len()));
    browser.until(&format!("{positions}.every((position, index) => position === index + 1)"));
    assert_clean(&mut browser, &server);
}

#[test]
fn diff_shows_the_newline_at_the_end_of_a_file() {
    let Some(server) = PageServer::start() else { return };
    server.user.write("a.txt", "one\ntwo\n");
    let mut browser = server.open();
    start_run(&mut browser, "ask write_file a.txt one\\ntwo\nsay Done.");
    browser.until(CARD);
    let lines = |place: &str| {
        format!(
            "[...document.querySelectorAll('{place} .line')].map(line => line.innerText.replace(/\\s+/g, ' ').trim()).join('|')"
        )
    };
    let proposed = "1 1 one|2 2 two|The newline at the end is removed";
    browser.until(&format!("{} === '{proposed}'", lines(".permission")));
    allow(&mut browser);
    until_status(&mut browser, "done");
    assert_eq!(server.user.read("a.txt"), "one\ntwo");
    browser.until("!!document.querySelector('.panel .file')");
    browser.click(".panel .file");
    let changed = "1 1 one|2 - two|2 + two|\\\\ No newline at end of file";
    browser.until(&format!("{} === '{changed}'", lines("dialog")));
    // Texts may be parts of a file, which do not end where the file ends.
    let compared = "import('/assets/diff.js').then(({compare}) => [compare('a', 'a\\n'), compare('a', 'a\\nb\\n'), compare('a', 'a')] \
        .map(lines => lines.map(line => line.sign + line.text).join('|')))";
    assert_eq!(browser.eval(compared), json!([" a|@A newline is added at the end", " a|+b", " a"]));
    assert_clean(&mut browser, &server);
}
