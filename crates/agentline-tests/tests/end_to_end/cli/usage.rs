//! Tests invalid input: it gets one clear message with the key or flag and a hint, and starts nothing.

use crate::cli::user::User;

/// Asserts that standard output is empty and that nothing was started.
fn refused(args: &[&str], message: &str) {
    let user = User::new();
    let done = user.agentline(args);
    assert_eq!((done.err.as_str(), done.out.as_str(), done.code), (message, "", 2), "{args:?}");
    assert!(!user.path("hello.txt").exists(), "{args:?}");
}

#[test]
fn invalid_prompts_are_refused() {
    let hint = "  hint: give the prompt as an argument, on stdin or with `--prompt-file`\n";
    refused(&["run", ""], &format!("error: `prompt`: is empty\n{hint}"));
    refused(&["run", " \n "], &format!("error: `prompt`: is empty\n{hint}"));
    refused(&["run"], &format!("error: `prompt`: is empty\n{hint}"));
    let user = User::new();
    let nul = user.agentline_with_input(&["run"], b"a\0b");
    assert_eq!(nul.err, "error: `prompt`: contains a NUL byte\n  hint: remove it\n");
    let bytes = user.agentline_with_input(&["run", "-"], b"ab\xff");
    assert_eq!(
        bytes.err,
        "error: `PROMPT`: the prompt is not valid UTF-8 at byte 2\n  hint: convert it, for example with `iconv -t UTF-8`\n"
    );
    let long = user.agentline_with_input(&["run"], &vec![b'a'; 8_388_609]);
    assert_eq!(
        long.err,
        "error: `prompt`: is 8388609 bytes long; Gemini CLI accepts at most 8388608\n  hint: shorten it, or move the text to a file in the workspace and refer to the file\n"
    );
    assert_eq!([nul.code, bytes.code, long.code], [2, 2, 2]);
}

#[test]
fn negative_number_is_reported_with_its_flag() {
    for flag in ["--timeout", "--idle-timeout", "--quiet-period", "--max-turns", "--max-tokens", "--max-cost"]
    {
        let user = User::new();
        let done = user.agentline(&["run", "hi", flag, "-5"]);
        let names_it = done.err.lines().next().is_some_and(|line| line.contains(flag));
        assert!(names_it && done.code == 2 && done.out.is_empty(), "{flag}: {} {}", done.code, done.err);
        assert!(!user.path("hello.txt").exists());
    }
}

#[test]
fn value_passed_as_a_name_is_not_printed() {
    refused(
        &["run", "hi", "--pass-env", "TOKEN=of-the-user"],
        "error: `--pass-env`: accepts only names of variables, but one contains `=`\n  hint: write only the name to pass on your variable, or use `env` to set another value\n",
    );
}

#[test]
fn unwritable_tape_starts_nothing() {
    let user = User::new();
    let done = user.agentline(&["run", "hi", "-o", "json", "--record", "no/such/folder/tape"]);
    assert!(
        done.err.starts_with("error: `--record`: cannot write `") && done.err.contains("hint: "),
        "{}",
        done.err
    );
    assert_eq!((done.code, done.out.as_str()), (2, ""));
    assert!(!user.path("hello.txt").exists());
}

#[test]
fn all_problems_are_reported_at_once() {
    let user = User::new().env("AGENTLINE_MAX_TURNS", "many");
    user.write("agentline.toml", "timeout = 0\n");
    user.write("../home/.config/agentline/config.toml", "system_mode = 'replce'\n");
    let done = user.agentline(&["run", "hi", "--permission-mode", "yes", "--max-cost", "nan"]);
    for part in [
        "`timeout`",
        "`system_mode`",
        "did you mean `replace`?",
        "`AGENTLINE_MAX_TURNS`",
        "`--permission-mode`",
        "`--max-cost`",
    ] {
        assert!(done.err.contains(part), "{part} is missing in {}", done.err);
    }
    assert_eq!((done.code, done.out.as_str()), (2, ""));
    assert!(!user.path("hello.txt").exists());
}

