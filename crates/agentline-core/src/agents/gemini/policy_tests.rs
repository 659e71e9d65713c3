//! Tests of compiling rules to the policy file.

use super::*;

fn compiled(request: &RunRequest) -> Vec<Entry> {
    let policy = compile(request, Surface::Acp).unwrap().unwrap();
    assert_eq!(read(&policy.to_toml().unwrap()), policy);
    policy.rule
}

/// Parses a policy file as strictly as the CLI does.
fn read(text: &str) -> PolicyFile {
    toml::from_str(text).unwrap()
}

fn refused(key: &str, rule: &str, surface: Surface) -> Problem {
    let request = RunRequest::new("x");
    let request = if key == "allow" { request.allow(rule) } else { request.deny(rule) };
    compile(&request, surface).unwrap_err().remove(0)
}

proptest::proptest! {
    #[test]
    fn the_text_of_a_policy_file_parses_to_its_rules(words in proptest::collection::vec(".*", 0..6), priority: u16) {
        let entry = |word: &String| Entry {
            tool_name: word.clone(),
            mcp_name: Some(word.clone()),
            decision: "allow".into(),
            priority,
            args_pattern: Some(word.clone()),
            modes: Some(vec![word.clone()]),
            allow_redirection: Some(true),
            deny_message: Some(word.clone()),
        };
        let policy = PolicyFile { rule: words.iter().map(entry).collect() };
        proptest::prop_assert_eq!(read(&policy.to_toml().unwrap()), policy);
    }
}

#[test]
fn without_rules_there_is_no_file() {
    assert_eq!(compile(&RunRequest::new("x"), Surface::Acp).unwrap(), None);
}

#[test]
fn last_rule_is_the_canary() {
    let entries = compiled(&RunRequest::new("x").allow("WebFetch"));
    assert_eq!(entries.last().unwrap().tool_name, CANARY);
    assert_eq!(entries.len(), 2);
    assert!(PROOF.contains(FILE) && BROKEN.contains(FILE));
}

#[test]
fn deny_outranks_allow_and_allow_does_not_apply_in_plan_mode() {
    let entries = compiled(&RunRequest::new("x").allow("Write").deny("Bash").deny("Edit"));
    let by_tool: BTreeMap<&str, &Entry> = entries.iter().map(|e| (e.tool_name.as_str(), e)).collect();
    assert_eq!((by_tool["write_file"].priority, by_tool[SHELL].priority), (ALLOW_RANK, DENY_RANK));
    assert_eq!(by_tool["write_file"].modes.as_deref().unwrap(), WORKING_MODES);
    assert_eq!(by_tool[SHELL].modes, None);
}

#[test]
fn tools_with_pattern_rules_ask_on_every_use() {
    let row = |e: &Entry| (e.tool_name.clone(), e.decision.clone(), e.priority, e.args_pattern.clone());
    let ask_entry =
        |tool: &str| (tool.to_owned(), "ask_user".to_owned(), ANSWERED_RANK, Some(EVERY_USE.to_owned()));
    for rules in [
        RunRequest::new("x").deny("Bash(rm *)"),
        RunRequest::new("x").allow("Bash(git *)").deny("Bash"),
        RunRequest::new("x").allow("Bash").deny("run_shell_command(rm)"),
        RunRequest::new("x").ask("Bash"),
    ] {
        let found: Vec<_> = compiled(&rules).iter().map(row).collect();
        assert_eq!(found[..found.len() - 1], [ask_entry(SHELL)], "{rules:?}");
    }
    let reads = compiled(&RunRequest::new("x").deny("Read(secret/**)").deny("*").allow("Write(src/**)"));
    let found: Vec<_> = reads.iter().map(row).collect();
    assert_eq!(found[..3], [ask_entry("read_file"), ask_entry("read_many_files"), ask_entry("write_file")]);
    assert_eq!(reads[0].modes, None, "the rule also applies in plan mode");
    assert_eq!((&*reads[3].tool_name, reads[3].priority), ("*", DENY_RANK));
}

#[test]
fn more_specific_rules_have_higher_priority() {
    let ranked = |request: &RunRequest| -> Vec<(String, u16)> {
        compiled(request).iter().map(|e| (e.decision.clone(), e.priority)).collect()
    };
    let rows = |rows: &[(&str, u16)]| -> Vec<(String, u16)> {
        rows.iter().map(|(decision, priority)| ((*decision).to_owned(), *priority)).collect()
    };
    let request = RunRequest::new("x").deny("mcp__a").allow("mcp__a__get");
    assert_eq!(ranked(&request), rows(&[("deny", 997), ("allow", 998), ("deny", 0)]));
    let request = RunRequest::new("x").deny("*").allow("WebFetch");
    assert_eq!(ranked(&request), rows(&[("deny", 997), ("allow", 998), ("deny", 0)]));
    // These already agree with the fixed priorities, or cannot match the same use.
    for request in [
        RunRequest::new("x").deny("Bash").allow("*"),
        RunRequest::new("x").deny("Bash").allow("WebFetch"),
        RunRequest::new("x").deny("mcp__a").allow("mcp__b__get"),
        RunRequest::new("x").deny("mcp__a__get").allow("mcp__a__put"),
    ] {
        let found = compiled(&request);
        assert_eq!((found[0].priority, found[1].priority), (DENY_RANK, ALLOW_RANK), "{request:?}");
    }
}

