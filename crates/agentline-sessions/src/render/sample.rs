//! A session for tests with every kind of content, including hostile text.
#![cfg(test)]

use agentline_core::{
    Entry, EntryPart, Media, ReadError, Role, SavedDiff, SavedResult, SavedSession, SavedTool, Tokens,
    ToolKind, ToolStatus, ToolUse,
};

/// Text that must always be escaped.
pub(super) const HOSTILE: &str = "<script>document.title='pwned'</script></script><img src=x onerror=alert(1)> \
    [click](javascript:alert(1)) \u{202e}txt.exe\u{202c} nul:\0 & \"quoted\" <!-- ]]> ";

/// An image of one pixel.
const PIXEL: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// Returns a session and the session of its sub-agent.
pub(super) fn session() -> (SavedSession, Vec<SavedSession>) {
    let mut session = SavedSession::default();
    let info = &mut session.info;
    info.agent = "gemini".into();
    info.agent_version = Some("0.61.0".into());
    info.id = "3f2a91bc-1111".into();
    info.project = Some("/home/ada/primes".into());
    info.cost_usd = Some(0.0123);
    info.started = Some(START);
    info.updated = Some(START + 95_000);
    let mut context =
        entry("c", Role::User, 0, vec![EntryPart::text("<session_context>today</session_context>")]);
    context.context = true;
    let mut answer = entry("b", Role::Assistant, 3, answer());
    (answer.model, answer.usage) = (Some("gemini-2.5-pro".into()), Some(tokens(4000, 300, 3000, 120)));
    let mut last = entry("d", Role::Assistant, 90, vec![EntryPart::text("All done:\n\n- primes\n- tests\n")]);
    (last.model, last.usage) = (Some("gemini-2.5-pro".into()), Some(tokens(5200, 40, 4100, 0)));
    session.entries = vec![
        context,
        entry("a", Role::User, 1, vec![EntryPart::text("Write primes.py\nand test it"), image()]),
        answer,
        entry("n", Role::System, 60, vec![EntryPart::text("Request was retried")]),
        entry("h", Role::User, 80, vec![EntryPart::text(HOSTILE)]),
        last,
    ];
    session.damage.push(ReadError::new(Some(7), "not JSON"));
    let mut child = SavedSession::default();
    child.info.id = "sub-1".into();
    child.info.title = Some("Find the callers".into());
    child.info.started = Some(START + 20_000);
    child.entries = vec![
        entry("s1", Role::User, 20, vec![EntryPart::text("find the callers")]),
        entry("s2", Role::Assistant, 30, vec![EntryPart::text("none")]),
    ];
    (session, vec![child])
}

/// Compares a rendering with the stored file; `UPDATE_DOCS=1` updates the file.
pub(super) fn same(file: &str, rendered: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/render").join(file);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, rendered).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap().replace("\r\n", "\n");
    assert!(rendered == written, "{file} is out of date:\n{rendered}");
}

const START: u64 = 1_794_747_840_000;

fn entry(id: &str, role: Role, seconds: u64, parts: Vec<EntryPart>) -> Entry {
    let mut entry = Entry::new(id, role);
    entry.timestamp = Some(START + seconds * 1000);
    entry.parts = parts;
    entry
}

fn tokens(input: u64, output: u64, cached: u64, thoughts: u64) -> Tokens {
    Tokens {
        input: Some(input),
        output: Some(output),
        cached: Some(cached),
        thoughts: Some(thoughts),
        ..Tokens::default()
    }
}

fn image() -> EntryPart {
    EntryPart::Media(Media::new("image/png", Some(PIXEL.into()), None))
}

fn answer() -> Vec<EntryPart> {
    let lines: String = (1..=30).map(|n| format!("line {n}\n")).collect();
    let mut edit = tool("Edit", ToolKind::Edit, r#"{"file_path":"primes.py"}"#, ToolStatus::Ok, "edited");
    let mut diff = SavedDiff::default();
    diff.path = "primes.py".into();
    diff.old = Some("def primes(n):\n    return [2]\n".into());
    diff.new = Some("def primes(n):\n    return [2, 3]\n\nprint(primes(9))\n".into());
    edit.diff = Some(diff);
    let shell = |command: &str| serde_json::json!({"command": command}).to_string();
    vec![
        EntryPart::thinking("Plan: a sieve\nis best"),
        EntryPart::text(
            "I will **write** it with `sieve`:\n\n```python\ndef primes(n): # all\n    return \"2\"\n```",
        ),
        EntryPart::Tool(Box::new(edit)),
        tool("Bash", ToolKind::Shell, &shell("python primes.py"), ToolStatus::Ok, &lines).into_part(),
        tool("Bash", ToolKind::Shell, &shell("rm -rf /"), ToolStatus::Denied, "refused by policy")
            .into_part(),
        tool("Read", ToolKind::Read, r#"{"file_path":"gone.txt"}"#, ToolStatus::Error, "no such file")
            .into_part(),
        tool("Task", ToolKind::Agent, r#"{"description":"find callers"}"#, ToolStatus::Ok, "none")
            .into_part(),
    ]
}

fn tool(name: &str, kind: ToolKind, input: &str, status: ToolStatus, output: &str) -> SavedTool {
    let mut call = ToolUse::new(name, name, name, kind);
    call.input = serde_json::from_str(input).ok();
    let mut tool = SavedTool::new(call);
    tool.result = Some(SavedResult::new(status, output));
    tool
}

trait IntoPart {
    fn into_part(self) -> EntryPart;
}

impl IntoPart for SavedTool {
    fn into_part(self) -> EntryPart {
        EntryPart::Tool(Box::new(self))
    }
}
