//! Tests what queues and workers refuse: secrets, plaintext, jobs beyond the policy of a worker, and access to hidden
//! files.

use crate::cli::batch::{lines, suite, user};
use crate::cli::fleet::Fleet;
use agentline_tests::{engines::EngineKind, wait_until};
use std::{
    io::Write as _,
    process::Command,
    time::{Duration, Instant},
};

#[test]
fn secrets_and_flags_of_workers_are_refused_by_name_before_anything_is_stored() {
    let fleet = Fleet::start(EngineKind::Sqlite).unwrap();
    let user = &fleet.user;
    let secret = "s3cr3t-value";
    for (settings, key) in [
        (format!("env: {{MY_API_KEY: {secret}}}"), "`env.MY_API_KEY`"),
        (format!("api_key: {secret}"), "`api_key`"),
        (
            format!("mcp_servers: {{s: {{command: x, env: {{GH_TOKEN: {secret}}}}}}}"),
            "`mcp_servers.s.env.GH_TOKEN`",
        ),
    ] {
        suite(user, &format!("cases: [{{id: a, prompt: x, overrides: {{{settings}}}}}]\n"));
        let done = fleet.submit("exp", &[]).end();
        assert_eq!(done.code, 2, "{}", done.err);
        assert_eq!(done.err.matches("error:").count(), 1, "{}", done.err);
        assert!(done.err.contains(key) && !done.err.contains(secret), "{}", done.err);
    }
    let stored = fleet.agentline(&["batch", "status"]);
    assert!(stored.out.is_empty(), "{}", stored.out);

    suite(user, "cases: [{id: a, prompt: say done}]\n");
    let unset = user.command(&["batch", "suite.yaml", "--dir", "alone"]).env("AGENTLINE_QUEUE", "").output();
    assert_eq!(unset.unwrap().status.code(), Some(0), "an empty variable counts as unset");
    for flags in [&["--jobs", "2"][..], &["--isolate", "copy"], &["--keep-failed"]] {
        let done = fleet.submit("exp", flags).end();
        assert!(done.code == 2 && done.err.contains(&format!("`{}`", flags[0])), "{}", done.err);
    }
    suite(user, "share_workspace: true\nworkspace: template\ncases: [{id: a, prompt: x}]\n");
    user.write("template/x", "");
    let done = fleet.submit("exp", &[]).end();
    assert!(done.code == 2 && done.err.contains("`share_workspace`"), "{}", done.err);
}

#[test]
fn plaintext_to_another_machine_is_refused_by_every_command() {
    let Some(fleet) = Fleet::start(EngineKind::Nats) else { return };
    let user = &fleet.user;
    suite(user, "cases: [{id: a, prompt: x}]\n");
    // This address reaches the same machine, but does not say so.
    let address = format!("nats://worker:s3cret@0.0.0.0:{}", fleet.engine.port().unwrap());
    for command in [&["worker"][..], &["batch", "suite.yaml", "--dir", "exp"], &["batch", "status"]] {
        let begun = Instant::now();
        let done = user.agentline(&[command, &["--queue", &address]].concat());
        assert_eq!((done.code, done.err.matches("error:").count()), (2, 1), "{command:?} {}", done.err);
        assert!(done.err.contains("`--queue`") && done.err.contains("--allow-plaintext"), "{}", done.err);
        assert!(!done.err.contains("s3cret"), "{}", done.err);
        assert!(begun.elapsed() < Duration::from_secs(9), "nothing is tried again: {:?}", begun.elapsed());
    }
    let allowed = user.agentline(&["batch", "status", "--allow-plaintext", "--queue", &address]);
    assert_eq!(allowed.code, 0, "{}", allowed.err);
}

