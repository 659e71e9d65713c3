//! Tests of the exact messages shown to users.

use super::{from_json, map};
use crate::{
    Problem, Problems,
    config::{Config, Layer, UnknownKeys},
};
use serde_json::{Value, json};

/// Returns all problems of a map, as the user sees them.
fn problems(value: Value) -> String {
    Config::from_map(map(value.clone())).map_or_else(|p| p.to_string(), |_| panic!("{value} is accepted"))
}

#[test]
fn each_invalid_value_has_its_message() {
    for (value, message) in [
        (
            json!({"timeout": 0}),
            "`timeout`: timeout must be > 0 (`0` from configuration)\n  hint: write seconds, or a duration such as `10m`, `1h30m`, `500ms`",
        ),
        (
            json!({"timeout": -5}),
            "`timeout`: timeout must be > 0 (`-5` from configuration)\n  hint: write seconds, or a duration such as `10m`, `1h30m`, `500ms`",
        ),
        (
            json!({"timeout_ms": 0}),
            "`timeout_ms`: timeout_ms must be > 0 (`0` from configuration)\n  hint: write milliseconds, or a duration such as `500ms`, `10m`, `1h30m`",
        ),
        (
            json!({"timeout": "soon"}),
            "`timeout`: timeout must be a duration (`\"soon\"` from configuration)\n  hint: write seconds, or a duration such as `10m`, `1h30m`, `500ms`",
        ),
        (
            json!({"timeout": "nan"}),
            "`timeout`: timeout must be a duration (`\"nan\"` from configuration)\n  hint: write seconds, or a duration such as `10m`, `1h30m`, `500ms`",
        ),
        (
            json!({"timeout": true}),
            "`timeout`: timeout must be a duration, got: bool (`true` from configuration)\n  hint: write seconds, or a duration such as `10m`, `1h30m`, `500ms`",
        ),
        (
            json!({"quiet_period_ms": -1}),
            "`quiet_period_ms`: quiet_period_ms must be >= 0 (`-1` from configuration)\n  hint: write milliseconds, or a duration such as `500ms`, `10m`, `1h30m`",
        ),
        (
            json!({"approval_mode": "bogus"}),
            "`approval_mode`: approval_mode must be one of ['auto_edit', 'default', 'plan', 'yolo'], got: 'bogus' (from configuration)\n  hint: write one of: auto_edit, default, plan, yolo",
        ),
        (
            json!({"approval_mode": 5}),
            "`approval_mode`: approval_mode must be one of ['auto_edit', 'default', 'plan', 'yolo'], got: 5 (from configuration)\n  hint: write one of: auto_edit, default, plan, yolo",
        ),
        (
            json!({"approval_mode": "it's"}),
            "`approval_mode`: approval_mode must be one of ['auto_edit', 'default', 'plan', 'yolo'], got: \"it's\" (from configuration)\n  hint: write one of: auto_edit, default, plan, yolo",
        ),
        (
            json!({"permission_mode": "accept"}),
            "`permission_mode`: permission_mode must be one of ['accept-edits', 'auto', 'bypass', 'default', 'deny', 'plan', 'prompt'], got: 'accept' (from configuration)\n  hint: write one of: accept-edits, auto, bypass, default, deny, plan, prompt",
        ),
        (
            json!({"permission_mode": "bypas"}),
            "`permission_mode`: permission_mode must be one of ['accept-edits', 'auto', 'bypass', 'default', 'deny', 'plan', 'prompt'], got: 'bypas' (from configuration)\n  hint: did you mean `bypass`?",
        ),
        (
            json!({"include_directories": "src"}),
            "`include_directories`: include_directories must be a list, got: str (`\"src\"` from configuration)\n  hint: write `include_directories = [\"../shared\"]`",
        ),
        (
            json!({"allowed_tools": {"a": 1}}),
            "`allowed_tools`: allowed_tools must be a list, got: dict (`{\"a\":1}` from configuration)\n  hint: write `allowed_tools = [\"Write(src/**)\"]`",
        ),
        (
            json!({"disable_tools": 1.5}),
            "`disable_tools`: disable_tools must be a list, got: float (`1.5` from configuration)\n  hint: write `disable_tools = [\"Bash(rm *)\"]`",
        ),
        (
            json!({"allow": ["Read", 3]}),
            "`allow.1`: allow.1 must be a string, got: int (`3` from configuration)\n  hint: put it in quotes",
        ),
        (
            json!({"model": 3}),
            "`model`: model must be a string, got: int (`3` from configuration)\n  hint: put it in quotes",
        ),
        (
            json!({"model": " "}),
            "`model`: model must not be empty (from configuration)\n  hint: remove it to use the default",
        ),
        (
            json!({"system_prompt": "a\u{0}b"}),
            "`system_prompt`: system_prompt contains a NUL byte (from configuration)\n  hint: remove it",
        ),
        (
            json!({"file_references": "yes"}),
            "`file_references`: file_references must be true or false, got: str (`\"yes\"` from configuration)\n  hint: write `true` or `false`, without quotes",
        ),
        (
            json!({"max_turns": -1}),
            "`max_turns`: max_turns must be a whole number, 0 or more (`-1` from configuration)\n  hint: remove it for no limit",
        ),
        (
            json!({"max_turns": 5e9}),
            "`max_turns`: max_turns is too large (`5000000000.0` from configuration)\n  hint: write a smaller number",
        ),
        (
            json!({"max_turns": "5"}),
            "`max_turns`: max_turns must be a whole number, got: str (`\"5\"` from configuration)\n  hint: write it without quotes",
        ),
        (
            json!({"max_line_bytes": 0}),
            "`max_line_bytes`: max_line_bytes must be > 0 (`0` from configuration)\n  hint: write a number of bytes such as `1048576`",
        ),
        (
            json!({"max_cost": -0.5}),
            "`max_cost`: max_cost must be an amount in US dollars, 0 or more (`-0.5` from configuration)\n  hint: write a number such as `0.50`",
        ),
        (
            json!({"surface": "stream"}),
            "`surface`: surface must be one of ['acp', 'app-server', 'auto', 'json', 'serve', 'stream-json'], got: 'stream' (from configuration)\n  hint: write one of: acp, app-server, auto, json, serve, stream-json",
        ),
        (
            json!({"trust": "ful"}),
            "`trust`: trust must be one of ['full', 'no', 'run'], got: 'ful' (from configuration)\n  hint: did you mean `full`?",
        ),
        (
            json!({"system_mode": "x"}),
            "`system_mode`: system_mode must be one of ['append', 'replace'], got: 'x' (from configuration)\n  hint: write one of: append, replace",
        ),
        (
            json!({"sandbox": ["vm"]}),
            "`sandbox`: sandbox must be a string, got: list (`[\"vm\"]` from configuration)\n  hint: put it in quotes",
        ),
        (
            json!({"mcp_servers": ["x"]}),
            "`mcp_servers`: missing `=`; write `name=URL` or `name=command args…` (from configuration)",
        ),
        (
            json!({"mcp_servers": {"a": {}}}),
            "`mcp_servers.a`: mcp_servers.a has neither `url` nor `command` (from configuration)\n  hint: write `url = \"…\"` for a remote server, or `command = \"…\"` for a local one",
        ),
        (
            json!({"mcp_servers": {"a": {"url": "u", "command": "c"}}}),
            "`mcp_servers.a`: mcp_servers.a has both `url` and `command` (from configuration)\n  hint: write `url = \"…\"` for a remote server, or `command = \"…\"` for a local one",
        ),
        (
            json!({"env": "A=1"}),
            "`env`: env must be a table, got: str (`[redacted]` from configuration)\n  hint: write `NAME = \"value\"` in a table",
        ),
        (
            json!({"env": ["hunter22hunter22"]}),
            "`env`: missing `=`; write `NAME=VALUE`, or use `pass_env` to pass on one of your variables (from configuration)",
        ),
        (
            json!({"env": {"A": ["hunter22"]}}),
            "`env.A`: env.A must be a string, got: list (`[redacted]` from configuration)\n  hint: put it in quotes",
        ),
        (
            json!({"apiKey": ["hunter22"]}),
            "`apiKey`: apiKey must be a string, got: list (`[redacted]` from configuration)\n  hint: put it in quotes",
        ),
        (
            json!({"agents": {"gemini": "x"}}),
            "`agents.gemini`: agents.gemini must be a table, got: str (`\"x\"` from configuration)\n  hint: write `[agents.gemini]` and its keys below it",
        ),
        (
            json!({"agents": {"gemini": {"program": 1}}}),
            "`agents.gemini.program`: agents.gemini.program must be a string, got: int (`1` from configuration)\n  hint: put it in quotes",
        ),
        (
            json!({"prices": {"models": {"m": {"input": 1}}}}),
            "`prices.models.m`: prices.models.m needs both `input` and `output` (from configuration)\n  hint: write US dollars per million tokens: `{ input = 1.25, output = 10.0 }`",
        ),
        (
            json!({"timeout": 60, "timeout_ms": 120_000}),
            "`timeout`: `timeout` and `timeout_ms` have different values: `60` and `120000` (from configuration)\n  hint: remove one of them: both set `timeout`",
        ),
        (
            json!({"apiKey": "hunter22", "api_key": "hunter23"}),
            "`apiKey`: `apiKey` and `api_key` have different values: `[redacted]` and `[redacted]` (from configuration)\n  hint: remove one of them: both set `api_key`",
        ),
        (
            json!({"yolo": true, "approval_mode": "plan"}),
            "`approval_mode`: `approval_mode` and `yolo` have different values: `\"plan\"` and `true` (from configuration)\n  hint: remove one of them: both set `permission_mode`",
        ),
        (
            json!({"yolo": false, "permission_mode": "bypass"}),
            "`yolo`: `yolo` and `permission_mode` have different values: `false` and `\"bypass\"` (from configuration)\n  hint: remove one of them: both set `permission_mode`",
        ),
        (
            json!({"yolo": "x"}),
            "`yolo`: yolo must be true or false, got: str (`\"x\"` from configuration)\n  hint: write `true` or `false`, without quotes",
        ),
    ] {
        assert_eq!(problems(value.clone()), message, "{value}");
    }
}

