//! Tests the exported page in a real browser: it is rendered, clicked and searched; no session content runs, and
//! nothing is fetched.

use crate::cli::{sessions::Home, user::User};
use agentline_tests::{Browser, has_browser};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Content that would run, load or reorder text if it were interpreted. Each marks that it ran.
const HOSTILE: &str = "</script><script>window.pwned=1</script><img src=x onerror='window.pwned=2'>\
    <svg onload='window.pwned=3'></svg><a href='javascript:window.pwned=4' id=hostile>link</a>\
    <style>body{display:none}</style><iframe src='https://example.test/'></iframe><meta http-equiv=refresh content='0;url=https://example.test'>\
    \" onmouseover=\"window.pwned=5\" [md](javascript:window.pwned=6) ![i](https://example.test/i.png) </title></textarea>-->]]>\u{0}\u{202e}live\u{202c}";

/// Exports the page of a session in which every part is malicious, with one long line, in its own home.
fn page() -> Option<(User, PathBuf)> {
    if !has_browser() {
        return None;
    }
    let home = Home::new();
    let tools = [
        ("Bash", json!({"command": HOSTILE}), json!(HOSTILE), false),
        (
            "Edit",
            json!({"file_path": "a.rs", "old_string": format!("let a = 1;\n{HOSTILE}"), "new_string": format!("let b = 1;\n{HOSTILE}x")}),
            json!("ok"),
            false,
        ),
        ("Read", json!({"file_path": HOSTILE}), json!("needle in the result\n".repeat(40)), true),
    ];
    let mut lines = vec![home.claude_line("user", json!(format!("Fix it\n{HOSTILE}")))];
    let long = "x".repeat(3000);
    let text = format!(
        "# Title\n\n{HOSTILE}\n\n```rust\nfn main() {{ \"{long}\" }}\n```\n\n|a|b|\n|-|-|\n|{long}|{HOSTILE}|\n\n{long}"
    );
    let mut blocks = vec![
        json!({"type": "thinking", "thinking": HOSTILE, "signature": "s"}),
        json!({"type": "text", "text": text}),
    ];
    for (i, (name, input, _, _)) in tools.iter().enumerate() {
        blocks.push(json!({"type": "tool_use", "id": format!("t{i}"), "name": name, "input": input}));
    }
    for block in blocks {
        lines.push(home.claude_answer("m1", block));
    }
    for (i, (_, _, output, is_error)) in tools.iter().enumerate() {
        let result = json!([{"type": "tool_result", "tool_use_id": format!("t{i}"), "content": output, "is_error": is_error}]);
        lines.push(home.claude_line("user", result));
    }
    lines.push(home.claude_answer("m2", json!({"type": "text", "text": "Done, needle"})));
    home.claude(&lines);
    let user = home.user;
    let done = user.agentline(&["sessions", "export", "latest", "-o", "page.html"]);
    assert_eq!(done.code, 0, "{}", done.err);
    let path = user.path("page.html").canonicalize().unwrap();
    Some((user, path))
}

/// Asserts that nothing ran, only the page was fetched, and no error was reported.
fn assert_clean(browser: &mut Browser, page: &std::path::Path) {
    assert_eq!(browser.eval("typeof window.pwned"), json!("undefined"));
    let own = format!("file://{}", page.display());
    let foreign: Vec<&String> = browser
        .requests()
        .iter()
        .filter(|url| !url.starts_with(&own) && !url.starts_with("data:image/"))
        .collect();
    assert!(foreign.is_empty(), "{foreign:?}");
    assert!(browser.complaints().is_empty(), "{:?}", browser.complaints());
}

