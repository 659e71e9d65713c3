//! Tests that runs in the same workspace at the same time detect each other.
#![expect(clippy::unwrap_used, reason = "a test must fail if its setup fails")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use agentline::internals::snapshot::ActiveWorkspace;

fn folders() -> (tempfile::TempDir, impl Fn(&str) -> std::path::PathBuf) {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().to_path_buf();
    let folder = move |name: &str| {
        let path = root.join(name);
        fs::create_dir_all(&path).unwrap();
        path
    };
    (temp, folder)
}

fn files_in(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

#[test]
fn runs_in_the_same_or_nested_directories_overlap() {
    for (first, second, overlap) in [
        ("work", "work", true),
        ("work", "work/inner", true),
        ("work/inner", "work", true),
        ("work", "workshop", false),
        ("work/a", "work/b", false),
    ] {
        let (_temp, folder) = folders();
        let runtime = folder("runtime");
        let one = ActiveWorkspace::enter(&runtime, &folder(first)).unwrap();
        assert!(!one.overlapped());
        let two = ActiveWorkspace::enter(&runtime, &folder(second)).unwrap();
        assert_eq!((one.overlapped(), two.overlapped()), (overlap, overlap), "{first} and {second}");
        drop(two);
        assert_eq!(one.overlapped(), overlap, "the record of the overlap stays");
        drop(one);
        assert_eq!(files_in(&runtime), 0);
    }
}

#[test]
fn consecutive_runs_do_not_overlap() {
    let (_temp, folder) = folders();
    for _ in 0..3 {
        let run = ActiveWorkspace::enter(&folder("runtime"), &folder("work")).unwrap();
        assert!(!run.overlapped());
    }
}

#[test]
fn concurrent_runs_all_detect_the_overlap() {
    let (_temp, folder) = folders();
    let (runtime, work) = (folder("runtime"), folder("work"));
    for _ in 0..20 {
        let barrier = Barrier::new(4);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    barrier.wait();
                    let run = ActiveWorkspace::enter(&runtime, &work).unwrap();
                    barrier.wait();
                    assert!(run.overlapped());
                });
            }
        });
        assert_eq!(files_in(&runtime), 0);
    }
}

/// Not a test by itself: the part of the next test that runs in the other process.
#[test]
fn other_process() {
    let Some(folder) = std::env::var_os("AGENTLINE_TEST_ACTIVE_RUN") else { return };
    let folder = Path::new(&folder);
    let run = ActiveWorkspace::enter(&folder.join("runtime"), &folder.join("work")).unwrap();
    fs::write(folder.join("entered"), run.overlapped().to_string()).unwrap();
    let _ = BufReader::new(std::io::stdin()).read_line(&mut String::new());
}

#[test]
fn run_of_another_process_counts_until_it_exits() {
    let (temp, folder) = folders();
    let (runtime, work) = (folder("runtime"), folder("work"));
    let mut other = start_other(temp.path());
    let until = Instant::now() + Duration::from_secs(60);
    while !fs::read_to_string(temp.path().join("entered")).is_ok_and(|text| text == "false") {
        assert!(other.try_wait().unwrap().is_none(), "the other process ended early");
        assert!(Instant::now() < until, "the other process did not enter the workspace");
        std::thread::sleep(Duration::from_millis(10));
    }
    let during = ActiveWorkspace::enter(&runtime, &work).unwrap();
    assert!(during.overlapped());
    drop(during);
    other.kill().unwrap();
    other.wait().unwrap();
    assert!(files_in(&runtime) > 0, "a killed process does not clean up");
    let afterwards = ActiveWorkspace::enter(&runtime, &work).unwrap();
    assert!(!afterwards.overlapped());
    drop(afterwards);
    assert_eq!(files_in(&runtime), 0);
}

fn start_other(folder: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "active_runs::other_process"])
        .env("AGENTLINE_TEST_ACTIVE_RUN", folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}