/// Returns the problems without their hints.
fn without_hints(layer: Layer) -> Vec<String> {
    let problems = Config::build(&[layer]).unwrap_err().0;
    problems.into_iter().map(|problem| Problem { hint: None, ..problem }.to_string()).collect()
}

#[test]
fn messages_about_files_name_the_key_once_and_no_type_of_a_language() {
    for (text, message) in [
        ("timeout = 0", "`timeout`: must be greater than 0, got `0` (from a.toml:1)"),
        ("\nmax_turns = '5'", "`max_turns`: must be a whole number, got `\"5\"` (from a.toml:2)"),
        ("allow = { a = 1 }", "`allow`: must be a list, got a table (from a.toml:1)"),
        ("allow = ['']", "`allow`: the rule is empty (from a.toml:1)"),
        ("model = 3", "`model`: must be a string, got `3` (from a.toml:1)"),
        ("api_key = 3", "`api_key`: must be a string, got a number (from a.toml:1)"),
        ("surface = 'foo'", "`surface`: `foo` is not a surface (from a.toml:1)"),
        ("trust = 3", "`trust`: `3` is not a trust level (from a.toml:1)"),
        ("agents.x.command = []", "`agents.x.command`: is empty (from a.toml:1)"),
    ] {
        assert_eq!(without_hints(Layer::file("a.toml", text)), [message], "{text}");
    }
    let hint = Config::build(&[Layer::file("a.toml", "surface = 'foo'")]).unwrap_err().0.remove(0).hint;
    assert_eq!(hint.unwrap(), "write one of: acp, app-server, auto, json, serve, stream-json");
}

