//! Tests the small commands: agents, doctor, config, completions, help.

use crate::cli::user::{KEY, User};
use serde_json::json;

#[test]
fn agents_are_listed_with_their_features() {
    let user = User::new();
    let table = user.agentline(&["agents"]);
    assert_eq!((table.code, table.err.as_str()), (0, ""));
    assert!(table.out.lines().next().unwrap().starts_with("agent     surface      works"), "{}", table.out);
    let rows = user.agentline(&["agents", "-o", "json"]).json();
    let gemini = &rows[0];
    assert_eq!((&gemini["id"], &gemini["pinned"]), (&json!("gemini"), &json!("0.61.0")));
    let surfaces: Vec<_> =
        gemini["abilities"].as_array().unwrap().iter().map(|a| (&a["surface"], &a["works"])).collect();
    assert_eq!(surfaces[..2], [(&json!("json"), &json!(true)), (&json!("stream-json"), &json!(true))]);
}

#[test]
fn every_alias_of_an_agent_finds_it() {
    let user = User::new();
    let rows = user.agentline(&["agents", "--output", "json"]).json();
    for name in ["gemini", "gemini-cli", "google:gemini-cli", "gemini_acp"] {
        let found: Vec<_> = rows
            .as_array()
            .unwrap()
            .iter()
            .filter(|row| row["id"] == name || row["aliases"].as_array().unwrap().contains(&json!(name)))
            .collect();
        assert_eq!(found.len(), 1, "{name}: {rows}");
        assert_eq!(
            (&found[0]["title"], &found[0]["package"]),
            (&json!("Gemini CLI"), &json!("@google/gemini-cli"))
        );
        // The fake agent of these tests has one surface, which not every alias uses.
        let done = user.agentline(&["run", "-a", name, "--surface", "stream-json", "-o", "json", "hi"]);
        assert_eq!((done.code, &done.json()["agent"]), (0, &json!("gemini")), "{name}: {}", done.err);
        let metadata = agentline::provider::Provider::metadata_of(name).unwrap();
        assert_eq!(serde_json::to_value(metadata).unwrap()["name"], "gemini-cli", "{name}");
    }
}

#[test]
fn prices_are_dated_and_user_prices_override_them() {
    let user = User::new();
    let table = user.agentline(&["prices"]);
    assert_eq!((table.code, table.err.as_str()), (0, ""));
    let row = table.out.lines().find(|l| l.starts_with("gemini-2.5-flash ")).unwrap();
    assert_eq!(
        row.split_whitespace().skip(1).take(5).collect::<Vec<_>>(),
        ["0.30", "0.03", "-", "-", "2.50"]
    );
    assert!(table.out.contains("> 200000") && table.out.contains("https://"), "{}", table.out);
    let one = user.agentline(&["prices", "claude-opus-4-1-20250805", "-o", "json"]).json();
    assert_eq!((one.as_array().unwrap().len(), &one[0]["model"]), (1, &json!("claude-opus-4-1")));
    assert_eq!((&one[0]["maker"], &one[0]["overridden"]), (&json!("Anthropic"), &json!(false)));
    assert_eq!(one[0]["as_of"].as_str().unwrap().len(), 10);
    let none = user.agentline(&["prices", "claude-opus-4-99"]);
    assert_eq!((none.code, none.out.as_str()), (1, ""));
    assert!(none.err.contains("no price is known") && none.err.contains("[prices.models."), "{}", none.err);
    user.write(
        "../home/.config/agentline/config.toml",
        "[prices.models.'gemini-2.5-flash']\ninput = 7\noutput = 8\nlong = { above = 9, input = 10, output = 11 }\n",
    );
    let mine = user.agentline(&["prices", "gemini-2.5-flash", "-o", "json"]).json();
    assert_eq!((&mine[0]["input"], &mine[0]["long"]["above"]), (&json!(7.0), &json!(9)));
    assert_eq!((&mine[0]["overridden"], &mine[0]["maker"]), (&json!(true), &json!(null)));
    let shown = user.agentline(&["prices", "gemini-2.5-flash"]).out;
    assert!(shown.contains("your settings") && shown.contains("> 9"), "{shown}");
}

