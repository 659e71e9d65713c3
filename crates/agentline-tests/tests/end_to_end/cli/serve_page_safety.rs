//! Tests that the page of `agentline serve` does nothing by accident: answers of permission requests, modes that never ask,
//! and forms that are sent twice; and what it shows to a browser that is not signed in.

use crate::cli::serve_page::{CARD, PageServer, allow, assert_clean, save_session, start_run, until_status};
use agentline_tests::Browser;
use serde_json::json;

/// The heading without a sign-in, whether the banner is hidden, and whether the navigation is shown.
const SIGNED_OUT: &str = "[document.querySelector('h1').innerText, document.querySelector('.banner').hidden, \
    document.querySelector('.sidebar').checkVisibility()]";

#[test]
fn typed_text_never_answers_a_request() {
    let Some(server) = PageServer::start() else { return };
    let mut browser = server.open();
    let run = start_run(&mut browser, "ask write_file made.txt hello\\n\nsay Done.");
    let open = format!(
        "fetch('/v1/runs/{}/permissions').then(answer => answer.json()).then(({{permissions}}) => permissions.length)",
        run.trim_start_matches("#/runs/")
    );
    for text in ["path", "pa ", "pad", "paw", "drop a", "allow", "please do not write", "stop it now"] {
        browser.eval(&format!("location.hash = '#/usage'; location.hash = {run:?}; 0"));
        browser.until(&format!("location.hash === {run:?} && {CARD}"));
        browser.eval("document.activeElement.blur(); 0");
        for key in text.chars() {
            browser.press(&key.to_string(), false);
        }
        browser.press("Enter", false);
        assert_eq!(browser.eval(&open), json!(1), "{text}");
    }
    browser.eval(&format!("location.hash = {run:?}; 0"));
    browser.until(&format!("location.hash === {run:?} && {CARD}"));
    browser.eval("document.activeElement.blur(); 0");
    browser.press("p", false);
    browser.until("document.activeElement.matches('.permission.armed')");
    browser.press("a", false);
    browser.until("document.activeElement.matches('.permission .allow')");
    assert_eq!(browser.eval(&open), json!(1), "a letter only selects");
    browser.press("Enter", false);
    until_status(&mut browser, "done");
    assert_eq!(server.user.read("made.txt"), "hello\n");
    assert_clean(&mut browser, &server);
}

#[test]
fn new_request_takes_no_answer_until_it_could_be_read() {
    let Some(server) = PageServer::start() else { return };
    let mut browser = server.open();
    start_run(&mut browser, "ask run touch first\nask run touch second\nsay Done.");
    browser.until(CARD);
    // A click that was meant for the first request reaches the second one as soon as it is drawn.
    browser.eval(
        "window.early = 0; const first = document.querySelector('.permission'); new MutationObserver(() => { \
           const card = document.querySelector('.permission'); if (!card || card === first || early) return; \
           early += 1; const button = card.querySelector('.allow'); \
           window.wasBlocked = button.getAttribute('aria-disabled') === 'true'; button.click(); \
         }).observe(document.querySelector('.dock'), {childList: true}); 0",
    );
    allow(&mut browser);
    browser.until(&format!("early === 1 && {CARD}"));
    assert_eq!(browser.eval("wasBlocked"), json!(true));
    browser.until("document.activeElement.matches('.permission, .permission *')");
    assert!(server.user.path("first").exists() && !server.user.path("second").exists());
    allow(&mut browser);
    until_status(&mut browser, "done");
    assert!(server.user.path("second").exists());
    assert_clean(&mut browser, &server);
}

