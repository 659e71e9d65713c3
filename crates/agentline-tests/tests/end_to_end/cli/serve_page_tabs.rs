//! Tests what the page of `agentline serve` does in other views, in hidden tabs, with a clock that is wrong, and behind
//! something that holds streams back.

use crate::cli::serve_page::{CARD, PageServer, allow, assert_clean, start_run, until_status};
use agentline_tests::Browser;
use serde_json::{Value, json};

/// Makes the timers of the page ten times as fast.
const FAST: &str =
    "const slow = setTimeout; window.setTimeout = (call, ms, ...rest) => slow(call, ms / 10, ...rest);";

/// Hides the tab, as far as the page can tell, or shows it.
const TAB: &str = "window.showTab = shown => { \
    Object.defineProperty(document, 'hidden', {configurable: true, get: () => !shown}); \
    document.dispatchEvent(new Event('visibilitychange')); return 0; };";

/// Runs that end without a tab end after this time instead of a minute, in milliseconds. The page must load within it.
const GRACE: u32 = 20_000;
/// How much longer a run lives that is never held, so that one that is no longer held ends before it, in milliseconds.
const MARGIN: u32 = 4_000;

fn hide(browser: &mut Browser) {
    browser.eval("showTab(false)");
}

/// Starts a run of the fake agent without the page. Returns its id.
fn start_elsewhere(browser: &mut Browser, fields: Value) -> String {
    let mut body = json!({"agent": "fake"});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let run = browser.eval(&format!(
        "fetch('/v1/runs', {{method: 'POST', headers: {{'Content-Type': 'application/json'}}, \
         body: {:?}}}).then(answer => answer.json()).then(({{run}}) => run)",
        body.to_string()
    ));
    run.as_str().unwrap().to_owned()
}

/// An expression: the run as the server lists it.
fn info(run: &str) -> String {
    format!("fetch('/v1/runs/{run}').then(answer => answer.json())")
}

/// Starts a run whose agent waits for an answer.
fn start_waiting(browser: &mut Browser, prompt: &str) -> String {
    let run = start_elsewhere(browser, json!({"prompt": prompt}));
    browser.until(&format!("{}.then(run => run.pending_permissions === 1)", info(&run)));
    run
}

/// Waits until a run has ended that started now and that no tab holds.
fn until_run_without_a_tab_ends(browser: &mut Browser) {
    let fields = json!({"prompt": "hang", "on_disconnect": "cancel", "disconnect_grace_ms": GRACE + MARGIN});
    let run = start_elsewhere(browser, fields);
    browser.until(&format!("{}.then(run => run.verdict === 'cancelled')", info(&run)));
}

#[test]
fn run_that_ends_without_a_tab_outlives_other_views_reloads_and_hidden_tabs() {
    let Some(server) = PageServer::start() else { return };
    let grace = format!(
        "const real = fetch; window.fetch = (path, init) => {{ \
           if (path !== '/v1/runs' || init?.method !== 'POST') return real(path, init); \
           const body = JSON.parse(init.body); window.sentGrace ??= body.disconnect_grace_ms; \
           return real(path, {{...init, body: JSON.stringify({{...body, disconnect_grace_ms: {GRACE}}})}}); }};"
    );
    let mut browser = server.open_with(&[FAST, TAB, &grace].concat());
    browser.eval("document.querySelector('.more-options').open = true; 0");
    browser.eval("[...document.querySelectorAll('.more-options .check')].find(label => label.innerText.includes('End the run')).click(); 0");
    let address = start_run(&mut browser, "ask run touch made.txt\nsay Done.");
    assert_eq!(browser.eval("sentGrace"), json!(60_000));
    browser.until(CARD);
    let waits =
        format!("{}.then(run => run.pending_permissions)", info(address.trim_start_matches("#/runs/")));
    browser.eval("location.hash = '#/usage'; 0");
    browser.until("!!document.querySelector('.filters')");
    until_run_without_a_tab_ends(&mut browser);
    assert_eq!(browser.eval(&waits), json!(1), "in another view");
    browser.eval("window.isOld = true; location.reload(); 0");
    browser.until("window.isOld === undefined && !!document.querySelector('.filters')");
    hide(&mut browser);
    until_run_without_a_tab_ends(&mut browser);
    assert_eq!(browser.eval(&waits), json!(1), "in a hidden tab that was loaded again");
    browser.eval(&format!("location.hash = {address:?}; 0"));
    browser.until("!!document.querySelector('.permission')");
    until_run_without_a_tab_ends(&mut browser);
    assert_eq!(browser.eval(&waits), json!(1), "in the view of the run, hidden");
    // Without the tab, the run ends.
    browser.go(&format!("{}/docs", server.url));
    browser.until(&format!(
        "{}.then(run => run.verdict === 'cancelled')",
        info(address.trim_start_matches("#/runs/"))
    ));
    assert!(!server.user.path("made.txt").exists());
}

