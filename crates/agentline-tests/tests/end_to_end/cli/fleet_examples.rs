//! Tests the examples of starting workers: the Kubernetes manifest against the schema of its API, the systemd unit with
//! systemd's own check, and the command lines of all with our program.

use crate::cli::user::User;
use agentline_tests::{Python, skipped};
use std::{fs, io::Write as _, path::PathBuf, process::Command};

/// Compares a manifest with the strict schemas in the package `kubernetes-validate`.
const VALIDATE: &str = include_str!("fleet_examples/validate.py");

fn example(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/fleet").join(name);
    fs::read_to_string(path).unwrap()
}

#[test]
fn kubernetes_manifest_matches_the_schema_of_its_api() {
    let Some(python) = Python::find() else { return skipped("the Kubernetes manifest") };
    let wheel = python.wheel(
        "kubernetes-validate==1.37.0",
        "85136d018a27b50ec7fc049d902bfa5193f5976807e6c0f408e3ab6fe078cad9",
    );
    let folder = tempfile::tempdir().unwrap();
    let validate = |manifest: &str| {
        let path = folder.path().join("manifest.yaml");
        fs::write(&path, manifest).unwrap();
        let done = python.command().args(["-c", VALIDATE]).arg(&wheel).arg(&path).output().unwrap();
        let printed = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
        (done.status.success(), printed)
    };
    let manifest = example("kubernetes.yaml");
    let (is_valid, printed) = validate(&manifest);
    assert!(is_valid && printed.contains("2 resources"), "{printed}");
    for (from, to) in [
        ("replicas: 4", "replicas: four"),
        ("terminationGracePeriodSeconds", "terminationGracePeriodSecond"),
        ("  selector:", "  selected:"),
        ("kind: Deployment", "kind: Deploiment"),
    ] {
        let (is_valid, printed) = validate(&manifest.replacen(from, to, 1));
        assert!(!is_valid, "{to}: {printed}");
    }
}

#[test]
fn systemd_accepts_the_unit() {
    let has_systemd = Command::new("systemd-analyze").arg("--version").output().is_ok();
    if !has_systemd {
        // A print macro would be captured by the test runner.
        let _ = writeln!(std::io::stderr(), "skipped: `systemd-analyze` is not installed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let verify = |unit: &str| {
        let path = folder.path().join("agentline-worker.service");
        // The program is not installed here.
        fs::write(
            &path,
            unit.replace("/usr/local/bin/agentline", env!("CARGO_BIN_EXE_agentline-under-test")),
        )
        .unwrap();
        let done = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&path).output().unwrap();
        (done.status.success(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    let unit = example("agentline-worker.service");
    let (is_valid, errors) = verify(&unit);
    assert!(is_valid && !errors.contains("agentline-worker"), "{errors}");
    let (_, errors) = verify(&unit.replace("KillMode=mixed", "KillMode=mixd"));
    assert!(errors.contains("mixd"), "{errors}");
}

#[test]
fn command_lines_of_the_examples_are_accepted() {
    let systemd = example("agentline-worker.service");
    let systemd = systemd.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let systemd = words(&systemd.replace("%S", "/var/lib"));
    let kubernetes = example("kubernetes.yaml");
    let list = |key: &str| -> Vec<String> {
        let line = kubernetes.lines().find_map(|line| line.trim().strip_prefix(key)).unwrap();
        serde_json::from_str(line).unwrap()
    };
    let kubernetes = [list("command: "), list("args: ")].concat();
    let slurm = example("slurm.sh").replace("\\\n", " ");
    let slurm = slurm.lines().find_map(|line| line.strip_prefix("exec ")).unwrap();
    let slurm = words(&slurm.replace("${SLURM_CPUS_PER_TASK:-1}", "4").replace('"', ""));
    for line in [systemd, kubernetes, slurm] {
        let args: Vec<&str> = line[1..].iter().map(String::as_str).collect();
        assert_eq!(args[0], "worker");
        // Only the address of the queue is missing, which is in the environment.
        let done = User::new().agentline(&args);
        assert!(done.code == 2 && done.err.contains("`--queue`: is missing"), "{args:?}: {}", done.err);
    }
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}
