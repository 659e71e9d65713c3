//! Kills agentline, its supervisor, both, or both with the init, during runs, and prints how many processes survive.
//!
//! `kills [COUNT] [auto|namespace|none]…` uses a fake agent: by default, with the system's default isolation, and
//! without a pid namespace. `kills agents [WORD]…` ends runs of the real agents at every stage: by cancellation, timeout,
//! SIGKILL, and the death of the calling program. With words such as `codex` or `Warm`, only those that match all of them.

#[cfg(target_os = "linux")]
fn main() {
    use agentline::supervisor::Isolation;
    use agentline_tests::kills::{Programs, carry_out, plan};
    use std::io::Write as _;

    let mut args = std::env::args().skip(1).peekable();
    if args.next_if(|word| word == "agents").is_some() {
        return end_real_runs(&args.collect::<Vec<_>>());
    }
    let count = args.next_if(|word| word.parse::<usize>().is_ok()).and_then(|word| word.parse().ok());
    let mut isolation: Vec<Isolation> =
        args.map(|name| Isolation::from_name(&name).expect("auto, namespace or none")).collect();
    if isolation.is_empty() {
        isolation = vec![Isolation::Auto, Isolation::None];
    }
    let programs = Programs {
        agentline: program("agentline-under-test"),
        fake_gemini: program("fake-gemini"),
        fake_acp: program("fake-acp"),
    };
    let kills = plan(count.unwrap_or(1000), &isolation);
    let tally = carry_out(&kills, &programs, 4, |done| {
        if done % 50 == 0 {
            // A missing reader loses only the progress.
            let _ = writeln!(std::io::stderr(), "{done} of {}", kills.len());
        }
    });
    let _ = writeln!(std::io::stdout(), "{tally}");
}

#[cfg(target_os = "linux")]
fn end_real_runs(words: &[String]) {
    use agentline_tests::endings::{Ending, end_runs};
    use std::io::Write as _;

    let is_selected = |ending: &Ending| words.iter().all(|word| ending.to_string().contains(word.as_str()));
    let endings: Vec<Ending> = Ending::all().into_iter().filter(is_selected).collect();
    let report = end_runs(&endings, &program("agentline-under-test"), 3, |ending, result| {
        let _ = writeln!(std::io::stderr(), "{ending}: {result:?}");
    });
    match report {
        Some(report) => drop(writeln!(std::io::stdout(), "{report}")),
        None => drop(writeln!(std::io::stdout(), "skipped: AGENTLINE_REAL_AGENTS=off")),
    }
}

/// Returns a program beside this one.
#[cfg(target_os = "linux")]
fn program(name: &str) -> std::path::PathBuf {
    let path = std::env::current_exe().expect("the path of this program").with_file_name(name);
    assert!(path.exists(), "build it first: cargo build -p agentline-tests --bins");
    path
}

#[cfg(not(target_os = "linux"))]
fn main() {}
