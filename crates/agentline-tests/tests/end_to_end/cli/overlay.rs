//! Tests runs of a batch in overlays: the template stays as it is, hidden files stay hidden, and nothing is left over.

use crate::cli::batch::{left, lines, suite, user};
use crate::cli::user::{Done, User};
use agentline_mock::answer::{Action, Answer};
use agentline_tests::{ScriptedStage, real_claude_acp, skipped, wait_until};
use serde_json::Value;
use std::{
    fs,
    io::Write as _,
    os::unix::fs::chown,
    path::Path,
    process::{Command, Stdio},
};

/// Runs one job at a time in overlays. Returns `None` with a message where the system refuses them.
fn batch(user: &User, flags: &[&str]) -> Option<Done> {
    let args = ["batch", "suite.yaml", "--dir", "exp", "-j", "1", "--isolate", "overlay", "-o", "jsonl"];
    let done = user.agentline(&[&args, flags].concat());
    is_possible(&done).then_some(done)
}

pub(super) fn is_possible(done: &Done) -> bool {
    let is_refused = done.code == 2 && done.err.contains("overlays do not work here");
    if is_refused {
        // A print macro would be captured by the test runner.
        let _ = writeln!(std::io::stderr(), "skipped: {}", done.err);
    }
    !is_refused
}

/// Returns the content of a file after each run, from the changes that the runs stored.
fn after_runs(user: &User, name: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut waiting = vec![user.path("exp/runs")];
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                waiting.push(path);
            } else if path.ends_with("changes.jsonl") {
                let text = fs::read_to_string(path).unwrap();
                let rows = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
                let texts = rows.filter(|row| row["path"] == name).map(|row| row["text"].to_string());
                found.extend(texts);
            }
        }
    }
    found
}

/// Writes a template and a suite whose agent changes, removes and replaces files of it, and writes to the directory in
/// which it was started.
fn write_changing_suite(user: &User) {
    user.write("template/in.txt", "template\n");
    user.write("template/gone.txt", "x\n");
    user.write("template/dir/inner.txt", "x\n");
    user.write("template/same/deep/same.txt", "x\n");
    user.write("answers/hidden.txt", "secret-42\n");
    let commands = [
        "echo changed >> in.txt",
        "rm gone.txt",
        "rm -r dir",
        "mkdir dir",
        "echo new > new.txt",
        // The file is copied into the upper layer, but it is the same.
        "echo x > same/deep/same.txt; touch same/deep",
        "cut -d\" \" -f22 /proc/$PPID/stat > started.txt",
        "(echo x > /proc/$PPID/cwd/stray) 2> stray.txt; pwd > pwd.txt",
        "sleep 600 & echo done > last.txt",
    ];
    let commands: String = commands.iter().map(|line| format!("      run {line}\n")).collect();
    let at = user.path(".").display().to_string();
    suite(
        user,
        &format!(
            "workspace: template\nrepeat: 3\nsetup: test -f gone.txt\n\
             teardown: echo x > teardown.txt && (pwd && ls) >> {at}/torn.txt\nhidden: answers\n\
             cases:\n  - id: a\n    prompt: |\n{commands}      say done\n    checks:\n\
             \x20     - only_changed: [in.txt, gone.txt, dir/inner.txt, new.txt, started.txt, stray.txt, pwd.txt, last.txt]\n\
             \x20     - file_contains: {{path: in.txt, text: changed}}\n\
             \x20     - file_contains: {{path: stray.txt, text: Read-only}}\n\
             \x20     - command: test ! -e gone.txt && test ! -e dir/inner.txt && test $(grep -c changed in.txt) = 1\n"
        ),
    );
}