#[test]
fn tab_order_is_the_visual_order_and_enter_in_the_reason_denies() {
    let Some(server) = PageServer::start() else { return };
    let mut browser = server.open();
    start_run(&mut browser, "ask run touch made.txt\nsay Done.");
    browser.until(CARD);
    let is_sorted = "(() => { const lefts = [...document.querySelectorAll('.card-actions :is(button, input)')].map(one => one.getBoundingClientRect().left); \
        return lefts.length === 4 && lefts.every((left, i) => i === 0 || left > lefts[i - 1]); })()";
    assert_eq!(browser.eval(is_sorted), json!(true));
    assert_eq!(
        browser.eval(
            "(input => input.ariaLabel === input.placeholder)(document.querySelector('.deny-group input'))"
        ),
        json!(true)
    );
    browser.click(".deny-group input");
    browser.type_text("not here");
    browser.press("Enter", false);
    until_status(&mut browser, "done_with_denials");
    assert!(!server.user.path("made.txt").exists());
    browser.until("document.querySelector('.feed').innerText.includes('not here')");
    assert_clean(&mut browser, &server);
}

#[test]
fn mode_that_never_asks_is_marked_and_not_kept() {
    let Some(server) = PageServer::start() else { return };
    let mut browser = server.open();
    let mode = "[...document.querySelectorAll('.new-run select')][1]";
    let choose = format!(
        "(select => {{ select.value = 'bypass'; select.dispatchEvent(new Event('change')); }})({mode}); 0"
    );
    browser.eval(&choose);
    assert_eq!(
        browser.eval("document.querySelector('.start span').textContent"),
        json!("Start without questions")
    );
    assert_eq!(browser.eval("document.querySelector('.start').matches('.warns')"), json!(true));
    browser.eval("document.querySelector('.more-options').open = true; 0");
    browser.click(".more-options .check input");
    browser.eval("document.querySelector('.new-run select').value = 'fake'; document.querySelector('.new-run textarea').focus(); 0");
    browser.type_text("say Done.");
    browser.click(".start");
    until_status(&mut browser, "done");
    browser.eval("location.hash = '#/'; location.reload(); 0");
    browser.until(&format!(
        "{mode}?.value === 'default' && document.querySelector('.start span').textContent === 'Start'"
    ));
    // Options that are kept are named while they are hidden.
    browser.until("!document.querySelector('.more-options').open && document.querySelector('.more-options summary').innerText.includes('conversation')");
    // What an earlier version kept is not used either.
    browser.eval("localStorage.setItem('agentline.mode', 'bypass'); location.reload(); 0");
    browser.until(&format!("{mode}?.value === 'default'"));
    assert_clean(&mut browser, &server);
}

#[test]
fn agents_that_are_not_installed_cannot_be_chosen() {
    let Some(server) = PageServer::start() else { return };
    let mut browser = server.open();
    browser.until(
        "(async () => { for (const choice of document.querySelector('.new-run select').options) { \
           const {path} = await fetch(`/v1/agents/${choice.value}`).then(answer => answer.json()); \
           if (choice.disabled !== (path === null) || choice.disabled !== choice.text.endsWith('not installed')) return false; \
         } return true; })()",
    );
    assert_clean(&mut browser, &server);
}

