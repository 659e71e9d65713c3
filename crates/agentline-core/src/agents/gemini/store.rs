//! Gemini CLI's session store: the sessions of a project, the lookup by id, and the files that resumed sessions leave
//! behind.

use crate::{
    FileSystem, Millis, Problem, ProjectRef, SessionFile, SessionFilePattern, SessionFormat, SessionRoot,
    time,
};
use serde_json::Value;
use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

/// The minimum length of an id prefix.
const SHORTEST_PREFIX: usize = 4;

/// A stored session.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stored {
    id: String,
    started: String,
}

/// Returns the directory of a project's sessions, below a home that contains `.gemini`.
pub(super) fn chats(home: &Path, cwd: &Path, fs: &dyn FileSystem) -> Option<PathBuf> {
    let gemini = home.join(".gemini");
    let cwd = spelled(cwd);
    let registered = fs
        .text(&gemini.join("projects.json"))
        .and_then(|text| serde_json::from_str::<Value>(&text).ok())
        .and_then(|all| Some(all.get("projects")?.get(&cwd)?.as_str()?.to_owned()));
    let tmp = gemini.join("tmp");
    let owns = |slug: &str| {
        fs.text(&tmp.join(slug).join(".project_root"))
            .is_some_and(|root| spelled(Path::new(root.trim())) == cwd)
    };
    // The registry may be outdated. The directories themselves name their projects.
    let slug = registered.filter(|slug| owns(slug)).or_else(|| {
        let start = slug_start(Path::new(&cwd));
        fs.list(&tmp)?.into_iter().find(|slug| is_slug_of(&start, slug) && owns(slug))
    });
    slug.map(|slug| tmp.join(slug).join("chats"))
}

/// Returns the directory of a project's sessions. If the CLI does not know the project yet, this is a new directory
/// with the file that makes it the project's, as the CLI would create it.
pub(super) fn chats_or_new(
    home: &Path,
    cwd: &Path,
    fs: &dyn FileSystem,
) -> (PathBuf, Option<(PathBuf, String)>) {
    if let Some(chats) = chats(home, cwd, fs) {
        return (chats, None);
    }
    let gemini = home.join(".gemini");
    let registry = fs.text(&gemini.join("projects.json")).and_then(|text| serde_json::from_str(&text).ok());
    let registry: Value = registry.unwrap_or_default();
    let is_registered = |slug: &str| {
        let projects = registry.get("projects").and_then(Value::as_object);
        projects.is_some_and(|all| all.values().any(|taken| taken.as_str() == Some(slug)))
    };
    let is_free = |slug: &String| {
        !is_registered(slug) && BASES.iter().all(|base| !fs.exists(&gemini.join(base).join(slug)))
    };
    let start = slug_start(Path::new(&spelled(cwd)));
    let numbered = (1..).map(|number| format!("{start}-{number}"));
    let slug = std::iter::once(start.clone()).chain(numbered).find(is_free).unwrap_or(start);
    let folder = gemini.join("tmp").join(slug);
    (folder.join("chats"), Some((folder.join(".project_root"), spelled(cwd))))
}

/// The directories in which the CLI keeps one directory for each project.
const BASES: &[&str] = &["tmp", "history"];

/// Returns the beginning of the name of a project's directory. The CLI derives it from the last component of
/// the project's path and appends a number if another project has that name.
fn slug_start(cwd: &Path) -> String {
    let name = cwd.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    let parts = name.split(|c: char| !matches!(c, 'a'..='z' | '0'..='9')).filter(|part| !part.is_empty());
    let start = parts.collect::<Vec<_>>().join("-");
    if start.is_empty() { "project".to_owned() } else { start }
}

/// Returns whether a directory may belong to a project, judging by its name. This avoids reading the
/// directories of all other projects.
fn is_slug_of(start: &str, slug: &str) -> bool {
    let is_numbered = |rest: &str| {
        rest.strip_prefix('-').is_some_and(|number| number.bytes().all(|digit| digit.is_ascii_digit()))
    };
    slug.strip_prefix(start).is_some_and(|rest| rest.is_empty() || is_numbered(rest))
}

