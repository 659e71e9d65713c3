//! Tests conversations on the page of `agentline serve` in a real browser: each event once and in order, totals, queued
//! prompts, changed files, cancelled and interrupted prompts.

use crate::cli::serve_page::{PageServer, assert_clean, rows_of_feed, until_status};
use agentline_tests::Browser;
use serde_json::{Value, json};

/// What the head, the panel and the timeline say.
const SUMMARY: &str = "(() => { const texts = (list, name, value) => Object.fromEntries([...document.querySelectorAll(list)] \
    .map(one => [one.querySelector(name).innerText, one.querySelector(value).innerText])); \
    return {...texts('.number', '.label', 'strong'), ...texts('.facts-list div', 'dt', 'dd span'), \
    status: document.querySelector('[data-status]')?.dataset.status, \
    files: [...document.querySelectorAll('.panel .file')].map(file => file.innerText.replace(/\\s+/g, ' ')), \
    rows: document.querySelector('.row')?.getAttribute('aria-setsize')}; })()";

/// Opens a conversation of the fake agent with its first prompt. Returns its address within the page.
pub(super) fn open_conversation(browser: &mut Browser, prompt: &str) -> String {
    browser.until("!!document.querySelector('.start')");
    browser.eval("document.querySelector('.more-options').open = true; 0");
    browser.click(".more-options .check input");
    browser.eval("document.querySelector('.new-run select').value = 'fake'; document.querySelector('.new-run textarea').focus(); 0");
    browser.type_text(prompt);
    browser.click(".start");
    browser.until("location.hash.startsWith('#/conversations/')");
    browser.eval("location.hash").as_str().unwrap().to_owned()
}

fn send(browser: &mut Browser, prompt: &str) {
    browser.until("document.querySelector('.composer')?.hidden === false && document.querySelector('.composer textarea').value === ''");
    browser.click(".composer textarea");
    browser.type_text(prompt);
    browser.press("Enter", false);
}

fn until_answer(browser: &mut Browser, text: &str) {
    browser.until(&format!(
        "[...document.querySelectorAll('.row-text')].some(row => row.innerText.trim() === {text:?})"
    ));
}

/// Returns the sums of events and tokens over the runs of the server, which the page must show.
fn sums(browser: &mut Browser) -> Value {
    browser.eval(
        "(async () => { const get = path => fetch(path).then(answer => answer.json()); const sums = {events: 0, tokens: 0, turns: 0}; \
         for (const {run, last_event} of (await get('/v1/runs')).runs) { const {outcome} = await get(`/v1/runs/${run}/outcome`); \
         sums.events += last_event; sums.tokens += outcome.usage.total_tokens; sums.turns += outcome.turns; } return sums; })()",
    )
}

