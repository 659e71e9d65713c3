//! Tests of merging layers: order, names, locations, and the built-in defaults.

mod adapter;
mod messages;
mod untrusted;

use super::*;
use crate::{McpServer, Sandbox, Surface, Trust};
use serde_json::json;
use std::time::Duration;

/// Returns the map of an object literal.
fn map(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        other => panic!("not an object: {other}"),
    }
}

fn from_toml(text: &str) -> Config {
    Config::build(&[Layer::file("agentline.toml", text)])
        .unwrap_or_else(|problems| panic!("{text}: {problems}"))
}

fn from_json(value: Value) -> Config {
    Config::from_map(map(value.clone())).unwrap_or_else(|problems| panic!("{value}: {problems}"))
}

/// Returns the example of a key as a typed value.
fn example(key: &ConfigKey) -> Value {
    let table: toml::Table = toml::from_str(&format!("x = {}", key.example)).unwrap();
    serde_json::to_value(&table["x"]).unwrap()
}

/// Removes the origins and notices, to compare only the settings.
fn settings(config: Config) -> Config {
    Config { origins: BTreeMap::new(), files: BTreeSet::new(), notices: Vec::new(), ..config }
}

#[test]
fn built_in_layer_equals_request_defaults() {
    let config = Config::build(&[]).unwrap();
    assert_eq!(config.request, RunRequest::default());
    assert_eq!(config.notices, []);
    let blank = Config::blank();
    for key in keys() {
        let has_default = !matches!(key.get(&blank), Value::Null | Value::Object(_)) && key.name != "prompt";
        assert_eq!(
            config.origins.get(key.name).map(String::as_str),
            has_default.then_some("default"),
            "`{}` must be in default.toml exactly when it has a default",
            key.name
        );
        let written = DEFAULTS
            .lines()
            .any(|line| line.trim_start_matches("# ").starts_with(&format!("{} = ", key.name)));
        assert!(written, "default.toml must name `{}`", key.name);
    }
}

#[test]
fn examples_in_the_built_in_file_are_valid() {
    let text: String = DEFAULTS
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            Some(rest)
                if rest.starts_with('[') || rest.split_once(" = ").is_some_and(|(k, _)| !k.contains(' ')) =>
            {
                rest
            }
            _ => line,
        })
        .filter(|line| !matches!(*line, "agents = {}" | "prices = {}"))
        .map(|line| format!("{line}\n"))
        .collect();
    let config = from_toml(&text);
    assert_eq!(config.notices, []);
    assert_eq!(config.agents["mine"].command.as_deref().unwrap(), ["mine"]);
    assert_eq!(config.request.limits.max_cost, Some(0.5));
    assert_eq!(config.agents["gemini"].env["NODE_OPTIONS"], "--max-old-space-size=8192");
    assert_eq!(config.prices().of("my-model").unwrap().cached, Some(0.1));
}

#[test]
fn settings_without_effect_are_reported() {
    let config = from_toml(
        "[agents.gemini]\nargs = ['--x']\ncommand = ['a', 'b']\nsurface = 'json'\n[agents.mine]\ncommand = 'm'",
    );
    let messages: Vec<&str> = config.notices.iter().map(|notice| &*notice.message).collect();
    assert!(messages.len() == 1 && messages[0].contains("`agents.gemini.command`"), "{messages:?}");
}

#[test]
fn every_key_is_read_from_files_maps_flags_and_variables() {
    let nothing = settings(Config::build(&[]).unwrap());
    for key in keys() {
        let value = example(key);
        let variable = match &value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let table = map(json!({ key.name: value }));
        let from_file = from_toml(&format!("{} = {}", key.name, key.example));
        assert_eq!(from_file.notices, [], "{}", key.name);
        let from_file = settings(from_file);
        assert_ne!(from_file, nothing, "`{}` is ignored", key.name);
        for layer in [
            Layer::map("map", table.clone()),
            Layer::flags(table),
            Layer::environment([(key.variable(), variable)]),
        ] {
            let name = layer.name.clone();
            let config = Config::build(&[layer]).unwrap_or_else(|p| panic!("{} from {name}: {p}", key.name));
            assert_eq!(settings(config), from_file, "`{}` from {name}", key.name);
        }
    }
}