#[test]
fn doctor_exit_code_shows_what_is_missing() {
    let good = User::new().agentline(&["doctor", "-o", "json"]);
    assert_eq!(good.code, 0, "{}", good.out);
    assert_eq!(good.json()["agents"][0]["ready"], true);
    assert!(!good.out.contains(KEY));
    let unsigned = User::new().env("GEMINI_API_KEY", "").agentline(&["doctor"]);
    assert_eq!(unsigned.code, 4, "{}", unsigned.out);
    let missing = User::new().env("GEMINI_CLI_PATH", "/nowhere/gemini").agentline(&["doctor", "gemini"]);
    assert_eq!(missing.code, 3, "{}", missing.out);
    assert!(missing.out.contains("/nowhere/gemini"));
    let user = User::new();
    user.write("agentline.toml", "timeout = 'soon'\n");
    let wrong = user.agentline(&["doctor"]);
    assert!(
        wrong.code == 2 && wrong.err.contains("`timeout`") && wrong.out.contains("gemini "),
        "{}",
        wrong.err
    );
}

#[test]
fn doctor_without_installed_agents_fits_on_a_screen_of_80_columns_and_24_lines() {
    let user = User::new().env("PATH", "/nonexistent").env("GEMINI_CLI_PATH", "").env("GEMINI_API_KEY", "");
    let agents = user.agentline(&["doctor", "-o", "json"]).json()["agents"].as_array().unwrap().clone();
    let short = user.agentline(&["doctor"]);
    assert!(short.out.lines().count() <= 24, "{}", short.out);
    assert!(short.out.lines().all(|line| line.chars().count() <= 80), "{}", short.out);
    for agent in &agents {
        let id = agent["id"].as_str().unwrap();
        let lines: Vec<&str> = short.out.lines().filter(|line| line.starts_with(&format!("{id} "))).collect();
        assert_eq!(lines.len(), 1, "{id}: {}", short.out);
        if agent["installed"] == false {
            assert!(
                lines[0].contains("not installed")
                    && lines[0].contains("  agentline install ")
                    && !lines[0].contains('…'),
                "{}",
                lines[0]
            );
        }
    }
    let all = user.agentline(&["doctor", "-v"]);
    assert_eq!(all.out.matches("\n  searched\n").count(), agents.len(), "{}", all.out);
    assert_eq!(all.code, short.code);
}

#[test]
fn doctor_of_a_named_agent_shows_the_details_of_that_agent_only() {
    let user = User::new();
    let one = user.agentline(&["doctor", "gemini"]);
    assert_eq!(one.code, 0, "{}", one.out);
    assert!(one.out.contains("Gemini CLI (gemini): ready") && !one.out.contains("Codex"), "{}", one.out);
    let rows = user.agentline(&["doctor", "gemini", "-o", "json"]).json();
    assert_eq!(rows["agents"].as_array().unwrap().len(), 1);
    let unknown = user.agentline(&["doctor", "gemni"]);
    assert!(unknown.code == 2 && unknown.err.contains("gemini"), "{}", unknown.err);
    let short = user.agentline(&["doctor"]);
    assert!(
        short.out.contains("agentline run -a gemini") && !short.out.contains("searched"),
        "{}",
        short.out
    );
}

#[test]
fn config_shows_every_value_with_its_source_and_no_secret() {
    let user = User::new().env("AGENTLINE_API_KEY", "key-in-the-environment");
    user.write("agentline.toml", "model = 'm'\n");
    user.write("../home/.config/agentline/config.toml", "[env]\nMY_TOKEN = 'token-in-the-file'\n");
    let rows = user.agentline(&["config", "show", "-o", "json"]).json();
    let row = |key: &str| rows.as_array().unwrap().iter().find(|row| row["key"] == key).unwrap().clone();
    assert_eq!(row("model")["value"], "m");
    assert!(row("model")["source"].as_str().unwrap().ends_with("agentline.toml"));
    assert_eq!((&row("timeout")["value"], &row("timeout")["source"]), (&json!("10m"), &json!("default")));
    assert_eq!(row("api_key")["source"], "environment");
    let text = user.agentline(&["config", "show"]);
    assert_eq!(text.code, 0);
    assert!(
        text.out.lines().any(|line| line.starts_with("model ") && line.contains("\"m\"")),
        "{}",
        text.out
    );
    for secret in ["key-in-the-environment", "token-in-the-file"] {
        assert!(!text.out.contains(secret) && !rows.to_string().contains(secret));
    }
}

#[test]
fn config_check_reports_all_problems() {
    let user = User::new();
    assert_eq!(user.agentline(&["config", "check"]).out, "the settings are valid\n");
    user.write("agentline.toml", "modle = 'm'\n");
    let usable = user.agentline(&["config", "check"]);
    assert_eq!((usable.code, usable.out.as_str()), (0, "the settings are valid, with warnings\n"));
    assert!(usable.err.contains("did you mean `model`?"), "{}", usable.err);
    user.write("agentline.toml", "timeout = 0\nmax_turns = -1\n");
    let wrong = user.agentline(&["config", "check"]);
    assert_eq!((wrong.code, wrong.err.matches("error:").count()), (2, 2), "{}", wrong.err);
    let json = user.agentline(&["config", "check", "-o", "json"]);
    assert_eq!((json.code, &json.json()["ok"]), (2, &json!(false)));
    assert_eq!(json.json()["problems"].as_array().unwrap().len(), 2);
}

