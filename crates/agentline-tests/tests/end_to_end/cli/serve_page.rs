//! Tests the page of `agentline serve` in a real browser: every view, permission requests, reconnects, two tabs, long
//! runs, hostile content and accessibility.

use crate::cli::{batch, relay::CuttableRelay, serve_conversation::open_conversation, user::User};
use agentline_tests::{Browser, axe_core, has_browser};
use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Stdio},
    time::Duration,
};

/// Content that would run, load or reorder text if it were interpreted. Each marks that it ran.
const HOSTILE: &str = "<script>window.pwned=1</script><img src=x onerror='window.pwned=2'> \
    [md](javascript:window.pwned=3) ![i](https://example.test/i.png) \u{1b}[31mred \u{202e}live\u{202c}";

/// The size of the window.
const WINDOW: (u32, u32) = (1280, 900);

/// The time from the start of the navigation to the first rows, in milliseconds, by the browser's own clock.
const FIRST_ROWS: &str = "(function look() { \
    if (document.querySelectorAll('.row').length > 5) window.firstRows = performance.now(); \
    else requestAnimationFrame(look); })();";

/// A server with the fake agent, and the user that started it. It ends with this value.
pub(super) struct PageServer {
    pub(super) user: User,
    child: Child,
    /// The link that signs a browser in once.
    pub(super) link: String,
    /// The address without a path.
    pub(super) url: String,
}

impl PageServer {
    /// Starts a server; returns `None` if there is no browser.
    pub(super) fn start() -> Option<Self> {
        Self::start_with("")
    }

    /// Starts a server with further settings of the fake agent; returns `None` if there is no browser.
    pub(super) fn start_with(settings: &str) -> Option<Self> {
        if !has_browser() {
            return None;
        }
        let user = batch::user();
        let config = "../home/.config/agentline/config.toml";
        user.write(config, &(user.read(config) + settings));
        let (child, link) = launch(&user);
        let url = link.split("/login").next().unwrap().to_owned();
        Some(Self { user, child, link, url })
    }