#[test]
fn every_run_key_sets_only_its_own_field() {
    fn changed(path: &str, before: &Value, after: &Value) -> Vec<String> {
        match (before, after) {
            (Value::Object(before), Value::Object(after)) if path.is_empty() || path == "limits" => {
                let was = |name| before.get(name).unwrap_or(&Value::Null);
                after.iter().flat_map(|(name, value)| changed(name, was(name), value)).collect()
            }
            (Value::Object(before), Value::Object(after)) if path == "cache" => {
                let key = |name: &str| if name == "on" { "cache".into() } else { format!("cache_{name}") };
                after.iter().flat_map(|(name, value)| changed(&key(name), &before[name], value)).collect()
            }
            _ if before != after => vec![path.to_owned()],
            _ => vec![],
        }
    }
    let as_json = |config: &Config| serde_json::to_value(&config.request).unwrap();
    let nothing = as_json(&Config::build(&[]).unwrap());
    let elsewhere = ["agents", "prices", "prices_file", "supervisor", "isolation", "agent_bin"];
    for key in keys() {
        let fields = changed("", &nothing, &as_json(&from_json(json!({ key.name: example(key) }))));
        if elsewhere.contains(&key.name) {
            assert_eq!(fields, Vec::<String>::new(), "{}", key.name);
        } else {
            assert_eq!(fields, [key.name.trim_end_matches("_ms")], "{}", key.name);
        }
    }
}

#[test]
fn higher_layer_overrides_every_key() {
    for key in keys() {
        let value = map(json!({ key.name: example(key) }));
        // Each layer in turn is the highest one with the key.
        let layers = |highest: usize| -> Vec<Layer> {
            (0..=highest).map(|i| Layer::map(format!("layer {i}"), value.clone())).collect()
        };
        for highest in 0..3 {
            let config = Config::build(&layers(highest)).unwrap();
            let of_key = |name: &&String| {
                let name = name.as_str();
                name == key.name
                    || name.starts_with(&format!("{}.", key.name))
                    || key.name == "agent_bin" && name.starts_with("agents.")
            };
            let names: Vec<&String> = config.origins.keys().filter(of_key).collect();
            assert!(!names.is_empty(), "{}", key.name);
            for name in names {
                assert_eq!(config.origins[name], format!("layer {highest}"), "{name}");
            }
        }
    }
}

#[test]
fn layers_apply_in_the_given_order() {
    let user = Layer::file("user", "model = 'a'\ntimeout = 1\nname = 'a'\nidle_timeout = 1");
    let workspace = Layer::file("workspace", "model = 'b'\ntimeout = 2\nname = 'b'");
    let environment =
        Layer::environment([("AGENTLINE_MODEL", "c"), ("AGENTLINE_TIMEOUT", "3"), ("PATH", "/bin")]);
    let flags = Layer::flags(map(json!({"model": "d"})));
    let config = Config::build(&[user, workspace, environment, flags]).unwrap();
    assert_eq!(config.request.model.as_deref(), Some("d"));
    assert_eq!(config.request.timeout, Duration::from_secs(3));
    assert_eq!(config.request.name.as_deref(), Some("b"));
    assert_eq!(config.request.idle_timeout, Duration::from_secs(1));
    let origin = |key: &str| config.origins[key].as_str();
    assert_eq!(
        ["model", "timeout", "name", "idle_timeout", "agent"].map(origin),
        ["flag", "environment", "workspace", "user", "default"]
    );
}

