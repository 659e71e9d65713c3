//! Tests workers and submitters that share a directory of artifacts, and what becomes of runs if it cannot be used.

use crate::cli::batch::{lines, suite};
use crate::cli::fleet::{BlockedCases, Fleet};
use agentline_tests::{engines::EngineKind, wait_until};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// A directory of artifacts that can be replaced by something else.
struct SharedDirectory {
    path: PathBuf,
    away: PathBuf,
}

impl SharedDirectory {
    fn new(parent: &Path) -> Self {
        let shared = Self { path: parent.join("shared"), away: parent.join("away") };
        fs::create_dir(&shared.path).unwrap();
        shared
    }

    fn flags(&self) -> [&str; 2] {
        ["--artifacts", self.path.to_str().unwrap()]
    }

    /// Puts a file in its place, so that every request fails.
    fn replace_by_file(&self) {
        fs::rename(&self.path, &self.away).unwrap();
        fs::write(&self.path, "").unwrap();
    }

    /// Puts a link to itself in its place, so that every request fails with an error that could pass.
    fn replace_by_loop(&self) {
        fs::rename(&self.path, &self.away).unwrap();
        std::os::unix::fs::symlink(&self.path, &self.path).unwrap();
    }

    fn restore(&self) {
        fs::remove_file(&self.path).unwrap();
        fs::rename(&self.away, &self.path).unwrap();
    }
}

#[test]
fn files_travel_through_a_shared_directory() {
    let fleet = Fleet::start(EngineKind::Sqlite).unwrap();
    let parent = tempfile::tempdir().unwrap();
    let shared = SharedDirectory::new(parent.path());
    fleet.user.write("template/in.txt", "from the template\n");
    let cases: String = ["a", "b"]
        .map(|id| {
            format!(
                "- {{id: {id}, prompt: \"run cat in.txt in.txt > out.txt\\nsay done\", checks: [{{file_contains: \
                 {{path: out.txt, text: from the template}}}}]}}\n"
            )
        })
        .concat();
    suite(&fleet.user, &format!("workspace: template\ncases:\n{cases}"));
    let submitter = fleet.submit("exp", &shared.flags());
    let worker = fleet.worker_with_lease("1m", &shared.flags());
    let done = submitter.end();
    assert_eq!((done.code, done.out.lines().count()), (0, 2), "{}{}", done.out, done.err);
    for line in lines(&done).values() {
        let dir = fleet.user.path("exp").join(line["dir"].as_str().unwrap());
        let changes = fs::read_to_string(dir.join("patch.diff")).unwrap();
        assert!(changes.contains("+from the template"), "{changes}");
    }
    worker.end();
    let name = fleet.status("exp")["experiment"].as_str().unwrap().to_owned();
    assert!(shared.path.join(&name).is_dir(), "the files travelled elsewhere");
    let args = [&["batch", "delete", "exp"], &shared.flags()[..]].concat();
    let deleted = fleet.agentline(&args);
    assert_eq!(deleted.code, 0, "{}", deleted.err);
    assert!(!shared.path.join(&name).exists());
}

#[test]
fn worker_that_cannot_read_artifacts_returns_the_runs_and_says_why() {
    let fleet = Fleet::start(EngineKind::Sqlite).unwrap();
    let parent = tempfile::tempdir().unwrap();
    let shared = SharedDirectory::new(parent.path());
    suite(&fleet.user, "cases: [{id: a, prompt: say done}]\n");
    let submitter = fleet.submit("exp", &shared.flags());
    wait_until("the submission", || {
        let all = fleet.agentline(&["batch", "status", "-o", "json"]).out;
        all.contains("\"waiting\":1") && all.contains("running")
    });
    let control = |command: &str| {
        let done = fleet.agentline(&["batch", command, "exp"]);
        assert_eq!(done.code, 0, "{}", done.err);
    };
    let begin = |lease: &str, break_store: &dyn Fn()| {
        control("pause");
        let worker = fleet.worker_with_lease(lease, &[&["-j", "2"], &shared.flags()[..]].concat());
        break_store();
        control("resume");
        worker
    };
    let worker = begin("1m", &|| shared.replace_by_file());
    wait_until("the run to be returned", || worker.log().contains("no result here"));
    assert!(worker.log().contains("artifacts cannot be stored or read: `"), "{}", worker.log());
    worker.end();
    shared.restore();

    let worker = begin("6s", &|| shared.replace_by_loop());
    wait_until("the run to be returned", || worker.log().contains("no result here"));
    assert!(worker.log().contains("; trying again"), "{}", worker.log());
    worker.end();
    shared.restore();

    let mut worker = begin("5m", &|| shared.replace_by_loop());
    wait_until("the first error", || worker.log().contains("; trying again"));
    worker.signal("TERM");
    wait_until("the first signal", || worker.log().contains("finishing the runs"));
    worker.signal("TERM");
    assert_eq!(worker.exit().code(), Some(0), "{}", worker.log());
    assert!(worker.log().contains("because the worker was stopped"), "{}", worker.log());
    shared.restore();

    let last = fleet.worker_with_lease("1m", &shared.flags());
    let done = submitter.end();
    assert_eq!((done.code, done.out.lines().count()), (0, 1), "{}", done.err);
    assert_eq!(fleet.status("exp")["duplicates"], 0, "what is returned was not lost");
    last.end();
}

#[test]
fn result_whose_files_cannot_be_stored_is_committed_without_them() {
    let fleet = Fleet::start(EngineKind::Sqlite).unwrap();
    let parent = tempfile::tempdir().unwrap();
    let shared = SharedDirectory::new(parent.path());
    let blocks = BlockedCases::new(&fleet.user);
    suite(&fleet.user, &format!("cases:\n{}{}", blocks.case("first"), blocks.case("last")));
    let submitter = fleet.submit("exp", &shared.flags());
    // For the time of a lease, the directory may become usable again.
    let worker = fleet.worker_with_lease("10s", &[&["-j", "2"], &shared.flags()[..]].concat());
    blocks.wait("first", 1);
    blocks.wait("last", 1);
    shared.replace_by_file();
    blocks.release("first");
    wait_until("its result", || submitter.results() == 1);
    wait_until("the reason", || {
        worker.log().contains("first · default · attempt 0: its files are not stored: ")
    });
    shared.restore();
    blocks.release("last");
    let done = submitter.end();
    assert_eq!(done.code, 0, "{}", done.err);
    let lines = lines(&done);
    let has_outcome = |case: &str| !lines[&(case.to_owned(), "default".to_owned(), 0)]["outcome"].is_null();
    assert!(!has_outcome("first") && has_outcome("last"), "{}", done.out);
    worker.end();
}