#[test]
fn rules_for_servers_native_names_and_whole_tools() {
    let request = RunRequest::new("x").allow("mcp__my-srv__get").allow("mcp__other").allow("Bash");
    let entries = compiled(&request.deny("mcp_a_b"));
    let row = |e: &Entry| (e.tool_name.clone(), e.mcp_name.clone(), e.allow_redirection);
    assert_eq!(row(&entries[1]), ("get".into(), Some("my-srv".into()), None));
    assert_eq!(row(&entries[2]), ("*".into(), Some("other".into()), None));
    assert_eq!(row(&entries[3]), (SHELL.into(), None, Some(true)));
    assert_eq!(row(&entries[0]), ("mcp_a_b".into(), None, None));
}

#[test]
fn plan_mode_denies_exiting_it() {
    let request = RunRequest::new("x").permission_mode(PermissionMode::Plan);
    assert_eq!(compiled(&request)[0].tool_name, "exit_plan_mode");
}

#[test]
fn caller_tools_are_allowed_in_plan_mode() {
    let mut request = RunRequest::new("x").permission_mode(PermissionMode::Plan);
    request.own_tools = vec!["mcp__shop__count".into()];
    let own = &compiled(&request)[0];
    assert_eq!((own.tool_name.as_str(), own.decision.as_str()), ("mcp_shop_count", "allow"));
    assert_eq!(own.modes.as_deref(), Some(&["plan".to_owned()][..]));
    // In other modes these tools are not denied, so no file is needed.
    request.permission_mode = PermissionMode::Default;
    assert_eq!(compile(&request, Surface::Acp).unwrap(), None);
}

#[test]
fn unenforceable_rules_are_refused_with_a_hint() {
    for (key, rule, word) in [
        ("allow", "WebFetch(domain:x.org)", "as a whole"),
        ("deny", "Grep(secret)", "as a whole"),
        ("deny", "Glob(secret)", "as a whole"),
        ("deny", "LS(secret)", "as a whole"),
        ("allow", "Write(*/../x)", "`..` after"),
        ("allow", "mcp__s__t(x)", "patterns"),
        ("deny", "mcp____t", "name"),
        ("allow", "Wirte(src)", "no tool"),
    ] {
        let problem = refused(key, rule, Surface::Acp);
        assert_eq!(problem.key, key);
        assert!(problem.message.contains(word), "{rule}: {problem}");
        assert!(problem.hint.is_some(), "{rule}");
    }
    assert!(refused("allow", "Writ", Surface::Acp).hint.unwrap().contains("did you mean `Write`?"));
    for surface in [Surface::Json, Surface::StreamJson] {
        for (key, rule) in [("deny", "Bash(rm *)"), ("allow", "Write(src/**)"), ("deny", "Read(secret/**)")] {
            let problem = refused(key, rule, surface);
            assert!(problem.message.contains(rule) && problem.message.contains(surface.name()), "{problem}");
            assert!(problem.hint.unwrap().contains("`acp`"), "{rule}");
        }
    }
}

/// Compares the times for two numbers of rules, because a loaded machine slows down both.
#[test]
fn compile_time_is_linear_in_the_number_of_rules() {
    let rules = |count: usize| {
        let mut request = RunRequest::new("x").deny("mcp__s0");
        for number in 0..count / 7 {
            request = request
                .deny(format!("Bash(program{number} *)"))
                .allow(format!("Write(src/file{number}/**)"))
                .deny(format!("Read(secret/{number})"))
                .ask(format!("Bash(other{number} x *)"))
                .allow(format!("mcp__s{number}__get"))
                .deny(format!("mcp__s{number}__put"))
                .deny(format!("Edit(gen/{number}.rs)"));
        }
        request
    };
    let time = |count: usize, times: usize| {
        let request = rules(count);
        let times = (0..times).map(|_| {
            let started_at = std::time::Instant::now();
            compile(&request, Surface::Acp).unwrap().unwrap().to_toml().unwrap();
            let policy = crate::Policy::new(&request, std::path::Path::new("/ws")).unwrap();
            let policy = policy.also_at(std::path::Path::new("/real/ws"));
            let ask = crate::PermissionRequest {
                tool: "Bash".into(),
                kind: crate::ToolKind::Shell,
                command: Some("git log; program77 x && ls".into()),
                ..Default::default()
            };
            let decision = policy.decide(&ask, &|path| policy.resolve(path));
            assert_eq!(decision.ruling().rule.as_deref(), Some("Bash(program77 *)"));
            started_at.elapsed()
        });
        times.min().unwrap()
    };
    let (few, many) = (time(7_000, 3), time(70_000, 1));
    assert!(many < few * 40, "{few:?} for 7,000 rules, {many:?} for 70,000");
}
