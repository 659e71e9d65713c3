//! Tests saved sessions in homes with the agents' layout: captures of real runs, and a generated store of all four
//! agents.
#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use agentline::sessions::{Query, SessionChange, SessionFilter, SessionStore, UsageBy};
use agentline_core::{SavedSession, agents::built_in};
use agentline_tests::session_store::{GeneratedStore, RARE, StoreSpec, UNSEARCHABLE};
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};
use tempfile::TempDir;

const CLAUDE: &str = "9112afee-a34c-4f04-b9d3-06e99eab0e3a";
const CODEX: &str = "01a1dd7a-4281-7e23-9732-0e209f9dc524";
const GEMINI: &str = "85611794-3609-48ad-94cc-0feefe2222e4";
const OLD_GEMINI: &str = "c0258c60-a7c1-4bcc-b325-b9b089f0b7f1";
const PARENT: &str = "ea604f00-19fb-4caa-9912-854ec7499110";
const HELPER: &str = "284bfdb5-8ced-4092-8708-bd832a1cd1ae";
/// Where the captures of Claude and Codex were made. The directory no longer exists.
const MOVED: &str = "/srv/space";

/// A user whose agents keep their sessions where environment variables say.
struct User {
    dir: TempDir,
}

impl User {
    fn new() -> Self {
        let user = Self { dir: tempfile::tempdir().unwrap() };
        let project = user.project();
        fs::create_dir_all(&project).unwrap();
        let tmp = user.path().join("g/.gemini/tmp");
        let digest: String =
            Sha256::digest(project.to_str().unwrap()).iter().map(|b| format!("{b:02x}")).collect();
        let chats = "gemini/saved/0.61.0";
        for (from, to) in [
            (format!("{chats}/full_tools/tmp__ws__chats__session-2026-11-15T05-02-85611794.jsonl"),
             tmp.join("ws/chats/session-2026-11-15T05-02-85611794.jsonl")),
            (format!("{chats}/subagent/session-2026-11-15T05-11-ea604f00.jsonl"),
             tmp.join("ws/chats/session-2026-11-15T05-11-ea604f00.jsonl")),
            (format!("{chats}/subagent/{PARENT}__{HELPER}.jsonl"), tmp.join(format!("ws/chats/{PARENT}/{HELPER}.jsonl"))),
            ("gemini/saved/0.11.3/full_tools/tmp__136375f9e9e42f1b65b7883271e97b77490af00903e323666520921ee561ef7a__chats__session-2026-11-15T04-58-c0258c60.json".to_owned(),
             tmp.join(digest).join("chats/session-2026-11-15T04-58-c0258c60.json")),
            ("claude/saved/full.jsonl".to_owned(), user.path().join(format!("c/projects/-work-space/{CLAUDE}.jsonl"))),
            ("codex/saved/full.jsonl".to_owned(),
             user.path().join(format!("x/sessions/2026/11/15/rollout-2026-11-15T04-32-19-{CODEX}.jsonl"))),
        ] {
            let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../agentline-core/tests/captures").join(from);
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(&from, &to).unwrap_or_else(|e| panic!("{}: {e}", from.display()));
        }
        fs::write(tmp.join("ws/.project_root"), project.to_str().unwrap()).unwrap();
        let registry = serde_json::json!({"projects": {project.to_str().unwrap(): "ws"}});
        fs::write(user.path().join("g/.gemini/projects.json"), registry.to_string()).unwrap();
        user
    }

    fn path(&self) -> PathBuf {
        fs::canonicalize(self.dir.path()).unwrap()
    }

    fn project(&self) -> PathBuf {
        self.path().join("project")
    }

    fn store(&self) -> SessionStore {
        let variables = [
            ("GEMINI_CLI_HOME", "g"),
            ("CLAUDE_CONFIG_DIR", "c"),
            ("CODEX_HOME", "x"),
            ("XDG_DATA_HOME", "d"),
        ];
        let env: BTreeMap<String, String> = variables
            .into_iter()
            .map(|(name, folder)| (name.to_owned(), self.path().join(folder).to_string_lossy().into_owned()))
            .collect();
        SessionStore::new(built_in(), env, self.path().join("home"))
    }

    fn ids(&self, filter: &SessionFilter) -> Vec<String> {
        let mut ids: Vec<String> =
            self.store().list(filter).unwrap().into_iter().map(|session| session.info.id).collect();
        ids.sort();
        ids
    }
}

fn sorted(ids: &[&str]) -> Vec<String> {
    let mut ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
    ids.sort();
    ids
}