#[test]
fn yolo_and_a_mode_must_agree() {
    let run_with = |file: &str| {
        let user = User::new();
        user.write("../home/.config/agentline/config.toml", file);
        let done = user.agentline(&["run", "hi"]);
        (done.code, user.path("hello.txt").exists(), done.err)
    };
    for (yolo, mode) in [("true", "plan"), ("true", "auto_edit"), ("true", "default"), ("false", "yolo")] {
        let (code, has_run, err) = run_with(&format!("yolo = {yolo}\napproval_mode = '{mode}'\n"));
        assert_eq!((code, has_run, err.matches("error:").count()), (2, false, 1), "{yolo} {mode}: {err}");
        for part in ["yolo", "approval_mode", "hint: "] {
            assert!(err.contains(part), "{part} is missing in {err}");
        }
    }
    for (yolo, mode) in [("true", "yolo"), ("true", "full_auto"), ("false", "auto_edit")] {
        let (code, _, err) = run_with(&format!("yolo = {yolo}\napproval_mode = '{mode}'\n"));
        assert_eq!(code, 0, "{yolo} {mode}: {err}");
    }
    let user = User::new().env("AGENTLINE_YOLO", "true").env("AGENTLINE_APPROVAL_MODE", "plan");
    let done = user.agentline(&["run", "hi"]);
    assert_eq!((done.code, done.err.matches("error:").count()), (2, 1), "{}", done.err);
    // A flag is a layer above both, and a lower layer does not revert it.
    let user = User::new().env("AGENTLINE_YOLO", "true");
    let done = user.agentline(&["run", "-v", "--permission-mode", "plan", "hi"]);
    assert!(done.err.contains("--approval-mode plan"), "{}", done.err);
}

#[test]
fn each_message_names_the_flag_and_a_hint() {
    refused(
        &["run", "hi", "-a", "gemni"],
        "error: `--agent`: `gemni` is not a known agent\n  hint: did you mean `gemini`? known agents: gemini, claude, codex, opencode, copilot, qwen, goose, kimi, vibe, grok, droid, pi\n",
    );
    refused(
        &["run", "hi", "--timeout", "soon"],
        "error: `--timeout`: must be a duration, got `soon`\n  hint: write seconds, or a duration such as `10m`, `1h30m`, `500ms`\n",
    );
    refused(
        &["run", "hi", "--surface", "acp", "--sandbox"],
        "error: `--sandbox`: is not supported over ACP: Gemini CLI does not respond from inside its sandbox\n  hint: remove it, or use the surface `stream-json`\n",
    );
    refused(
        &["run", "hi", "-m", "gemini-0-unpriced", "--max-cost", "1"],
        "error: `--max-cost`: cannot be enforced: no price is known for the model `gemini-0-unpriced`\n  hint: set its price in `[prices.models.\"gemini-0-unpriced\"]`, or use `max_tokens`\n",
    );
    for (typed, flag, part) in [
        (["-C", "nowhere"], "--cwd", "is not a directory"),
        (["-f", "nowhere"], "--prompt-file", "nowhere"),
        (["--attach", "nowhere"], "--attach", "nowhere"),
        (["--schema", "nowhere"], "--schema", "nowhere"),
        (["--include-dir", "nowhere"], "--include-dir", "does not exist"),
        (["-m", "-x"], "--model", "must not begin with `-`"),
        (["--resume", "-x"], "--resume", "must not begin with `-`"),
    ] {
        let user = User::new();
        let joined = format!("{}={}", typed[0], typed[1]);
        let args = if typed[1].starts_with('-') {
            vec!["run", "hi", &joined]
        } else {
            vec!["run", "hi", typed[0], typed[1]]
        };
        let done = user.agentline(&args);
        assert_eq!(done.code, 2, "{typed:?}: {}", done.err);
        assert!(done.err.starts_with(&format!("error: `{flag}`: ")), "{typed:?}: {}", done.err);
        assert!(done.err.contains(part) && done.err.contains("hint: "), "{typed:?}: {}", done.err);
        assert!(!user.path("hello.txt").exists(), "{typed:?}");
    }
    refused(
        &["compare", "hi", "-a", "gemini", "--apply", "nope"],
        "error: `--apply`: `nope` is not a known agent\n  hint: known agents: gemini, claude, codex, opencode, copilot, qwen, goose, kimi, vibe, grok, droid, pi\n",
    );
    let named = User::new().env("AGENTLINE_AGENT", "claude").agentline(&["compare", "hi", "-a", "gemni"]);
    assert!(named.err.starts_with("error: `--agent`: `gemni` is not a known agent"), "{}", named.err);
}