#[test]
fn higher_layer_wins_under_any_alias() {
    let below = Layer::map(
        "below",
        map(json!({"timeout": 5, "approval_mode": "plan", "model": "a", "allow": ["Read"]})),
    );
    let above = Layer::map(
        "above",
        map(json!({"timeout_ms": 1500, "yolo": true, "model_id": "b", "allowedTools": ["Write"]})),
    );
    let config = Config::build(&[below.clone(), above.clone()]).unwrap();
    assert_eq!(config.request.timeout, Duration::from_millis(1500));
    assert_eq!(config.request.permission_mode, PermissionMode::Bypass);
    assert_eq!(config.request.model.as_deref(), Some("b"));
    assert_eq!(config.request.allow, ["Write"]);
    let config = Config::build(&[above, below]).unwrap();
    assert_eq!(config.request.timeout, Duration::from_secs(5));
    assert_eq!(config.request.permission_mode, PermissionMode::Plan);
}

#[test]
fn tables_are_merged_by_entry() {
    let user = "env = { A = '1', B = '1' }\n[agents.gemini]\nprogram = 'g'\nenv = { X = 'x' }\n[prices.models.m]\ninput = 1\noutput = 2";
    let above = "env = { B = '2' }\n[agents.gemini-cli]\nenv = { Y = 'y' }\n[prices.models.'gemini-2.5-pro']\ninput = 3\noutput = 4";
    let config = Config::build(&[Layer::file("user", user), Layer::file("above", above)]).unwrap();
    assert_eq!(
        config.request.env,
        BTreeMap::from([("A", "1"), ("B", "2")].map(|(k, v)| (k.into(), v.into())))
    );
    assert_eq!(config.agents["gemini"].program, Some("g".into()));
    assert_eq!(config.agents["gemini"].env.len(), 2);
    assert_eq!(config.prices().of("m").unwrap().input, 1.0);
    assert_eq!(config.prices().of("gemini-2.5-pro").unwrap().output, 4.0);
    assert!(config.prices().of("gemini-2.5-flash").is_some(), "the built-in rows stay");
    assert_eq!(config.origins["env.A"], "user");
    assert_eq!(config.origins["env.B"], "above");
    assert_eq!(config.origins["agents.gemini.program"], "user");
}

#[test]
fn every_alias_is_equivalent_to_its_key() {
    for (alias, value, canonical) in [
        ("model_id", json!("m"), json!({"model": "m"})),
        ("cwd", json!("/w"), json!({"working_dir": "/w"})),
        ("approval_mode", json!("auto_edit"), json!({"permission_mode": "accept-edits"})),
        ("yolo", json!(true), json!({"permission_mode": "bypass"})),
        ("allowed_tools", json!(["Read"]), json!({"allow": ["Read"]})),
        ("disable_tools", json!(["Bash"]), json!({"deny": ["Bash"]})),
        ("timeout_ms", json!(1500), json!({"timeout": 1.5})),
        ("idle_timeout_ms", json!(1500), json!({"idle_timeout": 1.5})),
        ("tool_timeout_ms", json!(1500), json!({"tool_timeout": "1500ms"})),
        ("startup_timeout_s", json!(30.0), json!({"startup_timeout": 30})),
        ("startup_timeout_ms", json!("45s"), json!({"startup_timeout": 45})),
        ("retry_patience_ms", json!("1500"), json!({"retry_patience": 1.5})),
        ("max_budget_usd", json!(1.5), json!({"max_cost": 1.5})),
        ("apiKey", json!("k"), json!({"api_key": "k"})),
        ("googleCloudProject", json!("p"), json!({"google_cloud_project": "p"})),
        ("useVertexAI", json!(true), json!({"use_vertex_ai": true})),
        ("emit_thought_chunks", json!(true), json!({"emit_thoughts": true})),
        ("ask_tools", json!(["Bash"]), json!({"ask": ["Bash"]})),
    ] {
        assert!(keys().iter().any(|key| key.aliases.contains(&alias)), "{alias}");
        assert_eq!(from_json(json!({ alias: value })), from_json(canonical), "{alias}");
    }
    let tested = 18;
    assert_eq!(
        keys().iter().map(|key| key.aliases.len()).sum::<usize>(),
        tested,
        "a new alias needs a row above"
    );
}

