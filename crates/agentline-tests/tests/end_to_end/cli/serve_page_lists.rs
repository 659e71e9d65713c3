//! Tests long lists on the page of `agentline serve`: few rows are in the document, all can be reached, and the search of
//! a run finds what is folded, cut or not shown.

use crate::cli::serve_page::{PageServer, assert_clean, start_run, until_status};
use agentline_tests::Browser;
use serde_json::json;

/// A server with 700 saved sessions, 60 results of every search and 130 runs. Run 120 waits for an answer until `isAnswered`.
const LONG: &str = "const real = fetch; \
    const some = (number, make) => Array.from({length: Math.max(0, number)}, (_, i) => make(i + 1)); \
    const session = i => ({agent: 'claude', id: `s${i}`, title: `Session ${i}.`, project: '/p', answers: 1, tool_calls: 0, total_tokens: 1, \
      hits: [{role: 'user', place: 'text', text: 'word', spans: [{start: 0, end: 4}]}]}); \
    const run = i => ({run: `r${i}`, prompt: `Prompt ${i}.`, agent: 'fake', working_dir: '/w', \
      ...(i === 120 && !window.isAnswered ? {state: 'running', pending_permissions: 1} \
        : {state: 'ended', verdict: 'done', ended_at_ms: 2, pending_permissions: 0}), started_at_ms: 1, on_disconnect: 'continue', last_event: 1}); \
    window.fetch = async (path, init) => { \
      const url = new URL(path, location.href); const limit = Number(url.searchParams.get('limit')); \
      const reply = body => new Response(JSON.stringify(body)); \
      if (url.pathname === '/v1/sessions') return reply({sessions: some(Math.min(limit, 700), session)}); \
      if (url.pathname === '/v1/sessions/search') \
        return reply({results: some(Math.min(JSON.parse(init.body).limit, 60), session)}); \
      if (url.pathname === '/v1/runs/r120') return reply(run(120)); \
      if (url.pathname !== '/v1/runs' || init.method !== 'GET') return real(path, init); \
      if (url.searchParams.has('changed_since')) return new Promise(() => {}); \
      const before = Number(url.searchParams.get('before')?.slice(1) ?? 0); \
      return reply({version: 1, runs: some(Math.min(limit, 130 - before), i => run(before + i))}); };";

/// Scrolls through the view. The page keeps the promise, because the browser may otherwise collect it while it waits for a
/// frame. Returns the highest number of cards that the document had, and of different ones.
fn scroll_through(browser: &mut Browser) -> (u64, u64) {
    let seen = browser.eval(
        "window.scrolling = (async () => { const pane = document.querySelector('#main'); const titles = new Set(); let most = 0; \
         const frame = () => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))); \
         pane.scrollTop = 0; \
         for (let before = -1; before !== pane.scrollTop; pane.scrollTop += 300) { before = pane.scrollTop; await frame(); \
           const cards = [...document.querySelectorAll('.cards > li')]; most = Math.max(most, cards.length); \
           for (const card of cards) titles.add(card.querySelector('.card-title').innerText); \
           await frame(); } return [most, titles.size]; })()",
    );
    (seen[0].as_u64().unwrap(), seen[1].as_u64().unwrap())
}

fn click_text(browser: &mut Browser, text: &str) {
    let found = format!("[...document.querySelectorAll('button')].find(one => one.innerText === {text:?})");
    browser.until(&format!("{found}?.disabled === false"));
    browser.eval(&format!("{found}.click(); 0"));
}

/// Scrolls to the end of the view, then focuses and clicks the button there. The page keeps the promise, as above. Returns
/// the scroll position.
fn press_at_end(browser: &mut Browser, text: &str) -> i64 {
    let found = format!("[...document.querySelectorAll('button')].find(one => one.innerText === {text:?})");
    browser.until(&format!("!!{found}"));
    let top = browser.eval(&format!(
        "window.pressing = (async () => {{ const pane = document.querySelector('#main'); \
         const frame = () => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))); \
         for (let before = -1; before !== pane.scrollTop;) {{ before = pane.scrollTop; pane.scrollTop = 1e9; await frame(); }} \
         const button = {found}; button.focus({{preventScroll: true}}); button.click(); return Math.round(pane.scrollTop); }})()"
    ));
    let top = top.as_i64().unwrap();
    assert!(top > 1000, "{top}");
    top
}

/// Asserts that the scroll position is the one from before the list grew, give or take the height of a button.
fn assert_place(browser: &mut Browser, before: i64) {
    let top = browser.eval(
        "new Promise(done => setTimeout(() => done(Math.round(document.querySelector('#main').scrollTop)), 300))",
    );
    assert!((top.as_i64().unwrap() - before).abs() < 100, "{top} instead of {before}");
}

