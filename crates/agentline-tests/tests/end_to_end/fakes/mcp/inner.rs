//! Agents that start agents: one budget, a depth limit, and a token that raises neither.

use super::{McpTestClient, PROGRAM};
use agentline_tests::{running_with, unique_tag, wait_until};
use serde_json::{Value, json};
use std::{
    io::{BufRead as _, BufReader, Write as _},
    os::unix::net::UnixStream,
};

/// Returns the script of an agent that starts another one with this script.
fn starting(tool: &str, args: &Value) -> String {
    format!("call agentline {tool} {args}")
}

fn text(result: &Value) -> &str {
    result["text"].as_str().unwrap_or_else(|| panic!("{result}"))
}

#[test]
fn agent_starts_an_agent_up_to_the_depth_limit() {
    let mut client = McpTestClient::start(&["--max-depth", "2", "--max-cost", "1"], json!({}));
    // The third agent would have depth 3, so the second one has no such tools.
    let second = "tool write_file second.txt hi\nlist_tools\nsay I am second";
    let first = starting("agent_run", &json!({"prompt": second}));
    let result = client.tool("agent_run", json!({"prompt": first, "max_cost": 0.5}));
    assert_eq!(result["verdict"], "done", "{result}");
    assert!(text(&result).contains("I am second"), "{result}");
    assert!(!text(&result).contains("sessions_search"), "{result}");
    assert!(client.program.stage.workspace().join("second.txt").exists());
    let listed =
        client.tool("agent_run", json!({"prompt": starting("agent_list", &json!({})), "max_cost": 0.01}));
    assert!(text(&listed).contains("depth: 1 of at most 2"), "{listed}");
    // The budget is that of the client, less what its agents have reserved.
    assert!(text(&listed).contains("budget: $0."), "{listed}");
}

#[test]
fn agent_without_depth_has_no_tools_to_start_others() {
    let mut client = McpTestClient::start(&[], json!({}));
    let result =
        client.tool("agent_run", json!({"prompt": "say tools:\nlist_tools\nenv AGENTLINE_PARENT_DEPTH"}));
    assert!(!text(&result).contains("agent_run"), "{result}");
    assert!(text(&result).ends_with('1'), "{result}");
    // An inner server that the agent starts itself belongs to its run.
    let answers = ask_inner_server(&mut client, "", "", &json!({"prompt": "say never"}));
    assert!(answers.contains("this server allows a depth of 1"), "{answers}");
}

#[test]
fn agent_that_changes_its_variables_or_flags_gets_no_more() {
    let mut client = McpTestClient::start(&["--max-depth", "2", "--max-cost", "1"], json!({}));
    let costly = json!({"prompt": "say never", "max_cost": 5});
    let outside = json!({"prompt": "say never", "cwd": "/"});
    let others_token = "AGENTLINE_PARENT_TOKEN=00000000000000000000000000000000";
    // The run of the agent may cost 0.1.
    let budget = "of the budget of $0.1000 remains";
    for (variables, flags, args, refusal) in [
        ("", "", &costly, budget),
        ("AGENTLINE_PARENT_BUDGET=1000", "--max-cost 1000", &costly, budget),
        ("", "--root /", &outside, "is not in the directories of this server"),
        (others_token, "", &costly, "does not know the token"),
        ("AGENTLINE_PARENT_TOKEN=", "", &costly, "does not know the token"),
        ("AGENTLINE_PARENT_SOCKET=/nowhere", "", &costly, "cannot use the server that started this agent"),
        ("", "--listen 127.0.0.1:0", &costly, "cannot start a server of its own"),
    ] {
        let answers = ask_inner_server(&mut client, variables, flags, args);
        assert!(answers.contains(refusal), "{variables} {flags}: {answers}");
    }
    // The agents below the second one would have depth 3, whatever the variables say.
    let deep = "AGENTLINE_PARENT_DEPTH=0 sh ask.sh";
    write_question(&client, "--max-depth 8", &json!({"prompt": "say never"}));
    let second = json!({"prompt": format!("run {deep}"), "max_cost": 0.1});
    client.tool("agent_run", json!({"prompt": starting("agent_run", &second), "max_cost": 0.2}));
    let answers = answers(&client);
    assert!(answers.contains("this server allows a depth of 2"), "{answers}");
    let runs = client.tool("agent_list", json!({}))["runs"].clone();
    assert!(!runs.to_string().contains("say never"), "{runs}");
}

