//! Tables of rules, modes and tool uses with the expected decision, its origin and the deciding rule.

mod commands;

use super::*;
use crate::{Diff, McpServer};
use serde_json::value::RawValue;

/// A tool use in short form.
#[derive(Clone, Copy, Debug)]
enum Use {
    /// A tool and its file.
    File(&'static str, &'static str),
    /// A shell command.
    Bash(&'static str),
    /// A command of an agent whose shell tool has another name.
    OwnShell(&'static str),
    /// A tool of an MCP server.
    Mcp(&'static str, &'static str),
    /// A tool whose server is known only from its name.
    McpName(&'static str),
    /// A web page.
    Fetch(&'static str),
    /// An edit by a tool that is specific to the agent.
    OwnEdit(&'static str),
    /// Any other tool.
    Tool(&'static str, ToolKind),
}

fn ask(it: Use) -> PermissionRequest {
    let mut ask = PermissionRequest::default();
    let mut set = |tool: &str, native: &str, kind| {
        ask.tool = tool.into();
        ask.native_tool = native.into();
        ask.kind = kind;
    };
    match it {
        Use::File(tool, path) => {
            let kind = match tool {
                "Write" => ToolKind::Write,
                "Edit" => ToolKind::Edit,
                _ => ToolKind::Read,
            };
            set(tool, &format!("native_{}", tool.to_lowercase()), kind);
            ask.paths = vec![path.into()];
        }
        Use::Bash(command) => {
            set("Bash", "native_shell", ToolKind::Shell);
            ask.command = Some(command.into());
        }
        Use::OwnShell(command) => {
            set("native_shell", "native_shell", ToolKind::Other);
            ask.command = Some(command.into());
        }
        Use::Mcp(server, tool) => {
            set(tool, tool, ToolKind::Mcp);
            ask.server = Some(server.into());
        }
        Use::McpName(tool) => set(tool, tool, ToolKind::Mcp),
        Use::Fetch(url) => {
            set("WebFetch", "native_fetch", ToolKind::Web);
            ask.input = RawValue::from_string(format!("{{\"url\":\"{url}\"}}")).ok();
        }
        Use::OwnEdit(path) => {
            set("apply_patch", "apply_patch", ToolKind::Edit);
            ask.paths = vec![path.into()];
        }
        Use::Tool(tool, kind) => set(tool, tool, kind),
    }
    ask
}

/// Builds a policy from rules such as `+Write(src/**)`, `-Bash`, `?Bash(git *)`, separated by spaces outside
/// parentheses.
fn policy(mode: PermissionMode, rules: &str) -> Policy {
    let mut request = RunRequest::new("x").permission_mode(mode).include_dir("/inc");
    let mut depth = 0;
    let words = rules.split(|c: char| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ' ' && depth == 0
    });
    for word in words.filter(|w| !w.is_empty()) {
        let (sign, rule) = word.split_at(1);
        request = match sign {
            "+" => request.allow(rule),
            "-" => request.deny(rule),
            _ => request.ask(rule),
        };
    }
    Policy::new(&request, Path::new("/ws")).unwrap().own_server("agentline")
}

/// Resolves paths in the tests: `link` points out of the workspace, and `in` points to `src`.
fn resolve(policy: &Policy, path: &str) -> ResolvedPath {
    let at = policy.resolve(path);
    match at.from_workspace.as_deref() {
        Some(rest) if rest == "link" || rest.starts_with("link/") => {
            ResolvedPath::outside(format!("/out/{rest}"))
        }
        Some(rest) if rest.starts_with("in/") => {
            let rest = rest.replacen("in/", "src/", 1);
            ResolvedPath::in_workspace(format!("/ws/{rest}"), rest)
        }
        _ => at,
    }
}

fn decided(policy: &Policy, ask: &PermissionRequest) -> String {
    let decision = policy.decide(ask, &|path| resolve(policy, path));
    let ruling = decision.ruling();
    assert_eq!(ruling.allow, decision.name() == "allow", "{decision:?}");
    let reason = ruling.rule.clone().or_else(|| ruling.reason.clone()).unwrap_or_default();
    format!("{} {} {reason}", decision.name(), ruling.by)
}

use PermissionMode as M;
use Use::{Bash, Fetch, File, Mcp, McpName, OwnEdit, OwnShell, Tool};

const RULES: &[(&str, Use, &str)] = &[
    // By tool: canonical names, the agent's own names, and `*`.
    ("+Write", File("Write", "a"), "allow rule Write"),
    ("+Write", File("Edit", "a"), "ask mode mode"),
    ("+native_write", File("Write", "a"), "allow rule native_write"),
    ("-native_write +Write", File("Write", "a"), "deny rule native_write"),
    ("+*", File("Write", "a"), "allow rule *"),
    ("+Web*", Fetch("https://a.b/"), "allow rule Web*"),
    ("-* +Write", File("Write", "a"), "allow rule Write"),
    ("-* +Write", Bash("ls"), "deny rule *"),
    ("-Web* +WebFetch", Fetch("https://a.b/"), "allow rule WebFetch"),
    ("+MultiEdit", File("Edit", "a"), "allow rule MultiEdit"),
    ("+Shell(git *)", Bash("git log"), "allow rule Shell(git *)"),
    // On a tie: deny, then ask, then allow.
    ("+Write -Write", File("Write", "a"), "deny rule Write"),
    ("+Write ?Write", File("Write", "a"), "ask rule Write"),
    ("?Write -Write", File("Write", "a"), "deny rule Write"),
    ("+Write(src/**) -Write(src/**)", File("Write", "src/a"), "deny rule Write(src/**)"),
    // By path: the more specific rule decides, whichever list it is in.
    ("+Write(src/**)", File("Write", "src/a"), "allow rule Write(src/**)"),
    ("+Write(src/**)", File("Write", "/ws/src/a"), "allow rule Write(src/**)"),
    ("+Write(/ws/src/**)", File("Write", "src/a"), "allow rule Write(/ws/src/**)"),
    ("+Write(src/)", File("Write", "src/a/b"), "allow rule Write(src/)"),
    ("+Write(src/**)", File("Write", "a"), "ask mode mode"),
    ("+Write(src/**)", File("Write", "src/../a"), "ask mode mode"),
    ("+Write(src/**)", File("Write", "./x/../src/a"), "allow rule Write(src/**)"),
    ("+Write(src/**)", File("Write", "src/../../etc/x"), "deny agentline outside_workspace"),
    ("-Write +Write(src/**)", File("Write", "src/a"), "allow rule Write(src/**)"),
    ("-Write +Write(src/**)", File("Write", "a"), "deny rule Write"),
    ("+Write -Write(src/**)", File("Write", "src/a"), "deny rule Write(src/**)"),
    ("+Write(src/**) -Write(src/gen/**)", File("Write", "src/gen/a"), "deny rule Write(src/gen/**)"),
    ("-Write(src/**) +Write(src/gen/**)", File("Write", "src/gen/a"), "allow rule Write(src/gen/**)"),
    ("+Write(src/**) ?Write(src/a)", File("Write", "src/a"), "ask rule Write(src/a)"),
    ("-Write(/ws/src/**) +Write(src/gen/**)", File("Write", "src/gen/a"), "allow rule Write(src/gen/**)"),
    ("-Read(**/.env)", File("Read", "a/b/.env"), "deny rule Read(**/.env)"),
    ("-Read(**/.env)", File("Read", "/elsewhere/.env"), "deny rule Read(**/.env)"),
    ("+Read(**/.env)", File("Read", "/elsewhere/.env"), "ask mode mode"),
    ("+Edit(src/**)", OwnEdit("src/a"), "allow rule Edit(src/**)"),
    ("+Write(src/**)", OwnEdit("src/a"), "allow rule Write(src/**)"),
    ("-Write(src/**) +Edit", OwnEdit("src/a"), "deny rule Write(src/**)"),
    // Links count by their target. For `deny` rules, the path as written counts too.
    ("+Write(link/**)", File("Write", "link/x"), "deny agentline outside_workspace"),
    ("+Write(src/**)", File("Write", "in/x"), "allow rule Write(src/**)"),
    ("+Write(in/**)", File("Write", "in/x"), "ask mode mode"),
    ("-Write(in/**) +Write", File("Write", "in/x"), "deny rule Write(in/**)"),
    ("-Write(src/**) +Write", File("Write", "in/x"), "deny rule Write(src/**)"),
    // Outside the workspace, a rule must name the location.
    ("+Write", File("Write", "/etc/x"), "deny agentline outside_workspace"),
    ("+*", File("Write", "../x"), "deny agentline outside_workspace"),
    ("?Write", File("Write", "/etc/x"), "deny agentline outside_workspace"),
    ("+Write(/etc/**)", File("Write", "/etc/x"), "allow rule Write(/etc/**)"),
    ("+Write(../x)", File("Write", "/x"), "allow rule Write(../x)"),
    ("?Write(/etc/**)", File("Write", "/etc/x"), "ask rule Write(/etc/**)"),
    ("+Write(/inc/**)", File("Write", "/inc/x"), "allow rule Write(/inc/**)"),
    ("+Write", File("Write", "/inc/x"), "allow rule Write"),
    ("+Read", File("Read", "/etc/x"), "allow rule Read"),
    // Commands: every part must be allowed, and one denied part is enough to deny the command.
    ("+Bash(git *)", Bash("git status"), "allow rule Bash(git *)"),
    ("+Bash(git *)", Bash("git"), "allow rule Bash(git *)"),
    ("+Bash(git:*)", Bash("git log"), "allow rule Bash(git:*)"),
    ("+Bash(git *)", Bash("gitx"), "ask mode mode"),
    ("+Bash(git *)", Bash("git log && rm x"), "ask mode mode"),
    ("+Bash(git *) +Bash(tail*)", Bash("git log 2>&1 | tail -3"), "allow rule Bash(git *)"),
    ("+Bash(git *)", Bash("git log; git push"), "allow rule Bash(git *)"),
    ("+Bash(git *) -Bash(rm *)", Bash("git log; rm x"), "deny rule Bash(rm *)"),
    ("+Bash -Bash(rm *)", Bash("ls && /bin/rm -rf x"), "deny rule Bash(rm *)"),
    ("+Bash -Bash(rm *)", Bash("bash -c 'rm x'"), "deny rule Bash(rm *)"),
    ("+Bash -Bash(rm *)", Bash("echo $(rm x)"), "deny rule Bash(rm *)"),
    ("+Bash(git *)", Bash("git log $(rm x)"), "ask mode mode"),
    ("+Bash(git *)", Bash("git log `rm x`"), "ask mode mode"),
    ("+Bash(git *)", Bash("git status 'a[0$(touch y)]'; git status ${!_}"), "ask mode mode"),
    ("+Bash(git *)", Bash("git log ${!x}"), "ask mode mode"),
    ("+Bash(git *)", Bash("git log ${ touch y;}"), "ask mode mode"),
    ("+Bash(git *)", Bash("git log ${|touch y;}"), "ask mode mode"),
    ("+Bash(git *)", Bash("git log ${x:y}"), "ask mode mode"),
    ("+Bash(echo *)", Bash("echo 'a[0$(touch y)]' && echo ${!_}"), "ask mode mode"),
    ("+Bash(printf *)", Bash("printf -v 'a[0$(touch y)]' x"), "ask mode mode"),
    ("+Bash(printf *)", Bash("printf -v'a[0$(touch y)]' x"), "ask mode mode"),
    ("+Bash(printf *)", Bash("printf '%s' x"), "allow rule Bash(printf *)"),
    ("+Bash(test *)", Bash("test -v 'a[0$(touch y)]'"), "ask mode mode"),
    ("+Bash([ *)", Bash("[ -v 'a[0$(touch y)]' ]"), "ask mode mode"),
    ("+Bash(declare *)", Bash("declare -a 'a=($(touch y))'"), "ask mode mode"),
    ("+Bash(export *)", Bash("export 'a[$(touch y)]=1'"), "ask mode mode"),
    ("+Bash(read *)", Bash("read 'a[0$(touch y)]'"), "ask mode mode"),
    ("+Bash(read *)", Bash("read 'a[0`touch y`]'"), "ask mode mode"),
    ("+Bash(unset *)", Bash("unset 'a[0$(touch y)]'"), "ask mode mode"),
    ("+Bash(wait *)", Bash("wait -p 'a[0$(touch y)]'"), "ask mode mode"),
    ("+Bash(let *)", Bash("let 'a[0$(touch y)]'"), "ask mode mode"),
    ("+Bash(mapfile *)", Bash("mapfile 'a[0$(touch y)]'"), "ask mode mode"),
    ("+Bash(getopts *)", Bash("getopts a 'a[0$(touch y)]'"), "ask mode mode"),
    ("+Bash(bash *)", Bash("bash -c \"$X\""), "ask mode mode"),
    ("+Bash(git *)", Bash("git log > /etc/x"), "ask mode mode"),
    ("+Bash(git *)", Bash("git log # it's\nrm x # it's"), "ask mode mode"),
    ("+Bash(make > log)", Bash("make > log"), "allow rule Bash(make > log)"),
    ("+Bash", Bash("git log $(rm x)"), "allow rule Bash"),
    ("+Bash(git *) -Bash(git push *)", Bash("git push origin"), "deny rule Bash(git push *)"),
    ("-Bash(git push *) +Bash(git push)", Bash("git push"), "allow rule Bash(git push)"),
    ("-Bash(rm *) +Bash(rm -r build)", Bash("rm -r build"), "allow rule Bash(rm -r build)"),
    ("-Bash(rm *) +Bash(rm -r build)", Bash("rm -r build; rm x"), "deny rule Bash(rm *)"),
    ("+Bash(git *) ?Bash(git push *)", Bash("git log; git push"), "ask rule Bash(git push *)"),
    ("-Bash +Bash(git *)", Bash("git log"), "allow rule Bash(git *)"),
    ("-Bash +Bash(git *)", Bash("git log; ls"), "deny rule Bash"),
    ("+native_shell(git)", Bash("git log"), "allow rule native_shell(git)"),
    ("+Bash(git)", Bash("git log"), "ask mode mode"),
    ("+Bash(git *)", OwnShell("git log"), "allow rule Bash(git *)"),
    ("-Bash(rm *) +Bash", OwnShell("rm x"), "deny rule Bash(rm *)"),
    // MCP servers.
    ("+mcp__a__get", Mcp("a", "get"), "allow rule mcp__a__get"),
    ("+mcp__a", Mcp("a", "get"), "allow rule mcp__a"),
    ("+mcp__*", Mcp("a", "get"), "allow rule mcp__*"),
    ("+mcp__a", Mcp("ab", "get"), "ask mode mode"),
    ("+mcp__a", Mcp("a__b", "get"), "ask mode mode"),
    ("+mcp__a", McpName("mcp__a__get"), "allow rule mcp__a"),
    ("-mcp__a +mcp__a__get", Mcp("a", "get"), "allow rule mcp__a__get"),
    ("+mcp__a -mcp__a__get", Mcp("a", "get"), "deny rule mcp__a__get"),
    ("-mcp__* +mcp__a", Mcp("a", "get"), "allow rule mcp__a"),
    ("-mcp__a +mcp__a__g*", Mcp("a", "get"), "allow rule mcp__a__g*"),
    // Web access.
    ("+WebFetch(domain:docs.rs)", Fetch("https://docs.rs/x"), "allow rule WebFetch(domain:docs.rs)"),
    ("+WebFetch(docs.rs)", Fetch("https://DOCS.rs:443"), "allow rule WebFetch(docs.rs)"),
    ("+WebFetch(docs.rs)", Fetch("https://docs.rs.evil.test/"), "ask mode mode"),
    ("+WebFetch(docs.rs)", Fetch("https://a.docs.rs/"), "ask mode mode"),
    ("+WebFetch(*.docs.rs)", Fetch("https://a.docs.rs/"), "allow rule WebFetch(*.docs.rs)"),
    ("+WebFetch(*.docs.rs)", Fetch("https://evildocs.rs/"), "ask mode mode"),
    ("+WebFetch(docs.rs)", Fetch("https://docs.rs/ http://x.y/"), "ask mode mode"),
    ("+WebFetch -WebFetch(x.y)", Fetch("https://docs.rs/ http://x.y/"), "deny rule WebFetch(x.y)"),
    ("+WebFetch -WebFetch(x.y)", Fetch("https://docs.rs@x.y/"), "deny rule WebFetch(x.y)"),
    ("+WebFetch(docs.rs)", Fetch("https://docs.rs@x.y/"), "ask mode mode"),
    // Unknown targets are allowed by no pattern and denied by any.
    ("+Write(src/**)", Tool("Write", ToolKind::Write), "ask mode mode"),
    ("+Write -Write(src/**)", Tool("Write", ToolKind::Write), "deny rule Write(src/**)"),
];

#[test]
fn servers_that_the_caller_named_need_no_permission() {
    let server = || McpServer::Url { url: "http://localhost/".into(), headers: Default::default() };
    let named = |mode| RunRequest::new("x").permission_mode(mode).mcp_server("a", server());
    let decide = |request: &RunRequest, it| {
        decided(&Policy::new(request, Path::new("/ws")).unwrap().own_server("agentline"), &ask(it))
    };
    for (mode, expected) in [
        (M::Default, "allow agentline trusted_server"),
        (M::AcceptEdits, "allow agentline trusted_server"),
        (M::Prompt, "allow agentline trusted_server"),
        (M::Auto, "allow agentline trusted_server"),
        (M::Plan, "deny mode mode"),
        (M::Deny, "deny mode mode"),
    ] {
        assert_eq!(decide(&named(mode), Mcp("a", "get")), expected, "{mode:?}");
    }
    // Another server, and a tool whose server is not certain.
    for it in [Mcp("b", "get"), Mcp("a__b", "get"), McpName("mcp__a__get")] {
        assert_eq!(decide(&named(M::Default), it), "ask mode mode", "{it:?}");
    }
    // Rules come first.
    assert_eq!(decide(&named(M::Default).ask("mcp__a"), Mcp("a", "get")), "ask rule mcp__a");
    assert_eq!(decide(&named(M::Default).deny("mcp__a__get"), Mcp("a", "get")), "deny rule mcp__a__get");
    let policy = Policy::new(&named(M::Default), Path::new("/ws")).unwrap().trusted_servers(["b".to_owned()]);
    assert_eq!(decided(&policy, &ask(Mcp("a", "get"))), "ask mode mode");
    assert_eq!(decided(&policy, &ask(Mcp("b", "get"))), "allow agentline trusted_server");
}

#[test]
fn most_specific_rule_wins() {
    let wrong: Vec<String> = RULES
        .iter()
        .filter_map(|(rules, it, expected)| {
            let found = decided(&policy(M::Default, rules), &ask(*it));
            (found != *expected).then(|| format!("{rules} | {it:?}: {found}, not {expected}"))
        })
        .collect();
    assert!(RULES.len() >= 60 && wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn the_order_of_rules_does_not_matter() {
    for (rules, it, expected) in
        RULES.iter().filter(|(rules, ..)| rules.contains(' ') && !rules.contains('('))
    {
        let reversed: Vec<&str> = rules.split(' ').rev().collect();
        assert_eq!(decided(&policy(M::Default, &reversed.join(" ")), &ask(*it)), *expected, "{rules}");
    }
}

#[test]
fn oversized_rule_is_refused_with_its_key() {
    let long = format!("Bash({})", "x".repeat(5000));
    let stars = format!("Bash({}b)", "*a".repeat(100_000));
    for rule in [long, stars] {
        let request = RunRequest::new("x").deny(rule);
        let problems = Policy::new(&request, Path::new("/ws")).unwrap_err().0;
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].key, "deny");
        assert!(problems[0].hint.is_some() && problems[0].message.len() < 1000, "{}", problems[0]);
    }
}

#[test]
fn oversized_path_matches_only_deny_rules() {
    let mut long = ask(File("Write", "a"));
    long.paths = vec![format!("src/{}", "a/".repeat(10_000))];
    assert_eq!(decided(&policy(M::Bypass, "-Write(other/**)"), &long), "deny rule Write(other/**)");
    assert_eq!(decided(&policy(M::Default, "+Write(src/**)"), &long), "ask mode mode");
}

/// The decision of each mode about each use, without rules.
const MODES: &[(Use, [&str; 7])] = &[
    // default, accept-edits, bypass, plan, auto, deny, prompt
    (File("Write", "a"), ["ask", "allow", "allow", "deny", "allow", "deny", "ask"]),
    (File("Edit", "/inc/a"), ["ask", "allow", "allow", "deny", "allow", "deny", "ask"]),
    (File("Write", "/etc/a"), ["deny", "deny", "deny", "deny", "deny", "deny", "deny"]),
    (File("Edit", "link/a"), ["deny", "deny", "deny", "deny", "deny", "deny", "deny"]),
    (Tool("Write", ToolKind::Write), ["ask", "ask", "allow", "deny", "allow", "deny", "ask"]),
    (File("Read", "a"), ["ask", "ask", "allow", "ask", "allow", "deny", "ask"]),
    (File("Read", "/etc/a"), ["ask", "ask", "allow", "ask", "allow", "deny", "ask"]),
    (Bash("git status"), ["ask", "ask", "allow", "deny", "allow", "deny", "ask"]),
    (Fetch("https://a.b/"), ["ask", "ask", "allow", "ask", "allow", "deny", "ask"]),
    (Mcp("a", "get"), ["ask", "ask", "allow", "deny", "allow", "deny", "ask"]),
    (Mcp("agentline", "get"), ["allow", "allow", "allow", "allow", "allow", "allow", "allow"]),
    (McpName("mcp__agentline__get"), ["allow", "allow", "allow", "allow", "allow", "allow", "allow"]),
    (Tool("Task", ToolKind::Agent), ["ask", "ask", "allow", "deny", "allow", "deny", "ask"]),
    (Tool("ExitPlanMode", ToolKind::Other), ["ask", "ask", "allow", "deny", "allow", "deny", "ask"]),
];
const ORDER: [M; 7] = [M::Default, M::AcceptEdits, M::Bypass, M::Plan, M::Auto, M::Deny, M::Prompt];

#[test]
fn mode_decides_when_no_rule_matches() {
    for (it, expected) in MODES {
        let found = ORDER.map(|mode| {
            let policy = policy(mode, "");
            policy.decide(&ask(*it), &|path| resolve(&policy, path)).name()
        });
        assert_eq!(&found, expected, "{it:?}");
    }
}

#[test]
fn rules_override_modes_except_plan() {
    for (mode, rules, it, expected) in [
        (M::Bypass, "-Bash(rm *)", Bash("rm x"), "deny rule Bash(rm *)"),
        (M::Bypass, "?Bash(rm *)", Bash("rm x"), "ask rule Bash(rm *)"),
        (M::Bypass, "+Write(/etc/**)", File("Write", "/etc/a"), "allow rule Write(/etc/**)"),
        (M::Auto, "-Write", File("Write", "a"), "deny rule Write"),
        (M::Deny, "+Write", File("Write", "a"), "allow rule Write"),
        (M::Deny, "?Write", File("Write", "a"), "ask rule Write"),
        (M::Plan, "+Write", File("Write", "a"), "deny mode mode"),
        (M::Plan, "?Bash", Bash("ls"), "deny mode mode"),
        (M::Plan, "+Read", File("Read", "a"), "allow rule Read"),
        (M::AcceptEdits, "-Write(src/**)", File("Write", "src/a"), "deny rule Write(src/**)"),
        (M::AcceptEdits, "", File("Write", "a"), "allow mode accept-edits"),
        (M::Auto, "", Bash("ls"), "allow mode auto"),
    ] {
        assert_eq!(decided(&policy(mode, rules), &ask(it)), expected, "{mode:?} {rules} {it:?}");
    }
}

#[test]
fn own_tools_are_denied_only_by_name() {
    let tool = ask(Mcp("agentline", "get"));
    for (rules, expected) in [
        ("", "allow agentline own_tool"),
        ("-*", "allow agentline own_tool"),
        ("-mcp__*", "allow agentline own_tool"),
        ("-mcp__agentline__get", "deny rule mcp__agentline__get"),
        ("-mcp__agentline", "deny rule mcp__agentline"),
    ] {
        assert_eq!(decided(&policy(M::Deny, rules), &tool), expected, "{rules}");
    }
    let server = crate::McpServer::Command { command: "x".into(), args: vec![], env: Default::default() };
    let request = RunRequest::new("x").mcp_server("agentline__x", server);
    let policy = Policy::new(&request, Path::new("/ws")).unwrap().own_server("agentline");
    assert_eq!(decided(&policy, &ask(McpName("mcp__agentline__x__get"))), "ask mode mode");
}

#[test]
fn every_file_of_a_change_is_checked() {
    let mut change = ask(File("Edit", "src/a"));
    change.paths.push("b".into());
    assert_eq!(decided(&policy(M::Default, "+Edit(src/**)"), &change), "ask mode mode");
    change.paths = vec!["/ws/src/a".into()];
    change.diffs = vec![Diff { path: "a".into(), ..Diff::default() }];
    assert_eq!(decided(&policy(M::Default, "+Edit(src/**)"), &change), "allow rule Edit(src/**)");
    change.diffs[0].path = "/etc/a".into();
    assert_eq!(decided(&policy(M::Bypass, ""), &change), "deny agentline outside_workspace");
}

#[test]
fn workspace_alias_is_recognized() {
    let policy = policy(M::Default, "+Write(/real/ws/src/**)").also_at(Path::new("/real/ws"));
    for path in ["src/a", "/ws/src/a", "/real/ws/src/a"] {
        assert_eq!(
            decided(&policy, &ask(File("Write", path))),
            "allow rule Write(/real/ws/src/**)",
            "{path}"
        );
    }
}

#[test]
fn invalid_rules_are_refused_with_a_hint() {
    for rule in
        ["", "Bash(git", "mcp__", "mcp____t", "mcp__a__t(x)", "Write(*/../x)", "WebFetch(https://a.b/)"]
    {
        let request = RunRequest::new("x").ask(rule).deny("Bash(rm");
        let problems = Policy::new(&request, Path::new("/ws")).unwrap_err().0;
        assert_eq!(problems.iter().map(|p| p.key.as_str()).collect::<Vec<_>>(), ["deny", "ask"], "{rule}");
        assert!(problems.iter().all(|p| p.hint.is_some()), "{rule}");
    }
}

#[test]
fn hard_linked_file_is_checked_under_all_names() {
    let linked = |path: &str, names: &[&str], more: bool| {
        ResolvedPath::in_workspace(format!("/ws/{path}"), path)
            .linked(names.iter().map(|name| (*name).to_owned()).collect(), more)
    };
    for (rules, at, expected) in [
        ("-Write(secret/**)", linked("a", &["secret/a"], false), "deny rule Write(secret/**)"),
        ("-Write(secret/**)", linked("a", &["b"], false), "allow mode bypass"),
        ("-Write(/srv/**)", linked("a", &[], true), "deny rule Write(/srv/**)"),
        ("-Write(secret/**)", linked("a", &[], true), "allow mode bypass"),
        ("-Write +Write(src/**)", linked("src/a", &["src/b"], false), "deny rule Write"),
        ("-Write(secret/**)", ResolvedPath::unclear("/proc/1/cwd/a"), "deny rule Write(secret/**)"),
        ("-Write +Write(/proc/**)", ResolvedPath::unclear("/proc/1/cwd/a"), "deny rule Write"),
    ] {
        let policy = policy(M::Bypass, rules);
        let decision = policy.decide(&ask(File("Write", "a")), &|_| at.clone());
        let ruling = decision.ruling();
        let reason = ruling.rule.clone().or_else(|| ruling.reason.clone()).unwrap_or_default();
        assert_eq!(format!("{} {} {reason}", decision.name(), ruling.by), expected, "{rules} {at:?}");
    }
}
