//! Tests the commands for saved sessions, with files of real agents in their usual layout.

use crate::cli::user::{Done, User};
use agentline_tests::output_of;
use serde_json::{Value, json};
use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Write,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

const CAPTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../agentline-core/tests/captures");
const GEMINI: &str = "85611794-3609-48ad-94cc-0feefe2222e4";
const CLAUDE: &str = "9112afee-a34c-4f04-b9d3-06e99eab0e3a";
const CODEX: &str = "01a1dd7a-4281-7e23-9732-0e209f9dc524";
/// The session that a test generates for its own workspace.
const OWN: &str = "0ddba11a-0000-4000-8000-000000000001";

/// A user with sessions.
pub(crate) struct Home {
    pub(crate) user: User,
    cwd: String,
    /// The number of generated lines.
    lines: Cell<u32>,
}

impl Home {
    /// Creates a user whose agents have saved nothing.
    pub(crate) fn new() -> Self {
        let user = User::new().env("TZ", "UTC");
        let cwd = user.path(".").canonicalize().unwrap().to_string_lossy().into_owned();
        Self { user, cwd, lines: Cell::new(0) }
    }

    /// Creates a user with a session of each agent that keeps files.
    fn full() -> Self {
        let home = Self::new();
        let capture = |path: &str| fs::read_to_string(Path::new(CAPTURES).join(path)).unwrap();
        let gemini = "gemini/saved/0.61.0/full_tools";
        home.write(".gemini/projects.json", &capture(&format!("{gemini}/projects.json")));
        let session = "session-2026-11-15T05-02-85611794.jsonl";
        let text = capture(&format!("{gemini}/tmp__ws__chats__{session}"));
        home.write(&format!(".gemini/tmp/ws/chats/{session}"), &text);
        home.write(
            &format!(".claude/projects/-srv-lab-ws-claude/{CLAUDE}.jsonl"),
            &capture("claude/saved/full.jsonl"),
        );
        let rollout = format!(".codex/sessions/2026/11/15/rollout-2026-11-15T04-32-00-{CODEX}.jsonl");
        home.write(&rollout, &capture("codex/saved/full.jsonl"));
        home
    }

    /// Returns a path in the home.
    fn path(&self, path: &str) -> PathBuf {
        self.user.path("../home").join(path)
    }

    fn write(&self, path: &str, text: &str) {
        self.user.write(&format!("../home/{path}"), text);
    }

    fn run(&self, args: &[&str]) -> Done {
        let args: Vec<&str> = ["sessions"].into_iter().chain(args.iter().copied()).collect();
        self.user.agentline(&args)
    }

    fn own_file(&self) -> String {
        let slug = self.cwd.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        format!(".claude/projects/{slug}/{OWN}.jsonl")
    }

    /// Writes a Claude Code session for the workspace.
    pub(crate) fn claude(&self, lines: &[Value]) {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        self.write(&self.own_file(), &text);
    }

    /// Returns a line of a Claude Code session that follows the previous one.
    pub(crate) fn claude_line(&self, role: &str, content: Value) -> Value {
        let before = self.lines.replace(self.lines.get() + 1);
        let parent = (before > 0).then(|| format!("u{before}"));
        json!({"type": role, "uuid": format!("u{}", before + 1), "parentUuid": parent, "sessionId": OWN, "cwd": self.cwd, "version": "2.1.0", "isSidechain": false,
            "timestamp": "2026-11-14T10:00:00.000Z", "message": {"role": role, "content": content}})
    }

    /// Returns one block of an answer.
    pub(crate) fn claude_answer(&self, id: &str, block: Value) -> Value {
        let mut line = self.claude_line("assistant", json!([block]));
        line["message"]["id"] = json!(id);
        line["message"]["model"] = json!("claude-opus-4-8");
        line["message"]["usage"] =
            json!({"input_tokens": 100, "output_tokens": 20, "cache_read_input_tokens": 40});
        line
    }

