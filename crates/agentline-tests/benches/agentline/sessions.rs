//! Saved sessions: a store of 1 GB of all four agents is listed, searched, shown and counted, next to `rg` and
//! `ccusage` on the same files. `AGENTLINE_BENCH_STORE_MB` sets its size; it is generated once and kept in our cache
//! directory.

mod rivals;

use crate::{median, transport};
use agentline::{
    Agentline,
    sessions::{Case, Query, SessionFilter, SessionStore, UsageBy, UsageRow},
};
use agentline_core::agents::built_in;
use agentline_tests::session_store::{GeneratedStore, RARE, StoreSpec, UNSEARCHABLE};
use std::{
    collections::BTreeMap,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// The name under which this program is started again as the command line.
pub(crate) const NAME: &str = "sessions";
/// The file in which the child records its peak memory.
const PEAK: &str = "AGENTLINE_BENCH_PEAK";
const ROUNDS: usize = 5;
/// The age at which a file is indexed.
const SETTLED: Duration = Duration::from_millis(2500);
/// The mean size of a session in the store of 1 GB with 5,000 sessions.
const MEAN: u64 = 200_000;

pub(crate) fn run() {
    let megabytes: u64 =
        std::env::var("AGENTLINE_BENCH_STORE_MB").ok().and_then(|mb| mb.parse().ok()).unwrap_or(1000);
    let bytes = megabytes * 1_000_000;
    let sessions = usize::try_from(bytes / MEAN).expect("a number of sessions").max(20);
    let wish = StoreSpec { sessions, bytes, big: Some((bytes / 20).min(50_000_000)) };
    let agentline = Agentline::from_env().expect("a home");
    let home = agentline.host_env().cache.join("bench").join(format!("sessions-{megabytes}"));
    let start = Instant::now();
    let generated = GeneratedStore::make(&home, wish).expect("a store");
    println!(
        "{} sessions and {} of sub-agents, {:.0} MB, generated in {:.1} s (0 if they existed)",
        generated.sessions.values().sum::<u64>(),
        generated.sub_agents,
        generated.bytes as f64 / 1e6,
        start.elapsed().as_secs_f64()
    );
    // Recently written files are not indexed, so the index would have no effect.
    std::thread::sleep(SETTLED.saturating_sub(start.elapsed()));
    list(&generated);
    search(&generated);
    usage(&generated);
    show(&generated);
}

fn store(generated: &GeneratedStore) -> SessionStore {
    SessionStore::new(built_in(), BTreeMap::new(), &generated.home)
}

fn timed<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let start = Instant::now();
    let done = work();
    (start.elapsed().as_secs_f64(), done)
}

/// Also prints the processor time of this process, which is more reliable on a shared machine.
fn timed_with_cpu<T>(work: impl FnOnce() -> T) -> (f64, f64, T) {
    let before = transport::cpu();
    let (seconds, done) = timed(work);
    (seconds, transport::cpu() - before, done)
}

fn row(name: &str, seconds: f64, note: impl std::fmt::Display) {
    println!("{name:<44} {seconds:>9.3} s   {note}");
}

fn list(generated: &GeneratedStore) {
    let cache = tempfile::tempdir().expect("a folder");
    let store = store(generated).index(cache.path());
    let (cold, cpu, all) = timed_with_cpu(|| store.list(&SessionFilter::new()).expect("a list"));
    let expected: u64 = generated.sessions.values().sum();
    assert_eq!(all.len() as u64, expected, "every session is listed");
    row(
        "list, cold",
        cold,
        format!("{cpu:.2} s of processor time, {:.0} MB/s", generated.bytes as f64 / 1e6 / cold),
    );
    let warm: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let (seconds, again) = timed(|| store.list(&SessionFilter::new()).expect("a list"));
            assert_eq!(again, all, "the index gives the same result");
            seconds
        })
        .collect();
    let index = std::fs::read_dir(cache.path()).expect("a folder").flatten().next().expect("an index");
    let size = index.metadata().map_or(0, |m| m.len()) as f64 / 1e6;
    row("list, warm", median(&warm), format!("index of {size:.1} MB; target: 0.5 s"));
    let (one, found) = timed(|| store.find(&all[all.len() / 2].info.id, &generated.home).expect("a session"));
    row("find by id, warm", one, &found.info.id);
}

fn search(generated: &GeneratedStore) {
    let store = store(generated);
    let rg = rivals::ripgrep();
    for (case, name) in [(Case::Sensitive, "case kept"), (Case::Insensitive, "any case")] {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let query = Query::new([RARE]).case(case);
            let (seconds, results) = timed(|| store.search(&query).expect("a search"));
            let mut ids: Vec<(String, String)> =
                results.into_iter().map(|result| (result.info.agent.into(), result.info.id)).collect();
            let mut expected = generated.rare.clone();
            ids.sort();
            expected.sort();
            ids.dedup();
            assert!(expected.iter().all(|one| ids.contains(one)), "every hit is found");
            ours.push(seconds);
            if let Some(rg) = &rg {
                theirs.push(timed(|| rivals::rg(rg, &generated.home, RARE, case == Case::Insensitive)).0);
            }
        }
        let rare = format!("search for a rare word, {name}");
        match theirs.is_empty() {
            true => row(&rare, median(&ours), "rg is not installed"),
            false => {
                let ratio = median(&ours) / median(&theirs);
                row(
                    &rare,
                    median(&ours),
                    format!("rg: {:.3} s, ratio {ratio:.2}; target: 2", median(&theirs)),
                );
            }
        }
    }
    let none = store.search(&Query::new([UNSEARCHABLE])).expect("a search");
    assert!(none.is_empty(), "internal records of an agent are not text");
}

