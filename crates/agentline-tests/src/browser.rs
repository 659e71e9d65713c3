//! A real browser that renders a page: Debian's Chromium without a display, controlled over its own pipe.

use crate::RealSlot;
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Read, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{
        Arc, OnceLock,
        mpsc::{Receiver, channel},
    },
    thread,
    time::{Duration, Instant},
};

/// The time limit for one browser action, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);
/// The flags that disable the browser's background activity and its user profile.
const FLAGS: &[&str] = &[
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
];

/// A browser with one page. It ends with this value.
#[derive(Debug)]
pub struct Browser {
    child: Child,
    stdin: Option<ChildStdin>,
    messages: Receiver<Value>,
    session: String,
    next: u64,
    /// The addresses that the page requested.
    requests: Vec<String>,
    /// The errors of the page.
    complaints: Vec<String>,
    /// Its settings and caches, removed with it.
    _profile: tempfile::TempDir,
    /// A browser computes as much as a real agent.
    _slot: Arc<RealSlot>,
}

/// Returns whether there is a browser. If CI=true, a missing one is installed; elsewhere, that is reported.
///
/// # Panics
/// Panics if CI=true and there is none and it cannot be installed.
#[must_use]
pub fn has_browser() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let works = || Command::new("chromium").arg("--version").output().is_ok_and(|o| o.status.success());
        let install = || {
            let apt = |args: &[&str]| {
                let mut command = Command::new("apt-get");
                command.args(args).env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
                command.output().is_ok_and(|o| o.status.success())
            };
            let add = || apt(&["install", "-y", "--no-install-recommends", "chromium"]);
            add() || (apt(&["update"]) && add())
        };
        let is_ci = std::env::var("CI").is_ok_and(|v| v == "true");
        let found = works() || (is_ci && install() && works());
        assert!(
            found || !is_ci,
            "`chromium` is missing and could not be installed; CI tests pages in a browser"
        );
        if !found {
            // A print macro would be captured by the test runner.
            let _ =
                writeln!(std::io::stderr(), "skipped: `chromium` is not installed; only CI=true installs it");
        }
        found
    })
}

impl Browser {
    /// Opens a page of a file, in a window of this size.
    ///
    /// # Panics
    /// Panics if the browser does not start or does not open the page.
    #[must_use]
    pub fn open(page: &Path, size: (u32, u32)) -> Self {
        let mut browser = Self::start(size);
        browser.go(&format!("file://{}", page.display()));
        browser
    }

    /// Starts with an empty page, in a window of this size.
    ///
    /// # Panics
    /// Panics if the browser does not start.
    #[must_use]
    pub fn start(size: (u32, u32)) -> Self {
        let slot = RealSlot::take();
        let profile = tempfile::Builder::new().prefix("agentline-browser-").tempdir().expect("a folder");
        // The browser uses the file descriptors three and four for its pipe.
        let mut child = Command::new("sh")
            .args(["-c", "exec chromium \"$@\" 3<&0 4>&1 0</dev/null 1>/dev/null 2>/dev/null", "chromium"])
            .args(FLAGS)
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .env("HOME", profile.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let stdin = child.stdin.take();
        let messages = listen(child.stdout.take().expect("a pipe"));
        let mut browser = Self {
            child,
            stdin,
            messages,
            session: String::new(),
            next: 0,
            requests: Vec::new(),
            complaints: Vec::new(),
            _profile: profile,
            _slot: slot,
        };
        browser.open_tab(size);
        browser
    }

    /// Runs a script in each page that is loaded from now on, before the page's own scripts.
    pub fn before_load(&mut self, script: &str) {
        self.call("Page.addScriptToEvaluateOnNewDocument", json!({ "source": script }));
    }

    /// Continues in a new tab, which shares cookies and caches with the one before.
    ///
    /// # Panics
    /// Panics if it is not opened.
    pub fn open_tab(&mut self, (width, height): (u32, u32)) {
        self.session.clear();
        let target = self.call("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = self.call("Target.attachToTarget", attach);
        session["sessionId"].as_str().expect("a session").clone_into(&mut self.session);
        for domain in ["Page.enable", "Network.enable", "Runtime.enable", "Log.enable"] {
            self.call(domain, json!({}));
        }
        self.size(width, height);
    }

    /// Opens an address and waits until it is loaded.
    ///
    /// # Panics
    /// Panics if it does not load.
    pub fn go(&mut self, url: &str) {
        self.call("Page.navigate", json!({ "url": url }));
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'");
    }

    /// Sets the size of the window. A narrow one simulates a phone.
    pub fn size(&mut self, width: u32, height: u32) {
        let mobile = width < 600;
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile});
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    /// Sets the preferred color scheme, `light` or `dark`, or the medium `print`.
    pub fn prefer(&mut self, scheme: &str, medium: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({"media": medium, "features": features}));
    }

    /// Evaluates an expression in the page.
    ///
    /// # Panics
    /// Panics if the expression throws.
    pub fn eval(&mut self, expression: &str) -> Value {
        self.try_eval(expression).unwrap_or_else(|error| panic!("{expression}: {error}"))
    }

    /// Evaluates an expression in the page, or returns the error of the browser, for example if the page is reloaded.
    fn try_eval(&mut self, expression: &str) -> Result<Value, Value> {
        let asked = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let reply = self.try_call("Runtime.evaluate", asked)?;
        assert!(reply.get("exceptionDetails").is_none(), "{expression}: {reply}");
        Ok(reply["result"]["value"].clone())
    }

