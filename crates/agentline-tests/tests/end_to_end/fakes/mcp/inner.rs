//! Agents that start agents: one budget, a depth limit, and a token that raises neither.

use super::{McpTestClient, PROGRAM};
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
    assert!(text(&listed).contains("\"depth\":1") && text(&listed).contains("\"max_depth\":2"), "{listed}");
    // The budget is that of the client, less what its agents have reserved.
    assert!(text(&listed).contains("\"remaining_usd\":0."), "{listed}");
}

#[test]
fn agent_without_depth_has_no_tools_to_start_others() {
    let mut client = McpTestClient::start(&[], json!({}));
    let result =
        client.tool("agent_run", json!({"prompt": "say tools:\nlist_tools\nenv AGENTLINE_PARENT_DEPTH"}));
    assert!(!text(&result).contains("agent_run"), "{result}");
    assert!(text(&result).ends_with('1'), "{result}");
    // An inner server that the agent starts itself belongs to its run.
    let start = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params":
        {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "inner", "version": "1"}}});
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call",
        "params": {"name": "agent_run", "arguments": {"prompt": "say never"}}});
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let lines = client.program.stage.workspace().join("lines.jsonl");
    std::fs::write(&lines, format!("{start}\n{ready}\n{call}\n")).unwrap();
    // The flags of the inner server do not raise the limits either.
    let script =
        format!("run (cat lines.jsonl; sleep 2) | {PROGRAM} mcp --max-depth 8 --root / > answers.jsonl");
    client.tool("agent_run", json!({"prompt": script}));
    let answers = std::fs::read_to_string(lines.with_file_name("answers.jsonl")).unwrap();
    assert!(answers.contains("this server allows a depth of 1"), "{answers}");
}

#[test]
fn runs_of_an_agent_end_with_it() {
    let mut client = McpTestClient::start(&["--max-depth", "2"], json!({}));
    let inner = json!({"prompt": "tool write_file up.txt x\nrun sleep 600"});
    let outer = format!("{}\nsay I leave", starting("agent_start", &inner));
    let result = client.tool("agent_run", json!({"prompt": format!("{outer}\nsleep 3000")}));
    assert_eq!(result["verdict"], "done", "{result}");
    assert!(client.program.stage.workspace().join("up.txt").exists(), "the inner agent worked");
    drop(client.program.stdin.take());
    agentline_tests::exit_of(&mut client.program.child, "the end of the server");
    client.program.nothing_left(std::time::Duration::from_secs(30));
}

#[test]
fn unknown_token_is_refused_and_that_of_a_run_has_its_limits() {
    let mut client =
        McpTestClient::start(&["--max-depth", "2", "--permission-mode", "accept-edits"], json!({}));
    let variables = "env AGENTLINE_PARENT_SOCKET\nsay |\nenv AGENTLINE_PARENT_TOKEN\nhang";
    let run = client.tool("agent_start", json!({"prompt": variables, "permission_mode": "plan"}));
    let mut found = None;
    agentline_tests::wait_until("the variables", || {
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
        BufReader::new(stream).lines().take(2).filter_map(Result::ok).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(answer("0123456789"), "");
    assert_eq!(answer(""), "");
    // The inner agent cannot have more than `plan`, the mode of the outer one.
    let refused = answer(&token);
    assert!(refused.contains("allows more than `plan`"), "{refused}");
    client.tool("agent_cancel", json!({"run": run["run"]}));
    assert_eq!(answer(&token), "", "the token ends with the run");
}

fn environ(pid: u32) -> Option<String> {
    std::fs::read(format!("/proc/{pid}/environ")).ok().map(|env| String::from_utf8_lossy(&env).into_owned())
}

fn value(env: &str, name: &str) -> Option<String> {
    env.split('\0').find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned)
}
