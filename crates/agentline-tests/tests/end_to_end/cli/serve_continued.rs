//! Tests that the page of `agentline serve` says what a conversation continues, and that a conversation whose first prompt
//! is refused does not stay open.

use crate::cli::serve_page::{PageServer, assert_clean, start_run, until_status};
use agentline_tests::Browser;
use serde_json::json;
use tempfile::TempDir;

/// The line below the title that says what the conversation continues.
const ORIGIN: &str = "[...document.querySelectorAll('.thread-head .sub')].at(1)?.innerText";

/// Returns settings with which the fake agent resumes its sessions in another process.
fn remembering(store: &TempDir) -> String {
    format!("env = {{ FAKE_ACP_STORE = '{}' }}\n", store.path().display())
}

/// Continues the ended thread on the screen. Returns the address of the new conversation within the page.
fn resume(browser: &mut Browser, prompt: &str) -> String {
    browser.until("document.querySelector('.composer')?.hidden === false && document.querySelector('.composer textarea').placeholder.startsWith('Continue')");
    let before = browser.eval("location.hash");
    browser.click(".composer textarea");
    browser.type_text(prompt);
    browser.press("Enter", false);
    browser.until(&format!("location.hash.startsWith('#/conversations/') && location.hash !== {before}"));
    until_status(browser, "done");
    browser.eval("location.hash").as_str().unwrap().to_owned()
}

#[test]
fn continued_run_and_conversation_are_named_and_linked() {
    let store = TempDir::new().unwrap();
    let Some(server) = PageServer::start_with(&remembering(&store)) else { return };
    let mut browser = server.open();
    // The title is text, wherever it is kept.
    let run = start_run(&mut browser, "say <img src=x onerror='window.pwned=1'>");
    until_status(&mut browser, "done");
    let first = resume(&mut browser, "say Second.");
    let title = "say <img src=x onerror='window.pwned=1'>";
    let of_run = format!("{ORIGIN} === {:?}", format!("This conversation continues the run {title}"));
    browser.until(&of_run);
    assert_eq!(browser.eval("document.querySelector('.thread-head a').hash"), json!(run));
    // The address without more, as the navigation has it, is enough after a reload.
    browser.go(&format!("{}/?again{first}", server.url));
    browser.until(&of_run);
    browser.until("!!document.querySelector('[data-action=close]')");
    browser.click("[data-action=close]");
    let second = resume(&mut browser, "say Third.");
    let of_conversation = format!("{ORIGIN} === 'This conversation continues the conversation say Second.'");
    browser.until(&of_conversation);
    assert_eq!(browser.eval("document.querySelector('.thread-head a').hash"), json!(first));
    // Another browser finds the origin by the session of the agent.
    let mut other = server.open_second(&server.url, &first);
    other.until(&of_run);
    browser.eval(&format!("location.hash = {run:?}; 0"));
    browser.until(&format!("location.hash === {run:?} && !!document.querySelector('section.outcome')"));
    assert_eq!(browser.eval(ORIGIN), json!(null), "a run of its own continues nothing");
    // The number of entries is bounded.
    let count = "JSON.parse(localStorage.getItem('agentline.continued') ?? '[]').length";
    assert_eq!(browser.eval(count), json!(2));
    browser.eval(
        "import('/assets/origin.js').then(({continuedAddress}) => { for (let i = 0; i < 300; i += 1) \
         continuedAddress(`c${i}`, {kind: 'run', id: 'r', title: 'Title'}); return 0; })",
    );
    assert_eq!(browser.eval(count), json!(200));
    browser.eval(&format!("location.hash = {second:?}; 0"));
    browser.until(&format!(
        "location.hash === {second:?} && {ORIGIN}?.startsWith('This conversation continues the ')"
    ));
    assert_clean(&mut browser, &server);
    assert_clean(&mut other, &server);
}

#[test]
fn conversation_whose_first_prompt_is_refused_is_closed() {
    let store = TempDir::new().unwrap();
    let Some(server) = PageServer::start_with(&remembering(&store)) else { return };
    let mut browser = server.open();
    let states = "fetch('/v1/conversations').then(answer => answer.json()).then(({conversations}) => conversations.map(one => one.state).join())";
    // The prompts of conversations are refused; everything else reaches the server.
    let refuse = "window.real ??= fetch; window.fetch = (path, init) => path.endsWith('/prompts') \
        ? Promise.resolve(new Response(JSON.stringify({error: {code: 'usage', message: 'refused here'}}), {status: 400})) \
        : real(path, init); 0";
    browser.eval(refuse);
    browser.eval("document.querySelector('.more-options').open = true; 0");
    browser.click(".more-options .check input");
    browser.eval("document.querySelector('.new-run select').value = 'fake'; document.querySelector('.new-run textarea').focus(); 0");
    browser.type_text("say First.");
    browser.click(".start");
    browser.until("document.querySelector('.form-status').innerText.includes('refused here')");
    browser.until(&format!("{states}.then(states => states === 'closed')"));
    // The prompt is still there, and works when it is not refused.
    browser.eval("window.fetch = real; 0");
    browser.click(".start");
    browser.until("location.hash.startsWith('#/conversations/')");
    until_status(&mut browser, "done");
    browser.click("[data-action=close]");
    browser.until("document.querySelector('.composer textarea').placeholder.startsWith('Continue')");
    browser.eval(refuse);
    browser.click(".composer textarea");
    browser.type_text("say Second.");
    browser.press("Enter", false);
    browser.until("document.querySelector('.composer-status').innerText.includes('refused here')");
    browser.until(&format!("{states}.then(states => states === 'closed,closed,closed')"));
    assert_eq!(browser.eval("document.querySelector('.composer textarea').value"), json!("say Second."));
    assert_clean(&mut browser, &server);
}