#[test]
fn session_is_continued_once_with_the_chosen_mode() {
    let Some(server) = PageServer::start() else { return };
    save_session(&server);
    let mut browser = server.open();
    browser.eval("location.hash = '#/sessions/show?session=448d4d1a'; 0");
    browser.until("document.querySelector('.thread-head .button')?.innerText === 'Continue…'");
    // The request is held back, and then leads to the fake agent.
    browser.eval(
        "window.sent = []; const real = fetch; window.fetch = async (path, init) => { \
           if (path !== '/v1/conversations' || init?.method !== 'POST') return real(path, init); \
           sent.push(JSON.parse(init.body)); await new Promise(done => { window.goOn = done; }); \
           return real(path, {...init, body: JSON.stringify({agent: 'fake'})}); }; 0",
    );
    browser.click(".thread-head .button");
    browser.until("document.activeElement.matches('dialog textarea')");
    assert_eq!(browser.eval("document.querySelector('dialog').innerText.includes('claude')"), json!(true));
    browser.type_text("say Continued.");
    browser.eval("document.querySelector('dialog select').value = 'plan'; 0");
    browser.click("dialog .primary");
    browser.until("sent.length === 1");
    assert_eq!(
        browser.eval(
            "(button => [button.disabled, button.innerText])(document.querySelector('dialog .primary'))"
        ),
        json!([true, "Starting…"])
    );
    browser.click("dialog .primary");
    browser.eval("document.querySelector('dialog form').requestSubmit(); 0");
    assert_eq!(
        browser.eval("sent.map(body => [body.agent, body.permission_mode])"),
        json!([["claude", "plan"]])
    );
    browser.eval("goOn(); 0");
    browser.until("location.hash.startsWith('#/conversations/')");
    until_status(&mut browser, "done");
    browser.until("document.querySelector('.thread-head').innerText.includes('This conversation continues the session ')");
    browser.click(".thread-head a");
    browser.until("location.hash.startsWith('#/sessions/show') && !!document.querySelector('.row')");
    let title = "document.querySelector('h1').innerText";
    let is_named = format!("document.querySelector('.thread-head a')?.innerText === {}", browser.eval(title));
    // The navigation leads to the same place, without what the dialog knew.
    browser.click(".nav-run");
    browser.until(&is_named);
    assert_clean(&mut browser, &server);
}

#[test]
fn used_link_and_sign_out_say_how_to_sign_in() {
    let Some(server) = PageServer::start() else { return };
    let mut browser = server.open();
    start_run(&mut browser, "say Done.");
    until_status(&mut browser, "done");
    // A browser that is signed in gets the page from a used link, too.
    browser.go(&server.link);
    browser.until("location.pathname === '/' && !!document.querySelector('.start')");
    let mut stranger = Browser::start((1280, 900));
    stranger.go(&server.link);
    stranger.until("document.querySelector('h1')?.innerText === 'This link does not work any more'");
    assert_eq!(
        stranger.eval("document.querySelector('.command').innerText.trim()"),
        json!("agentline serve --link")
    );
    assert_eq!(stranger.eval("document.styleSheets.length"), json!(2));
    stranger.go(&format!("{}/", server.url));
    stranger.until("document.querySelector('.sign-in .command')?.innerText === 'agentline serve --link'");
    stranger.go(&server.new_link());
    stranger.until("!!document.querySelector('.start')");
    // Signing out removes what the page shows, in every tab of the browser.
    browser.until("document.querySelectorAll('.nav-run').length === 1");
    browser.eval("window.isOld = true; [...document.querySelectorAll('button')].find(button => button.innerText === 'Sign out').click(); 0");
    browser.until("window.isOld === undefined && !!document.querySelector('.sign-in')");
    assert_eq!(
        browser.eval("[document.querySelectorAll('.nav-run').length, document.title]"),
        json!([0, "agentline"])
    );
    assert_eq!(browser.eval(SIGNED_OUT), json!(["You signed out", true, false]));
    browser.go(&server.new_link());
    browser.until("document.querySelectorAll('.nav-run').length === 1");
    assert_eq!(browser.eval("document.querySelector('.sidebar').checkVisibility()"), json!(true));
    stranger.until("document.querySelectorAll('.nav-run').length === 1");
    stranger
        .eval("window.isOld = true; new BroadcastChannel('agentline.sign-out').postMessage('signed out'); 0");
    stranger.until("window.isOld === undefined && document.querySelectorAll('.nav-run').length === 1");
    // A session that ends elsewhere leaves nothing on the screen either.
    stranger.until("document.querySelectorAll('.nav-run').length === 1");
    stranger
        .eval("fetch('/v1/logout', {method: 'POST'}).then(() => { location.hash = '#/usage'; return 0; })");
    stranger
        .until("!!document.querySelector('.sign-in') && document.querySelectorAll('.nav-run').length === 0");
    stranger.until("document.querySelector('.sign-in h1').innerText === 'You are not signed in'");
    assert_eq!(stranger.eval(SIGNED_OUT), json!(["You are not signed in", false, false]));
}