#[test]
fn problems_of_different_steps_are_reported_together() {
    for (args, keys) in [
        (&["run", "hi", "-a", "gemni", "--timeout", "-1"][..], &["--timeout", "--agent"][..]),
        (
            &["run", "hi", "--surface", "x", "--resume", "a", "--session-id", "b"],
            &["--surface", "--session-id"],
        ),
        (&["install", "gemni", "codx"], &["agent", "agent"]),
    ] {
        let done = User::new().agentline(args);
        let errors = done.err.lines().filter_map(|line| line.strip_prefix("error: `")?.split('`').next());
        assert_eq!((done.code, errors.collect::<Vec<_>>().as_slice()), (2, keys), "{args:?}: {}", done.err);
    }
}

#[test]
fn each_missing_path_has_a_hint() {
    for (args, part) in [
        (&["trust", "/nope"][..], "hint: pass a directory that exists"),
        (&["conformance", "--to", "/nope/x.md"], "hint: pass a Markdown page"),
        (&["conformance", "--scenario", "nope"], "hint: known scenarios: text, "),
        (&["report", "/nope"], "hint: name a directory that `agentline batch` wrote"),
        (&["replay", "/nope"], "hint: record a run"),
    ] {
        let done = User::new().agentline(args);
        assert_eq!((done.code, done.out.as_str()), (2, ""), "{args:?}: {}", done.err);
        assert!(done.err.contains(part), "{args:?}: {}", done.err);
    }
    let user = User::new().env("TMPDIR", "/nope");
    let done = user.agentline(&["run", "hi"]);
    assert!(done.err.contains("hint: create `/nope`, or set TMPDIR to a writable directory"), "{}", done.err);
}

#[test]
fn unsupported_surface_features_are_refused_before_start() {
    for args in [["--schema", "s.json"], ["--attach", "a.png"]] {
        let user = User::new();
        user.write("s.json", "{}");
        user.write("a.png", "x");
        let done = user.agentline(&["run", "hi", "--surface", "json", args[0], args[1]]);
        assert_eq!((done.code, done.out.as_str()), (2, ""), "{}", done.err);
        assert!(done.err.contains("hint:"), "{}", done.err);
        assert!(!user.path("hello.txt").exists());
    }
}

#[test]
fn usage_errors_are_explained() {
    let user = User::new();
    for args in [&["run", "--max-turns", "x", "hi"][..], &["run", "--nope"], &["nope"], &[]] {
        let done = user.agentline(args);
        assert_eq!((done.code, done.out.as_str()), (2, ""), "{args:?}: {}", done.err);
        assert!(done.err.contains("--help"), "{args:?}: {}", done.err);
    }
    for (args, flag) in [
        (["sessions", "list", "--limit", "-1"], "--limit"),
        (["sessions", "list", "--offset", "-1"], "--offset"),
        (["batch", "s.yaml", "--jobs", "0"], "--jobs"),
        (["batch", "s.yaml", "--jobs", "-1"], "--jobs"),
        (["batch", "s.yaml", "--repeat", "0"], "--repeat"),
        (["batch", "s.yaml", "--repeat", "99999999"], "--repeat"),
        (["batch", "s.yaml", "--limit", "0"], "--limit"),
    ] {
        let done = user.agentline(&args);
        assert_eq!((done.code, done.out.as_str()), (2, ""), "{args:?}: {}", done.err);
        let named = format!("'{}' for '{flag} ", args[3]);
        let short = format!("'{}' for '-", args[3]);
        let is_named = done.err.contains(&named) || (done.err.contains(&short) && done.err.contains(flag));
        assert!(is_named, "{args:?}: {}", done.err);
    }
    let quiet = user.agentline(&["-q", "run", ""]);
    assert!(quiet.err.contains("is empty"), "errors are printed even in quiet mode: {}", quiet.err);
}

#[test]
fn missing_home_is_an_error() {
    let user = User::new();
    let output = user.command(&["run", "hi"]).env_remove("HOME").output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(err.contains("`HOME`") && err.contains("hint: set HOME"), "{err}");
}