#[test]
fn every_key_is_accepted_in_camel_case_and_with_dashes() {
    for key in keys() {
        let mut letters = key.name.chars();
        let mut camel = String::new();
        while let Some(c) = letters.next() {
            if c == '_' {
                camel.extend(letters.next().map(|c| c.to_ascii_uppercase()))
            } else {
                camel.push(c)
            }
        }
        for spelled in [camel, key.name.replace('_', "-")] {
            let config = from_json(json!({ spelled.clone(): example(key) }));
            assert_eq!(config, from_json(json!({ key.name: example(key) })), "{spelled}");
        }
    }
}

#[test]
fn every_mode_name_is_accepted() {
    for (word, mode) in [
        ("default", PermissionMode::Default),
        ("suggest", PermissionMode::Default),
        ("deny", PermissionMode::Deny),
        ("prompt", PermissionMode::Prompt),
        ("auto_edit", PermissionMode::AcceptEdits),
        ("acceptEdits", PermissionMode::AcceptEdits),
        ("accept-edits", PermissionMode::AcceptEdits),
        ("yolo", PermissionMode::Bypass),
        ("full_auto", PermissionMode::Bypass),
        ("auto", PermissionMode::Auto),
        ("bypassPermissions", PermissionMode::Bypass),
        ("bypass", PermissionMode::Bypass),
        ("plan", PermissionMode::Plan),
    ] {
        for key in ["approval_mode", "permission_mode", "permissionMode"] {
            assert_eq!(from_json(json!({ key: word })).request.permission_mode, mode, "{key} {word}");
        }
    }
}

#[test]
fn sandbox_is_a_boolean_or_a_program() {
    for (value, sandbox) in [
        (json!(true), Sandbox::On),
        (json!(false), Sandbox::Off),
        (json!("none"), Sandbox::Off),
        (json!("false"), Sandbox::Off),
        (json!("true"), Sandbox::On),
        (json!("docker"), Sandbox::By("docker".into())),
        (json!("podman"), Sandbox::By("podman".into())),
    ] {
        assert_eq!(from_json(json!({ "sandbox": value })).request.sandbox, sandbox, "{value}");
    }
}

#[test]
fn null_counts_as_unset() {
    assert_eq!(
        from_json(json!({"model": null, "timeout": null, "nonsense": null})),
        Config::build(&[]).unwrap()
    );
}