#[test]
fn messages_about_flags_and_variables_show_the_value_as_typed() {
    let flag = |key: &str, value: Value| without_hints(Layer::flags(map(json!({ key: value }))));
    assert_eq!(flag("timeout", json!("-1")), ["`--timeout`: must be greater than 0, got `-1`"]);
    assert_eq!(flag("timeout", json!("soon")), ["`--timeout`: must be a duration, got `soon`"]);
    assert_eq!(flag("quiet_period_ms", json!("-1")), ["`--quiet-period`: must be 0 or more, got `-1`"]);
    assert_eq!(flag("surface", json!("a\u{1b}c")), ["`--surface`: `a\\u{1b}c` is not a surface"]);
    assert_eq!(flag("allow", json!([""])), ["`--allow`: the rule is empty"]);
    let variable = without_hints(Layer::environment([("AGENTLINE_MAX_TURNS", "many")]));
    assert_eq!(variable, ["`AGENTLINE_MAX_TURNS`: must be a whole number, 0 or more, got `many`"]);
}

#[test]
fn problems_of_valid_settings_are_reported_with_invalid_ones() {
    let flags = |value: Value| -> Vec<String> {
        let problems = Config::build(&[Layer::flags(map(value))]).unwrap_err().0;
        problems.into_iter().map(|problem| problem.key).collect()
    };
    let invalid = json!({"timeout": "-1", "agent": "gemni", "resume": "a", "session_id": "b", "model": "-x"});
    assert_eq!(flags(invalid), ["--timeout", "--model", "--session-id", "--agent"]);
    // A program may have registered the agent.
    let of_program = Config::from_map(map(json!({"timeout": 0, "agent": "my-own"}))).unwrap_err().0;
    assert_eq!(of_program.len(), 1, "{of_program:?}");
}

