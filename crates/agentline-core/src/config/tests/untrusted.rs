//! Tests the effects of a workspace's file that the user does not fully trust.

use super::*;
use crate::{
    Rule,
    config::{UntrustedUse, chosen_workspace},
};

fn workspace(text: &str) -> Layer {
    Layer::file("w/agentline.toml", text).of_workspace()
}

fn user(text: &str) -> Layer {
    Layer::file("config.toml", text)
}

fn build(layers: &[Layer]) -> Config {
    Config::build(layers).unwrap_or_else(|problems| panic!("{problems}"))
}

/// Returns the only warning, which is about the workspace's file.
fn warning(config: &Config) -> &str {
    let [notice] = config.notices.as_slice() else { panic!("not one warning: {:?}", config.notices) };
    assert_eq!(notice.code, WORKSPACE_CONFIG);
    assert_eq!(notice.message.lines().count(), 1);
    &notice.message
}

#[test]
fn every_key_has_the_documented_trust_level() {
    let keys = |used: UntrustedUse| -> Vec<&str> {
        keys().iter().filter(|key| key.untrusted == used).map(|key| key.name).collect()
    };
    assert_eq!(keys(UntrustedUse::Accept), ["agent", "surface", "model", "name"]);
    assert_eq!(
        keys(UntrustedUse::Lower),
        [
            "repair_turns",
            "max_rounds",
            "timeout",
            "idle_timeout",
            "tool_timeout",
            "startup_timeout",
            "deadline",
            "retry_patience",
            "max_turns",
            "max_tool_calls",
            "max_tokens",
            "max_output_tokens",
            "max_cost"
        ]
    );
    assert_eq!(keys(UntrustedUse::Add), ["deny", "ask"]);
    assert_eq!(keys(UntrustedUse::Stricter), ["permission_mode"]);
    assert_eq!(UntrustedUse::default(), UntrustedUse::Ignore);
}

#[test]
fn workspace_may_choose_an_agent_but_not_a_version() {
    let config = build(&[workspace("agent = 'codex@0.155.1'")]);
    assert_eq!(config.request.agent, "gemini");
    assert!(warning(&config).contains("ignored `agent`"), "{}", warning(&config));
    assert_eq!(build(&[user("agent = 'codex@0.155.1'")]).request.agent, "codex@0.155.1");
    let preset = build(&[user("agent = 'gemini_acp@0.24.0'")]);
    assert_eq!(
        preset.request.permission_mode,
        PermissionMode::Auto,
        "a preset has its defaults at any version"
    );
}

/// Paths in an untrusted file would have to stay inside the workspace; currently no accepted key takes a path.
#[test]
fn accepted_keys_take_no_paths() {
    for key in keys().iter().filter(|key| key.untrusted != UntrustedUse::Ignore) {
        assert!(!key.takes().contains("path") && !key.takes().contains("table"), "{}", key.name);
    }
}

#[test]
fn other_keys_are_ignored_under_every_alias_and_not_parsed() {
    let nothing = settings(build(&[]));
    for key in keys().iter().filter(|key| key.untrusted == UntrustedUse::Ignore) {
        for name in std::iter::once(key.name).chain(key.aliases.iter().copied()) {
            for value in [key.example, "0.5"] {
                let config = build(&[workspace(&format!("{name} = {value}"))]);
                assert!(warning(&config).contains(&format!("ignored `{name}`")), "{name}");
                assert_eq!(config.origins.get(key.name), Config::build(&[]).unwrap().origins.get(key.name));
                assert_eq!(settings(config), nothing, "{name}");
            }
        }
    }
}

#[test]
fn full_trust_of_the_user_accepts_every_key() {
    for key in keys().iter().filter(|key| key.name != "trust") {
        let text = format!("{} = {}", key.name, key.example);
        for trust in
            [Layer::trusted(), user("trust = 'full'"), Layer::environment([("AGENTLINE_TRUST", "full")])]
        {
            let config = build(&[trust, workspace(&text)]);
            assert_eq!(config.notices, [], "{}", key.name);
            let trusted =
                Config { request: RunRequest { trust: Trust::Run, ..config.request.clone() }, ..config };
            assert_eq!(settings(trusted), settings(from_toml(&text)), "{}", key.name);
        }
    }
}