#[test]
fn runs_on_one_warm_agent_have_their_own_overlays() {
    let user = user();
    write_changing_suite(&user);
    let Some(done) = batch(&user, &[]) else { return };
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    assert_eq!(lines(&done).len(), 3);
    let names =
        ["dir/inner.txt", "gone.txt", "in.txt", "last.txt", "new.txt", "pwd.txt", "started.txt", "stray.txt"];
    for line in lines(&done).values() {
        assert_eq!(line["isolation"], "overlay", "{line}");
        let files = line["outcome"]["files"].as_array().unwrap();
        let changed: Vec<&str> = files.iter().map(|file| file["path"].as_str().unwrap()).collect();
        assert_eq!(changed, names, "{line}");
        let modified = &files[2];
        assert_eq!((&modified["added"], &modified["removed"]), (&1.into(), &0.into()), "{modified}");
        assert!(modified["diff"].as_str().unwrap().contains("+changed"), "{modified}");
    }
    let mut started = after_runs(&user, "started.txt");
    assert_eq!(started.len(), 3, "{started:?}");
    started.dedup();
    assert_eq!(started.len(), 1, "one agent serves all runs: {started:?}");
    // The commands of `teardown` run where the agent worked, on what it left.
    let pwd = after_runs(&user, "pwd.txt")[0].trim_matches(['"', '\\', 'n']).to_owned();
    let torn = user.read("torn.txt");
    assert!(!torn.contains("hidden.txt"), "{torn}");
    for line in [&*pwd, "new.txt", "teardown.txt"] {
        assert_eq!(torn.lines().filter(|torn| *torn == line).count(), 3, "{line}: {torn}");
    }
    assert_eq!(user.read("template/in.txt"), "template\n");
    let mut names: Vec<_> =
        fs::read_dir(user.path("template")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["dir", "gone.txt", "in.txt", "same"]);
    assert!(left(&user).is_empty(), "{:?}", left(&user));
    // The stored changes restore the workspace.
    let graded = user.agentline(&["batch", "grade", "suite.yaml", "--dir", "exp"]);
    assert_eq!(graded.code, 0, "{}{}", graded.out, graded.err);
}

#[test]
fn ordinary_user_runs_in_overlays_too() {
    if !is_root() {
        // Then all other tests here run as an ordinary user.
        return;
    }
    let user = user();
    write_changing_suite(&user);
    let args = ["batch", "suite.yaml", "--dir", "exp", "-j", "1", "--isolate", "overlay", "-o", "jsonl"];
    let Some(done) = as_ordinary_user(&user, &args).filter(is_possible) else { return };
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    for line in lines(&done).values() {
        assert_eq!(
            (&line["isolation"], &line["hidden_covered"]),
            (&"overlay".into(), &true.into()),
            "{line}"
        );
    }
    assert_eq!(user.read("template/in.txt"), "template\n");
    assert!(left(&user).is_empty(), "{:?}", left(&user));
}

/// Runs the program with the fake agent as an ordinary user, to whom all files of the test belong from then on. Returns
/// `None` with a message if there is none.
pub(super) fn as_ordinary_user(user: &User, args: &[&str]) -> Option<Done> {
    if !is_root() {
        return Some(user.agentline(args));
    }
    // The directory of the build may be closed to others.
    let agent = user.path("../fake-agent");
    fs::copy(env!("CARGO_BIN_EXE_fake-acp"), &agent).unwrap();
    let agent = agent.canonicalize().unwrap();
    let settings = format!("[agents.fake]\ncommand = ['{}']\n", agent.display());
    user.write("../home/.config/agentline/config.toml", &settings);
    let mut waiting = vec![user.path("..")];
    while let Some(path) = waiting.pop() {
        chown(&path, Some(65534), Some(65534)).unwrap();
        if path.is_dir() {
            waiting.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    let command = user.command(args);
    let mut as_nobody = Command::new("setpriv");
    as_nobody.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    as_nobody.arg(command.get_program()).args(command.get_args()).current_dir(user.path(".")).env_clear();
    as_nobody.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let done: Done = match as_nobody.stdin(Stdio::null()).output() {
        Ok(output) => output.into(),
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "skipped: setpriv: {error}");
            return None;
        }
    };
    if done.code == 127 || done.code == 126 {
        let _ = writeln!(std::io::stderr(), "skipped: an ordinary user cannot run it: {}", done.err);
        return None;
    }
    Some(done)
}