    /// Returns everything below the agents' directories, with times and contents.
    fn files(&self) -> BTreeMap<PathBuf, (std::time::SystemTime, Vec<u8>)> {
        let mut found = BTreeMap::new();
        let mut folders = [".gemini", ".claude", ".codex"].map(|name| self.path(name)).to_vec();
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    folders.push(path.clone());
                    found.insert(path, (entry.metadata().unwrap().modified().unwrap(), Vec::new()));
                } else {
                    let text = fs::read(&path).unwrap();
                    found.insert(path, (entry.metadata().unwrap().modified().unwrap(), text));
                }
            }
        }
        found
    }
}

fn strings<'a>(list: &'a Value, key: &str) -> Vec<&'a str> {
    list.as_array().unwrap().iter().map(|row| row[key].as_str().unwrap()).collect()
}

#[test]
fn sessions_of_all_agents_are_listed_newest_first() {
    let home = Home::full();
    let list = home.run(&["list", "-o", "json"]).json();
    assert_eq!(strings(&list, "agent"), ["gemini", "codex", "claude"]);
    assert_eq!(strings(&list, "id"), [GEMINI, CODEX, CLAUDE]);
    let gemini = &list[0];
    assert_eq!((&gemini["title"], &gemini["turns"]), (&json!("Do the whole thing"), &json!(7)), "{gemini}");
    assert!(gemini["total_tokens"].as_u64() > Some(0) && gemini["places"][0].is_string(), "{gemini}");
    let table = home.run(&["list"]);
    let lines: Vec<&str> = table.out.lines().collect();
    assert_eq!((table.code, lines.len()), (0, 4), "{}{}", table.out, table.err);
    for word in ["when", "agent", "id", "project", "title", "turns", "tokens", "cost"] {
        assert!(lines[0].contains(word), "{}", lines[0]);
    }
    // On a pipe, nothing is truncated.
    assert!(lines[1].starts_with("2026-11-15 05:02  gemini") && lines[1].contains(GEMINI), "{}", table.out);
}