#[test]
fn a_workspace_cannot_trust_itself() {
    let config = build(&[workspace("trust = 'full'\nrecord = 'x'\nenv = { A = 'b' }")]);
    assert_eq!(config.request, RunRequest::default());
    assert!(warning(&config).contains("ignored `env`, `record`, `trust`"), "{}", warning(&config));
}

#[test]
fn trust_no_reads_the_file_like_trust_run() {
    let text = "record = 'x'\nmodel = 'm'\ntimeout = 5\ntrust = 'run'";
    let config = build(&[user("trust = 'no'"), workspace(text)]);
    assert_eq!(config.request.trust, Trust::No);
    assert_eq!((config.request.model.as_deref(), config.request.record), (Some("m"), None));
    assert_eq!(config.request.timeout, Duration::from_secs(5));
}

#[test]
fn stored_trust_replaces_only_the_default() {
    let file = || workspace("record = 'x'");
    let config = build(&[Layer::trusted(), file()]);
    assert!(config.is_trust_stored() && config.request.record.is_some());
    assert_eq!(config.origins["trust"], "agentline trust");
    for word in ["run", "no"] {
        let by_user = [Layer::trusted(), user(&format!("trust = '{word}'")), file()];
        let by_flag = [Layer::trusted(), file(), Layer::flags(map(json!({ "trust": word })))];
        for layers in [&by_user, &by_flag] {
            let config = build(layers);
            assert!(!config.is_trust_stored() && config.request.record.is_none(), "{word}");
            assert_ne!(config.request.trust, Trust::Full, "{word}");
        }
    }
    let config = build(&[Layer::trusted(), workspace("trust = 'full'"), user("trust = 'full'")]);
    assert!(!config.is_trust_stored(), "an explicit setting is not stored trust");
}

#[test]
fn changed_workspace_is_reported_unless_the_user_sets_trust() {
    let lost = || Layer::trust_lost(Notice::new("trust_changed", "changed"));
    let config = build(&[lost(), workspace("record = 'x'")]);
    let codes: Vec<&str> = config.notices.iter().map(|notice| notice.code.as_str()).collect();
    assert_eq!(codes, [WORKSPACE_CONFIG, "trust_changed"]);
    assert_eq!(config.request, RunRequest::default());
    let config = build(&[lost(), user("trust = 'run'")]);
    assert_eq!(config.notices, []);
}

#[test]
fn limits_and_timeouts_can_only_be_lowered() {
    for key in keys().iter().filter(|key| key.untrusted == UntrustedUse::Lower) {
        let (low, middle, high) = match key.name {
            "deadline" => ("4000000000", "5000000000", "6000000000"),
            _ => ("1", "2", "3"),
        };
        let value = |config: &Config| key.get(config);
        let of = |text: &str| value(&from_toml(&format!("{} = {text}", key.name)));
        let users = user(&format!("{} = {middle}", key.name));
        let both = |text: &str| build(&[users.clone(), workspace(&format!("{} = {text}", key.name))]);
        let lowered = both(low);
        assert_eq!(value(&lowered), of(low), "{}", key.name);
        assert_eq!(lowered.origins[key.name], "w/agentline.toml");
        assert!(warning(&lowered).contains(&format!("lowered `{}`", key.name)));
        let raised = both(high);
        assert_eq!(value(&raised), of(middle), "{}", key.name);
        assert_eq!(raised.origins[key.name], "config.toml");
        assert!(warning(&raised).contains(&format!("ignored `{}`", key.name)));
        assert_eq!(both(middle).notices, [], "{}: the same value changes nothing", key.name);
        // The built-in default counts as well; no value means no limit.
        let alone = build(&[workspace(&format!("{} = {low}", key.name))]);
        assert_eq!(value(&alone), of(low), "{}", key.name);
        // The user's flags always win.
        let flag = Layer::flags(map(json!({ key.name: high.parse::<u64>().unwrap() })));
        let config = build(&[users.clone(), workspace(&format!("{} = {low}", key.name)), flag]);
        assert_eq!((value(&config), config.notices.len()), (of(high), 0), "{}", key.name);
    }
    let config = build(&[workspace("timeout = '11m'\nidle_timeout = '1h'")]);
    assert_eq!(config.request, RunRequest::default());
}