#[test]
fn malicious_session_content_is_escaped_in_the_page() {
    let Some((_user, page)) = page() else { return };
    let mut browser = Browser::open(&page, (1280, 900));
    browser.click("#fold");
    browser.until("[...document.querySelectorAll('main details')].every(d => d.open)");
    assert_eq!(browser.eval("document.querySelectorAll('iframe, main script, main style, main svg, main img, [onerror], [onmouseover], #hostile').length"), json!(0));
    assert_eq!(
        browser
            .eval("[...document.querySelectorAll('a')].every(a => a.getAttribute('href').startsWith('#'))"),
        json!(true)
    );
    // The text itself is readable in the prompt, the reasoning, the answer, the calls, the change and the results.
    let seen = browser.eval("document.querySelector('main').innerText.split('window.pwned=1').length - 1");
    assert!(seen.as_u64() >= Some(8), "{seen}");
    assert_eq!(browser.eval("document.querySelector('main').innerText.includes('U+202E')"), json!(true));
    assert_eq!(browser.eval("getComputedStyle(document.body).display"), json!("block"));
    assert_clean(&mut browser, &page);
}

#[test]
fn content_security_policy_blocks_injected_tags() {
    let Some((_user, page)) = page() else { return };
    let mut browser = Browser::open(&page, (1280, 900));
    // The page's content security policy must block a script and an image that are inserted as if escaping had failed.
    browser.eval("document.body.insertAdjacentHTML('beforeend', '<img src=\"https://example.test/x.png\" onerror=\"window.pwned=7\">'); 0");
    browser.eval("(() => { const s = document.createElement('script'); s.textContent = 'window.pwned=8'; document.body.append(s); return 0; })()");
    browser.eval("new Promise(done => setTimeout(() => done(0), 300))");
    assert_eq!(browser.eval("typeof window.pwned"), json!("undefined"));
    assert!(!browser.complaints().is_empty(), "the policy blocked and reported both");
}

#[test]
fn folding_and_search_work_by_mouse_and_keyboard() {
    let Some((_user, page)) = page() else { return };
    let mut browser = Browser::open(&page, (1280, 900));
    let is_open = |browser: &mut Browser| browser.eval("document.querySelector('.think').open");
    assert_eq!(is_open(&mut browser), json!(false));
    browser.click(".think > summary");
    assert_eq!(is_open(&mut browser), json!(true));
    browser.click(".think > summary");
    assert_eq!(is_open(&mut browser), json!(false));
    // A folded result is found, opened and scrolled into view.
    assert_eq!(browser.eval("document.querySelector('.tool.bad').open"), json!(false));
    browser.press("/", false);
    browser.type_text("NEEDLE in");
    browser.until("document.querySelector('#hits').textContent === '1 / 40'");
    assert_eq!(browser.eval("document.querySelector('.tool.bad').open"), json!(true));
    let view = "(() => { const b = [...CSS.highlights.get('hit')][0].getBoundingClientRect(); return b.top > 0 && b.bottom < innerHeight; })()";
    assert_eq!(browser.eval(view), json!(true));
    browser.press("Enter", false);
    browser.until("document.querySelector('#hits').textContent === '2 / 40'");
    browser.press("Enter", true);
    browser.press("Enter", true);
    browser.until("document.querySelector('#hits').textContent === '40 / 40'");
    // The box of the result is shorter than its text and scrolls to the hit.
    let in_its_box = "(() => { const b = [...CSS.highlights.get('hit')][0].getBoundingClientRect(); \
        const box = document.querySelector('.tool.bad pre.output'); const f = box.getBoundingClientRect(); \
        return box.scrollHeight > box.clientHeight && b.top >= f.top && b.bottom <= f.bottom; })()";
    assert_eq!((browser.eval(in_its_box), browser.eval(view)), (json!(true), json!(true)));
    browser.click("#next");
    browser.until("document.querySelector('#hits').textContent === '1 / 40'");
    // A match may span colors: `let b` has two of them in the change.
    browser.eval("document.querySelector('#q').value = ''; document.querySelector('#q').focus(); 0");
    browser.type_text("let b = 1");
    browser.until("document.querySelector('#hits').textContent === '1 / 1'");
    browser.eval("document.querySelector('#q').value = ''; 0");
    browser.type_text("not there at all");
    browser.until("document.querySelector('#hits').textContent === 'no hits'");
    browser.press("Escape", false);
    browser.until("document.querySelector('#hits').textContent === ''");
    assert_clean(&mut browser, &page);
}