#[test]
fn claude_code_stays_warm_from_one_overlay_to_the_next() {
    // In its own pid namespace, the agent's init is process 1.
    let script = r"sed -E 's/.*\) (\S+ ){19}(\S+) .*/\2/' /proc/1/stat > started.txt; echo changed >> in.txt";
    let stage = ScriptedStage::new("claude", move |request| match &request.tool_results[..] {
        _ if !request.is_turn => Answer::text("A title"),
        [] => Answer::using(Action::shell(script)),
        _ => Answer::text("Done."),
    });
    let (Some(stage), Some(adapter)) = (stage, real_claude_acp()) else { return skipped("Claude Code") };
    let folder = fs::canonicalize(stage.path()).unwrap();
    let suite = folder.join("suite");
    fs::create_dir_all(suite.join("template")).unwrap();
    fs::write(suite.join("template/in.txt"), "template\n").unwrap();
    fs::write(
        suite.join("suite.yaml"),
        "defaults: {agent: claude, surface: acp, permission_mode: bypass}\nworkspace: template\nrepeat: 2\ncases:\n\
         - {id: a, prompt: Change it, checks: [{file_equals: {path: in.txt, text: \"template\\nchanged\\n\"}}]}\n",
    )
    .unwrap();
    let mut command = stage.command(Path::new(env!("CARGO_BIN_EXE_agentline-under-test")));
    command.env("CLAUDE_AGENT_ACP_PATH", &adapter.program).current_dir(&suite);
    command.args(["batch", "suite.yaml", "--dir", "exp", "-j", "1", "--isolate", "overlay", "-o", "jsonl"]);
    let done: Done = command.output().unwrap().into();
    if !is_possible(&done) {
        return;
    }
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    let lines = lines(&done);
    let started: Vec<&str> = lines
        .values()
        .flat_map(|line| line["outcome"]["files"].as_array().unwrap())
        .filter(|row| row["path"] == "started.txt")
        .map(|row| row["diff"].as_str().unwrap())
        .collect();
    assert!(lines.values().all(|line| line["isolation"] == "overlay"), "{}", done.out);
    assert!(started.len() == 2 && (started[0] == started[1] || !is_root()), "{started:?}");
    assert_eq!(fs::read_to_string(suite.join("template/in.txt")).unwrap(), "template\n");
    assert!(stage.living().is_empty(), "{:?}", stage.living());
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata("/proc/self").unwrap().uid() == 0
}

#[test]
fn agent_finds_hidden_files_by_no_path_during_its_run_and_in_the_next() {
    let user = user();
    user.write("template/in.txt", "template\n");
    user.write("answers/deep/hidden.txt", "secret-42\n");
    user.write("single.txt", "secret-42\n");
    let folder = fs::canonicalize(user.path("..")).unwrap();
    let at = folder.display();
    // The word is written in two parts, so that the commands do not contain it.
    let searches = [
        format!("grep -rs secret-4''2 {at} >> found.txt"),
        "grep -rs secret-4''2 .. ../.. ../../.. >> found.txt".to_owned(),
        format!("cat {at}/ws/single.txt {at}/ws/answers/deep/hidden.txt >> found.txt"),
        format!("for p in /proc/[0-9]*; do grep -rs secret-4''2 $p/root{at} >> found.txt; done"),
        format!("ls -A {at}/ws/exp {at}/ws/answers >> listed.txt"),
        format!(
            "umount {at}/ws/answers; umount -l {at}/ws/single.txt; grep -rs secret-4''2 {at} >> found.txt"
        ),
        format!("unshare -rm sh -c \"umount {at}/ws/answers; grep -rs secret-4''2 {at}\" >> found.txt"),
        format!("unshare -m sh -c \"umount {at}/ws/answers; grep -rs secret-4''2 {at}\" >> found.txt"),
        format!("nsenter -t 1 -m grep -rs secret-4''2 {at} >> found.txt"),
        format!("mkdir b; mount --bind {at} b; grep -rs secret-4''2 b >> found.txt; rmdir b"),
        format!("git -C {at}/ws log --all -p | grep secret-4''2 >> found.txt"),
        format!("git --git-dir={at}/ws/.git cat-file -p HEAD:single.txt >> found.txt"),
        "for p in /proc/[0-9]*/cwd; do case $(readlink $p) in *agentline-batch-*) \
         grep -rs secret-4''2 $p/ $p/.. $p/../.. >> found.txt;; esac; done"
            .to_owned(),
        format!("(echo x >> {at}/ws/template/in.txt) 2> template.txt"),
        format!("(echo x > {at}/ws/template/new.txt) 2>> template.txt"),
    ];
    let commands: String = searches.iter().map(|line| format!("      run {line}; true\n")).collect();
    suite(
        &user,
        &format!(
            "workspace: template\nrepeat: 2\ncases:\n  - id: a\n    hidden: [answers, single.txt]\n    prompt: |\n\
             {commands}      say done\n    checks:\n      - command: grep -q secret-4''2 deep/hidden.txt\n\
             \x20     - command: grep -q secret-4''2 single.txt\n      - command: test -f found.txt && test ! -s found.txt\n\
             \x20     - command: test $(grep -c . listed.txt) = 2\n\
             \x20     - command: test $(grep -c Read-only template.txt) = 2\n# secret-42\n"
        ),
    );
    git(&user.path("."), &["init", "--quiet"]);
    commit(&user.path("."));
    let Some(done) = batch(&user, &["--keep-failed"]) else { return };
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    let lines = lines(&done);
    assert_eq!(lines.len(), 2);
    for line in lines.values() {
        assert_eq!(line["hidden_covered"], true, "{line}");
    }
    assert_eq!(user.read("template/in.txt"), "template\n");
    assert!(left(&user).is_empty(), "{:?}", left(&user));
}