#[test]
fn aliases_have_the_trust_level_of_their_key() {
    let users = user("max_cost = 1\ntimeout = 60\ndeny = ['Bash']");
    let config = build(&[
        users,
        workspace(
            "max_budget_usd = 5\ntimeout_ms = 90000\nyolo = true\nallowedTools = ['Write']\n\
             disable_tools = ['WebFetch']\nmodel_id = 'm'",
        ),
    ]);
    assert_eq!(config.request.limits.max_cost, Some(1.0));
    assert_eq!(config.request.timeout, Duration::from_secs(60));
    assert_eq!(config.request.permission_mode, PermissionMode::Default);
    assert_eq!(config.request.allow.len(), 0);
    assert_eq!(config.request.deny, ["Bash", "WebFetch"]);
    assert_eq!(config.request.model.as_deref(), Some("m"));
}

#[test]
fn invalid_values_of_accepted_keys_are_problems() {
    for text in ["timeout = 0", "max_turns = 'x'", "permission_mode = 'root'", "deny = 'Bash'", "timeout = "]
    {
        let problems = Config::build(&[workspace(text)]).unwrap_err();
        assert!(problems.to_string().contains("w/agentline.toml"), "{problems}");
    }
}

#[test]
fn workspace_rules_are_added_and_replace_none() {
    let joined = |rules: &[Rule]| rules.iter().map(Rule::as_str).collect::<Vec<_>>().join(" ");
    let rules = |config: &Config| (joined(&config.request.deny), joined(&config.request.ask));
    let users = || user("deny = ['Bash(rm *)']\nask = ['WebFetch']");
    for text in ["deny = []\nask = []", "disable_tools = []\nask_tools = []"] {
        let config = build(&[users(), workspace(text)]);
        assert_eq!(rules(&config), ("Bash(rm *)".into(), "WebFetch".into()), "{text}");
        assert_eq!(config.notices, []);
    }
    let config = build(&[users(), workspace("deny = ['Write', 'Bash(rm *)']\nask = ['Edit']")]);
    assert_eq!(rules(&config), ("Bash(rm *) Edit Write".into(), "WebFetch".into()));
    assert!(warning(&config).contains("added rules to `deny`"), "{}", warning(&config));
    let config = build(&[users(), workspace("deny = ['Write']")]);
    assert_eq!(config.origins["deny"], "config.toml, w/agentline.toml");
    let flags = Layer::flags(map(json!({"deny": ["Read"]})));
    let config = build(&[users(), workspace("deny = ['Write']"), flags]);
    assert_eq!(
        config.request.deny,
        ["Read", "Write"],
        "a flag replaces the user's file, not the workspace's rules"
    );
    let config = build(&[workspace("deny = ['Write']\nallow = ['Bash']")]);
    assert_eq!((rules(&config).0, config.request.allow.len()), ("Write".into(), 0));
    assert_eq!(config.origins["deny"], "w/agentline.toml");
}

#[test]
fn mode_applies_only_if_stricter() {
    use PermissionMode::{AcceptEdits, Auto, Bypass, Default, Deny, Plan, Prompt};
    let all = [Plan, Deny, Default, Prompt, AcceptEdits, Auto, Bypass];
    let stricter = [
        (Plan, vec![Default, Prompt, AcceptEdits, Auto, Bypass]),
        (Deny, vec![Default, Prompt, AcceptEdits, Auto, Bypass]),
        (Default, vec![AcceptEdits, Auto, Bypass]),
        (Prompt, vec![Auto, Bypass]),
        (AcceptEdits, vec![Auto, Bypass]),
        (Auto, vec![Bypass]),
        (Bypass, vec![]),
    ];
    for (requested, looser) in stricter {
        for users in all {
            let layers = [
                user(&format!("permission_mode = '{}'", users.name())),
                workspace(&format!("permission_mode = '{}'", requested.name())),
            ];
            let config = build(&layers);
            let expected = if looser.contains(&users) { requested } else { users };
            assert_eq!(config.request.permission_mode, expected, "{users:?} and {requested:?}");
            assert_eq!(config.notices.is_empty(), users == requested, "{users:?} and {requested:?}");
        }
    }
    let config = build(&[user("yolo = true"), workspace("yolo = false")]);
    assert_eq!(config.request.permission_mode, Default);
    assert!(warning(&config).contains("restricted `permission_mode`"));
    let flags = Layer::flags(map(json!({"permission_mode": "bypass"})));
    let config = build(&[workspace("permission_mode = 'plan'"), flags]);
    assert_eq!((config.request.permission_mode, config.notices.len()), (Bypass, 0));
}