    /// Stops the server as a service manager does.
    pub(super) fn terminate(&mut self) {
        let sent = Command::new("kill").args(["-s", "TERM", &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
        self.child.wait().unwrap();
    }

    /// Starts another server in the same directory, with another address.
    pub(super) fn restart(&mut self) {
        (self.child, self.link) = launch(&self.user);
        self.link.split("/login").next().unwrap().clone_into(&mut self.url);
    }

    /// Opens the page in a browser that is signed in with the link.
    pub(super) fn open(&self) -> Browser {
        self.open_with("")
    }

    /// Opens the page, with a script that runs before those of the page.
    pub(super) fn open_with(&self, script: &str) -> Browser {
        let mut browser = Browser::start(WINDOW);
        browser.before_load(script);
        browser.go(&self.link);
        browser.until("!!document.querySelector('.start')");
        browser
    }

    /// Opens another browser that is signed in with another link, at an address of the page.
    pub(super) fn open_second(&self, url: &str, hash: &str) -> Browser {
        let mut browser = Browser::start((1280, 900));
        browser.go(&self.new_link().replace(&self.url, url));
        browser.until("!!document.querySelector('.start')");
        browser.eval(&format!("location.hash = {hash:?}; 0"));
        browser
    }

    /// Creates a link, as the page tells users to do.
    pub(super) fn new_link(&self) -> String {
        let done = self.user.agentline(&["serve", "--link", "--dir", "../serve"]);
        assert_eq!(done.code, 0, "{}", done.err);
        done.out.trim().to_owned()
    }
}

/// Starts a server. Returns its process and the link that it prints.
fn launch(user: &User) -> (Child, String) {
    // Browsers also connect through a relay, which has another port.
    let args = ["serve", "--listen", "127.0.0.1:0", "--dir", "../serve", "--allow-host", "127.0.0.1"];
    let mut child = user.command(&args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut link = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut link).unwrap();
    (child, link.trim().to_owned())
}

impl Drop for PageServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a run of the fake agent in the page and waits for its view. Returns its address within the page.
pub(super) fn start_run(browser: &mut Browser, prompt: &str) -> String {
    browser.eval("location.hash = '#/'; 0");
    browser.until("!!document.querySelector('.start')");
    browser.eval("(() => { const agent = document.querySelector('.new-run select'); agent.value = 'fake'; document.querySelector('.new-run textarea').focus(); return agent.value; })()");
    browser.type_text(prompt);
    browser.click(".start");
    browser.until("location.hash.startsWith('#/runs/') && !!document.querySelector('.row-prompt')");
    browser.eval("location.hash").as_str().unwrap().to_owned()
}

/// True when the request on the screen takes answers.
pub(super) const CARD: &str = "!!document.querySelector('.permission:not(.unread)')";

/// Allows the request on the screen, as soon as it takes answers.
pub(super) fn allow(browser: &mut Browser) {
    browser.until(CARD);
    browser.click(".permission .allow");
}

/// Waits until the run has this verdict.
pub(super) fn until_status(browser: &mut Browser, status: &str) {
    browser.until(&format!("document.querySelector('[data-status]')?.dataset.status === {status:?}"));
}

/// Asserts that no content ran, only this server was asked, and the browser reported no error.
pub(super) fn assert_clean(browser: &mut Browser, server: &PageServer) {
    assert_eq!(browser.eval("typeof window.pwned"), json!("undefined"));
    let is_foreign = |url: &&String| !url.starts_with(&server.url) && !url.starts_with("data:image/");
    let foreign: Vec<&String> = browser.requests().iter().filter(is_foreign).collect();
    assert!(foreign.is_empty(), "{foreign:?}");
    assert!(browser.complaints().is_empty(), "{:?}", browser.complaints());
}

fn text_of_feed(browser: &mut Browser) -> String {
    let text = browser.eval("document.querySelector('.feed').innerText.replace(/\\s+/g, ' ')");
    text.as_str().unwrap().to_owned()
}

/// Returns the text of every row, also of those that are not on the screen.
pub(super) fn rows_of_feed(browser: &mut Browser) -> Vec<String> {
    let rows = browser.eval(
        "(async () => { const pane = document.querySelector('.scroller'); const rows = []; \
         const frame = () => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))); \
         pane.scrollTop = 0; \
         for (let before = -1; before !== pane.scrollTop; pane.scrollTop += 200) { before = pane.scrollTop; await frame(); \
         for (const row of document.querySelectorAll('.row')) rows[row.ariaPosInSet - 1] = row.innerText.replace(/\\s+/g, ' '); \
         await frame(); } return rows; })()",
    );
    rows.as_array().unwrap().iter().map(|row| row.as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn run_is_started_and_a_permission_is_answered_by_a_click() {
    let Some(server) = PageServer::start() else { return };
    let mut browser = server.open();
    start_run(&mut browser, "think I write it.\nask write_file made.txt hello\\n\nsay It is **done**.");
    browser.until("!!document.querySelector('.permission')");
    // The request follows what the agent did before it.
    browser.until("document.querySelector('.row-tool + .row-permission:last-child') !== null");
    browser.until("document.title.startsWith('(1)')");
    assert!(!server.user.path("made.txt").exists());
    allow(&mut browser);
    until_status(&mut browser, "done");
    assert_eq!(server.user.read("made.txt"), "hello\n");
    browser.until("!!document.querySelector('.answered.allow') && document.querySelector('.answer strong')?.innerText === 'done'");
    // The changed file opens its diff.
    browser.until("document.querySelector('.panel .file-path')?.innerText === 'made.txt'");
    browser.click(".panel .file");
    browser.until("document.querySelector('dialog .line.add')?.innerText.includes('hello')");
    browser.press("Escape", false);
    browser.until("!document.querySelector('dialog')");
    assert_clean(&mut browser, &server);
}

#[test]
fn denial_has_its_reason_and_the_keyboard_answers() {
    let Some(server) = PageServer::start() else { return };
    let mut browser = server.open();
    start_run(&mut browser, "ask run touch made.txt\nsay Done.");
    browser.until("!!document.querySelector('.permission')");
    browser.eval("document.activeElement.blur(); 0");
    browser.click(".deny-group input");
    browser.type_text("not in this directory");
    browser.eval("document.activeElement.blur(); 0");
    browser.until("!!document.querySelector('.permission:not(.unread)')");
    browser.press("p", false);
    browser.until("document.activeElement.classList.contains('permission')");
    browser.press("d", false);
    browser.until("document.activeElement.matches('.permission .danger')");
    browser.press("Enter", false);
    until_status(&mut browser, "done_with_denials");
    assert!(text_of_feed(&mut browser).contains("not in this directory"));
    assert!(!server.user.path("made.txt").exists());
    assert_clean(&mut browser, &server);
}

#[test]
fn two_tabs_show_the_same_also_after_a_lost_connection() {
    let Some(server) = PageServer::start() else { return };
    let mut first = server.open();
    let pieces = "repeat 20 run echo piece{n}\n";
    let address =
        start_run(&mut first, &format!("{pieces}ask run true\nrepeat 20 run echo late{{n}}\nsay Done."));
    let relay = CuttableRelay::to(server.url.trim_start_matches("http://").to_owned());
    let mut second = server.open_second(&relay.url(), &address);
    for browser in [&mut first, &mut second] {
        browser.until("!!document.querySelector('.permission')");
    }
    second.until("document.querySelector('.thread').dataset.stream === 'live'");
    second.eval("window.lost = []; new MutationObserver(() => lost.push(document.querySelector('.thread').dataset.stream)) \
        .observe(document.querySelector('.thread'), {attributes: true}); 0");
    relay.cut();
    second.until("lost.includes('connecting')");
    allow(&mut first);
    // The connection is lost again while events arrive.
    relay.cut();
    for browser in [&mut first, &mut second] {
        until_status(browser, "done");
    }
    assert_eq!(second.eval("document.querySelectorAll('.permission').length"), json!(0));
    for browser in [&mut first, &mut second] {
        browser.until("document.querySelector('.row').getAttribute('aria-setsize') > 40");
        browser.eval("document.querySelector('.scroller').scrollTop = 1e9; 0");
        browser.until("!!document.querySelector('section.outcome')");
    }
    let sizes = "document.querySelector('.row').getAttribute('aria-setsize')";
    assert_eq!(first.eval(sizes), second.eval(sizes));
    let rows = rows_of_feed(&mut first);
    assert!(rows.len() > 40 && !rows.contains(&String::new()), "{rows:?}");
    assert_eq!(rows, rows_of_feed(&mut second));
}

#[test]
fn run_with_ten_thousand_events_stays_responsive() {
    let Some(server) = PageServer::start() else { return };
    server.user.write("a.txt", "text\n");
    let mut browser = server.open();
    let address =
        start_run(&mut browser, "repeat 5000 tool read_file a.txt\nsay The needle is here.\nsay Done.");
    until_status(&mut browser, "done");
    browser.eval("location.hash = '#/'; 0");
    browser.until("!!document.querySelector('.start')");
    // On a loaded machine, the time that passes says little about the page.
    let before = browser.processor_time();
    browser.eval(&format!(
        "new Promise(done => {{ location.hash = {address:?}; \
         const look = () => document.querySelectorAll('.row').length > 5 ? done() : requestAnimationFrame(look); look(); }})"
    ));
    let taken = browser.processor_time() - before;
    assert!(taken < Duration::from_secs(2), "the first rows took {taken:?}");
    // A new tab with nothing loaded: the page, its scripts and the run.
    browser.open_tab(WINDOW);
    browser.before_load(FIRST_ROWS);
    browser.go(&format!("{}/{address}", server.url));
    browser.until("window.firstRows > 0");
    let elapsed = browser.eval("Math.round(firstRows)");
    let taken = browser.processor_time();
    let _ = writeln!(
        std::io::stderr(),
        "first rows of 10,000 events in a new tab: {elapsed} ms, {taken:?} of processor time"
    );
    assert!(taken < Duration::from_secs(2), "the first rows of a new tab took {taken:?}");
    browser.until("document.querySelector('.row').getAttribute('aria-setsize') > 5000");
    let most = browser.eval(
        "(async () => { const pane = document.querySelector('.scroller'); let most = 0; for (let i = 0; i < 40; i++) { \
         pane.scrollTop = i * pane.scrollHeight / 40; await new Promise(done => requestAnimationFrame(done)); \
         most = Math.max(most, document.querySelectorAll('.row').length); } return most; })()",
    );
    assert!(most.as_u64().is_some_and(|most| (6..=500).contains(&most)), "{most}");
    browser.press("/", false);
    browser.type_text("NEEDLE is");
    // The prompt contains the words, too.
    browser.until("document.querySelector('.search-bar output').textContent === '1 of 2'");
    browser.press("Enter", false);
    browser.until("[...document.querySelectorAll('.row-text')].some(row => row.innerText.includes('The needle is here'))");
    browser.until("CSS.highlights.get('hit-now').size === 1");
    assert_clean(&mut browser, &server);
}

#[test]
fn hostile_content_is_text() {
    let Some(server) = PageServer::start() else { return };
    let mut browser = server.open();
    let prompt = format!(
        "think {HOSTILE}\nsay # {HOSTILE}\nrun echo \"{HOSTILE}\"\nask run echo {HOSTILE}\nsay Done."
    );
    start_run(&mut browser, &prompt);
    browser.until("!!document.querySelector('.permission')");
    browser.eval("document.querySelectorAll('.feed summary').forEach(summary => summary.click()); 0");
    let built = "document.querySelectorAll('main script, main img, main iframe, main style, [onerror], a[href^=javascript]').length";
    assert_eq!(browser.eval(built), json!(0));
    let hidden = "/[\\u001b\\u202e]/.test(document.documentElement.outerHTML + document.title)";
    assert_eq!(browser.eval(hidden), json!(false));
    assert_eq!(browser.eval("document.querySelector('main').innerText.includes('U+202E')"), json!(true));
    assert_clean(&mut browser, &server);
    // The policy of the page also stops what is inserted as if escaping had failed.
    browser.eval("document.body.insertAdjacentHTML('beforeend', '<img src=\"https://example.test/x.png\" onerror=\"window.pwned=7\">'); 0");
    browser.eval("(() => { const s = document.createElement('script'); s.textContent = 'window.pwned=8'; document.body.append(s); return 0; })()");
    browser.eval("new Promise(done => setTimeout(() => done(0), 200))");
    assert_eq!(browser.eval("typeof window.pwned"), json!("undefined"));
    assert!(!browser.complaints().is_empty(), "the policy blocked and reported both");
}

#[test]
fn conversation_takes_prompts_and_steering() {
    let Some(server) = PageServer::start() else { return };
    let mut browser = server.open();
    browser.eval("document.querySelector('.more-options').open = true; 0");
    browser.click(".more-options .check input");
    browser.eval("document.querySelector('.new-run select').value = 'fake'; document.querySelector('.new-run textarea').focus(); 0");
    browser.type_text("say First.");
    browser.click(".start");
    browser.until("location.hash.startsWith('#/conversations/')");
    until_status(&mut browser, "done");
    for (prompt, answer) in [("ask run true", ""), ("say Third.", "Third.")] {
        browser.until("!document.querySelector('.composer').hidden");
        browser.click(".composer textarea");
        browser.type_text(prompt);
        browser.press("Enter", false);
        if answer.is_empty() {
            // The second prompt waits for an answer while the third is queued.
            browser.until("!!document.querySelector('.permission')");
            let scope =
                "document.querySelector('.permission > .note').innerText.includes('in this conversation')";
            assert_eq!(browser.eval(scope), json!(true));
        }
    }
    allow(&mut browser);
    browser.until("document.activeElement.matches('.scroller')");
    browser
        .until("[...document.querySelectorAll('.row-text')].some(row => row.innerText.trim() === 'Third.')");
    browser.until("!!document.querySelector('[data-action=close]')");
    browser.click("[data-action=close]");
    browser.until("document.querySelector('.composer textarea').placeholder.startsWith('Continue') || document.querySelector('.composer').hidden");
    assert_clean(&mut browser, &server);
}

#[test]
fn every_view_is_accessible_in_light_and_dark_and_on_phones() {
    let Some(server) = PageServer::start() else { return };
    let axe = axe_core().unwrap();
    batch::suite(&server.user, "cases:\n- {id: a, prompt: 'say A'}\n- {id: b, prompt: 'say B'}\n");
    assert_eq!(batch::batch(&server.user, &[]).code, 0);
    save_session(&server);
    let mut browser = server.open();
    let run = start_run(&mut browser, "think Plan.\ntool write_file b.txt two\\n\nask run true\nsay Done.");
    browser.until("!!document.querySelector('.permission')");
    browser.eval("location.hash = '#/'; 0");
    let conversation = open_conversation(&mut browser, "tool write_file c.txt three\\n\nsay Done.");
    until_status(&mut browser, "done");
    let experiment =
        format!("#/experiments/show?dir={}", server.user.path("exp").canonicalize().unwrap().display());
    let views: [(&str, &str); 9] = [
        ("#/", ".card"),
        (run.as_str(), ".permission:not(.unread)"),
        (conversation.as_str(), ".composer:not([hidden])"),
        ("#/sessions", ".card"),
        ("#/sessions?q=one", ".hits"),
        ("#/sessions/show?session=448d4d1a", ".row"),
        ("#/usage", ".chart"),
        ("#/experiments", ".card .progress"),
        (experiment.as_str(), ".cell"),
    ];
    // The contrast depends on the color scheme, and the layout on the width.
    for (width, scheme) in [(1280, "light"), (390, "dark")] {
        browser.size(width, 844);
        browser.prefer(scheme, "screen");
        for (hash, element) in views {
            browser.eval(&format!("location.hash = {hash:?}; 0"));
            browser.until(&format!("!!document.querySelector('main {element}')"));
            assert_accessible(&mut browser, &axe, &format!("{hash} {scheme} {width}"));
        }
        browser.eval(&format!("location.hash = {conversation:?}; 0"));
        browser.until("!!document.querySelector('section.outcome .file')");
        browser.eval("document.querySelector('section.outcome .file').click(); 0");
        browser.until("!!document.querySelector('dialog .line.add')");
        assert_accessible(&mut browser, &axe, &format!("file dialog {scheme} {width}"));
        browser.press("Escape", false);
        browser.until("!document.querySelector('dialog')");
    }
    browser.press("?", true);
    browser.until("!!document.querySelector('dialog[open]')");
    assert_accessible(&mut browser, &axe, "help");
    assert_clean(&mut browser, &server);
}

/// Copies a saved session of Claude Code to the home directory of the user.
pub(super) fn save_session(server: &PageServer) {
    let home = server.user.path("../home/.claude/projects/-ws");
    fs::create_dir_all(&home).unwrap();
    let saved =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../agentline-core/tests/captures/claude/saved/edits.jsonl");
    fs::copy(saved, home.join("edits.jsonl")).unwrap();
}

#[test]
fn search_result_is_one_link_and_the_search_says_how_case_counts() {
    let Some(server) = PageServer::start() else { return };
    save_session(&server);
    let mut browser = server.open();
    browser.eval("location.hash = '#/sessions?q=one'; 0");
    browser.until("!!document.querySelector('.result .hits')");
    assert_eq!(browser.eval("document.querySelectorAll('.result').length"), json!(1));
    assert_eq!(browser.eval("document.querySelectorAll('.result a').length"), json!(1));
    let note = "document.querySelector('#search-case').innerText.includes('capital')";
    assert_eq!(browser.eval(note), json!(true));
    // A capital letter makes the search exact.
    for (words, result) in [("oNE", ".empty"), ("one", ".result")] {
        browser.eval(&format!(
            "(input => {{ input.value = {words:?}; input.dispatchEvent(new Event('input')); }})(document.querySelector('.big-search')); 0"
        ));
        browser.until(&format!("!!document.querySelector('.results {result}')"));
    }
    browser.click(".result .hits");
    browser.until("location.hash.startsWith('#/sessions/show') && !!document.querySelector('.row')");
    browser.until("/ tokens/.test(document.querySelector('.thread-head .sub').innerText)");
    // The way back leads to the same search, and the navigation to the list of all sessions.
    browser.eval("history.back(); 0");
    browser.until("document.querySelector('.big-search')?.value === 'one' && !!document.querySelector('.results .result')");
    browser.click(".nav-link[href='#/sessions']");
    browser.until(
        "document.querySelector('.big-search')?.value === '' && !!document.querySelector('.results .card')",
    );
    assert_clean(&mut browser, &server);
}

#[test]
fn experiments_name_the_command_that_makes_one_and_usage_begins_with_the_cost() {
    let Some(server) = PageServer::start() else { return };
    save_session(&server);
    let mut browser = server.open();
    browser.eval("location.hash = '#/experiments'; 0");
    browser.until("document.querySelector('.empty p code')?.innerText === 'agentline batch SUITE'");
    browser.eval("location.hash = '#/usage'; 0");
    browser.until("!!document.querySelector('.filters')");
    browser.eval("(select => { select.value = ''; select.dispatchEvent(new Event('change', {bubbles: true})); })(document.querySelector('[aria-label=Time]')); 0");
    let heads = "[...document.querySelectorAll('thead th')].map(head => head.innerText).slice(0, 4).join()";
    browser.until(&format!("{heads} === 'Day,Cost,Total,Sessions'"));
    let cost = "document.querySelector('tbody td').innerText";
    assert_eq!(browser.eval(&format!("/^(> )?\\$|^–$/.test({cost})")), json!(true));

    // An answer that comes after that to a later choice is not shown.
    browser.eval(
        "window.realFetch = fetch; window.fetch = async (path, init) => { const answer = await realFetch(path, init); \
         if (String(path).includes('by=week')) await new Promise(done => { window.answerWeek = done; }); return answer; }; 0",
    );
    let mut choose = |by: &str| {
        browser.eval(&format!(
            "(select => {{ select.value = '{by}'; select.dispatchEvent(new Event('change', {{bubbles: true}})); }})\
             (document.querySelector('[aria-label=\"Group by\"]')); 0"
        ));
    };
    choose("week");
    choose("model");
    browser.until(&format!("{heads}.startsWith('Model,') && !!window.answerWeek"));
    let table = "document.querySelector('table').innerText";
    let shown = browser.eval(table);
    browser.eval("answerWeek(); new Promise(done => setTimeout(() => done(0), 300))");
    assert_eq!(browser.eval(table), shown);
    assert_clean(&mut browser, &server);
}

#[test]
fn text_with_many_fences_takes_linear_time() {
    let Some(server) = PageServer::start() else { return };
    let mut browser = server.open();
    let blocks = "import('/assets/markdown.js').then(({markdown}) => ['```\\na\\n```\\n'.repeat(2), '~~~\\n```\\nb'] \
        .map(text => markdown(text).querySelectorAll('pre').length))";
    assert_eq!(browser.eval(blocks), json!([2, 1]));
    // Four times the text takes about four times as long, and would take sixteen times as long in quadratic time.
    let mut best = |lines: usize| {
        let render = format!(
            "import('/assets/markdown.js').then(({{markdown}}) => {{ markdown('```\\n'.repeat({lines})); }})"
        );
        let times = [(); 3].map(|()| {
            let before = browser.processor_time();
            browser.eval(&render);
            browser.processor_time() - before
        });
        times.into_iter().min().unwrap().as_secs_f64()
    };
    best(1000);
    let ratio = best(32_000) / best(8_000);
    assert!(ratio < 9.0, "{ratio}");
}

fn assert_accessible(browser: &mut Browser, axe: &str, name: &str) {
    browser.eval(&format!("{axe}; 0"));
    let found = browser.eval(
        "axe.run(document, {resultTypes: ['violations']}).then(result => result.violations.map(violation => \
         violation.id + ': ' + violation.nodes.slice(0, 3).map(node => node.html.slice(0, 200)).join(' | ')))",
    );
    assert_eq!(found, Value::Array(Vec::new()), "{name}");
    let overflow = browser.eval("document.documentElement.scrollWidth - innerWidth");
    assert!(overflow.as_i64() <= Some(0), "{name} is {overflow} pixels too wide");
}

#[test]
fn missing_sign_in_and_absent_server_are_shown() {
    let Some(server) = PageServer::start() else { return };
    let mut stranger = Browser::start((1280, 900));
    stranger.go(&format!("{}/", server.url));
    stranger.until("document.querySelector('.sign-in')?.innerText.includes('agentline serve')");
    let axe = axe_core().unwrap();
    for (width, scheme) in [(1280, "light"), (390, "dark")] {
        stranger.size(width, 844);
        stranger.prefer(scheme, "screen");
        assert_accessible(&mut stranger, &axe, &format!("sign-in {scheme} {width}"));
    }
    let mut browser = server.open();
    browser.set_offline(true);
    browser.until("document.querySelector('.banner').hidden === false");
    browser.set_offline(false);
    browser.until("document.querySelector('.banner').hidden === true");
}