#[test]
fn hidden_tab_counts_requests_and_the_time_left_is_that_of_the_server() {
    let Some(server) = PageServer::start() else { return };
    // The clock of the browser is an hour fast. The list of runs gives no answer on demand.
    let script = "const now = Date.now; Date.now = () => now() + 3600000; \
        const real = fetch; window.fetch = (path, init) => \
        window.isListLost && path.startsWith('/v1/runs?') ? new Promise(() => {}) : real(path, init);";
    let mut browser = server.open_with(&[FAST, TAB, script].concat());
    hide(&mut browser);
    start_waiting(&mut browser, "ask run true\nsay Done.");
    browser.until("document.title.startsWith('(1) ')");
    browser.eval("window.isListLost = true; showTab(true)");
    let address = start_run(&mut browser, "ask run touch made.txt\nsay Done.");
    browser.until(CARD);
    // The view knows its own request without the list.
    browser.until("document.title.startsWith('(2) ')");
    browser.until("/^denied automatically in [1-9]/.test(document.querySelector('.expiry').innerText)");
    let announced = "document.querySelector('.expiry').closest('[aria-live]').ariaLive";
    assert_eq!(browser.eval(announced), json!("off"));
    browser.until("!document.querySelector('.panel .number:nth-of-type(3)').innerText.includes(' h ')");
    allow(&mut browser);
    until_status(&mut browser, "done");
    browser.until("document.title.startsWith('(1) ')");
    assert!(server.user.path("made.txt").exists(), "{address}");
    assert_clean(&mut browser, &server);
}

#[test]
fn stream_that_is_held_back_is_replaced_by_polling_and_missing_events_are_named() {
    let Some(server) = PageServer::start() else { return };
    // A stream that opens and delivers nothing, as behind a proxy that collects the answer.
    let held = "window.sources = []; window.EventSource = class extends EventTarget { \
        constructor() { super(); sources.push(this); setTimeout(() => this.onopen(), 0); } close() {} };";
    let mut browser = server.open_with(&[FAST, TAB, held].concat());
    let answer = |run: &str| {
        format!(
            "fetch('/v1/runs/{run}/permissions').then(answer => answer.json()).then(({{permissions: [{{id}}]}}) => \
             fetch(`/v1/runs/{run}/permissions/${{id}}`, {{method: 'POST', headers: {{'Content-Type': 'application/json'}}, \
             body: JSON.stringify({{decision: 'allow'}})}})).then(answer => answer.status)"
        )
    };
    let open = |browser: &mut Browser, run: &str| {
        browser.eval(&format!("location.hash = '#/runs/{run}'; 0"));
        browser.until(&format!(
            "location.hash === '#/runs/{run}' && {CARD} && document.querySelector('.thread').dataset.stream === 'live'"
        ));
    };
    let outcome = "!!document.querySelector('section.outcome')";
    // The tab is hidden while the page would check the stream, and shown before it gives the stream back.
    let run = start_waiting(&mut browser, "ask run true\nask run touch second.txt\nsay Done.");
    open(&mut browser, &run);
    browser.eval("showTab(false); new Promise(done => setTimeout(() => done(showTab(true)), 15000))");
    assert_eq!(browser.eval(&answer(&run)), json!(200));
    browser.until("document.querySelector('.permission')?.innerText.includes('second.txt')");
    browser.until("document.querySelector('.thread').dataset.stream === 'polling'");
    assert_eq!(browser.eval(&answer(&run)), json!(200));
    browser.until(outcome);
    // Events that the server no longer has are named, and the rest follows.
    let run = start_waiting(&mut browser, "ask run true\nsay Done.");
    open(&mut browser, &run);
    browser.eval(&format!(
        "{}.then(({{last_event: last}}) => sources.at(-1).dispatchEvent(new MessageEvent('resync', \
         {{data: JSON.stringify({{requested: last, first: last + 2, last: last + 2}})}})))",
        info(&run)
    ));
    browser
        .until("document.querySelector('.feed').innerText.includes('1 earlier event is no longer stored.')");
    assert_eq!(browser.eval(&answer(&run)), json!(200));
    browser.until(outcome);
    assert_clean(&mut browser, &server);
}