#[test]
fn messages_have_permalinks_and_code_has_copy_buttons() {
    let Some((_user, page)) = page() else { return };
    let mut browser = Browser::open(&page, (1280, 900));
    browser.click(".entry.model .here");
    browser.until("location.hash.startsWith('#m-')");
    // The link opens the folded call that it names.
    browser.eval("location.hash = document.querySelector('.tool.bad').id; 0");
    browser.until("document.querySelector('.tool.bad').open");
    // The button says so for about a second, which a slow machine may miss.
    browser.eval(
        "const button = document.querySelector('.tool.bad .copy'); \
         new MutationObserver(() => { window.wasCopied ||= button.textContent === 'Copied'; }) \
           .observe(button, { childList: true }); 0",
    );
    // The page scrolls smoothly to the call first.
    browser.until(
        "(() => { const top = document.querySelector('.tool.bad .copy').getBoundingClientRect().top; \
         window.rests = window.lastTop === top ? (window.rests ?? 0) + 1 : 0; window.lastTop = top; \
         return window.rests >= 10; })()",
    );
    browser.click(".tool.bad .copy");
    browser.until("window.wasCopied === true");
    browser.until("document.querySelector('.tool.bad .copy').textContent === 'Copy'");
    // A search finds neither buttons nor links.
    browser.press("/", false);
    browser.type_text("copy");
    browser.until("document.querySelector('#hits').textContent === 'no hits'");
    assert_clean(&mut browser, &page);
}

#[test]
fn page_fits_a_phone_and_has_a_dark_theme() {
    let Some((_user, page)) = page() else { return };
    let mut browser = Browser::open(&page, (390, 844));
    browser.click("#fold");
    for width in [390, 768, 1280] {
        browser.size(width, 844);
        let over = browser.eval("document.scrollingElement.scrollWidth - innerWidth");
        assert!(over.as_i64() <= Some(0), "{over} too wide at {width}");
    }
    let background = "getComputedStyle(document.body).backgroundColor";
    browser.prefer("light", "screen");
    let light = browser.eval(background);
    browser.prefer("dark", "screen");
    let dark = browser.eval(background);
    let brightness = |colour: &Value| -> u32 {
        let text = colour.as_str().unwrap_or_default();
        text.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse::<u32>().ok()).take(3).sum()
    };
    assert!(brightness(&light) > 600 && brightness(&dark) < 150, "{light} {dark}");
    browser.click("#theme");
    assert_eq!(browser.eval(background), light);
    browser.prefer("light", "print");
    assert_eq!(browser.eval("getComputedStyle(document.querySelector('.bar')).display"), json!("none"));
    // The colors and shapes are actually painted.
    browser.prefer("dark", "screen");
    assert!(browser.picture(true).len() > 20_000);
    assert_clean(&mut browser, &page);
}

#[test]
fn chart_shows_its_numbers() {
    let Some((_user, page)) = page() else { return };
    let mut browser = Browser::open(&page, (1280, 900));
    assert_eq!(browser.eval("document.querySelectorAll('.plot a').length"), json!(2));
    browser.eval("document.querySelector('.plot a').focus(); 0");
    browser.until("!document.querySelector('#tip').hidden");
    let tooltip = browser.eval("document.querySelector('#tip').textContent");
    assert!(
        tooltip.as_str().is_some_and(|tooltip| tooltip.starts_with("Turn 1: ") && tooltip.contains(" out")),
        "{tooltip}"
    );
    browser.press("Enter", false);
    browser.until("location.hash === '#e1'");
    assert_clean(&mut browser, &page);
}