    /// Waits until an expression is true in the page, which may be reloaded meanwhile.
    ///
    /// # Panics
    /// Panics if it does not become true.
    pub fn until(&mut self, expression: &str) {
        let end = Instant::now() + PATIENCE;
        loop {
            let value = self.try_eval(expression);
            if value == Ok(json!(true)) {
                return;
            }
            assert!(Instant::now() < end, "{expression} did not become true: {value:?}");
            thread::sleep(Duration::from_millis(30));
        }
    }

    /// Clicks in the middle of the first element that matches a selector.
    ///
    /// # Panics
    /// Panics if there is none.
    pub fn click(&mut self, selector: &str) {
        let find = format!(
            "(() => {{ const e = document.querySelector({selector:?}); e.scrollIntoView({{block: 'center', behavior: 'instant'}}); \
             const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; }})()"
        );
        let at = self.eval(&find);
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({"type": kind, "x": at[0], "y": at[1], "button": "left", "clickCount": 1});
            self.call("Input.dispatchMouseEvent", event);
        }
    }

    /// Returns the processor time that the page has taken so far, with all threads of its process. Unlike the time that has
    /// passed, it does not depend on what else the machine does.
    ///
    /// # Panics
    /// Panics if the browser does not know it.
    pub fn processor_time(&mut self) -> Duration {
        self.call("Performance.enable", json!({}));
        let reply = self.call("Performance.getMetrics", json!({}));
        let metrics = reply["metrics"].as_array().expect("metrics");
        let metric =
            metrics.iter().find(|metric| metric["name"] == "ProcessTime").expect("the processor time");
        Duration::from_secs_f64(metric["value"].as_f64().expect("a number"))
    }

    /// Types a text into the focused element.
    pub fn type_text(&mut self, text: &str) {
        self.call("Input.insertText", json!({ "text": text }));
    }

    /// Sets a cookie that scripts cannot read, for an address.
    pub fn set_cookie(&mut self, url: &str, name: &str, value: &str) {
        self.call("Network.setCookie", json!({"url": url, "name": name, "value": value, "httpOnly": true}));
    }

    /// Cuts the network off, also for requests in progress, or restores it.
    pub fn set_offline(&mut self, offline: bool) {
        let unlimited =
            json!({"offline": offline, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1});
        self.call("Network.emulateNetworkConditions", unlimited);
    }

    /// Presses a key, optionally with shift.
    pub fn press(&mut self, key: &str, shift: bool) {
        let codes = [("Enter", 13), ("Escape", 27), ("Tab", 9)];
        let code = codes.iter().find(|(name, _)| *name == key).map_or(0, |(_, code)| *code);
        let text = match key {
            "Enter" => "\r",
            key if key.len() == 1 => key,
            _ => "",
        };
        for kind in ["keyDown", "keyUp"] {
            let event = json!({"type": kind, "key": key, "text": text, "windowsVirtualKeyCode": code,
                "modifiers": if shift { 8 } else { 0 }});
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    /// Returns a screenshot of the window, or of the whole page, as PNG in base64.
    ///
    /// # Panics
    /// Panics if no screenshot is returned.
    pub fn picture(&mut self, whole: bool) -> String {
        let reply =
            self.call("Page.captureScreenshot", json!({"format": "png", "captureBeyondViewport": whole}));
        reply["data"].as_str().expect("a picture").to_owned()
    }

    /// Returns everything that the page requested.
    #[must_use]
    pub fn requests(&self) -> &[String] {
        &self.requests
    }

    /// Returns script errors and violations of the page's content security policy.
    #[must_use]
    pub fn complaints(&self) -> &[String] {
        &self.complaints
    }

    /// Sends a command to the browser and waits for the response.
    fn call(&mut self, method: &str, params: Value) -> Value {
        self.try_call(method, params).unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    fn try_call(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        self.next += 1;
        let id = self.next;
        let mut message = json!({"id": id, "method": method, "params": params});
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        let stdin = self.stdin.as_mut().expect("a pipe");
        stdin.write_all(format!("{message}\0").as_bytes()).expect("the browser listens");
        stdin.flush().expect("the browser listens");
        loop {
            let reply =
                self.messages.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("{method}: {error}"));
            if reply["id"] == json!(id) {
                return match reply.get("error") {
                    Some(error) => Err(error.clone()),
                    None => Ok(reply["result"].clone()),
                };
            }
            self.note(&reply);
        }
    }

    fn note(&mut self, reply: &Value) {
        let params = &reply["params"];
        match reply["method"].as_str() {
            Some("Network.requestWillBeSent") => {
                self.requests.push(params["request"]["url"].as_str().unwrap_or_default().to_owned());
            }
            Some("Runtime.exceptionThrown") => self.complaints.push(params["exceptionDetails"].to_string()),
            Some("Log.entryAdded") => self.complaints.push(params["entry"]["text"].to_string()),
            _ => {}
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser exits when its pipe is closed; otherwise it is killed.
        self.stdin = None;
        let end = Instant::now() + Duration::from_secs(10);
        while Instant::now() < end && matches!(self.child.try_wait(), Ok(None)) {
            thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads messages, each terminated by a NUL.
fn listen(stdout: ChildStdout) -> Receiver<Value> {
    let (sender, messages) = channel();
    thread::spawn(move || {
        let mut reader = BufReader::new(stdout);
        loop {
            let mut message = Vec::new();
            if !reader.read_until(0, &mut message).is_ok_and(|n| n > 0) {
                return;
            }
            message.pop();
            let Ok(message) = serde_json::from_slice(&message) else { continue };
            if sender.send(message).is_err() {
                // The rest is read so that the browser is not blocked at its end.
                let _ = reader.read_to_end(&mut Vec::new());
                return;
            }
        }
    });
    messages
}