#[test]
fn every_tab_and_reload_shows_each_event_of_a_conversation_once() {
    let Some(server) = PageServer::start() else { return };
    let mut browser = server.open();
    let address = open_conversation(
        &mut browser,
        "tool write_file made.txt one\\n\nask run touch denied.txt\nusage 100 20\nsay First.",
    );
    browser.until("!!document.querySelector('.permission:not(.unread)')");
    browser.click(".permission .danger");
    until_status(&mut browser, "done_with_denials");
    send(&mut browser, "run echo two\nask run true\nusage 300 40\nsay Second.");
    browser.until("!!document.querySelector('.permission:not(.unread)')");
    // The prompt in progress has one bubble.
    browser.until("document.querySelectorAll('.row-prompt').length === 2");
    send(&mut browser, "run echo three\nusage 500 60\nsay Third.");
    // A prompt that waits is marked, and hides neither the question nor the name of the conversation.
    browser.until("document.querySelectorAll('.row-prompt .tag').length === 1 && !![...document.querySelectorAll('.row-prompt')].at(-1).querySelector('.tag')");
    browser.until("document.querySelectorAll('.nav-run').length === 1 && document.querySelector('.nav-run .badge')?.innerText === 'asks you'");
    browser
        .until("document.querySelector('.nav-run-title').innerText.startsWith('tool write_file made.txt')");
    assert_eq!(browser.eval("document.querySelector('[data-status]').dataset.status"), json!("waiting"));
    browser.click(".permission .allow");
    until_answer(&mut browser, "Third.");
    until_status(&mut browser, "done");
    browser.until("document.querySelectorAll('.row-prompt .tag').length === 0");
    let expected = sums(&mut browser);
    assert_eq!(expected["tokens"], json!(1020));
    let events = expected["events"].to_string();
    let is_complete = format!("({SUMMARY}).Events === {events:?}");
    browser.until(&is_complete);
    let summary = browser.eval(SUMMARY);
    let texts = |rows: &[String]| {
        let is_text = |row: &&String| ["First.", "Second.", "Third."].contains(&row.trim());
        rows.iter().filter(is_text).map(|row| row.trim().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(texts(&rows_of_feed(&mut browser)), ["First.", "Second.", "Third."]);
    assert_eq!(summary["Tokens"], json!("1,020"));
    assert_eq!(summary["Turns"], json!(expected["turns"].to_string()));
    assert_eq!(summary["Prompts"], json!("3"));
    let mut second = server.open_second(&server.url, &address);
    second.until(&is_complete);
    let rows = rows_of_feed(&mut second);
    assert_eq!(texts(&rows), ["First.", "Second.", "Third."], "{rows:?}");
    for reload in 1..=3 {
        for tab in [&mut browser, &mut second] {
            tab.go(&format!("{}/?{reload}{address}", server.url));
            tab.until("!!document.querySelector('.nav-run')");
            tab.until(&is_complete);
            assert_eq!(rows_of_feed(tab), rows);
            assert_eq!(tab.eval(SUMMARY), summary);
        }
    }
    // The list has the conversation once.
    browser.eval("location.hash = '#/'; 0");
    browser.until("document.querySelectorAll('.card').length === 1 && document.querySelector('.card .tag').innerText === '3 prompts'");
    browser.until("document.querySelector('.card .status').innerText === 'Done'");
    assert_clean(&mut browser, &server);
    assert_clean(&mut second, &server);
}

#[test]
fn changes_of_a_conversation_are_merged_and_a_restored_file_ended_unchanged() {
    let Some(server) = PageServer::start() else { return };
    server.user.write("a.txt", "old\n");
    let mut browser = server.open();
    let files = |browser: &mut Browser, expected: &[&str]| {
        let expected = json!(expected).to_string();
        browser.until(&format!("JSON.stringify(({SUMMARY}).files) === {expected:?}"));
    };
    open_conversation(&mut browser, "tool write_file a.txt new\\n\nsay First.");
    until_answer(&mut browser, "First.");
    files(&mut browser, &["M a.txt +1 −1"]);
    // The same content again is no change, and does not hide the first one.
    send(&mut browser, "tool write_file a.txt new\\n\nsay Second.");
    until_answer(&mut browser, "Second.");
    browser.until("[...document.querySelectorAll('section.outcome .file')].at(-1)?.innerText.includes('ended unchanged')");
    files(&mut browser, &["M a.txt +1 −1"]);
    send(&mut browser, "tool write_file a.txt new\\nmore\\n\nsay Third.");
    until_answer(&mut browser, "Third.");
    files(&mut browser, &["M a.txt +2 −1"]);
    browser.click(".panel .file");
    browser.until(
        "[...document.querySelectorAll('dialog h3')].map(one => one.innerText).join() === 'Prompt 1,Prompt 3'",
    );
    browser.press("Escape", false);
    browser.until("!document.querySelector('dialog')");
    for (prompt, answer) in [("new\\n", "Fourth."), ("old\\n", "Fifth.")] {
        send(&mut browser, &format!("tool write_file a.txt {prompt}\nsay {answer}"));
        until_answer(&mut browser, answer);
    }
    files(&mut browser, &["= a.txt ended unchanged"]);
    browser.until("document.querySelector('.panel-files h2').innerText === '0 changed files'");
    assert_clean(&mut browser, &server);
}

#[test]
fn stopped_prompts_are_described_in_plain_words() {
    let Some(mut server) = PageServer::start() else { return };
    let mut browser = server.open();
    let address = open_conversation(&mut browser, "ask run true\nhang");
    browser.until("!!document.querySelector('.permission:not(.unread)')");
    browser.click(".permission .allow");
    let open = "document.querySelectorAll('.feed details').forEach(one => { one.open = true; })";
    let decision = "document.querySelector('.decision')?.innerText === 'You allowed this'";
    browser.until(&format!("({open}, {decision})"));
    browser.click("[data-action=cancel]");
    until_status(&mut browser, "cancelled");
    let text = "document.querySelector('section.outcome.neutral .stopped')?.innerText";
    browser.until(&format!("{text} === 'You cancelled this run. Continue it below.'"));
    assert_eq!(browser.eval("document.querySelector('.feed').innerText.includes('SIGINT')"), json!(false));
    assert_clean(&mut browser, &server);
    send(&mut browser, "run true\nhang");
    browser.until("!!document.querySelector('[data-action=cancel]') && document.querySelectorAll('.row-tool').length === 2");
    server.terminate();
    let last = "[...document.querySelectorAll('section.outcome')].at(-1)";
    browser.until(&format!(
        "{last}.innerText.includes('The server was stopped during this run. Continue it below.')"
    ));
    browser
        .until(&format!("{last}.classList.contains('neutral') && {last}.innerText.includes('Interrupted')"));
    browser.until("document.querySelector('.composer textarea').placeholder.startsWith('Continue')");
    // The next server has the conversation, with both prompts.
    server.restart();
    let mut browser = server.open();
    browser.eval(&format!("location.hash = {address:?}; 0"));
    browser.until("document.querySelectorAll('.row-prompt').length === 2 && document.querySelectorAll('section.outcome').length === 2");
    until_status(&mut browser, "interrupted");
    browser.until("document.querySelector('.composer textarea').placeholder.startsWith('Continue')");
}