#[test]
fn agreeing_aliases_are_accepted() {
    from_json(json!({"timeout": 60, "timeout_ms": 60_000}));
    from_json(json!({"yolo": true, "approval_mode": "yolo", "permission_mode": "bypass"}));
    from_json(json!({"model": "m", "model_id": "m"}));
}

#[test]
fn problems_of_all_layers_are_reported_at_once() {
    let layers = [
        Layer::file("user.toml", "model = 'm'\ntimeout = 0\n\n[agents.gemini]\nprogram = 1\nargs = 2"),
        Layer::file("broken.toml", "a = \nb = [1,\nmodel = 'x'\n"),
        Layer::environment([("AGENTLINE_MAX_TURNS", "many"), ("AGENTLINE_TRUST", "maybe")]),
        Layer::flags(map(json!({"permission_mode": "x", "working_dir": ""}))),
        Layer::broken("/secret.toml", crate::Problem::new("config", "cannot be read")),
    ];
    let problems = Config::build(&layers).unwrap_err().0;
    let reported: Vec<(String, Option<String>)> = problems.into_iter().map(|p| (p.key, p.source)).collect();
    let expected = [
        ("agents.gemini.program", Some("user.toml:5")),
        ("agents.gemini.args", Some("user.toml:6")),
        ("timeout", Some("user.toml:2")),
        ("broken.toml:1:5", None),
    ];
    for (key, source) in expected {
        assert!(reported.contains(&(key.into(), source.map(str::to_owned))), "{key} in {reported:?}");
    }
    let rest = [
        ("AGENTLINE_MAX_TURNS", Some("environment")),
        ("AGENTLINE_TRUST", Some("environment")),
        ("--permission-mode", Some("flag")),
        ("--cwd", Some("flag")),
        ("config", None),
    ];
    assert_eq!(reported[reported.len() - 5..], rest.map(|(k, s)| (k.to_owned(), s.map(str::to_owned))));
}

#[test]
fn invalid_toml_is_reported_with_line_and_column() {
    let problem =
        Config::build(&[Layer::file("a.toml", "model = 'm'\n  timeout == 3\n")]).unwrap_err().to_string();
    assert_eq!(problem.lines().count(), 2, "{problem}");
    assert!(problem.starts_with("`a.toml:2:12`: invalid TOML: "), "{problem}");
}

