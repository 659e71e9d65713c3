//! Tests how the page of `agentline serve` starts and steers work: attachments, the choice of a directory, a prompt that
//! interrupts, and experiments in progress.

use crate::cli::{
    batch,
    serve_page::{CARD, PageServer, allow, assert_clean, start_run, until_status},
};
use serde_json::json;
use std::{fs, process::Stdio};

#[test]
fn attachments_are_sent_and_the_chosen_directory_is_that_of_the_run() {
    let Some(server) = PageServer::start() else { return };
    fs::create_dir_all(server.user.path("other")).unwrap();
    fs::create_dir_all(server.user.path("deep/inner")).unwrap();
    let mut browser = server.open();
    browser.eval(
        "(chooser => { const data = new DataTransfer(); for (const name of ['kept.txt', 'removed.txt']) \
           data.items.add(new File(['what is attached'], name, {type: 'text/plain'})); \
         chooser.files = data.files; chooser.dispatchEvent(new Event('change')); })(document.querySelector('.new-run input[type=file]')); 0",
    );
    browser.until("document.querySelectorAll('.attachments li').length === 2");
    browser.click("[aria-label='Remove removed.txt']");
    browser.until("document.querySelector('.attachments').innerText.includes('kept.txt') && document.querySelectorAll('.attachments li').length === 1");
    // The directory: into one by the filter, into another by a click.
    browser.click(".new-run .chip-button");
    browser.until("document.querySelectorAll('.directories button:not(.up)').length >= 2 && document.activeElement.type === 'search'");
    browser.type_text("dee");
    browser.until("document.querySelectorAll('.directories button:not(.up)').length === 1");
    browser.press("Enter", false);
    browser.until("document.querySelector('.directories').innerText.includes('inner')");
    browser.click(".directories button:not(.up)");
    browser.until("document.querySelector('.where').innerText.endsWith('/deep/inner')");
    browser.click("dialog .primary");
    browser.until(
        "!document.querySelector('dialog') && document.querySelector('.chip-button').title.endsWith('/deep/inner')",
    );
    start_run(&mut browser, "echo_prompt\nsay \\n\ncwd");
    until_status(&mut browser, "done");
    let answer = "[...document.querySelectorAll('.row-text')].map(row => row.innerText).join(' ')";
    for part in ["kept.txt", "/deep/inner"] {
        browser.until(&format!("({answer}).includes({part:?})"));
    }
    assert_eq!(browser.eval(&format!("({answer}).includes('removed.txt')")), json!(false));
    browser.eval("location.hash = '#/'; 0");
    browser.until("document.querySelectorAll('.attachments li').length === 0");
    assert_clean(&mut browser, &server);
}

#[test]
fn interrupting_prompt_cancels_the_active_one() {
    let Some(server) = PageServer::start() else { return };
    let mut browser = server.open();
    browser.eval("document.querySelector('.more-options').open = true; 0");
    browser.click(".more-options .check input");
    browser.eval("document.querySelector('.new-run select').value = 'fake'; document.querySelector('.new-run textarea').focus(); 0");
    browser.type_text("ask run touch made.txt\nsay First.");
    browser.click(".start");
    browser.until(CARD);
    let now = "[...document.querySelectorAll('.composer button')].find(one => one.innerText === 'Interrupt and send')";
    browser.until(&format!("{now}?.checkVisibility() === true"));
    browser.click(".composer textarea");
    browser.type_text("ask run touch second.txt\nsay Second.");
    browser.eval(&format!("{now}.click(); 0"));
    // The first prompt ends with its request, and the second one asks.
    browser.until(&format!(
        "!!document.querySelector('.permission[data-permission]') && {CARD} && document.querySelector('.permission').innerText.includes('second.txt')"
    ));
    browser.until("document.querySelectorAll('section.outcome').length === 1 && document.querySelector('section.outcome').innerText.includes('ancelled')");
    allow(&mut browser);
    browser
        .until("[...document.querySelectorAll('.row-text')].some(row => row.innerText.trim() === 'Second.')");
    until_status(&mut browser, "done");
    assert!(!server.user.path("made.txt").exists() && server.user.path("second.txt").exists());
    assert_clean(&mut browser, &server);
}

#[test]
fn progress_of_an_experiment_changes_while_it_runs_and_a_removed_one_is_an_error() {
    let Some(server) = PageServer::start() else { return };
    let (user, go) = (&server.user, server.user.path("go"));
    let waits = format!("run while [ ! -e '{}' ]; do sleep 0.1; done", go.display());
    batch::suite(user, &format!("cases:\n- {{id: a, prompt: 'say A'}}\n- {{id: b, prompt: {waits:?}}}\n"));
    let args = ["batch", "suite.yaml", "--dir", "exp", "-j", "2"];
    let mut running = user.command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut browser = server.open();
    agentline_tests::wait_until("the experiment", || user.path("exp/experiment.sqlite").exists());
    let dir = user.path("exp").canonicalize().unwrap();
    browser.eval("location.hash = '#/experiments'; 0");
    let finished = |text: &str| {
        format!(
            "document.querySelector('main .progress-head')?.innerText.startsWith('{text} of 2 runs finished')"
        )
    };
    browser.until(&finished("1"));
    browser.eval(&format!("location.hash = '#/experiments/show?dir={}'; 0", dir.display()));
    browser.until(&format!("location.hash.includes('show') && {}", finished("1")));
    fs::write(&go, "").unwrap();
    browser.until(&finished("2"));
    browser.until("document.querySelectorAll('main .cell').length === 2");
    running.wait().unwrap();
    assert_clean(&mut browser, &server);
    // One that cannot be read says so, in the place of its progress.
    fs::remove_dir_all(&dir).unwrap();
    browser.eval("location.hash = '#/experiments'; 0");
    browser.until("document.querySelector('.empty h2')?.innerText === 'No experiments'");
    browser.eval("history.back(); 0");
    browser
        .until("location.hash.includes('show') && !!document.querySelector('main .progress .error-state')");
}