/// Returns the full id of the session that a caller names by `latest`, an id or an id prefix.
pub(super) fn resolve(
    session_id: &str,
    home: &Path,
    cwd: &Path,
    fs: &dyn FileSystem,
) -> Result<String, Problem> {
    let stored = chats(home, cwd, fs).map(|folder| list(&folder, fs)).unwrap_or_default();
    let hint = "run `gemini --list-sessions` in that directory, or omit `resume` to start a new session";
    let none = |message: String| Problem::new("resume", message).hint(hint);
    if session_id == "latest" {
        let last = stored.into_iter().max_by(|a, b| a.started.cmp(&b.started));
        return last
            .map(|s| s.id)
            .ok_or_else(|| none(format!("Gemini CLI has no session to resume in `{}`", cwd.display())));
    }
    if stored.iter().any(|s| s.id == session_id) {
        return Ok(session_id.to_owned());
    }
    let mut matching: Vec<String> = stored.into_iter().map(|s| s.id).collect();
    matching.retain(|id| session_id.len() >= SHORTEST_PREFIX && id.starts_with(session_id));
    matching.dedup();
    match matching.as_slice() {
        [id] => Ok(id.clone()),
        [] => Err(none(format!("Gemini CLI has no session `{session_id}` in `{}`", cwd.display()))),
        many => Err(none(format!("`{session_id}` matches {} sessions: {}", many.len(), many.join(", ")))),
    }
}

/// Returns a problem if the id for a new session already exists, because the CLI refuses it.
pub(super) fn taken(id: &str, home: &Path, cwd: &Path, fs: &dyn FileSystem) -> Option<Problem> {
    let stored = chats(home, cwd, fs).map(|folder| list(&folder, fs)).unwrap_or_default();
    stored.iter().any(|s| s.id == id).then(|| {
        Problem::new("session_id", format!("Gemini CLI already has a session `{id}` in `{}`", cwd.display()))
            .hint(format!("resume it with `--resume {id}`, or choose another id"))
    })
}

/// Returns the pattern of a session's files.
pub(super) fn spot(folder: PathBuf, session: &str) -> SessionFilePattern {
    let start: String = session.chars().take(8).collect();
    SessionFilePattern::new(folder, format!("-{start}.jsonl"))
}

/// Returns the name of a session file that is created at this time.
pub(super) fn file_name(spot: &SessionFilePattern, at: Millis) -> String {
    format!("session-{}{}", time::as_minute(at), spot.suffix)
}

/// Returns the empty duplicates that a resumed run left behind. The CLI creates one if a later minute has
/// begun, treats it as a broken session at a later start, and then deletes every file of that session.
pub(super) fn twins(
    spot: &SessionFilePattern,
    existed_before: &[PathBuf],
    fs: &dyn FileSystem,
) -> Vec<PathBuf> {
    let is_session = |path: &PathBuf| path.to_string_lossy().ends_with(&spot.suffix);
    if !existed_before.iter().any(is_session) {
        return Vec::new();
    }
    let files = fs.list(&spot.folder).unwrap_or_default();
    let files =
        files.into_iter().filter(|name| name.ends_with(&spot.suffix)).map(|name| spot.folder.join(name));
    let empty = |path: &PathBuf| fs.text(path).is_some_and(|text| has_no_messages(&text));
    files.filter(|path| !existed_before.contains(path)).filter(empty).collect()
}

/// Returns the files of a session that has no messages.
pub(super) fn empty_sessions(spot: &SessionFilePattern, fs: &dyn FileSystem) -> Vec<PathBuf> {
    let names = fs.list(&spot.folder).unwrap_or_default().into_iter();
    let files = names.filter(|name| name.ends_with(&spot.suffix)).map(|name| spot.folder.join(name));
    files.filter(|path| fs.text(path).is_some_and(|text| has_no_messages(&text))).collect()
}