#[test]
fn unknown_keys_cause_a_warning_with_the_nearest_key() {
    for (layer, message) in [
        (
            Layer::file("a.toml", "\ntimout = 3"),
            "`timout` is not a known key and is ignored (from a.toml:2); did you mean `timeout`?",
        ),
        (
            Layer::file("a.toml", "apprval_mode = 'x'"),
            "`apprval_mode` is not a known key and is ignored (from a.toml:1); did you mean `approval_mode`?",
        ),
        (
            Layer::file("a.toml", "gibberish = 3"),
            "`gibberish` is not a known key and is ignored (from a.toml:1)",
        ),
        (
            Layer::file("a.toml", "[agents.gemini]\nprogam = 'x'"),
            "`agents.gemini.progam` is not a known key and is ignored (from a.toml:2); did you mean `agents.gemini.program`?",
        ),
        (
            Layer::file("a.toml", "[prices.models.m]\ninput = 1\noutput = 1\ncache = 1"),
            "`prices.models.m.cache` is not a known key and is ignored (from a.toml:4); did you mean `prices.models.m.cached`?",
        ),
        (
            Layer::environment([("AGENTLINE_MODLE", "x")]),
            "`AGENTLINE_MODLE` is not a known key and is ignored (from environment); did you mean `AGENTLINE_MODEL`?",
        ),
        (
            Layer::map("provider", map(json!({"maxTurn": 3}))),
            "`maxTurn` is not a known key and is ignored (from provider); did you mean `max_turns`?",
        ),
    ] {
        let config = Config::build(&[layer]).unwrap();
        let reported: Vec<(&str, &str)> =
            config.notices.iter().map(|n| (n.code.as_str(), n.message.as_str())).collect();
        assert_eq!(reported, [("unknown_key", message)]);
    }
}

#[test]
fn unknown_keys_of_a_program_are_refused_with_the_nearest_key() {
    let hidden = || vec!["messages".to_owned()];
    for (table, key, hint) in [
        (json!({"maxTurn": 3}), "maxTurn", "did you mean `max_turns`?"),
        (json!({"agents": {"a": {"comand": "x"}}}), "agents.a.comand", "did you mean `agents.a.command`?"),
        (json!({"mesages": true}), "mesages", "did you mean `messages`?"),
        (json!({"gibberish": true}), "gibberish", "remove it; docs/configuration.md lists the keys"),
    ] {
        let layer = Layer::map("run", map(table)).other_names(hidden);
        let problems = Config::build(&[layer.clone().unknown_keys(UnknownKeys::Refuse)]).unwrap_err();
        let expected = Problem::new(key, "is not a known key").hint(hint).source("run");
        assert_eq!(problems, Problems::from(expected.clone()));
        // A program that tolerates foreign keys still refuses misspelled ones.
        let similar = Config::build(&[layer.unknown_keys(UnknownKeys::RefuseSimilar)]);
        assert_eq!(similar.is_err(), key != "gibberish", "{key}");
    }
    // Files of the user are not affected by the layer above them.
    let file = Layer::file("a.toml", "timout = 3");
    let run = Layer::map("run", map(json!({"model": "m"}))).unknown_keys(UnknownKeys::Refuse);
    assert_eq!(Config::build(&[run, file]).unwrap().notices.len(), 1);
}

#[test]
fn the_type_of_an_mcp_server_must_fit() {
    for (server, is_valid) in [
        (json!({"type": "http", "url": "http://x"}), true),
        (json!({"type": "stdio", "command": "x"}), true),
        (json!({"type": "stdio", "url": "http://x"}), false),
        (json!({"type": "sse", "url": "http://x"}), false),
    ] {
        let layer = Layer::map("run", map(json!({"mcp_servers": {"a": server}})));
        let built = Config::build(&[layer.unknown_keys(UnknownKeys::Refuse)]);
        assert_eq!(built.is_ok(), is_valid, "{server}");
        let problem = built.err().map(|problems| problems.to_string()).unwrap_or_default();
        assert!(is_valid || problem.contains("mcp_servers.a.type is `"), "{problem}");
    }
}