#[test]
fn jobs_beyond_the_policy_of_a_worker_wait_for_another_one() {
    let fleet = Fleet::start(EngineKind::Sqlite).unwrap();
    suite(
        &fleet.user,
        "cases:\n- {id: strict, prompt: say done, overrides: {permission_mode: default}}\n- {id: loose, prompt: say done}\n\
         - {id: labelled, prompt: say done, overrides: {permission_mode: default}, worker_labels: [gpu]}\n\
         - {id: variable, prompt: \"env OF_WORKERS\", \
            overrides: {permission_mode: default, pass_env: [OF_WORKERS]}, \
            checks: [{contains: given}]}\n",
    );
    let other = fleet.worker(&["--agents", "gemini"]);
    let strict = fleet.worker(&["--max-mode", "default", "--agents", "fake"]);
    let submitter = fleet.submit("exp", &[]);
    wait_until("the run that is allowed", || submitter.results() == 1);
    // The workers have looked at the queue again, and claimed nothing.
    std::thread::sleep(Duration::from_millis(1500));
    let status = fleet.status("exp");
    assert_eq!((&status["waiting"], &status["claimed"]), (&3.into(), &0.into()), "{status:#}");
    strict.end();
    assert!(!other.end().contains("no result here"));

    let able = user().env("OF_WORKERS", "given");
    let queue = fleet.engine.address();
    let command = able.command(&["worker", "--queue", &queue, "--label", "gpu"]);
    let able_worker = crate::cli::fleet::Worker::start(command, &[], &able.path(".."));
    let done = submitter.end();
    assert_eq!((done.code, lines(&done).len()), (0, 4), "{}{}", done.out, done.err);
    able_worker.end();
}

#[test]
fn agents_on_workers_cannot_read_hidden_files() {
    let fleet = Fleet::start(EngineKind::Sqlite).unwrap();
    let worker_dir = tempfile::tempdir().unwrap();
    let dir = worker_dir.path().to_string_lossy().into_owned();
    fleet.user.write("template/in.txt", "x\n");
    fleet.user.write("answers/hidden.txt", "hidden-marker-5d1f\n");
    // The command itself must not contain the marker.
    let search = "M=hidden-mark''er-5d1f; (grep -rsF $M DIR $HOME/.. . .. /proc/*/rootDIR; \
        unshare -rm sh -c \\\"umount -l DIR/hidden; grep -rsF $M DIR\\\"; find DIR/hidden DIR/state -type f) \
        2>/dev/null | head -c 2000 | sed 's/^/found: /'; echo complete";
    let search = search.replace("DIR", &dir);
    let case = |id: &str| {
        format!(
            "- {{id: {id}, hidden: answers, prompt: \"run ({search}) > found.txt 2>&1\\nsay done\", checks: [{{command: \
             \"grep -q marker hidden.txt\"}}, {{file_contains: {{path: found.txt, text: complete}}}}, \
             {{not: {{file_contains: {{path: found.txt, text: 'found: '}}}}}}]}}\n"
        )
    };
    suite(&fleet.user, &format!("workspace: template\ncases:\n{}{}", case("a"), case("b")));
    let submitter = fleet.submit("exp", &[]);
    // The second run searches while the hidden files of the first one are on the worker.
    let worker = fleet.worker(&["-j", "1", "--dir", &dir]);
    let done = submitter.end();
    let lines = lines(&done);
    if lines.values().any(|line| line["isolation"] != "overlay") {
        let is_ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
        assert!(!is_ci, "CI needs overlays: {}", worker.log());
        // A print macro would be captured by the test runner.
        let _ = writeln!(std::io::stderr(), "skipped: overlays do not work here");
        return;
    }
    assert_eq!((done.code, lines.len()), (0, 2), "{}{}", done.out, done.err);
    assert!(lines.values().all(|line| line["hidden_covered"] == true), "{}", done.out);
    // Outside, they can be read there.
    let outside =
        Command::new("grep").args(["-rsqF", "hidden-marker-5d1f"]).arg(format!("{dir}/hidden")).status();
    assert!(outside.unwrap().success());
    worker.end();
}