#[test]
fn hidden_file_in_the_history_of_its_workspace_is_not_covered() {
    let user = user();
    let template = user.path("template");
    user.write("template/in.txt", "template\n");
    user.write("template/solution.txt", "secret-42\n");
    user.write("answers/hidden.txt", "secret-42\n");
    git(&template, &["init", "--quiet"]);
    commit(&template);
    fs::remove_file(template.join("solution.txt")).unwrap();
    commit(&template);
    let case = |workspace: &str| {
        format!(
            "cases:\n  - {{id: a, hidden: answers, workspace: {workspace}, \
             prompt: \"run git log --all -p > log.txt\\nsay done\", checks: [{{command: \"test -s log.txt\"}}]}}\n"
        )
    };
    suite(&user, &case("template"));
    let Some(done) = batch(&user, &[]) else { return };
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    assert_eq!(lines(&done).values().next().unwrap()["hidden_covered"], false, "{}", done.out);
    // A revision has one commit only.
    suite(&user, &case("{git: template, rev: HEAD}"));
    let done = batch(&user, &[]).unwrap();
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    let line = lines(&done).into_values().next().unwrap();
    assert_eq!((&line["isolation"], &line["hidden_covered"]), (&"overlay".into(), &true.into()), "{line}");
}

pub(super) fn git(dir: &Path, args: &[&str]) {
    let mut git = Command::new("git");
    git.arg("-C").arg(dir).args(["-c", "user.name=x", "-c", "user.email=x@localhost"]);
    assert!(git.args(args).output().unwrap().status.success(), "{args:?}");
}

pub(super) fn commit(dir: &Path) {
    git(dir, &["add", "--all"]);
    git(dir, &["commit", "--quiet", "-m", "x"]);
}

#[test]
fn killed_batch_leaves_no_mounts() {
    let user = user();
    user.write("template/in.txt", "template\n");
    suite(&user, "workspace: template\ncases: [{id: first, prompt: \"say done\"}]\n");
    if batch(&user, &[]).is_none() {
        return;
    }
    suite(&user, "workspace: template\ncases: [{id: a, prompt: \"run sleep 600\"}]\n");
    let args = ["batch", "suite.yaml", "--dir", "exp", "-j", "1", "--isolate", "overlay"];
    let mut child = user.command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let pid = child.id();
    let folder = fs::canonicalize(user.path("..")).unwrap();
    let is_mounted = |mounts: &str| {
        let mounts = fs::read_to_string(mounts).unwrap_or_default();
        mounts.lines().any(|line| line.contains("overlay") && line.contains(&*folder.to_string_lossy()))
    };
    wait_until("a mount", || is_mounted(&format!("/proc/{pid}/mountinfo")) && sleeps(&folder));
    assert!(!is_mounted("/proc/self/mountinfo"), "the mount is visible outside");
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("the end of the agent", || !sleeps(&folder));
    assert!(!is_mounted("/proc/self/mountinfo"));
    // The next batch removes the directories of the killed one.
    suite(&user, "workspace: template\ncases: [{id: b, prompt: \"say done\"}]\n");
    let Some(done) = batch(&user, &[]) else { return };
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    assert!(left(&user).is_empty(), "{:?}", left(&user));
}