#[test]
fn long_lists_have_few_rows_in_the_document_and_say_what_is_missing() {
    let Some(server) = PageServer::start() else { return };
    let mut browser = server.open_with(LONG);
    let says = |browser: &mut Browser, text: &str| {
        browser.until(&format!(
            "[...document.querySelectorAll('#main .note')].some(note => note.innerText === {text:?})"
        ));
    };
    says(&mut browser, "The newest 100 runs are listed.");
    let before = press_at_end(&mut browser, "Show older runs");
    browser.until("document.querySelector('.cards > li').getAttribute('aria-setsize') === '130'");
    browser.until("document.querySelector('.older').innerText === ''");
    assert_place(&mut browser, before);
    assert_eq!(browser.eval("document.activeElement.innerText.includes('Prompt 100.')"), json!(true));
    // A run that the answers to long polling do not contain is kept up to date.
    browser.until("document.title.startsWith('(1) ')");
    browser.eval("window.isAnswered = true; 0");
    browser.until("!document.title.startsWith('(')");
    let (most, all) = scroll_through(&mut browser);
    assert!(most < 130 && all == 130, "{most} of {all} runs");

    browser.eval("document.querySelector('#main').scrollTop = 1e9; location.hash = '#/sessions'; 0");
    says(&mut browser, "The latest 100 sessions");
    assert_place(&mut browser, 0);
    for (number, note) in
        [(300, "The latest 300 sessions"), (500, "The latest 500 sessions"), (700, "700 sessions")]
    {
        let before = press_at_end(&mut browser, "Show more");
        says(&mut browser, note);
        assert_place(&mut browser, before);
        let focused = if number == 700 { "Session 500." } else { "Show more" };
        assert_eq!(
            browser.eval(&format!("document.activeElement.innerText.includes({focused:?})")),
            json!(true),
            "{note}"
        );
    }
    let (most, all) = scroll_through(&mut browser);
    assert!(most < 500 && all == 700, "{most} of {all} sessions");

    browser.eval("location.hash = '#/sessions?q=word'; 0");
    says(&mut browser, "50 matches in the first 50 sessions; there are more");
    click_text(&mut browser, "Show more");
    says(&mut browser, "60 matches in 60 sessions");
    assert_clean(&mut browser, &server);
}

#[test]
fn long_diff_is_shown_in_parts() {
    let Some(server) = PageServer::start() else { return };
    let mut browser = server.open();
    browser.eval(
        "import('/assets/diff.js').then(({compare, diffView}) => { const lines = Array.from({length: 1000}, (_, i) => `line ${i + 1}.\\n`); \
         document.querySelector('#main').replaceChildren(diffView(compare('', lines.join('')))); return 0; })",
    );
    let shown =
        "[...document.querySelectorAll('.line')].map(line => line.querySelector('.src').innerText.trim())";
    let part = |browser: &mut Browser| {
        browser.eval(&format!(
            "(lines => [lines.length, lines[0], lines.at(-1), document.querySelector('.pages .note').innerText])({shown})"
        ))
    };
    assert_eq!(part(&mut browser), json!([300, "line 1.", "line 300.", "Lines 1 to 300 of 1,000"]));
    for _ in 0..3 {
        click_text(&mut browser, "Next lines");
    }
    assert_eq!(part(&mut browser), json!([100, "line 901.", "line 1000.", "Lines 901 to 1,000 of 1,000"]));
    click_text(&mut browser, "Previous lines");
    assert_eq!(part(&mut browser), json!([300, "line 601.", "line 900.", "Lines 601 to 900 of 1,000"]));
    assert_clean(&mut browser, &server);
}

#[test]
fn search_finds_details_and_what_is_cut() {
    let Some(server) = PageServer::start() else { return };
    let mut browser = server.open();
    let long = "line\\n".repeat(700);
    start_run(&mut browser, &format!("unknown\ntool write_file long.txt {long}the very end\\n\nsay Done."));
    until_status(&mut browser, "done");
    let counter = "document.querySelector('.search-bar output').textContent";
    let details = "document.querySelector('.search-bar .check input').checked";
    let search = |browser: &mut Browser, words: &str| {
        browser
            .eval("document.activeElement.blur(); document.querySelector('.search-bar input').value = ''; 0");
        browser.press("/", false);
        browser.type_text(words);
    };
    search(&mut browser, "THE VERY end");
    browser.until(&format!("{counter}.startsWith('1 of ') && !{details}"));
    browser.until("[...document.querySelectorAll('.row-tool .line')].some(line => line.innerText.includes('the very end'))");
    browser.until("CSS.highlights.get('hit-now').size === 1");
    let is_visible = "(() => { const hit = [...CSS.highlights.get('hit-now')][0].getBoundingClientRect(); \
        const pane = document.querySelector('.row-tool .diff').getBoundingClientRect(); \
        return hit.height > 0 && hit.top >= pane.top && hit.bottom <= pane.bottom && hit.bottom <= innerHeight; })()";
    browser.until(is_visible);
    search(&mut browser, "from_the_future");
    browser.until(&format!("{counter} === '1 of 1' && {details}"));
    browser.until(
        "[...document.querySelectorAll('.row-raw')].some(row => row.innerText.includes('from_the_future'))",
    );
    assert_clean(&mut browser, &server);
}