#[test]
fn sessions_are_found_through_variables_and_every_project_path() {
    let user = User::new();
    assert_eq!(user.ids(&SessionFilter::new()), sorted(&[CLAUDE, CODEX, GEMINI, OLD_GEMINI, PARENT]));
    let of_project = sorted(&[GEMINI, OLD_GEMINI, PARENT]);
    assert_eq!(
        user.ids(&SessionFilter::new().project(user.project())),
        of_project,
        "the session of an old version is found by its digest"
    );
    assert_eq!(
        user.ids(&SessionFilter::new().project(MOVED)),
        sorted(&[CLAUDE, CODEX]),
        "a project that no longer exists"
    );
    #[cfg(unix)]
    {
        let link = user.path().join("link");
        std::os::unix::fs::symlink(user.project(), &link).unwrap();
        assert_eq!(user.ids(&SessionFilter::new().project(&link)), of_project);
        assert_eq!(user.store().find("latest", &link).unwrap().info.id, PARENT);
    }
    let old = user
        .store()
        .list(&SessionFilter::new())
        .unwrap()
        .into_iter()
        .find(|s| s.info.id == OLD_GEMINI)
        .unwrap();
    assert_eq!(
        old.info.project.as_deref(),
        user.project().to_str(),
        "another session has the path of the digest"
    );
}

#[test]
fn sub_agents_belong_to_the_session_that_started_them() {
    let user = User::new();
    let store = user.store();
    let parent = store.find(&PARENT[..8], &user.path()).unwrap();
    let children = store.children(&parent).unwrap();
    assert_eq!(children.iter().map(|child| child.info.id.as_str()).collect::<Vec<_>>(), [HELPER]);
    assert_eq!(store.load(&children[0]).unwrap().info.parent.as_deref(), Some(PARENT));
    assert!(user.ids(&SessionFilter::new().sub_agents(true)).contains(&HELPER.to_owned()));
    assert_eq!(store.find(HELPER, &user.path()).unwrap().info.id, HELPER);
}

#[test]
fn same_text_is_found_in_sessions_of_all_agents() {
    let user = User::new();
    for (word, ids) in
        [("Creating the file", sorted(&[CLAUDE, CODEX])), ("Looking around", sorted(&[GEMINI, OLD_GEMINI]))]
    {
        let found = user.store().search(&Query::new([word])).unwrap();
        let mut found: Vec<String> = found.into_iter().map(|result| result.info.id).collect();
        found.sort();
        assert_eq!(found, ids, "{word}");
    }
}

/// Returns every file below a directory, with the attributes that a write would change.
fn state(folder: &Path) -> BTreeMap<PathBuf, (u64, SystemTime)> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let metadata = entry.metadata().unwrap();
        if metadata.is_dir() {
            all.extend(state(&entry.path()));
        }
        all.insert(entry.path(), (metadata.len(), metadata.modified().unwrap()));
    }
    all
}

#[test]
fn usage_of_all_agents_is_summed_without_changing_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    let generated =
        GeneratedStore::make(&home, StoreSpec { sessions: 100, bytes: 2_000_000, big: None }).unwrap();
    let before = state(&home);
    let cache = dir.path().join("cache");
    let store = SessionStore::new(built_in(), BTreeMap::new(), &home).index(&cache);

    let cold = store.list(&SessionFilter::new()).unwrap();
    let mut by_agent: BTreeMap<String, u64> = BTreeMap::new();
    for session in &cold {
        *by_agent.entry(session.info.agent.to_string()).or_default() += 1;
        assert_eq!(session.damage, 0, "{session:?}");
        assert!(session.title.is_some() && session.prompts > 0 && session.tool_calls > 0, "{session:?}");
        assert!(session.used.cost_usd.is_some_and(|usd| usd > 0.0), "{session:?}");
        let project = session.info.project.as_deref().unwrap_or_default();
        assert!(project.starts_with("/home/user/projects/project-"), "{session:?}");
    }
    assert_eq!(by_agent, generated.sessions);
    let newest_first = cold.windows(2).all(|pair| pair[0].info.updated >= pair[1].info.updated);
    assert!(newest_first);
    let with_helpers = store.list(&SessionFilter::new().sub_agents(true)).unwrap().len() as u64;
    assert_eq!(with_helpers, generated.sessions.values().sum::<u64>() + generated.sub_agents);

    for row in store.usage(&SessionFilter::new(), UsageBy::Agent).unwrap() {
        let [fresh, cached, answer] = generated.tokens[&row.name];
        let counts = (row.used.tokens.input, row.used.tokens.cached, row.used.tokens.output);
        assert_eq!(counts, (Some(fresh + cached), Some(cached), Some(answer)), "{}", row.name);
    }

    let found = store.search(&Query::new([RARE])).unwrap();
    let mut found: Vec<(String, String)> =
        found.into_iter().map(|r| (r.info.agent.into(), r.info.id)).collect();
    let mut rare = generated.rare.clone();
    found.sort();
    rare.sort();
    // A fork contains a copy of the earlier messages.
    assert!(rare.len() >= 4 && rare.iter().all(|one| found.contains(one)), "{rare:?} {found:?}");
    assert!(store.search(&Query::new([UNSEARCHABLE])).unwrap().is_empty());

    // By now, the files are old enough to be indexed.
    std::thread::sleep(std::time::Duration::from_millis(2500));
    assert_eq!(store.list(&SessionFilter::new()).unwrap(), cold);
    assert!(cache.join("sessions.index").exists());
    assert_eq!(store.list(&SessionFilter::new()).unwrap(), cold, "the index gives the same result");
    assert_eq!(state(&home), before, "no file of the agents was changed");
}