/// The maximum size of an empty duplicate. Larger files contain more than the initial context of the CLI.
const LARGEST_DUPLICATE: usize = 1 << 20;

/// Returns the empty duplicates in a directory of sessions, each with the file that holds the session. These
/// are the files that [`twins`] finds after a resumed run, left behind by runs that were killed before they
/// could remove them.
pub(super) fn empty_duplicates(folder: &Path, fs: &dyn FileSystem) -> Vec<(PathBuf, PathBuf)> {
    let names = fs.list(folder).unwrap_or_default();
    let mut by_id: Vec<(&str, &str)> =
        names.iter().filter_map(|name| Some((session_id(name)?, &**name))).collect();
    by_id.sort_unstable();
    // Most sessions have only one file, which is not read.
    by_id
        .chunk_by(|(id, _), (next, _)| id == next)
        .filter(|files| files.len() > 1)
        .flat_map(|files| duplicates_among(files.iter().map(|(_, name)| folder.join(name)).collect(), fs))
        .collect()
}

/// Returns the part of a file name that identifies the session.
fn session_id(name: &str) -> Option<&str> {
    let stem = name.strip_suffix(".jsonl").or_else(|| name.strip_suffix(".json"))?;
    stem.strip_prefix("session-").map(id_start)
}

/// Returns the empty files among those with the same id prefix.
fn duplicates_among(files: Vec<PathBuf>, fs: &dyn FileSystem) -> Vec<(PathBuf, PathBuf)> {
    let empty_id = |path: &PathBuf| {
        let text = String::from_utf8(fs.small(path, LARGEST_DUPLICATE)?).ok()?;
        has_no_messages(&text).then(|| header(&text))?.map(|stored| stored.id)
    };
    let (empty, full): (Vec<_>, Vec<_>) =
        files.into_iter().map(|path| (empty_id(&path), path)).partition(|(id, _)| id.is_some());
    if empty.is_empty() {
        return Vec::new();
    }
    let full: Vec<(String, PathBuf)> =
        full.into_iter().filter_map(|(_, path)| Some((header(&fs.text(&path)?)?.id, path))).collect();
    let original = |id: &str| full.iter().find(|(of, _)| of == id).map(|(_, path)| path.clone());
    empty.into_iter().filter_map(|(id, path)| Some((path, original(&id?)?))).collect()
}

/// Returns the earliest time at which a stored session may be opened over ACP. In the minute in which its file was
/// created, the CLI would overwrite that file with a new session, and the earlier messages would be lost.
pub(super) fn not_before(session: &str, home: &Path, cwd: &Path, fs: &dyn FileSystem) -> Option<Millis> {
    let spot = spot(chats(home, cwd, fs)?, session);
    let started_at =
        |name: String| time::minute(name.strip_prefix("session-")?.strip_suffix(spot.suffix.as_str())?);
    let last = fs.list(&spot.folder)?.into_iter().filter_map(started_at).max()?;
    Some(last + 60_000)
}

/// Returns the sessions with messages in a directory, one entry for each id.
fn list(folder: &Path, fs: &dyn FileSystem) -> Vec<Stored> {
    let mut all: Vec<Stored> = Vec::new();
    for name in fs.list(folder).unwrap_or_default() {
        let is_session =
            name.starts_with("session-") && (name.ends_with(".jsonl") || name.ends_with(".json"));
        let Some(text) = is_session.then(|| fs.text(&folder.join(&name))).flatten() else { continue };
        if has_no_messages(&text) {
            continue;
        }
        if let Some(stored) = header(&text)
            && all.iter().all(|s| s.id != stored.id)
        {
            all.push(stored);
        }
    }
    all.sort_by(|a, b| a.id.cmp(&b.id));
    all
}

fn header(text: &str) -> Option<Stored> {
    let first = text.lines().next()?;
    let value: Value = serde_json::from_str(first).or_else(|_| serde_json::from_str(text)).ok()?;
    let word = |key: &str| value.get(key).and_then(Value::as_str);
    if word("kind").is_some_and(|kind| kind != "main") {
        return None;
    }
    Some(Stored { id: word("sessionId")?.into(), started: word("startTime").unwrap_or_default().into() })
}