#[test]
fn agent_and_those_that_it_starts_share_the_amount_of_its_run() {
    let mut client = McpTestClient::start(&["--max-depth", "2", "--max-cost", "10"], json!({}));
    // The fake agent reports its cost with its context: $0.6.
    let inner = |amount: f64| {
        starting("agent_run", &json!({"prompt": "used 100 100000 0.6\nsay paid", "max_cost": amount}))
    };
    let list = starting("agent_list", &json!({}));
    let mut run = |lines: &[&str]| {
        let result = client.tool("agent_run", json!({"prompt": lines.join("\n"), "max_cost": 1}));
        let spent = client.tool("agent_list", json!({}))["spent_usd"].as_f64().unwrap();
        (result, (spent * 10.0).round() / 10.0)
    };
    for (lines, answer, spent) in [
        (vec!["env AGENTLINE_PARENT_BUDGET"], "AGENTLINE_PARENT_BUDGET=1.0000", 0.1),
        (vec![&inner(5.0)], "$1.0000 of the budget of $1.0000 remains", 0.2),
        (vec![&inner(0.75), &inner(0.75)], "$0.4000 of the budget of $1.0000 remains", 0.9),
        (vec![&inner(0.75), &list], "budget: $0.4000 left, $0.6000 spent", 1.6),
    ] {
        let (result, all) = run(&[&lines[..], &["used 100 100000 0.1"]].concat());
        assert_eq!(result["verdict"], "done", "{result}");
        assert!(text(&result).contains(answer), "{result}");
        assert_eq!(all, spent, "{result}");
    }
    // Its own cost counts, too.
    let (result, all) = run(&[&inner(0.75), "used 100 100000 0.5"]);
    assert_eq!((&result["verdict"], all), (&json!("limit_reached"), 2.7), "{result}");
    let message = result["error"]["message"].as_str().unwrap();
    let expected = "cost limit of $1.0000 reached: $0.5000 used by this agent and $0.6000 by the agents";
    assert!(message.starts_with(expected), "{message}");
}

#[test]
fn agent_is_not_asked_for_the_permissions_of_those_that_it_starts() {
    let flags = ["--max-depth", "2", "--permission-mode", "default"];
    let ask = json!({"prompt": "ask write_file asked.txt hi\nsay done"});
    for can_ask in [false, true] {
        let capabilities = if can_ask { json!({"elicitation": {}}) } else { json!({}) };
        let mut client = McpTestClient::start(&flags, capabilities);
        write_question(&client, "", &ask);
        let id = client.send("agent_run", json!({"prompt": "run sh ask.sh"}));
        if can_ask {
            let question = client.program.question("elicitation/create");
            assert!(question["params"]["message"].to_string().contains("asked.txt"), "{question}");
            client.program.reply(&question, json!({"action": "decline"}));
        }
        client.answer(id);
        let answers = answers(&client);
        assert!(answers.contains("done_with_denials"), "{answers}");
        assert!(!answers.contains("elicitation/create"), "{answers}");
        assert!(!client.program.stage.workspace().join("asked.txt").exists());
    }
}

/// Lets an agent start an inner server with these flags and call `agent_run`. Returns what the server printed.
fn ask_inner_server(client: &mut McpTestClient, variables: &str, flags: &str, args: &Value) -> String {
    write_question(client, flags, args);
    client.tool("agent_run", json!({"prompt": format!("run {variables} sh ask.sh"), "max_cost": 0.1}));
    answers(client)
}