const REVERTED: &str = "01a1e028-4dfa-75a2-adcd-efcf14d329b2";

/// Returns the two files of a rewound and continued session, and their content.
fn reverted(user: &User) -> [(PathBuf, String); 2] {
    let recorded = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../agentline-core/tests/captures/codex/saved/reverted.jsonl");
    let text = fs::read_to_string(recorded).unwrap();
    // The recording contains both files, one after the other.
    let second = text.match_indices("\"type\":\"session_meta\"").nth(1).unwrap().0;
    let second = text[..second].rfind('\n').unwrap() + 1;
    let folder = user.path().join("x/sessions/2026/11/15");
    [
        (folder.join(format!("rollout-2026-11-15T17-01-40-{REVERTED}.jsonl")), text[..second].to_owned()),
        (folder.join(format!("rollout-2026-11-15T17-01-41-{REVERTED}_2.jsonl")), text[second..].to_owned()),
    ]
}

fn prompts(session: &SavedSession) -> Vec<String> {
    session.entries.iter().filter(|e| e.is_prompt()).map(|e| e.text()).collect()
}

#[test]
fn session_continued_in_a_second_file_after_a_rewind_is_one_session() {
    let user = User::new();
    for (path, text) in reverted(&user) {
        fs::write(path, text).unwrap();
    }
    let store = user.store();
    let found = store.find(REVERTED, &user.project()).unwrap();
    assert_eq!(found.locations().count(), 2);
    let session = store.load(&found).unwrap();
    let expected_prompts = ["one [[hello]]", "three [[hello]]"];
    assert_eq!(prompts(&session), expected_prompts, "rewound messages are not part of it");
    let listed =
        store.list(&SessionFilter::new()).unwrap().into_iter().find(|one| one.info.id == REVERTED).unwrap();
    assert_eq!((listed.prompts, listed.used.requests), (2, 3), "but its tokens count");
    let hits = |word: &str| {
        let found = store.search(&Query::new([word]).filter(SessionFilter::new().agent("codex"))).unwrap();
        found.into_iter().flat_map(|result| result.hits).map(|hit| (hit.entry, hit.text)).collect::<Vec<_>>()
    };
    let at = session.entries.iter().position(|entry| entry.text() == expected_prompts[1]).unwrap();
    assert_eq!(
        hits("three"),
        [(at, expected_prompts[1].to_owned())],
        "entry numbers continue across both files"
    );
    assert_eq!(hits("two [[again]]"), [], "rewound messages are not found");
    // Without its first file, the content of the second is still read.
    let [(first, _), _] = reverted(&user);
    fs::remove_file(first).unwrap();
    let rest = store.load(&found).unwrap();
    assert_eq!(
        (prompts(&rest).last().map(String::as_str), rest.damage.len()),
        (Some(expected_prompts[1]), 1)
    );
}

#[test]
fn a_session_is_followed_into_its_next_file() {
    let user = User::new();
    let [(first, began), (second, went_on)] = reverted(&user);
    fs::write(first, began).unwrap();
    let store = user.store();
    let found = store.find(REVERTED, &user.project()).unwrap();
    let mut watch = store.watch(&found).unwrap();
    assert!(!watch.poll().is_empty());
    assert_eq!(prompts(&watch.session()), ["one [[hello]]", "two [[again]]"]);
    fs::write(second, went_on).unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    let changes = loop {
        let changes = watch.poll();
        if !changes.is_empty() || Instant::now() > until {
            break changes;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(changes.iter().any(|change| matches!(change, SessionChange::Cut { .. })), "{changes:?}");
    let whole = store.load(&store.find(REVERTED, &user.project()).unwrap()).unwrap();
    assert_eq!(prompts(&whole), ["one [[hello]]", "three [[hello]]"]);
    assert_eq!(prompts(&watch.session()), prompts(&whole));
    assert_eq!(format!("{:?}", watch.finish()), format!("{whole:?}"));
}

#[test]
fn separately_stored_title_is_shown_and_found() {
    let user = User::new();
    let names = format!(
        "{{\"id\":\"{CODEX}\",\"thread_name\":\"old\"}}\n{{\"id\":\"{CODEX}\",\"thread_name\":\"Quarterly Report\"}}\n"
    );
    fs::write(user.path().join("x/session_index.jsonl"), names).unwrap();
    let store = user.store();
    let title = Some("Quarterly Report");
    let listed = store.list(&SessionFilter::new().agent("codex")).unwrap();
    assert_eq!(listed[0].title.as_deref(), title);
    let loaded = store.load(&store.find(CODEX, &user.project()).unwrap()).unwrap();
    assert_eq!(loaded.info.title.as_deref(), title);
    let found = store.search(&Query::new(["quarterly report"])).unwrap();
    assert_eq!((found.len(), found[0].info.id.as_str(), found[0].title.as_deref()), (1, CODEX, title));
}