fn usage(generated: &GeneratedStore) {
    let cache = tempfile::tempdir().expect("a folder");
    let store = store(generated).index(cache.path());
    let (cold, cpu, rows) =
        timed_with_cpu(|| store.usage(&SessionFilter::new(), UsageBy::Agent).expect("a count"));
    for row in &rows {
        let [fresh, cached, answer] = generated.tokens[&row.name];
        let t = row.used.tokens;
        let counted = (t.input.unwrap_or(0), t.cached.unwrap_or(0), t.output.unwrap_or(0));
        assert_eq!(counted, (fresh + cached, cached, answer), "{}: each answer is counted once", row.name);
    }
    row("usage of everything, cold", cold, format!("{cpu:.2} s of processor time; target: 5 s"));
    let (warm, again) = timed(|| store.usage(&SessionFilter::new(), UsageBy::Agent).expect("a count"));
    assert_eq!(rows, again, "the index gives the same result");
    row("usage of everything, warm", warm, format!("{} rows", rows.len()));
    let claude = SessionFilter::new().agent("claude");
    let fresh = self::store(generated);
    let (ours, rows) = timed(|| fresh.usage(&claude, UsageBy::Day).expect("a count"));
    let sum = UsageRow::sum(&rows);
    match rivals::ccusage(&generated.home) {
        Err(error) => row("usage of Claude, no index", ours, error),
        Ok((theirs, theirs_total)) => {
            let t = sum.used.tokens;
            let number = |n: Option<u64>| n.unwrap_or(0);
            let fresh = number(t.input) - number(t.cached) - number(t.cache_write);
            let same = theirs_total.input == fresh
                && theirs_total.output == number(t.output)
                && theirs_total.cached == number(t.cached);
            let note = format!(
                "ccusage: {theirs:.3} s, ratio {:.2}, totals {}",
                ours / theirs,
                if same { "the same" } else { "differ" }
            );
            row("usage of Claude, no index", ours, note);
            println!(
                "    tokens: fresh {fresh} and {}, cached {} and {}, answers {} and {}; USD {:.2} and {:.2}",
                theirs_total.input,
                number(t.cached),
                theirs_total.cached,
                number(t.output),
                theirs_total.output,
                sum.used.known_cost_usd,
                theirs_total.cost
            );
        }
    }
}

fn show(generated: &GeneratedStore) {
    let store = store(generated);
    for (agent, big) in &generated.big {
        let size = std::fs::metadata(big).map_or(0, |m| m.len());
        let (load, session) = timed(|| {
            let found = store.find(&big.to_string_lossy(), &generated.home).expect("a session");
            store.load(&found).expect("a session")
        });
        let note = format!("{:.0} MB, {} entries", size as f64 / 1e6, session.entries.len());
        row(&format!("load a large session of {agent}"), load, note);
        drop(session);
        for output in ["text", "json"] {
            let rounds: Vec<(f64, f64)> =
                (0..ROUNDS).filter_map(|_| show_once(big, &generated.home, output)).collect();
            if rounds.is_empty() {
                return;
            }
            let seconds: Vec<f64> = rounds.iter().map(|round| round.0).collect();
            let peaks: Vec<f64> = rounds.iter().map(|round| round.1 * 1e6 / size as f64).collect();
            let note = format!("peak {:.2} times its size; targets: 1 s, 4 times", median(&peaks));
            row(&format!("show it, {output}"), median(&seconds), note);
        }
    }
}

/// Runs the command line, and returns its time and its peak memory in megabytes.
fn show_once(big: &Path, home: &Path, output: &str) -> Option<(f64, f64)> {
    let dir = tempfile::tempdir().expect("a folder");
    let peak = dir.path().join("peak");
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new(program);
    command.env_clear().env("HOME", home).env(transport::CHILD, NAME).env(PEAK, &peak);
    command.args(["sessions", "show"]).arg(big).args(["--output", output]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let (seconds, ended) = timed(|| command.output().expect("a child"));
    if !ended.status.success() {
        println!("show failed: {}", String::from_utf8_lossy(&ended.stderr));
        return None;
    }
    let peak = std::fs::read_to_string(&peak).ok()?.trim().parse().ok()?;
    Some((seconds, peak))
}

/// Runs the command line in the child, with the arguments of this process.
pub(crate) fn child() {
    // The exit code cannot be inspected; a failure shows in the output.
    let _ = agentline_cli::main_impl();
    let note = std::env::var(PEAK).expect("the file for the peak memory");
    std::fs::write(note, transport::usage().1.to_string()).expect("the note");
}
