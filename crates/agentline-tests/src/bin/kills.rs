//! Kills agentline, its supervisor, both, or both with the init, during runs, and prints how many processes survive.
//!
//! `kills [COUNT] [auto|namespace|none]…`: by default, with the system's default isolation, and without a pid
//! namespace.

#[cfg(target_os = "linux")]
fn main() {
    use agentline::supervisor::Isolation;
    use agentline_tests::kills::{Programs, carry_out, plan};
    use std::io::Write as _;

    let mut args = std::env::args().skip(1).peekable();
    let count = args.next_if(|word| word.parse::<usize>().is_ok()).and_then(|word| word.parse().ok());
    let mut isolation: Vec<Isolation> =
        args.map(|name| Isolation::from_name(&name).expect("auto, namespace or none")).collect();
    if isolation.is_empty() {
        isolation = vec![Isolation::Auto, Isolation::None];
    }
    let own = std::env::current_exe().expect("the path of this program");
    let program = |name: &str| {
        let path = own.with_file_name(name);
        assert!(path.exists(), "build it first: cargo build -p agentline-tests --bins");
        path
    };
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

#[cfg(not(target_os = "linux"))]
fn main() {}