/// Writes a script that asks an inner server and waits for its answer.
fn write_question(client: &McpTestClient, flags: &str, args: &Value) {
    let start = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params":
        {"protocolVersion": "2025-06-18", "capabilities": {"elicitation": {}},
            "clientInfo": {"name": "inner", "version": "1"}}});
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call",
        "params": {"name": "agent_run", "arguments": args}});
    let workspace = client.program.stage.workspace();
    std::fs::write(workspace.join("lines.jsonl"), format!("{start}\n{ready}\n{call}\n")).unwrap();
    let script = format!(
        "rm -f answers.txt\n\
         input() {{ cat lines.jsonl; until grep -q -e '\"id\":2' -e '^exit' answers.txt; do sleep 0.1; done; }}\n\
         input | (timeout 60 {PROGRAM} mcp {flags}; echo \"exit $?\") > answers.txt 2>&1\n"
    );
    std::fs::write(workspace.join("ask.sh"), script).unwrap();
}

fn answers(client: &McpTestClient) -> String {
    std::fs::read_to_string(client.program.stage.workspace().join("answers.txt")).unwrap()
}

#[test]
fn runs_of_an_agent_end_with_it() {
    let mut client = McpTestClient::start(&["--max-depth", "2"], json!({}));
    let tag = format!("6{}", unique_tag());
    let inner = json!({"prompt": format!("say up\nrun sleep {tag}")});
    let outer = format!("{}\nhang", starting("agent_start", &inner));
    let run = client.tool("agent_start", json!({"prompt": outer}));
    let sleeping = format!("sleep\0{tag}");
    wait_until("the command of the inner agent", || !running_with(&sleeping).is_empty());
    let cancelled = client.tool("agent_cancel", json!({"run": run["run"]}));
    assert_eq!(cancelled["verdict"], "cancelled", "{cancelled}");
    wait_until("the end of the inner agent", || client.living() == 1);
    assert!(running_with(&sleeping).is_empty());
}

#[test]
fn unknown_token_is_refused_and_that_of_a_run_has_its_limits() {
    let mut client =
        McpTestClient::start(&["--max-depth", "2", "--permission-mode", "accept-edits"], json!({}));
    let variables = "env AGENTLINE_PARENT_SOCKET\nsay |\nenv AGENTLINE_PARENT_TOKEN\nhang";
    let run = client.tool("agent_start", json!({"prompt": variables, "permission_mode": "plan"}));
    let mut found = None;
    wait_until("the variables", || {
        let environment = client.program.stage.living().into_iter().filter_map(environ);
        found = environment
            .filter_map(|env| {
                Some((value(&env, "AGENTLINE_PARENT_SOCKET")?, value(&env, "AGENTLINE_PARENT_TOKEN")?))
            })
            .next();
        found.is_some()
    });
    let (socket, token) = found.unwrap();
    let answer = |token: &str| {
        let mut stream = UnixStream::connect(&socket).unwrap();
        let start = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params":
            {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}});
        let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params":
            {"name": "agent_run", "arguments": {"prompt": "say no", "permission_mode": "accept-edits"}}});
        let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        // The server closes the connection of an unknown token.
        let _ = write!(stream, "{token}\n{start}\n{ready}\n{call}\n");
        BufReader::new(stream).lines().take(3).filter_map(Result::ok).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(answer("0123456789"), "");
    assert_eq!(answer(""), "");
    // The inner agent cannot have more than `plan`, the mode of the outer one.
    let refused = answer(&token);
    assert!(refused.contains("allows more than `plan`"), "{refused}");
    client.tool("agent_cancel", json!({"run": run["run"]}));
    // The answer to `agent_cancel` may come before the end of the run.
    wait_until("the end of the token", || answer(&token).is_empty());
}

fn environ(pid: u32) -> Option<String> {
    std::fs::read(format!("/proc/{pid}/environ")).ok().map(|env| String::from_utf8_lossy(&env).into_owned())
}

fn value(env: &str, name: &str) -> Option<String> {
    env.split('\0').find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned)
}