#[test]
fn list_is_filtered_by_agent_project_date_and_count() {
    let home = Home::full();
    let ids = |args: &[&str]| {
        let all: Vec<&str> = ["list", "-o", "json"].iter().chain(args).copied().collect();
        let done = home.run(&all);
        strings(&done.json(), "id").iter().map(|id| id[..4].to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(ids(&["--agent", "claude"]), ["9112"]);
    assert_eq!(ids(&["-a", "claude", "-a", "codex"]), ["01a1", "9112"]);
    assert_eq!(ids(&["--project", "/srv/lab/runs/old_0.61.0_full/ws"]), ["8561"]);
    assert_eq!(ids(&["--limit", "1"]), ["8561"]);
    assert_eq!(ids(&["--limit", "1", "--offset", "1"]), ["01a1"]);
    assert_eq!(ids(&["--offset", "9"]).len(), 0);
    let page = home.run(&["list", "--limit", "1", "--offset", "1"]);
    let next = "showing sessions 2 to 2 of 3; pass `--offset 2` to see the next";
    assert!(page.err.contains(next) && page.out.contains("01a1"), "{}{}", page.err, page.out);
    assert!(home.run(&["list", "--offset", "9"]).err.contains("there are only 3 sessions"));
    assert_eq!(ids(&["--since", "2026-11-15", "--until", "2026-11-15"]).len(), 3);
    assert_eq!(ids(&["--since", "2026-11-16"]).len(), 0);
    assert_eq!(ids(&["--until", "2026-11-14"]).len(), 0);
    assert_eq!(ids(&["--until", "2026-11-15T04:31:30Z"]), ["9112"]);
}

#[test]
fn session_is_selected_by_id_prefix_latest_or_file() {
    let home = Home::full();
    home.claude(&[home.claude_line("user", json!("of this folder"))]);
    let file = home.path(&format!(".claude/projects/-srv-lab-ws-claude/{CLAUDE}.jsonl"));
    let file = file.to_str().unwrap();
    for (name, id) in [(GEMINI, GEMINI), ("01a1", CODEX), (file, CLAUDE), ("latest", OWN), ("", OWN)] {
        let args: Vec<&str> = ["show", name, "-o", "json"].into_iter().filter(|a| !a.is_empty()).collect();
        assert_eq!(home.run(&args).json()["session"]["id"], id, "{name}");
    }
    let path = home.run(&["path", "9112"]);
    assert_eq!(
        (path.code, Path::new(path.out.trim()).canonicalize().unwrap()),
        (0, Path::new(file).canonicalize().unwrap())
    );
}

#[test]
fn missing_or_invalid_sessions_are_reported_in_one_message() {
    let home = Home::full();
    for (args, code, expected) in [
        (&["show", "nope"][..], 1, "no session `nope` found"),
        (&["show"], 1, "no session found for"),
        (&["show", "no/such/file.jsonl"], 1, "no/such/file.jsonl"),
        (&["search", "zzzzyyyy"], 1, "no matches found"),
        (&["list", "--agent", "claude", "--since", "2030-01-01"], 1, "no sessions found"),
        (&["usage", "--since", "2030-01-01"], 1, "no sessions with token usage"),
        (&["list", "--agent", "gemni"], 2, "did you mean `gemini`?"),
        (&["list", "--since", "soon"], 2, "`--since`"),
        (&["search", "(", "--regex"], 2, "error:"),
        (&["search", ""], 2, "error:"),
        (&["search"], 2, "WORDS"),
        (&["show", "-o", "html", GEMINI], 2, "--output"),
        (&["export", GEMINI], 2, "--output"),
        (&["export", GEMINI, "-o", "page"], 2, "cannot tell the format"),
        (&["export", GEMINI, "-o", "-"], 2, "cannot tell the format"),
        (&["export", GEMINI, "-o", "no/such/folder/a.html"], 1, "cannot write"),
        (&["watch", GEMINI, "--until-idle", "-1"], 2, "--until-idle"),
        (&["usage", "--by", "colour"], 2, "--by"),
    ] {
        let done = home.run(args);
        assert_eq!((done.code, done.out.as_str()), (code, ""), "{args:?}: {}", done.err);
        assert!(done.err.contains(expected), "{args:?}: {}", done.err);
        assert_eq!(done.err.matches("error:").count(), 1, "{args:?}: {}", done.err);
    }
    // A file that no agent wrote.
    home.user.write("other.json", "{\"a\":1}");
    let done = home.run(&["show", "other.json"]);
    assert!(done.code == 2 && done.err.contains("is not a session of"), "{}", done.err);
}

#[test]
fn session_is_shown_as_text() {
    let home = Home::full();
    let text = home.run(&["show", GEMINI]).out;
    assert!(text.starts_with("Do the whole thing\ngemini · 85611794"), "{text}");
    for part in ["▌ you", "● Write ", "● Edit ", "● Bash ", " (+1 -1) … ok", "-hi", "+hello"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    assert!(!text.contains('\u{1b}') && !text.contains("session_context"), "{text}");
    assert!(home.run(&["show", GEMINI, "--context"]).out.contains("session_context"));
    let thinking = home.run(&["show", GEMINI, "--thinking"]).out;
    assert!(thinking.len() > text.len(), "{thinking}");
    let coloured = home.user.agentline(&["--color", "always", "sessions", "show", GEMINI]).out;
    assert!(coloured.contains("\u{1b}[32m+"), "{coloured}");
    for id in [CLAUDE, CODEX] {
        let text = home.run(&["show", id]).out;
        assert!(text.contains("▌ you") && text.contains("● Write "), "{text}");
    }
}

#[test]
fn session_is_shown_as_json() {
    let home = Home::full();
    for id in [GEMINI, CLAUDE, CODEX] {
        let shown = home.run(&["show", id, "-o", "json"]).json();
        assert_eq!((&shown["session"]["id"], &shown["session"]["damage"]), (&json!(id), &json!([])));
        assert!(shown["session"]["usage"]["total_tokens"].as_u64() > Some(0), "{}", shown["session"]);
        let messages = shown["messages"].as_array().unwrap();
        let tools = messages.iter().filter_map(|m| m["content"].as_array()).flatten();
        assert!(tools.filter(|block| block["type"] == "tool_result").count() >= 3, "{shown}");
        assert!(messages.iter().all(|m| m["_original"].is_object() || m["_original"].is_array()), "{shown}");
        // In the other view, results are in messages of the user.
        let claude = home.run(&["show", id, "-o", "claude"]).json();
        for message in claude["messages"].as_array().unwrap() {
            let has = |kind: &str| {
                message["content"].as_array().is_some_and(|b| b.iter().any(|b| b["type"] == kind))
            };
            assert!(!(has("tool_use") && has("tool_result")), "{message}");
            assert!(!has("tool_result") || message["role"] == "user", "{message}");
        }
    }
    home.claude(&[
        home.claude_line("user", json!("go")),
        home.claude_answer("m", json!({"type": "text", "text": "first I say it"})),
        home.claude_answer("m", json!({"type": "tool_use", "id": "t", "name": "LS", "input": {"path": "."}})),
    ]);
    let kinds = |args: &[&str]| {
        let all: Vec<&str> = ["show", OWN, "-o", "json"].iter().chain(args).copied().collect();
        let shown = home.run(&all).json();
        strings(&shown["messages"][1]["content"], "type").join(" ")
    };
    assert_eq!((kinds(&[]), kinds(&["--order", "turn"])), ("tool_use text".into(), "text tool_use".into()));
}

#[test]
fn readable_part_of_a_damaged_session_is_shown() {
    let home = Home::full();
    let lines = [
        home.claude_line("user", json!("before")).to_string(),
        "{\"type\":".into(),
        home.claude_line("user", json!("behind")).to_string(),
    ];
    home.write(&home.own_file(), &lines.join("\n"));
    let text = home.run(&["show"]).out;
    assert!(
        text.contains("before") && text.contains("behind") && text.contains("unreadable: line 2"),
        "{text}"
    );
    assert_eq!(home.run(&["show", "-o", "json"]).json()["session"]["damage"][0]["line"], 2);
}

#[test]
fn search_finds_text_in_all_sessions() {
    let home = Home::full();
    home.claude(&[home.claude_line("user", json!("line one\nthe Needle is here\nline three"))]);
    let found = home.run(&["search", "needle"]);
    assert!(found.out.contains("    line one\n    the Needle is here\n    line three\n"), "{}", found.out);
    assert!(found.err.contains("1 hit in 1 session") && found.code == 0, "{}", found.err);
    let hits = |args: &[&str]| {
        let all: Vec<&str> = ["search", "-o", "json"].iter().chain(args).copied().collect();
        let done = home.run(&all);
        (done.code, done.json().as_array().unwrap().len())
    };
    assert_eq!(hits(&["needle"]), (0, 1));
    assert_eq!(hits(&["NEEDLE"]), (1, 0), "an uppercase letter makes the search case-sensitive");
    assert_eq!(hits(&["NEEDLE", "-i"]), (0, 1));
    assert_eq!(hits(&["needle", "-s"]), (1, 0));
    assert_eq!(hits(&["need..? is", "--regex"]), (0, 1));
    assert_eq!(hits(&["needle", "--agent", "gemini"]), (1, 0));
    assert_eq!(hits(&["needle", "--project", "."]), (0, 1));
    assert!(hits(&["hello"]).1 >= 3, "every agent wrote it");
}

#[test]
fn unreadable_sessions_are_reported() {
    let home = Home::full();
    assert_eq!(home.run(&["list"]).err, "");
    home.write(
        ".local/share/opencode/opencode.db",
        "not a database, although the file is long enough for one",
    );
    fs::remove_dir_all(home.path(".codex/sessions")).unwrap();
    home.write(".codex/sessions", "not a directory");
    for args in [&["list"][..], &["list", "-o", "json"], &["usage"], &["search", "file"]] {
        let done = home.run(args);
        assert_eq!(done.code, 0, "{args:?}: {}", done.err);
        assert_eq!(done.err.matches("warning:").count(), 2, "{args:?}: {}", done.err);
        assert!(done.err.contains("opencode.db") && done.err.contains(".codex/sessions"), "{}", done.err);
    }
    assert_eq!(home.run(&["list", "-a", "claude"]).err, "", "stores of other agents are not checked");
}

#[test]
fn concurrent_lists_share_the_index() {
    let home = Home::full();
    // Only files that are old enough are indexed.
    std::thread::sleep(Duration::from_millis(2500));
    let list = ["sessions", "list", "-o", "json"];
    let user = &home.user;
    let lists: Vec<Done> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..6).map(|_| scope.spawn(|| user.agentline(&list))).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let folder = home.path(".cache/agentline");
    let names = |folder: &Path| -> Vec<String> {
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect()
    };
    let of_index = names(&folder).into_iter().filter(|name| name.contains("sessions")).collect::<Vec<_>>();
    assert_eq!(of_index, ["sessions.index"], "one index, and no temporary file next to it");
    let index = fs::read_to_string(folder.join("sessions.index")).unwrap();
    assert!(index.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{index}");
    assert_eq!(index.lines().count(), 4, "one line per file and a header line: {index}");
    let again = user.agentline(&list);
    assert!(lists.iter().all(|done| (done.code, &done.out) == (0, &again.out)), "{}", again.out);
}

#[test]
fn session_is_exported_without_overwriting() {
    let home = Home::full();
    for (file, begins) in [
        ("a.html", "<!DOCTYPE html>"),
        ("a.md", "# Do the whole thing\n"),
        ("a.json", "{\"session\":{"),
        ("a.txt", "Do the whole thing\n"),
    ] {
        let done = home.run(&["export", GEMINI, "-o", file]);
        assert_eq!((done.code, done.out.as_str(), done.err), (0, "", format!("wrote {file}\n")));
        assert!(home.user.read(file).starts_with(begins), "{file}");
        home.user.write(file, "mine");
        let again = home.run(&["export", GEMINI, "-o", file]);
        assert!(again.code == 2 && again.err.contains("--force"), "{}", again.err);
        assert_eq!(home.user.read(file), "mine");
        assert_eq!(home.run(&["export", GEMINI, "-o", file, "--force"]).code, 0);
        assert!(home.user.read(file).starts_with(begins), "{file}");
    }
    let page = home.run(&["export", GEMINI, "--html", "-o", "-"]).out;
    assert_eq!(page, home.user.read("a.html"));
    // Special files are written to, not replaced.
    if cfg!(unix) {
        let page = home.run(&["export", GEMINI, "--html", "-o", "/dev/stdout"]).out;
        assert_eq!(page, home.user.read("a.html"));
    }
    assert_eq!(home.run(&["export", GEMINI, "--format", "md", "-o", "notes"]).code, 0);
    assert_eq!(home.user.read("notes"), home.user.read("a.md"));
    let left: Vec<_> = fs::read_dir(home.user.path(".")).unwrap().flatten().map(|e| e.file_name()).collect();
    assert_eq!(left.len(), 5, "nothing else remains: {left:?}");
}

#[test]
fn tape_is_shown_and_exported_like_a_session() {
    let tape = concat!(env!("CARGO_MANIFEST_DIR"), "/tapes/demo.acp.tape.jsonl");
    let home = Home::new();
    let shown = home.run(&["show", tape]);
    let order = ["▌ you", "  Say hello", "▌ gemini-2.5-flash", "  ● Write primes.py"];
    let positions: Vec<Option<usize>> = order.iter().map(|part| shown.out.find(part)).collect();
    assert!(positions.iter().all(Option::is_some) && positions.is_sorted(), "{}{}", shown.out, shown.err);
    assert!(shown.out.contains(" tokens"), "{}", shown.out);
    assert_eq!(home.run(&["export", tape, "-o", "run.html"]).code, 0);
    let page = home.user.read("run.html");
    assert!(page.contains("Say hello") && page.contains("<article class=\"entry model\""), "{page}");
    let json = home.run(&["show", tape, "-o", "json"]).json();
    assert_eq!(json["session"]["files"], json!([tape]), "{json}");
    assert_eq!(home.run(&["show", "no.tape.jsonl"]).code, 1);
}

#[test]
fn subagent_work_is_shown_on_request() {
    let home = Home::new();
    let capture = Path::new(CAPTURES).join("gemini/saved/0.61.0/subagent");
    let mut parent = String::new();
    for entry in fs::read_dir(capture).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().replace("__", "/");
        home.write(&format!(".gemini/tmp/ws/chats/{name}"), &fs::read_to_string(entry.path()).unwrap());
        parent = name.split_once('/').map_or(parent, |(id, _)| id.to_owned());
    }
    let plain = home.run(&["show", &parent]).out;
    let shown = home.run(&["show", &parent, "--subagents"]).out;
    assert!(
        !plain.contains("┌ sub-agent") && shown.contains("┌ sub-agent") && shown.contains("│ ▌"),
        "{shown}"
    );
    let json = home.run(&["show", &parent, "--subagents", "-o", "json"]).json();
    assert_eq!(json["subagents"][0]["session"]["parent"], json!(parent));
    let page = home.run(&["export", &parent, "--html", "-o", "-"]).out;
    assert!(page.contains("<details class=sub>"), "{page}");
    assert_eq!(home.run(&["list", "-o", "json"]).json().as_array().unwrap().len(), 1);
    assert_eq!(home.run(&["list", "-o", "json", "--subagents"]).json().as_array().unwrap().len(), 2);
}

#[test]
fn growing_session_is_followed() {
    let home = Home::new();
    home.claude(&[home.claude_line("user", json!("the first word"))]);
    let watch = home.user.start(&["sessions", "watch", "latest", "--until-idle", "8"]);
    let path = home.path(&home.own_file());
    std::thread::sleep(Duration::from_millis(1500));
    let append = |line: Value| {
        let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
        writeln!(file, "{line}").unwrap();
    };
    let call = json!({"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "make"}});
    append(home.claude_answer("m", call));
    std::thread::sleep(Duration::from_millis(1000));
    append(
        home.claude_line("user", json!([{"type": "tool_result", "tool_use_id": "t", "content": "built it"}])),
    );
    std::thread::sleep(Duration::from_millis(1000));
    // A newer session of the directory is followed from then on.
    let id = OWN.replace("0001", "0002");
    let mut newer = home.claude_line("user", json!("a newer prompt"));
    (newer["sessionId"], newer["timestamp"]) = (json!(id), json!("2026-11-14T10:05:00.000Z"));
    home.write(&home.own_file().replace(OWN, &id), &format!("{newer}\n"));
    let started_at = Instant::now();
    let done: Done = output_of(watch, "the end of the watch").into();
    assert!(started_at.elapsed() < Duration::from_secs(60));
    assert_eq!(done.code, 0, "{}", done.err);
    let order = ["the first word", "● Bash make …\n", "● Bash make … ok\n    built it", "a newer prompt"];
    let positions: Vec<Option<usize>> = order.iter().map(|part| done.out.find(part)).collect();
    assert!(positions.iter().all(Option::is_some) && positions.is_sorted(), "{positions:?} {}", done.out);
    assert_eq!(done.out.matches("the first word").count(), 1, "{}", done.out);
    assert!(done.err.contains(&format!("a newer session began: following {id} of claude")), "{}", done.err);
    fs::remove_file(home.path(&home.own_file().replace(OWN, &id))).unwrap();
    let lines = home.user.agentline(&["sessions", "watch", "-o", "json", "--until-idle", "0.2"]).lines();
    assert_eq!(lines.len(), 2, "{lines:?}");
}

#[test]
fn token_usage_is_counted_and_charted() {
    let home = Home::full();
    home.claude(&[
        home.claude_line("user", json!("x")),
        home.claude_answer("m", json!({"type": "text", "text": "y"})),
    ]);
    for (by, names) in [
        ("day", vec!["2026-11-14", "2026-11-15"]),
        ("agent", vec!["claude", "codex", "gemini"]),
        ("model", vec!["claude-opus-4-8", "gemini-2.5-flash", "gpt-5.5"]),
        ("week", vec!["2026-W46"]),
        ("month", vec!["2026-11"]),
        ("session", vec![CODEX, OWN, GEMINI, CLAUDE]),
    ] {
        let usage = home.run(&["usage", "--by", by, "-o", "json"]).json();
        assert_eq!((usage["by"].as_str(), strings(&usage["rows"], "name")), (Some(by), names), "{usage}");
        let sum: u64 =
            usage["rows"].as_array().unwrap().iter().map(|r| r["total_tokens"].as_u64().unwrap()).sum();
        assert_eq!(usage["total"]["total_tokens"], json!(sum), "{usage}");
    }
    let projects = home.run(&["usage", "--by", "project", "-o", "json"]).json();
    assert_eq!(projects["rows"].as_array().unwrap().len(), 3, "{projects}");
    let by_session = home.run(&["usage", "--by", "session"]).out;
    assert!(by_session.lines().any(|line| line.starts_with(OWN) && line.contains("  x  ")), "{by_session}");
    let plain = home.run(&["usage"]).out;
    assert!(plain.contains("\ntotal ") && !plain.contains('█'), "{plain}");
    let drawn = home.run(&["usage", "--chart", "cost"]).out;
    assert!(drawn.contains(&"█".repeat(20)), "{drawn}");
}

#[test]
fn session_commands_change_no_agent_files() {
    let home = Home::full();
    home.claude(&[home.claude_line("user", json!("x"))]);
    let before = home.files();
    assert!(before.len() > 8, "{}", before.len());
    for args in [
        &["list"][..],
        &["show", GEMINI],
        &["show", CLAUDE, "-o", "json"],
        &["search", "hello"],
        &["export", CODEX, "-o", "a.html"],
        &["usage"],
        &["watch", GEMINI, "--until-idle", "0"],
        &["path", "latest"],
    ] {
        assert_eq!(home.run(args).code, 0, "{args:?}");
    }
    assert!(home.files() == before);
}

#[cfg(unix)]
#[test]
fn list_fits_the_terminal() {
    let home = Home::full();
    let long = "a title that is much too long for a narrow terminal ".repeat(4);
    home.claude(&[home.claude_line("user", json!(long))]);
    let Some(done) = crate::cli::terminal::on_a_terminal_of(&home.user, 90, &["sessions", "list"]) else {
        return;
    };
    let screen = crate::cli::terminal::screen(&done.out, 90);
    assert!(screen.lines().count() >= 5, "{screen}");
    assert!(screen.lines().all(|line| line.chars().count() <= 90), "{screen}");
    assert!(
        screen.contains("a title that") && screen.contains('…') && screen.contains("85611794  "),
        "{screen}"
    );
    let Some(done) = crate::cli::terminal::on_a_terminal_of(&home.user, 120, &["sessions", "usage"]) else {
        return;
    };
    let screen = crate::cli::terminal::screen(&done.out, 120);
    assert!(screen.contains('█') && screen.lines().all(|line| line.chars().count() <= 120), "{screen}");
}

/// Ids of sessions that began at about the same time have the same beginning.
#[cfg(unix)]
#[test]
fn shortened_ids_in_the_usage_by_session_are_unique() {
    let home = Home::new();
    let all = ["01a1dd7a-4281-7e23-9732-0e209f9dc524", "01a1dd7a-4282-7e23-9732-0e209f9dc524"];
    for (id, count) in all.into_iter().zip(["is only 1 session", "are only 2 sessions"]) {
        let answer = home.claude_answer(id, json!({"type": "text", "text": "hi"})).to_string();
        home.write(&format!(".claude/projects/-ws/{id}.jsonl"), &answer.replace(OWN, id));
        let page = home.run(&["list", "--offset", "9"]);
        assert!(page.err.contains(&format!("there {count}")), "{}", page.err);
    }
    let args = ["sessions", "usage", "--by", "session"];
    let Some(done) = crate::cli::terminal::on_a_terminal_of(&home.user, 120, &args) else { return };
    let screen = crate::cli::terminal::screen(&done.out, 120);
    let rows = screen.lines().filter(|line| line.starts_with("01a1"));
    let ids: BTreeSet<&str> = rows.filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(ids, BTreeSet::from(["01a1dd7a-4281", "01a1dd7a-4282"]), "{screen}");
    for id in ids {
        assert_eq!(home.run(&["show", id]).code, 0, "{id}");
    }
}
