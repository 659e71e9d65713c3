//! Files, commands, and tools of MCP servers and of the calling program.

use crate::expected::Expected;
use crate::scenario::{Need, Scenario, Tier, scenario};
use crate::script::ScenarioScript;
use agentline::outcome::FileChangeKind::{Created, Deleted, Modified};
use agentline::tools::{Tool, ToolHost};
use agentline::{McpServer, RunOptions, ToolStatus};
use agentline_mock::answer::{Action, Answer};
use serde_json::{Value, json};

/// A server with one tool that adds two numbers, in the language that every machine with these agents has.
const MCP_SERVER: &str = include_str!("mcp_server.sh");

/// Returns a script that does this and then answers.
fn after(action: Action, text: &str) -> ScenarioScript {
    ScenarioScript::Answers(vec![Answer::using(action), Answer::text(text)])
}

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario(
            "write",
            "A new file is written, reported by its tool and listed in the outcome.",
            |scene| after(Action::write(scene.path("new.txt"), "one\ntwo\n"), "Written."),
            |_| {
                Expected::done("Written.")
                    .tool("Write", ToolStatus::Ok)
                    .file("new.txt", Created, Some("one\ntwo\n"))
                    .turns(2)
            },
        )
        .tier(Tier::Basic),
        scenario(
            "odd_name",
            "A file whose name has spaces, quotes and letters outside ASCII is reported by its name.",
            |scene| after(Action::write(scene.path("a b's grüße.txt"), "x\n"), "Written."),
            |_| {
                Expected::done("Written.").tool("Write", ToolStatus::Ok).file(
                    "a b's grüße.txt",
                    Created,
                    Some("x\n"),
                )
            },
        ),
        scenario(
            "edit",
            "A line of a file is replaced after the file was read.",
            |scene| {
                scene.create("edit.txt", "before\nold line\nafter\n");
                let path = scene.path("edit.txt");
                ScenarioScript::Answers(vec![
                    Answer::using(Action::read(&path)),
                    Answer::using(Action::edit(&path, "old line", "new line")),
                    Answer::text("Edited."),
                ])
            },
            |_| {
                Expected::done("Edited.")
                    .tool("Read", ToolStatus::Ok)
                    .tool("Edit", ToolStatus::Ok)
                    .file("edit.txt", Modified, Some("before\nnew line\nafter\n"))
                    .turns(3)
            },
        )
        .tier(Tier::Deep),
        scenario(
            "read",
            "The content of a file reaches the model.",
            |scene| {
                scene.create("notes.txt", "the word is kumquat\n");
                after(Action::read(scene.path("notes.txt")), "Read.")
            },
            |_| {
                Expected::done("Read.")
                    .tool("Read", ToolStatus::Ok)
                    .reaches_model("the word is kumquat")
                    .turns(2)
            },
        ),
        scenario(
            "delete",
            "A file that a command deletes is listed in the outcome.",
            |scene| {
                scene.create("gone.txt", "x\n");
                after(Action::shell(format!("rm '{}'", scene.path("gone.txt"))), "Deleted.")
            },
            |_| {
                Expected::done("Deleted.")
                    .tool("Bash", ToolStatus::Ok)
                    .file("gone.txt", Deleted, None)
                    .turns(2)
            },
        ),
        scenario(
            "rename",
            "A file that a command renames is listed under both names.",
            |scene| {
                scene.create("before.txt", "kept\n");
                let command = format!(
                    "mv '{}' '{}' && echo renamed",
                    scene.path("before.txt"),
                    scene.path("after.txt")
                );
                after(Action::shell(command), "Renamed.")
            },
            |_| {
                Expected::done("Renamed.")
                    .tool("Bash", ToolStatus::Ok)
                    .file("before.txt", Deleted, None)
                    .file("after.txt", Created, Some("kept\n"))
                    .reaches_model("renamed")
                    .turns(2)
            },
        )
        .tier(Tier::Basic),
        scenario(
            "failing_tool",
            "A command that fails is an error of the tool, and the run continues.",
            |_| after(Action::shell("echo some output; exit 3"), "It failed."),
            |_| {
                Expected::done("It failed.")
                    .tool("Bash", ToolStatus::Error)
                    .reaches_model("some output")
                    .turns(2)
            },
        ),
        scenario(
            "parallel_tools",
            "Two tool calls of one answer are both carried out and reported.",
            |scene| {
                let write = |name: &str| Action::write(scene.path(name), "x\n");
                ScenarioScript::Answers(vec![
                    Answer::using(write("a.txt")).and_use(write("b.txt")),
                    Answer::text("Both written."),
                ])
            },
            |_| {
                Expected::done("Both written.")
                    .tool("Write", ToolStatus::Ok)
                    .tool("Write", ToolStatus::Ok)
                    .file("a.txt", Created, Some("x\n"))
                    .file("b.txt", Created, Some("x\n"))
                    .turns(2)
            },
        ),
        scenario(
            "mcp_tool",
            "A tool of an MCP server is offered to the model and called.",
            |_| after(Action::mcp("kit", "add", json!({"a": 2, "b": 3})), "Five."),
            |_| {
                Expected::done("Five.")
                    .tool("mcp__kit__add", ToolStatus::Ok)
                    .offers("add")
                    .reaches_model("the sum is 5")
                    .turns(2)
            },
        )
        .needs(Need::Mcp)
        .request(|scene, request| {
            let script = scene.outside("mcp_server.sh");
            // Without it, the scenario fails because the server does not start.
            let _ = std::fs::write(&script, MCP_SERVER);
            let server = McpServer::Command { command: "sh".into(), args: vec![script], env: [].into() };
            request.mcp_server("kit", server)
        })
        .tier(Tier::Deep),
        scenario(
            "hosted_tool",
            "A function of the calling program is offered to the model and called, without permission.",
            |_| after(Action::mcp("shop", "double", json!({"n": 21})), "Forty-two."),
            |_| {
                Expected::done("Forty-two.")
                    .tool("mcp__shop__double", ToolStatus::Ok)
                    .offers("double")
                    .reaches_model("twice is 42")
                    .turns(2)
            },
        )
        .needs(Need::HostedTools)
        .request(|_, request| request.permission_mode(agentline::PermissionMode::Default))
        .options(|_| {
            let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
            let double = Tool::new("double", "Doubles a number", schema, |args: Value, _| async move {
                Ok(format!("twice is {}", args["n"].as_i64().unwrap_or(0) * 2))
            });
            RunOptions::new().tools(ToolHost::new().server_name("shop").tool(double))
        }),
    ]
}
