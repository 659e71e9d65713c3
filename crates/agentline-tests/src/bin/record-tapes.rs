//! Records the tapes of the tests again on the real agents, and prints how they differ from the stored ones.
//!
//! `record-tapes [--write|--replay] [NAME]…`: without an option, nothing is stored, and the exit code is 1 if a tape
//! differs. `--write` stores the tapes that differ. `--replay` starts no agent: it stores the events that the stored
//! tapes give now. A name selects the tapes that contain it.

use agentline_tests::{real_gemini, tapes};
use std::{
    io::Write as _,
    process::ExitCode,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

/// How many runs are recorded at once. More would delay each other and change the recorded pauses.
const AT_ONCE: usize = 2;

fn main() -> ExitCode {
    let (options, names): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|word| word.starts_with("--"));
    let is_selected = |tape: &str| names.is_empty() || names.iter().any(|name| tape.contains(name.as_str()));
    let print = |text: &str| {
        // A missing reader loses only the report.
        let _ = writeln!(std::io::stdout(), "{text}");
    };
    let write = match options.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => false,
        ["--write"] => true,
        ["--replay"] => {
            for name in tapes::stored().iter().filter(|name| is_selected(name)) {
                tapes::update_expected(name).expect("the files can be written");
            }
            return ExitCode::SUCCESS;
        }
        _ => {
            print("usage: record-tapes [--write|--replay] [NAME]…");
            return ExitCode::from(2);
        }
    };
    if real_gemini().is_none() {
        print("real agents are disabled: unset AGENTLINE_REAL_AGENTS");
        return ExitCode::from(2);
    }
    let scenarios = tapes::scenarios();
    let all = scenarios.iter().flat_map(|scenario| scenario.surfaces.iter().map(move |on| (scenario, *on)));
    let all: Vec<_> = all.filter(|(scenario, on)| is_selected(&scenario.tape_name(*on))).collect();
    let (next, differing) = (AtomicUsize::new(0), Mutex::new(0));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some((scenario, surface)) = all.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let recording = tapes::record(scenario, *surface);
                    let difference = recording.difference();
                    let mut differing = differing.lock().expect("the lock is not poisoned");
                    if let Some(difference) = difference {
                        *differing += 1;
                        print(&difference);
                        if write {
                            recording.store().expect("the files can be written");
                        }
                    }
                }
            });
        }
    });
    let differing = differing.into_inner().expect("the lock is not poisoned");
    print(&format!("{differing} of {} tapes differ", all.len()));
    if differing > 0 && !write { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
