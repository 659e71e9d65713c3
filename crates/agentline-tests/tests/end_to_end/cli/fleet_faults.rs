//! Tests workers, servers and submitters that are killed or stopped during runs.

use crate::cli::batch::{lines, suite, user};
use crate::cli::fleet::{BlockedCases, Fleet, Worker};
use agentline_tests::{
    engines::{Engine, EngineKind},
    wait_until,
};
use std::time::{Duration, Instant};

#[test]
fn runs_of_killed_and_stopped_workers_are_executed_elsewhere_once() {
    let Some(fleet) = Fleet::start(EngineKind::Nats) else { return };
    let blocks = BlockedCases::new(&fleet.user);
    suite(&fleet.user, &format!("cases:\n{}", blocks.case("killed")));
    let mut first = fleet.worker(&["-j", "1"]);
    let submitter = fleet.submit("exp", &[]);
    blocks.wait("killed", 1);
    let second = fleet.worker(&["-j", "1"]);
    first.kill();
    wait_until("the end of the killed worker's agents", || first.processes().is_empty());
    blocks.wait("killed", 2);
    blocks.release("killed");
    let done = submitter.end();
    assert_eq!((done.code, done.out.lines().count()), (0, 1), "{}", done.err);
    assert_eq!(fleet.status("exp")["duplicates"], 1);
    let text = fleet.agentline(&["batch", "status", "exp"]).out;
    assert!(text.contains("1 duplicate execution"), "{text}");
    assert!(fleet.agentline(&["batch", "status"]).out.contains("1 duplicate execution"), "{text}");

    // The second worker is stopped during its next run.
    suite(&fleet.user, &format!("cases:\n{}", blocks.case("stopped")));
    let submitter = fleet.submit("other", &[]);
    blocks.wait("stopped", 1);
    let third = fleet.worker(&["-j", "1"]);
    assert!(!blocks.waiting(&second).is_empty());
    let stopped = Instant::now();
    second.signal("STOP");
    wait_until("the end of the stopped worker's agents", || blocks.waiting(&second).is_empty());
    blocks.wait("stopped", 2);
    assert!(stopped.elapsed() > Duration::from_millis(500), "the lease was not waited for");
    // Its agents have ended before another worker could begin.
    assert!(blocks.waiting(&second).is_empty() && !blocks.waiting(&third).is_empty());
    while stopped.elapsed() < Duration::from_secs(4) {
        std::thread::sleep(Duration::from_millis(50));
    }
    second.signal("CONT");
    wait_until("the worker to notice", || second.log().contains("stopped · default · attempt 0: no result"));
    blocks.release("stopped");
    let done = submitter.end();
    assert_eq!((done.code, done.out.lines().count(), blocks.runs("stopped")), (0, 1, 2), "{}", done.err);
    assert_eq!(fleet.status("other")["duplicates"], 1);
    third.end();

    // The stopped worker continues.
    suite(&fleet.user, "cases: [{id: next, prompt: say done}]\n");
    let done = fleet.submit("next", &[]).end();
    assert_eq!((done.code, done.out.lines().count()), (0, 1), "{}", done.err);
    second.end();
}

/// Kills the server during an experiment, and starts it again when worker and submitter have noticed.
fn survive_a_restart(kind: EngineKind) {
    let Some(mut fleet) = Fleet::start(kind) else { return };
    let blocks = BlockedCases::new(&fleet.user);
    let cases: String = (0..6).map(|n| format!("- {{id: c{n}, prompt: say done {n}}}\n")).collect();
    suite(&fleet.user, &format!("cases:\n{}{cases}", blocks.case("during")));
    let worker = fleet.worker_with_lease("20s", &["-j", "2"]);
    let submitter = fleet.submit("exp", &[]);
    blocks.wait("during", 1);
    match &mut fleet.engine {
        Engine::Nats(server) => server.kill(),
        Engine::Postgres(server) => server.kill(),
        Engine::Sqlite(_) => {}
    }
    // One of the runs ends while there is no server.
    blocks.release("during");
    wait_until("both to notice", || {
        worker.log().contains("trying again") && submitter.messages().contains("trying again")
    });
    match &mut fleet.engine {
        Engine::Nats(server) => server.restart(),
        Engine::Postgres(server) => server.restart(),
        Engine::Sqlite(_) => {}
    }
    let done = submitter.end();
    assert_eq!((done.code, lines(&done).len(), done.out.lines().count()), (0, 7, 7), "{}", done.err);
    assert_eq!(fleet.status("exp")["duplicates"], 0, "the lease has survived");
    assert!(worker.log().contains("can be reached again"), "{}", worker.log());
    worker.end();
}

#[test]
fn nats_server_is_restarted_during_an_experiment() {
    survive_a_restart(EngineKind::Nats);
}

#[test]
fn postgres_server_is_restarted_during_an_experiment() {
    survive_a_restart(EngineKind::Postgres);
}