/// Returns whether a process works in an overlay below this directory.
fn sleeps(folder: &Path) -> bool {
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let mut dirs = processes.filter_map(|process| fs::read_link(process.path().join("cwd")).ok());
    dirs.any(|dir| dir.starts_with(folder) && dir.ends_with("workspace"))
}

#[test]
fn agent_that_still_uses_its_workspace_is_replaced() {
    let user = user();
    user.write("template/in.txt", "template\n");
    suite(
        &user,
        "workspace: template\nrepeat: 2\ncases:\n\
         - {id: a, prompt: \"run cut -d' ' -f22 /proc/$PPID/stat > started.txt; echo x >> in.txt\\nhold in.txt\", \
            checks: [{command: \"test $(grep -c x in.txt) = 1\"}]}\n",
    );
    let Some(done) = batch(&user, &[]) else { return };
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    let started = after_runs(&user, "started.txt");
    assert!(started.len() == 2 && started[0] != started[1], "{started:?}");
    assert_eq!(user.read("template/in.txt"), "template\n");
    assert!(left(&user).is_empty(), "{:?}", left(&user));
}

#[test]
fn trusted_workspace_has_an_agent_that_starts_in_it() {
    let user = user();
    user.write("template/in.txt", "template\n");
    suite(
        &user,
        "workspace: template\nrepeat: 2\nsetup: echo x > made.txt\nvariants: [{id: v, trust: full}]\ncases:\n\
         - {id: a, prompt: \"run ls /proc/$PPID/cwd/ > seen.txt\\nsay done\", \
            checks: [{file_contains: {path: seen.txt, text: in.txt}}, {only_changed: [seen.txt]}]}\n",
    );
    let Some(done) = batch(&user, &[]) else { return };
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    assert_eq!(lines(&done).len(), 2);
    // An agent of its own has a tape of its own.
    for line in lines(&done).values() {
        let dir = format!("exp/{}", line["dir"].as_str().unwrap());
        let replayed = user.agentline(&["replay", &format!("{dir}/tape.jsonl"), "-o", "json"]);
        assert!(replayed.code == 0 && replayed.out.contains("\"done\""), "{}{}", replayed.out, replayed.err);
    }
}

#[test]
fn workspaces_that_do_not_fit_are_copied_or_refused() {
    let user = user();
    user.write("template/in.txt", "template\n");
    std::os::unix::fs::symlink("in.txt", user.path("template/inside")).unwrap();
    suite(&user, "workspace: template\ncases: [{id: a, prompt: \"run echo x >> in.txt\\nsay done\"}]\n");
    let run = |flags: &[&str]| {
        let args = ["batch", "suite.yaml", "--dir", "exp", "-o", "jsonl", "--rerun", "all"];
        user.agentline(&[&args, flags].concat())
    };
    let method = |done: &Done| {
        assert_eq!(done.code, 0, "{}{}", done.out, done.err);
        lines(done).values().next().unwrap()["isolation"].as_str().unwrap().to_owned()
    };
    assert_eq!(method(&run(&["--isolate", "copy"])), "copy");
    let refused = run(&["--isolate", "worktree"]);
    assert_eq!(refused.code, 2, "{}{}", refused.out, refused.err);
    assert!(refused.err.contains("`isolate`: git failed"), "{}", refused.err);
    git(&user.path("template"), &["init", "--quiet"]);
    commit(&user.path("template"));
    assert_eq!(method(&run(&["--isolate", "worktree"])), "worktree");
    // A link back to the template would let the agent change it.
    std::os::unix::fs::symlink(user.path("template/in.txt"), user.path("template/back")).unwrap();
    assert_eq!(method(&run(&[])), "copy");
    let forced = run(&["--isolate", "overlay"]);
    assert_eq!(forced.code, 2, "{}{}", forced.out, forced.err);
    assert_eq!(user.read("template/in.txt"), "template\n");
    assert!(left(&user).is_empty(), "{:?}", left(&user));
}