/// Returns whether a session file contains only the initial context of the CLI. An unreadable file counts as one with
/// messages.
fn has_no_messages(text: &str) -> bool {
    if let Ok(whole) = serde_json::from_str::<Value>(text)
        && whole.get("messages").is_some()
    {
        return whole["messages"].as_array().is_some_and(|all| all.iter().all(is_context));
    }
    text.lines().filter(|line| !line.trim().is_empty()).all(|line| {
        let Ok(Value::Object(record)) = serde_json::from_str::<Value>(line) else { return false };
        if let Some(set) = record.get("$set") {
            return set
                .get("messages")
                .and_then(Value::as_array)
                .is_none_or(|all| all.iter().all(is_context));
        }
        record.contains_key("sessionId") || is_context(&Value::Object(record))
    })
}

fn is_context(message: &Value) -> bool {
    let text = match message.get("content") {
        Some(Value::String(text)) => Some(text.as_str()),
        Some(Value::Array(parts)) if parts.len() == 1 => parts[0].get("text").and_then(Value::as_str),
        _ => None,
    };
    message.get("type").and_then(Value::as_str) == Some("user") && text.is_some_and(is_context_text)
}

/// The beginning of a summary with which the CLI replaces earlier messages.
const SUMMARY: &str = "<state_snapshot>";

/// Returns whether a user text was written by the CLI: the initial context, hook output or a summary.
pub(super) fn is_own_text(text: &str) -> bool {
    let text = text.trim();
    is_context_text(text)
        || text.starts_with("<hook_context>")
        || text.contains(SUMMARY) && text.ends_with("</state_snapshot>")
}

/// The reply to a summary that the CLI writes in the model's name.
pub(super) const SUMMARY_TAKEN: &str = "Got it. Thanks for the additional context!";

/// Returns whether a text is the initial context of the CLI.
fn is_context_text(text: &str) -> bool {
    let text = text.trim();
    text.starts_with("<session_context>") && text.ends_with("</session_context>")
}

/// The maximum depth of a session below `tmp`: the directory of its project, `chats`, and for a sub-agent the
/// directory of its parent session.
const DEPTH: usize = 3;

/// Returns the directory of all sessions of a user, below a home that contains `.gemini`.
pub(super) fn root(home: &Path) -> SessionRoot {
    SessionRoot::files(home.join(".gemini").join("tmp"), DEPTH)
}

/// Parses a file name: `<project>/chats/session-<minute>-<beginning of the id>.jsonl`, or
/// `<project>/chats/<session>/<id>.jsonl` for a sub-agent of that session.
pub(super) fn session_file(path: &Path) -> Option<SessionFile> {
    let mut names = path.iter().rev().map(OsStr::to_str);
    let name = names.next()??;
    let (stem, form) = match name.strip_suffix(".jsonl") {
        Some(stem) => (stem, SessionFormat::Lines),
        None => (name.strip_suffix(".json")?, SessionFormat::Whole),
    };
    let folder = names.next()??;
    let (id, parent) = if folder == "chats" {
        (id_start(stem.strip_prefix("session-")?), None)
    } else if names.next()?? == "chats" {
        (stem, Some(folder.to_owned()))
    } else {
        return None;
    };
    Some(SessionFile { form: Some(form), id: Some(id.to_owned()), parent })
}

/// Returns the part after the timestamp, which is a minute or, for an imported session, in milliseconds.
fn id_start(rest: &str) -> &str {
    let by_minute = rest.get(..16).filter(|start| time::minute(start).is_some()).and_then(|_| rest.get(17..));
    by_minute.or_else(|| Some(rest.split_once('-')?.1)).unwrap_or(rest)
}