#[test]
fn workspace_preset_grants_no_more_than_its_own_keys() {
    let mut agent = None;
    let agents = agents::built_in();
    for name in agents.iter().flat_map(|agent| agent.info().names()) {
        if agents.iter().any(|agent| agent.preset(name).is_some_and(|preset| preset.contains("pass_env"))) {
            agent = Some(name);
        }
    }
    let name = agent.expect("an agent has a preset");
    let text = format!("agent = '{name}'");
    let trusted = build(&[user(&text)]).request;
    assert!(trusted.permission_mode == PermissionMode::Auto && trusted.pass_env == ["*"], "{trusted:?}");
    let config = build(&[workspace(&text)]);
    assert_eq!(config.request.permission_mode, PermissionMode::Default);
    assert!(config.request.pass_env.is_empty());
    assert_eq!(config.request.surface, trusted.surface);
}

#[test]
fn link_out_of_the_workspace_needs_full_trust() {
    let link = || workspace("model = 'm'").only_trusted(Notice::new(WORKSPACE_CONFIG, "is a link"));
    let config = build(&[link()]);
    assert_eq!((config.request.model.as_deref(), warning(&config)), (None, "is a link"));
    let config = build(&[Layer::trusted(), link()]);
    assert_eq!((config.request.model.as_deref(), config.notices.len()), (Some("m"), 0));
}

#[test]
fn messages_stay_on_one_line_for_any_file_and_key_names() {
    let text = "\"\\u001b[31mx\\nwarning: fine\" = 1\nrecord = 'x'";
    let config = build(&[Layer::file("w\n\u{1b}/agentline.toml", text).of_workspace()]);
    assert_eq!(config.notices.len(), 2);
    for notice in &config.notices {
        assert!(!notice.message.contains(|c: char| c.is_control()), "{:?}", notice.message);
    }
}

#[test]
fn only_the_user_can_set_the_workspace() {
    let layers = [user("working_dir = '/a'"), workspace("working_dir = '/b'")];
    assert_eq!(chosen_workspace(&layers), Some("/a".into()));
    assert_eq!(chosen_workspace(&[workspace("working_dir = '/b'")]), None);
    let map = |key: &str| Layer::map("run", [(key.to_owned(), "/c".into())].into_iter().collect());
    for (key, chosen) in [("workingDir", Some("/c")), ("cwd", Some("/c")), ("prompt", Some("/a"))] {
        assert_eq!(
            chosen_workspace(&[user("working_dir = '/a'"), map(key)]),
            chosen.map(Into::into),
            "{key}"
        );
    }
}

#[test]
fn parsing_a_junk_file_is_cheap() {
    use std::fmt::Write;
    let mut unknown = String::new();
    let mut rules = String::from("deny = [");
    for i in 0..70_000 {
        let _ = writeln!(unknown, "k{i} = 1");
        let _ = write!(rules, "'T{i}',");
    }
    let began = std::time::Instant::now();
    let config = build(&[workspace(&unknown)]);
    assert_eq!(config.notices.len(), 21, "20 unknown keys and a count of the others");
    assert!(config.notices[20].message.contains("69980 more unknown keys"), "{:?}", config.notices[20]);
    let config = build(&[workspace(&format!("{rules}]"))]);
    assert_eq!(config.request.deny.len(), 70_000);
    let problems = Config::build(&[workspace(&"= =\n".repeat(70_000))]).unwrap_err();
    assert!(problems.0.len() <= 20, "{}", problems.0.len());
    // Quadratic lookups would take minutes.
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}

#[test]
fn workspace_ask_rule_does_not_outrank_user_deny_rule() {
    let file = workspace("ask = ['Bash(rm -r build)']");
    let config = build(&[user("deny = ['Bash(rm *)']"), file.clone()]);
    assert_eq!(config.request.deny, ["Bash(rm *)", "Bash(rm -r build)"]);
    assert!(config.request.ask.is_empty());
    assert!(warning(&config).contains("added rules to `deny`"));
    let config = build(&[file]);
    assert_eq!((config.request.deny.len(), config.request.ask.len()), (0, 1));
}