#[test]
fn completions_exist_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let done = User::new().agentline(&["completions", shell]);
        assert_eq!((done.code, done.err.as_str()), (0, ""), "{shell}");
        assert!(done.out.contains("COMPLETE") && done.out.contains("agentline"), "{shell}: {}", done.out);
    }
    assert_eq!(User::new().agentline(&["completions", "tcsh"]).code, 2);
}

/// Returns the candidates for the last word, as a shell asks for them.
#[cfg(unix)]
fn candidates(user: &User, words: &[&str]) -> Vec<String> {
    let args: Vec<&str> = ["--", "agentline"].iter().chain(words).copied().collect();
    let output = user
        .command(&args)
        .envs([("COMPLETE", "bash"), ("_CLAP_IFS", "\n"), ("_CLAP_COMPLETE_COMP_TYPE", "9")])
        .env("_CLAP_COMPLETE_INDEX", words.len().to_string())
        .output()
        .unwrap();
    assert!(output.status.success(), "{words:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[cfg(unix)]
#[test]
fn agents_modes_models_and_sessions_are_completed() {
    let user = User::new();
    user.write("../home/.config/agentline/config.toml", "[agents.mine]\ncommand = [\"my-agent\"]\n");
    assert_eq!(candidates(&user, &["run", "--agent", ""])[..2], ["gemini", "claude"]);
    assert_eq!(candidates(&user, &["run", "-a", "mi"]), ["mine"]);
    assert_eq!(candidates(&user, &["doctor", "op"]), ["opencode"]);
    assert_eq!(candidates(&user, &["run", "--permission-mode", "a"]), ["accept-edits", "auto"]);
    assert!(candidates(&user, &["run", "--model", "gemini-2.5-f"]).contains(&"gemini-2.5-flash".to_owned()));
    let id = "0ddba11a-0000-4000-8000-000000000001";
    let prompt = json!({"type": "user", "uuid": "u1", "sessionId": id, "cwd": "/work", "timestamp": "2026-11-14T10:00:00.000Z",
        "message": {"role": "user", "content": "hi"}});
    user.write(&format!("../home/.claude/projects/-work/{id}.jsonl"), &format!("{prompt}\n"));
    assert_eq!(candidates(&user, &["sessions", "show", "0dd"]), [id]);
    assert_eq!(candidates(&user, &["run", "--resume", "lat"]), ["latest"]);
}

#[test]
fn config_show_changed_omits_defaults() {
    let user = User::new();
    let keys = |args: &[&str]| {
        let rows = user.agentline(&[&["config", "show", "-o", "json"], args].concat()).json();
        rows.as_array().unwrap().iter().map(|row| row["key"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    user.write("../home/.config/agentline/config.toml", "agent = \"gemini\"\nmax_turns = 7\n");
    // A key that is set to its default has not changed.
    assert_eq!(keys(&["--changed"]), ["max_turns", "pass_env"]);
    assert!(keys(&[]).len() > 20);
    let text = User::new().env("AGENTLINE_PASS_ENV", "").agentline(&["config", "show", "--changed"]);
    assert_eq!((text.out.as_str(), text.err.as_str()), ("", "all settings have their defaults\n"));
}

#[test]
fn unknown_abilities_of_a_configured_agent_are_marked() {
    let user = User::new();
    user.write("../home/.config/agentline/config.toml", "[agents.mine]\ncommand = [\"my-agent\"]\n");
    let text = user.agentline(&["agents"]).out;
    let row = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    assert!(row("mine ").contains(" ? ") && row("mine ").contains(" yes"), "{text}");
    assert!(!row("claude ").contains('?') && text.contains("?: depends on the agent"), "{text}");
    let all = user.agentline(&["agents", "-o", "json"]).json();
    let mine = all.as_array().unwrap().iter().find(|agent| agent["id"] == "mine").unwrap();
    let abilities = &mine["abilities"][0];
    assert!(abilities["resumes"].is_null() && abilities["works"] == true, "{abilities}");
}

#[test]
fn available_agents_include_the_shipped_profiles() {
    let user = User::new();
    let table = "[agents.mine]\nprofile = \"qwen\"\ncommand = [\"my-qwen\"]\ntitle = \"Mine\"\n";
    user.write("../home/.config/agentline/config.toml", table);
    let text = user.agentline(&["agents", "--available"]).out;
    let row = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    for name in
        ["gemini ", "mine ", "copilot ", "qwen ", "goose ", "kimi ", "vibe ", "grok ", "droid ", "pi "]
    {
        assert!(!row(name).is_empty(), "{name}: {text}");
    }
    assert!(row("pi ").contains("pi-acp") && row("vibe ").contains("pypi:mistral-vibe"), "{text}");
    let all = user.agentline(&["agents", "--available", "-o", "json"]).json();
    let agent = |id: &str| all.as_array().unwrap().iter().find(|agent| agent["id"] == id).unwrap().clone();
    let qwen = agent("qwen");
    assert_eq!(
        (&qwen["settings"]["modes"]["bypass"]["mode"], &qwen["installed"]),
        (&json!("yolo"), &json!(false))
    );
    assert_eq!(
        (&agent("mine")["settings"]["usage"], &agent("mine")["title"]),
        (&json!("per-request"), &json!("Mine"))
    );
    let few = user.agentline(&["agents", "-o", "json"]).json();
    assert!(few.as_array().unwrap().iter().all(|agent| agent["id"] != "qwen"), "{few}");

    let missing = user.agentline(&["run", "-a", "qwen", "hi"]);
    assert_eq!(missing.code, 3, "{}", missing.err);
    assert!(
        missing.err.contains("run `agentline install qwen`, or `npm install -g @qwen-code/qwen-code`"),
        "{}",
        missing.err
    );
    let doctor = user.agentline(&["doctor", "vibe"]);
    assert!(
        doctor.out.contains("agentline install vibe") && doctor.out.contains("pip install mistral-vibe"),
        "{}",
        doctor.out
    );
    let wrong = User::new();
    let table = "[agents.mine]\ncommand = \"x\"\nprofile = \"qwn\"\nusage = \"some\"\nerrors = [{ text = \"x\" }, { text = \"*x\", kind = \"api_error\", in = \"text\" }]\nmcp_title = \"{tool}\"\nfiles = { \"a/b\" = \"x\" }\nmodes = { fast = \"y\" }\nsession_store = \"here\"\n";
    wrong.write("../home/.config/agentline/config.toml", table);
    let refused = wrong.agentline(&["run", "-a", "mine", "hi"]);
    assert_eq!(refused.code, 2, "{}", refused.err);
    for part in [
        "did you mean `qwen`?",
        "per-turn",
        "needs both `text` and `kind`",
        "would match ordinary answers",
        "must contain `{server}` and `{tool}`",
        "is not the name of a file",
        "is not a permission mode",
        "absolute path",
    ] {
        assert!(refused.err.contains(part), "{part}: {}", refused.err);
    }
}

#[cfg(unix)]
#[test]
fn reports_break_no_words_on_a_narrow_terminal() {
    let user = User::new();
    user.write("../home/.config/agentline/config.toml", "[agents.mine]\ncommand = [\"my-agent\"]\n");
    for args in [
        &["agents"][..],
        &["doctor"],
        &["policy", "explain", "-a", "gemini"],
        &["config", "show"],
        &["prices"],
    ] {
        let complete = user.agentline(args).out;
        let known: std::collections::BTreeSet<&str> = complete.split_whitespace().collect();
        let Some(done) = crate::cli::terminal::on_a_terminal_of(&user, 60, args) else { return };
        // Only a single word may be longer than the terminal, and is not divided here.
        let screen = crate::cli::terminal::screen(&done.out, usize::MAX);
        for line in screen.lines() {
            let is_one_word = line.split_whitespace().nth(1).is_none();
            assert!(line.chars().count() <= 60 || is_one_word, "{args:?}: {line}");
            for word in line.split_whitespace().filter(|word| !word.ends_with('…')) {
                assert!(known.contains(word), "{args:?}: `{word}` is broken in {line}");
            }
        }
    }
}

#[test]
fn help_and_version_are_printed_to_stdout() {
    let user = User::new();
    let version = user.agentline(&["--version"]);
    assert_eq!((version.out, version.code), (format!("agentline {}\n", env!("CARGO_PKG_VERSION")), 0));
    for (args, parts) in [
        (&["--help"][..], &["Examples:", "Exit codes:", "Environment:", "GEMINI_CLI_PATH"][..]),
        (&["run", "--help"], &["--permission-mode", "Exit codes:", "Timeouts and limits:"]),
        (&["replay", "-h"], &["--as", "--write-program"]),
    ] {
        let done = user.agentline(args);
        assert_eq!((done.code, done.err.as_str()), (0, ""), "{args:?}");
        for part in parts {
            assert!(done.out.contains(part), "{part} is missing in {args:?}: {}", done.out);
        }
        assert!(done.out.lines().all(|line| line.chars().count() <= 110), "{args:?}");
    }
}