#[test]
fn problems_contain_no_secrets() {
    let secret = "sk-0123456789";
    for value in [
        json!({"api_key": [secret]}),
        json!({"env": {"A": [secret]}}),
        json!({"env": secret}),
        json!({"mcp_servers": {"a": {"url": [secret]}}}),
        json!({"mcp_servers": {"a": {"url": "x", "headers": secret}}}),
        json!({"mcp_servers": [secret]}),
        json!({"agents": {"gemini": {"env": {"A": [secret]}}}}),
        json!({"agents": {"gemini": {"env": [secret]}}}),
    ] {
        let text = problems(value.clone());
        assert!(!text.contains(secret), "{value}: {text}");
    }
    let broken = format!("api_key = '{secret}\nmodel = 'm'");
    let text = Config::build(&[Layer::file("a.toml", broken)]).unwrap_err().to_string();
    assert!(!text.contains(secret), "{text}");
}

#[test]
fn no_value_panics_and_every_error_names_the_key() {
    let odd = [
        json!(true),
        json!(-1),
        json!(1e308),
        json!(u64::MAX),
        json!(""),
        json!("'\"\u{0}é…"),
        json!("x".repeat(10_000)),
        json!([]),
        json!([[], {}, null, 1]),
        json!({}),
        json!({"": null, "a.b": {"c": [1]}, "models": {"m": 1}}),
    ];
    for key in crate::config::keys() {
        for value in &odd {
            let table = map(json!({ key.name: value }));
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            for layer in [
                Layer::map("m", table.clone()),
                Layer::flags(table),
                Layer::environment([(key.variable(), text)]),
            ] {
                let Err(problems) = Config::build(&[layer]) else { continue };
                for problem in problems.0 {
                    let flag = key.flag.map(|flag| format!("--{flag}"));
                    let is_named = problem.key.starts_with(key.name)
                        || problem.key == key.variable()
                        || Some(&problem.key) == flag.as_ref();
                    assert!(is_named && problem.to_string().len() < 600, "{}: {problem}", key.name);
                }
            }
        }
    }
}

#[test]
fn problems_name_the_key_that_the_caller_wrote() {
    let problems = |value: Value| -> Vec<String> {
        let mut config = Config::from_map(map(value)).unwrap();
        config.request.prompt = "hi".into();
        let plan = crate::Plan::of(config.request, &*crate::agents::find("gemini").unwrap());
        plan.unwrap_err().0.into_iter().map(|problem| problem.to_string()).collect()
    };
    let found = problems(json!({"sessionId": "x", "resume": "y"}));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("`sessionId`: cannot be used together with `resume`"), "{found:?}");
    let found = problems(json!({"session_id": "x", "resume": "y"}));
    assert!(found[0].starts_with("`session_id`: cannot be used together with `resume`"), "{found:?}");
    // A name is replaced wherever the problem quotes it.
    let mut written = crate::written_keys::WrittenKeys::default();
    written.record("deny", "disable_tools");
    let flags = Layer::flags(map(json!({"session_id": "x", "resume": "y", "model": "-m"})));
    let mut config = Config::build(&[flags]).unwrap();
    config.request.prompt = "hi".into();
    let plan = crate::Plan::of(config.request, &*crate::agents::find("gemini").unwrap());
    let found: Vec<String> = plan.unwrap_err().0.iter().map(ToString::to_string).collect();
    assert!(found[0].starts_with("`--model`: must not begin with `-` (`-m`)"), "{found:?}");
    assert!(found[1].starts_with("`--session-id`: cannot be used together with `--resume`"), "{found:?}");
    let problem = crate::Problem::new("deny", "deny must be a list, see `deny`")
        .hint("write `deny = []`, or omit `deny`");
    let shown = written.name(problem).to_string();
    assert_eq!(
        shown,
        "`disable_tools`: disable_tools must be a list, see `disable_tools`\n  hint: write `deny = []`, or omit `disable_tools`"
    );
}