#[test]
fn variables_are_parsed_by_the_type_of_the_key() {
    let layer = Layer::environment([
        ("AGENTLINE_ALLOW", "Write(src/**), Bash(echo a,b)"),
        ("AGENTLINE_INCLUDE_DIRECTORIES", r#"["/a,b", "/c"]"#),
        ("AGENTLINE_FILE_REFERENCES", "yes"),
        ("AGENTLINE_USE_VERTEX_AI", "0"),
        ("AGENTLINE_SANDBOX", "1"),
        ("AGENTLINE_MAX_TURNS", "7"),
        ("AGENTLINE_MAX_COST", "$0.25"),
        ("AGENTLINE_TIMEOUT", "1h"),
        ("AGENTLINE_SYSTEM_PROMPT", "[\"be brief\"]"),
        ("AGENTLINE_ENV", "A=1,B=x=y"),
        ("AGENTLINE_MCP_SERVERS", "docs=https://x.test/,run=npx -y server"),
        ("AGENTLINE_SURFACE", "stream-json"),
        ("AGENTLINE_MODEL", ""),
        ("AGENTLINE_CONFIG", "/somewhere.toml"),
        ("AGENTLINE_REAL_AGENTS", "off"),
        ("AGENTLINE_RUN_MARK", "x"),
    ]);
    let config = Config::build(&[layer]).unwrap();
    let request = &config.request;
    assert_eq!(config.notices, []);
    assert_eq!(request.allow, ["Write(src/**)", "Bash(echo a,b)"]);
    assert_eq!(request.include_directories, [PathBuf::from("/a,b"), "/c".into()]);
    assert_eq!((request.file_references, &request.agent_options["use_vertex_ai"]), (true, &json!(false)));
    assert_eq!(request.sandbox, Sandbox::On);
    assert_eq!((request.limits.max_turns, request.limits.max_cost), (Some(7), Some(0.25)));
    assert_eq!(request.timeout, Duration::from_secs(3600));
    assert_eq!(request.system_prompt.as_deref(), Some("[\"be brief\"]"));
    assert_eq!(request.env["B"], "x=y");
    assert!(matches!(&request.mcp_servers["run"], McpServer::Command { args, .. } if args.len() == 2));
    assert_eq!(request.surface, Some(Surface::StreamJson));
    assert_eq!(request.model, None);
}

#[test]
fn relative_paths_resolve_from_the_directory_of_their_file() {
    let text = "working_dir = '.'\nrecord = './t.jsonl'\nprompt_file = '/abs'\ninclude_directories = ['../x', '~/y']\n[agents.gemini]\nprogram = 'bin/gemini'\n[agents.other]\nprogram = 'other'";
    let layer = Layer::file("/w/agentline.toml", text).base("/w").home("/home/me");
    let config = Config::build(&[layer]).unwrap();
    let request = &config.request;
    assert_eq!(request.working_dir, Some("/w".into()));
    assert_eq!(request.record, Some("/w/t.jsonl".into()));
    assert_eq!(request.prompt_file, Some("/abs".into()));
    assert_eq!(request.include_directories, [PathBuf::from("/w/../x"), "/home/me/y".into()]);
    assert_eq!(config.agents["gemini"].program, Some("/w/bin/gemini".into()));
    assert_eq!(config.agents["other"].program, Some("other".into()));
    assert_eq!(from_toml("working_dir = 'sub'").request.working_dir, Some("sub".into()));
}

#[test]
fn agent_bin_sets_the_program_unless_a_higher_layer_does() {
    let bin = Layer::file("bin", "agent_bin = 'mine'");
    let table = Layer::file("table", "[agents.gemini]\nprogram = 'other'");
    let config = Config::build(&[table.clone(), bin.clone()]).unwrap();
    assert_eq!(config.agents["gemini"].program, Some("mine".into()));
    assert_eq!(config.origins["agents.gemini.program"], "bin");
    assert!(config.is_from_file("agents.gemini.program"));
    let run = Layer::map("run", map(json!({"agent_bin": "mine"})));
    assert!(!Config::build(&[bin.clone(), run]).unwrap().is_from_file("agents.gemini.program"));
    let config = Config::build(&[bin, table]).unwrap();
    assert_eq!(config.agents["gemini"].program, Some("other".into()));
    let both = Layer::file("both", "agent_bin = 'a'\n[agents.gemini-cli]\nprogram = 'b'");
    assert_eq!(
        Config::build(&[both]).unwrap_err().to_string(),
        "`agent_bin`: `agent_bin` and `agents.gemini.program` have different values (from both)\n  hint: remove one of them: both set the same option"
    );
    let preset = from_json(json!({"agent": "gemini_acp", "agent_bin": "g"}));
    assert_eq!(preset.agents["gemini"].program, Some("g".into()));
}

#[test]
fn yolo_false_reverts_only_lower_layers() {
    let bypass = Layer::map("below", map(json!({"permission_mode": "bypass"})));
    let plan = Layer::map("below", map(json!({"permission_mode": "plan"})));
    let off = Layer::map("above", map(json!({"yolo": false})));
    let mode = |layers: &[Layer]| Config::build(layers).unwrap().request.permission_mode;
    assert_eq!(mode(&[bypass, off.clone()]), PermissionMode::Default);
    assert_eq!(mode(&[plan, off]), PermissionMode::Plan);
    assert_eq!(
        mode(&[Layer::map("m", map(json!({"yolo": true, "approval_mode": "full_auto"})))]),
        PermissionMode::Bypass
    );
    assert_eq!(
        mode(&[Layer::map("m", map(json!({"yolo": false, "approval_mode": "plan"})))]),
        PermissionMode::Plan
    );
}

#[test]
fn show_lists_value_and_source_of_every_key_without_secrets() {
    let text = "apiKey = 'sk-1234567890'\nmodel = 'm'\nenv = { GEMINI_API_KEY = 'sk-1234567890', DEBUG = 1 }\n[mcp_servers.docs]\nurl = 'https://me:sk-1234567890@x.test/sk-1234567890?k=sk-1234567890'\nheaders = { X = 'sk-1234567890' }\n[mcp_servers.run]\ncommand = 'npx'\nargs = ['--token', 'sk-1234567890', '--api-key=sk-1234567890', 'plain']\nenv = { A_TOKEN = 'sk-1234567890' }\n[agents.gemini]\nprogram = '/g'\nenv = { MY_SECRET = 'sk-1234567890' }\n[prices.models.'m-1.5']\ninput = 1\noutput = 2";
    let config =
        Config::build(&[Layer::file("a.toml", text), Layer::flags(map(json!({"trust": "full"})))]).unwrap();
    assert_eq!(config.request.trust, Trust::Full);
    let rows = config.show();
    let shown = serde_json::to_string(&rows).unwrap();
    assert!(!shown.contains("sk-1234567890"), "{shown}");
    let row = |key: &str| {
        let row = rows.iter().find(|row| row.key == key).unwrap_or_else(|| panic!("{key} in {shown}"));
        (row.value.to_string(), row.source.as_str())
    };
    for (key, value, source) in [
        ("agent", r#""gemini""#, "default"),
        ("model", r#""m""#, "a.toml"),
        ("trust", r#""full""#, "flag"),
        ("timeout", r#""10m""#, "default"),
        ("surface", r#""auto""#, "default"),
        ("max_cost", "null", "default"),
        ("api_key", r#""[redacted]""#, "a.toml"),
        ("env.GEMINI_API_KEY", r#""[redacted]""#, "a.toml"),
        ("env.DEBUG", r#""1""#, "a.toml"),
        ("agents.gemini.program", r#""/g""#, "a.toml"),
        ("agents.gemini.env", r#"{"MY_SECRET":"[redacted]"}"#, "a.toml"),
        ("mcp_servers.docs", r#"{"headers":{"X":"[redacted]"},"url":"https://x.test/[redacted]"}"#, "a.toml"),
        (
            "mcp_servers.run",
            r#"{"args":["--token","[redacted]","--api-key=[redacted]","plain"],"command":"npx","env":{"A_TOKEN":"[redacted]"}}"#,
            "a.toml",
        ),
        (r#"prices.models."m-1.5""#, r#"{"input":1.0,"output":2.0}"#, "a.toml"),
    ] {
        assert_eq!(row(key), (value.to_owned(), source), "{key}");
    }
    let plain = keys().iter().filter(|key| key.depth == 0 && key.name != "agent_bin");
    assert_eq!(rows.iter().filter(|row| !row.key.contains('.')).count(), plain.count());
}

#[test]
fn settings_override_the_price_file() {
    for head in ["", "prices."] {
        let text =
            format!("[{head}models.m]\ninput = 1\noutput = 2\n[{head}models.n]\ninput = 3\noutput = 4");
        let settings = Layer::file("agentline.toml", "[prices.models.m]\ninput = 5\noutput = 6");
        let config = Config::build(&[Layer::prices("p.toml", text), settings]).unwrap();
        let input = |model: &str| config.prices().of(model).map(|price| price.input);
        assert_eq!((input("m"), input("n")), (Some(5.0), Some(3.0)));
        assert!(input("gemini-2.5-pro").is_some(), "the built-in rows stay");
        assert_eq!(config.origins["prices.models.n"], "p.toml");
    }
    for (text, expected) in
        [("[models.m]\ninput = 'x'", "p.toml"), ("[models", "p.toml"), ("[modls.m]\ninput = 1", "modls")]
    {
        let message = match Config::build(&[Layer::prices("p.toml", text)]) {
            Ok(config) => format!("{:?}", config.notices),
            Err(problems) => format!("{problems:?}"),
        };
        assert!(message.contains(expected), "{text}: {message}");
    }
}