#[test]
fn run_that_kills_its_workers_is_given_up_and_one_with_effects_is_not_repeated() {
    let fleet = Fleet::start(EngineKind::Sqlite).unwrap();
    let blocks = BlockedCases::new(&fleet.user);
    let cases = format!(
        "- {{id: once, repeatable: false, prompt: \"{}\"}}\n{}- {{id: good, prompt: say done}}\n",
        blocks.prompt("once"),
        blocks.case("poison")
    );
    suite(&fleet.user, &format!("cases:\n{cases}"));
    let submitter = fleet.submit("exp", &["--max-claims", "2"]);
    for execution in 1..=2 {
        let mut worker = fleet.worker_with_lease("1s", &["-j", "2"]);
        blocks.wait("poison", execution);
        blocks.wait("once", 1);
        // The second worker gives `once` up, and then has a slot for `good`.
        let others = if execution == 2 { 2 } else { 0 };
        wait_until("the results of the other cases", || fleet.status("exp")["finished"] == others);
        worker.kill();
    }
    let last = fleet.worker_with_lease("1s", &["-j", "1"]);
    let done = submitter.end();
    assert_eq!(done.code, 12, "{}{}", done.out, done.err);
    assert_eq!((blocks.runs("poison"), blocks.runs("once")), (2, 1));
    let lines = lines(&done);
    let of = |case: &str| &lines[&(case.to_owned(), "default".to_owned(), 0)];
    assert_eq!(of("good")["class"], "passed");
    let (poison, once) = (of("poison"), of("once"));
    assert_eq!((&poison["class"], &once["class"]), (&"infrastructure".into(), &"infrastructure".into()));
    assert!(poison["message"].as_str().unwrap().contains("claimed 2 times"), "{poison}");
    assert_eq!(once["kind"], "interrupted", "{once}");
    let duplicates = fleet.status("exp")["duplicates"].clone();
    assert_eq!(duplicates, 1, "one execution of `poison` was repeated, and none of `once`");
    last.end();
}

#[test]
fn idle_worker_ends_in_time_although_the_server_does_not_answer() {
    let Some(fleet) = Fleet::start(EngineKind::Nats) else { return };
    let mut worker = fleet.worker(&[]);
    if let Engine::Nats(server) = &fleet.engine {
        server.stop();
    }
    let begun = Instant::now();
    worker.signal("TERM");
    assert_eq!(worker.exit().code(), Some(0), "{}", worker.log());
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[test]
fn agent_of_a_lost_claim_is_killed_at_once_while_the_worker_has_another_claim() {
    let fleet = Fleet::start(EngineKind::Sqlite).unwrap();
    let blocks = BlockedCases::new(&fleet.user);
    let torn = fleet.user.path("marks").join("torn");
    let teardown = format!("teardown: \"touch '{}'\"\n", torn.display());
    suite(&fleet.user, &format!("{teardown}cases:\n{}{}", blocks.case("lost"), blocks.case("held")));
    // An agent that ends only if it is killed.
    let stubborn = user();
    let program = env!("CARGO_BIN_EXE_fake-acp");
    let faults = "cancel_ignored,ignores_signals,survives_eof";
    stubborn.write(
        "../home/.config/agentline/config.toml",
        &format!(
            "[agents.fake]\ncommand = ['{program}']\n\
             env = {{ FAKE_ACP_FAULT = '{faults}', FAKE_ACP_FAULT_PROMPTS = '0' }}\n"
        ),
    );
    let queue = fleet.engine.address();
    let command = stubborn.command(&["worker", "-j", "2", "--lease", "12s", "--queue", &queue]);
    let worker = Worker::start(command, &[], &stubborn.path("..").canonicalize().unwrap());
    let submitter = fleet.submit("exp", &[]);
    blocks.wait("lost", 1);
    blocks.wait("held", 1);
    let of = |case: &str| {
        agentline_tests::running_with(&format!("{}'", fleet.user.path("marks").join(case).display()))
    };
    assert!(!of("lost").is_empty() && !of("held").is_empty());

    // Another worker seems to have the first job.
    let database = rusqlite::Connection::open(queue.strip_prefix("sqlite:").unwrap()).unwrap();
    database.busy_timeout(Duration::from_secs(60)).unwrap();
    let sql = "UPDATE jobs SET token = token + 1000000 WHERE id = (SELECT min(id) FROM jobs)";
    assert_eq!(database.execute(sql, []).unwrap(), 1);
    let lost = Instant::now();
    wait_until("the end of the agent", || of("lost").is_empty());
    // The claim is renewed every four seconds. Asking the agent to end takes eight.
    assert!(lost.elapsed() < Duration::from_secs(8), "{:?}", lost.elapsed());
    assert!(!of("held").is_empty(), "the agent of another run was killed");
    assert!(!torn.exists(), "a run without a claim is not torn down");
    // The job is executed again.
    blocks.wait("lost", 2);
    assert!(worker.log().contains("lost · default · attempt 0: no result here"), "{}", worker.log());
    blocks.release("lost");
    blocks.release("held");
    let done = submitter.end();
    assert_eq!((done.code, done.out.lines().count(), blocks.runs("held")), (0, 2, 1), "{}", done.err);
    worker.end();
}