/// Returns the project that a file below a root belongs to.
pub(super) fn project(root: &Path, path: &Path, fs: &dyn FileSystem) -> Option<ProjectRef> {
    let slug = path.strip_prefix(root).unwrap_or(path).iter().next()?.to_str()?;
    if let Some(owner) = fs.text(&root.join(slug).join(".project_root")) {
        return Some(ProjectRef::Path(owner.trim().into()));
    }
    if slug.len() == 64 && slug.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Some(ProjectRef::Sha256(slug.to_owned()));
    }
    let registry = fs.text(&root.parent()?.join("projects.json"))?;
    let all: Value = serde_json::from_str(&registry).ok()?;
    let mut entries = all.get("projects")?.as_object()?.iter();
    entries.find(|(_, of)| of.as_str() == Some(slug)).map(|(path, _)| ProjectRef::Path(path.into()))
}

/// Returns a path as the CLI writes it to its registry.
fn spelled(path: &Path) -> String {
    let text = path.to_string_lossy();
    if cfg!(windows) { text.to_lowercase() } else { text.into_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory_fs::MemoryFs;

    const CONTEXT: &str =
        r#"{"id":"c","type":"user","content":[{"text":"<session_context>\nx\n</session_context>"}]}"#;

    fn header_of(id: &str, started: &str) -> String {
        format!(r#"{{"sessionId":"{id}","projectHash":"h","startTime":"{started}","kind":"main"}}"#)
    }

    fn session(id: &str, started: &str) -> String {
        let record = r#"{"id":"1","type":"user","content":[{"text":"hi"}]}"#;
        format!("{}\n{CONTEXT}\n{record}\n", header_of(id, started))
    }

    fn twin(id: &str) -> String {
        format!("{}\n{CONTEXT}\n{{\"$set\":{{\"lastUpdated\":\"x\"}}}}\n", header_of(id, "2026-02-02"))
    }

    fn fs() -> MemoryFs {
        MemoryFs::default()
            .plain("/h/.gemini/projects.json", r#"{"projects":{"/ws":"ws","/other":"gone"}}"#)
            .plain("/h/.gemini/tmp/ws/.project_root", "/ws\n")
            .plain("/h/.gemini/tmp/other-1/.project_root", "/other")
            .plain("/h/.gemini/tmp/ws/chats/session-a-aaaa1111.jsonl", &session("aaaa1111-1", "2026-01-01"))
            .plain("/h/.gemini/tmp/ws/chats/session-b-aaaa2222.jsonl", &session("aaaa2222-2", "2026-01-03"))
            .plain("/h/.gemini/tmp/ws/chats/session-c-cccc.jsonl", &twin("cccc3333-3"))
            .plain("/h/.gemini/tmp/ws/chats/old-dddd.jsonl", &session("dddd4444-4", "2026-01-09"))
            .plain(
                "/h/.gemini/tmp/ws/chats/session-e-eeee.json",
                r#"{"sessionId":"eeee5555-5","startTime":"2026-01-02","messages":[{"type":"user","content":"hi"}]}"#,
            )
    }

    #[test]
    fn session_directory_is_found_by_registry_or_project_root() {
        let at = |cwd| chats(Path::new("/h"), Path::new(cwd), &fs());
        assert_eq!(at("/ws"), Some("/h/.gemini/tmp/ws/chats".into()));
        assert_eq!(at("/other"), Some("/h/.gemini/tmp/other-1/chats".into()), "the registry is out of date");
        assert_eq!(at("/new"), None);
    }

    #[test]
    fn only_project_directories_are_read() {
        let is_read = |cwd: &str, slug: &str| is_slug_of(&slug_start(Path::new(cwd)), slug);
        for (cwd, slug) in [
            ("/a/ws", "ws"),
            ("/a/ws", "ws-12"),
            ("/a/_My  App.v2_", "my-app-v2"),
            ("/a/größe", "gr-e"),
            ("/a/日本", "project-1"),
            ("/", "project"),
        ] {
            assert!(is_read(cwd, slug), "{cwd} {slug}");
        }
        for (cwd, slug) in [("/a/ws", "ws2"), ("/a/ws", "ws-b"), ("/a/ws-1", "ws"), ("/a/ws", "a-ws")] {
            assert!(!is_read(cwd, slug), "{cwd} {slug}");
        }
    }

    #[test]
    fn empty_duplicate_is_found_only_next_to_its_session() {
        let folder = Path::new("/chats");
        let with = |files: &[(&str, String)]| {
            let fs = files
                .iter()
                .fold(MemoryFs::default(), |fs, (name, text)| fs.plain(&format!("/chats/{name}"), text));
            empty_duplicates(folder, &fs)
        };
        let (old, new) =
            ("session-2026-01-01T00-00-aaaa1111.jsonl", "session-2026-01-01T00-09-aaaa1111.jsonl");
        let id = "aaaa1111-1";
        let pair = vec![(folder.join(new), folder.join(old))];
        assert_eq!(with(&[(old, session(id, "x")), (new, twin(id))]), pair);
        assert_eq!(with(&[(new, twin(id))]), [], "a session without messages");
        assert_eq!(with(&[(old, twin(id)), (new, twin(id))]), [], "both files are empty");
        assert_eq!(with(&[(old, session(id, "x")), (new, session(id, "y"))]), [], "both files have messages");
        assert_eq!(with(&[(old, session("aaaa1111-2", "x")), (new, twin(id))]), [], "another session");
        assert_eq!(with(&[(old, session(id, "x")), (new, String::new())]), [], "not written yet");
        assert_eq!(with(&[(old, session(id, "x")), ("notes-aaaa1111.jsonl", twin(id))]), [], "not a session");
        let legacy = "session-2026-01-01T00-00-aaaa1111.json";
        let whole = format!(r#"{{"sessionId":"{id}","messages":[{{"type":"user","content":"hi"}}]}}"#);
        assert_eq!(with(&[(legacy, whole), (new, twin(id))]), [(folder.join(new), folder.join(legacy))]);
    }

    #[test]
    fn sessions_are_found_by_id_prefix_and_age() {
        let find = |session_id: &str| resolve(session_id, Path::new("/h"), Path::new("/ws"), &fs());
        assert_eq!(find("aaaa1111-1").unwrap(), "aaaa1111-1");
        assert_eq!(find("aaaa1").unwrap(), "aaaa1111-1");
        assert_eq!(find("eeee5555").unwrap(), "eeee5555-5", "the old format");
        assert_eq!(find("latest").unwrap(), "aaaa2222-2");
        for (session_id, word) in [("aaaa", "2 sessions"), ("cccc3333-3", "no session"), ("1", "no session")]
        {
            let problem = find(session_id).unwrap_err();
            assert_eq!(problem.key, "resume");
            assert!(problem.message.contains(word), "{problem}");
        }
        let none = resolve("latest", Path::new("/h"), Path::new("/new"), &fs()).unwrap_err();
        assert!(none.message.contains("no session to resume in `/new`"));
    }

    #[test]
    fn session_files_are_recognized_by_name() {
        let read = |path: &str| {
            let file = session_file(Path::new(path))?;
            Some((file.form?, file.id?, file.parent))
        };
        let lines = |id: &str, parent: Option<&str>| {
            Some((SessionFormat::Lines, id.to_owned(), parent.map(str::to_owned)))
        };
        assert_eq!(read("ws/chats/session-2026-11-15T05-12-186a51d2.jsonl"), lines("186a51d2", None));
        assert_eq!(read("ws/chats/session-2026-11-15T05-12-my-sessi.jsonl"), lines("my-sessi", None));
        assert_eq!(read("ws/chats/session-1794719553836-186a51d2.jsonl"), lines("186a51d2", None));
        assert_eq!(read("/h/.gemini/tmp/ws/chats/aaaa-1/bbbb-2.jsonl"), lines("bbbb-2", Some("aaaa-1")));
        let old = read("ab/chats/session-2025-10-29T05-12-186a51d2.json");
        assert_eq!(old, Some((SessionFormat::Whole, "186a51d2".into(), None)));
        for other in [
            "ws/logs.json",
            "ws/chats/notes.jsonl",
            "ws/chats/session-1-a.jsonl.unreadable-1",
            "session-1-a.jsonl",
        ] {
            assert_eq!(read(other), None, "{other}");
        }
    }

    #[test]
    fn project_is_derived_from_the_directory() {
        let hash = "0".repeat(64);
        let fs = fs().plain(&format!("/h/.gemini/tmp/{hash}/chats/session-1-a.json"), "{}");
        let root = root(Path::new("/h"));
        assert_eq!(root, SessionRoot::files("/h/.gemini/tmp".into(), 3));
        let of = |path: &str| project(&root.path, Path::new(path), &fs);
        assert_eq!(of("/h/.gemini/tmp/ws/chats/session-a.jsonl"), Some(ProjectRef::Path("/ws".into())));
        assert_eq!(of("other-1/chats/session-a.jsonl"), Some(ProjectRef::Path("/other".into())));
        assert_eq!(of(&format!("{hash}/chats/session-1-a.json")), Some(ProjectRef::Sha256(hash.clone())));
        assert_eq!(
            of("gone/chats/session-a.jsonl"),
            Some(ProjectRef::Path("/other".into())),
            "by the registry"
        );
        assert_eq!(of("unknown/chats/session-a.jsonl"), None);
    }

    #[test]
    fn junk_session_file() {
        // The file that `initialize` leaves behind, with a later start than all other sessions.
        let junk =
            format!("{}\n{{\"$set\":{{\"messages\":[{CONTEXT}]}}}}\n", header_of("ffff6666-6", "2026-03-03"));
        let fs = fs().plain("/h/.gemini/tmp/ws/chats/session-f-ffff6666.jsonl", &junk);
        let find = |session_id: &str| resolve(session_id, Path::new("/h"), Path::new("/ws"), &fs);
        assert_eq!(find("latest").unwrap(), "aaaa2222-2");
        assert!(find("ffff6666-6").is_err());
    }

    #[test]
    fn session_id_in_use_is_refused_with_a_hint() {
        let problem = |id: &str| taken(id, Path::new("/h"), Path::new("/ws"), &fs());
        assert!(problem("aaaa1111-1").unwrap().hint.unwrap().contains("--resume aaaa1111-1"));
        assert_eq!(problem("aaaa"), None, "another id may have the same prefix");
    }

    #[test]
    fn only_empty_duplicates_of_a_resumed_session_are_leftovers() {
        let real = "/c/session-1-aaaa1111.jsonl";
        let spot = SessionFilePattern::new("/c".into(), "-aaaa1111.jsonl".into());
        let fs = |second: &str| {
            MemoryFs::default()
                .plain(real, &session("aaaa1111-1", "x"))
                .plain("/c/session-2-aaaa1111.jsonl", second)
                .plain("/c/session-2-bbbb.jsonl", &twin("bbbb"))
        };
        let left = |second: &str, before: &[&str]| {
            let before: Vec<PathBuf> = before.iter().map(PathBuf::from).collect();
            twins(&spot, &before, &fs(second))
        };
        let expected = vec![PathBuf::from("/c/session-2-aaaa1111.jsonl")];
        assert_eq!(left(&twin("aaaa1111-1"), &[real]), expected);
        let replaced =
            format!("{}\n{{\"$set\":{{\"messages\":[{CONTEXT}]}}}}\n", header_of("aaaa1111-1", "x"));
        assert_eq!(left(&replaced, &[real]), expected);
        assert!(left(&session("aaaa1111-1", "x"), &[real]).is_empty(), "the second file has messages");
        assert!(left("{\"half", &[real]).is_empty(), "the second file is unreadable");
        assert!(left(&twin("aaaa1111-1"), &[]).is_empty(), "the session is new");
        assert!(
            left(&twin("aaaa1111-1"), &[real, "/c/session-2-aaaa1111.jsonl"]).is_empty(),
            "the second file existed before"
        );
    }
}
