//! Checks that facts about an agent are in its directory: no other code names the agent, its variables, files, tools or
//! the fields of its formats.

use crate::source::{Source, has_word, repository};

/// The terms of one agent.
struct AgentTerms {
    /// The name of its directory.
    agent: &'static str,
    /// Its names, found in any case and as part of another word.
    names: &'static [&'static str],
    /// Its variables, files, packages, tools, flags and wire fields, found as whole words.
    terms: &'static [&'static str],
}

const AGENTS: &[AgentTerms] = &[
    AgentTerms {
        agent: "gemini",
        names: &["gemini"],
        terms: &[
            "GOOGLE_",
            "@google/",
            "NO_RELAUNCH",
            "google_cloud_project",
            "use_vertex_ai",
            "maxSessionTurns",
            "skip-trust",
            "approval-mode",
            "write_file",
            "run_shell_command",
            "read_many_files",
            "google_web_search",
            "search_file_content",
            "list_directory",
            "save_memory",
            "web_fetch",
            "tool_not_registered",
            "policy_violation",
            "invalid_tool_params",
            "FatalTurnLimited",
            "functionCall",
            "functionResponse",
            "projectHash",
            "model_added_lines",
            "session_context",
            "Loop detected",
            "API Error",
        ],
    },
    // `claude` alone is also the name of a message format, and its tools have the common names of tools.
    AgentTerms {
        agent: "claude",
        names: &["claude code", "claude-code", "claude_code", "agents::claude"],
        terms: &[
            "\"claude\"",
            "\".claude",
            "/.claude",
            "CLAUDE.md",
            "CLAUDE_",
            "ANTHROPIC_",
            "claude-agent-acp",
            "DISABLE_AUTOUPDATER",
            "MAX_THINKING_TOKENS",
            "API_TIMEOUT_MS",
            "parentUuid",
            "logicalParentUuid",
            "leafUuid",
            "isSidechain",
            "isMeta",
            "isCompactSummary",
            "isApiErrorMessage",
            "toolUseResult",
            "toolDenialKind",
            "structuredPatch",
            "originalFile",
            "customTitle",
            "aiTitle",
            "promptSource",
            "permissionDecision",
            "totalCostUSD",
        ],
    },
    AgentTerms {
        agent: "codex",
        names: &["codex"],
        terms: &[
            "OPENAI_",
            "apply_patch",
            "exec_command",
            "write_stdin",
            "update_plan",
            "view_image",
            "rollout",
            "response_item",
            "event_msg",
            "turn_context",
            "session_meta",
            "workspace-write",
            "cached_input_tokens",
            "reasoning_output_tokens",
            "total_token_usage",
            "last_token_usage",
            "thread_spawn",
            "parent_thread_id",
            "cli_version",
            "js_repl",
            "local_shell",
            "container.exec",
            "grep_files",
            "list_dir",
            "spawn_agent",
            "request_user_input",
        ],
    },
    AgentTerms {
        agent: "opencode",
        names: &["opencode"],
        terms: &[
            "todowrite",
            "todoread",
            "webfetch",
            "websearch",
            "sessionID",
            "messageID",
            "parentID",
            "partID",
            "modelID",
            "message_id",
            "time_created",
            "time_updated",
            "tokens_input",
            "tokens_output",
            "tokens_reasoning",
            "tokens_cache_read",
            "tokens_cache_write",
            "octet_length(data)",
        ],
    },
];

/// Crates that imitate agents and the services of their models.
const IMITATIONS: &[&str] = &["agentline-mock/", "agentline-fakes/"];

/// Terms that a file may use, with the reason.
const EXCEPTIONS: &[(&str, &[&str], &str)] = &[
    ("agentline-core/src/agents.rs", &["gemini", "codex", "opencode"], "lists the agents"),
    ("agentline-core/src/request.rs", &["gemini"], "names the default agent"),
    ("agentline-core/src/price.rs", &["gemini"], "removes prefixes of model services from model names"),
    ("agentline-core/src/config/keys.rs", &["gemini", "\"claude\""], "has an example for each key"),
    (
        "agentline-core/src/claude.rs",
        &["claude_code", "CLAUDE_"],
        "writes a run in the output format of Claude Code",
    ),
    ("agentline-core/src/message.rs", &["isSidechain"], "writes messages in the format of Claude Code"),
    ("agentline/src/host/saved_sessions.rs", &["\"claude\""], "names the message format"),
    (
        "agentline-core/src/agents/opencode.rs",
        &["gemini", "GOOGLE_", "OPENAI_", "ANTHROPIC_", "CLAUDE.md", "\".claude"],
        "OpenCode uses the model services of other agents and reads files of Claude Code",
    ),
    (
        "agentline-core/src/agents/claude/failures.rs",
        &["API Error"],
        "Claude Code has a prefix of the same name",
    ),
    ("agentline-core/src/agents/opencode/tools.rs", &["apply_patch"], "OpenCode has a tool of the same name"),
    (
        "agentline-conformance/src/exceptions.rs",
        &["gemini", "\"claude\"", "codex", "opencode"],
        "lists the differences that agents force",
    ),
    ("agentline-conformance/src/exceptions/gemini.rs", &["gemini"], "lists the differences that it forces"),
    ("agentline-cli/src/args.rs", &["gemini"], "the help names the default agent"),
    ("agentline-cli/src/commands/conformance.rs", &["gemini"], "a hint has an example"),
    ("agentline-cli/src/commands/demo.rs", &["gemini"], "the demo runs one agent"),
    ("agentline-cli/src/commands/demo/stage.rs", &["gemini"], "the demo runs one agent"),
    ("agentline-cli/src/commands/acp.rs", &["gemini"], "the help has an example"),
    ("agentline-cli/src/commands/install.rs", &["gemini"], "the help has an example"),
    ("agentline-cli/src/commands/compare.rs", &["gemini", "codex"], "the help has examples"),
    ("agentline-cli/src/commands/mcp.rs", &["gemini", "codex"], "the help has an example"),
    ("agentline-cli/src/commands/sessions/transplant.rs", &["codex", "opencode"], "the help has examples"),
    ("agentline-cli/src/commands/policy.rs", &["gemini"], "the help has an example"),
    ("agentline-cli/src/commands/replay.rs", &["gemini"], "the help has an example"),
];

impl AgentTerms {
    /// Returns whether a file belongs to this agent.
    fn owns(&self, path: &str) -> bool {
        let rest = path.strip_prefix("agentline-core/src/agents/").and_then(|p| p.strip_prefix(self.agent));
        rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
    }

    /// Returns the terms in a line of code.
    fn found_in(&self, line: &str) -> impl Iterator<Item = &'static str> {
        let lower = line.to_lowercase();
        let names = self.names.iter().filter(move |name| lower.contains(**name));
        names.chain(self.terms.iter().filter(move |word| has_word(line, word))).copied()
    }
}

/// Returns every term of an agent in a file outside its directory, with its line.
fn terms_outside(file: &Source) -> Vec<(usize, &'static str)> {
    if !file.ships() || IMITATIONS.iter().any(|folder| file.path.starts_with(folder)) {
        return Vec::new();
    }
    let agents = || AGENTS.iter().filter(|agent| !agent.owns(&file.path));
    let in_line =
        |(no, line)| agents().flat_map(move |agent| agent.found_in(line)).map(move |term| (no, term));
    file.code().flat_map(in_line).collect()
}

fn is_excepted(path: &str, term: &str) -> bool {
    EXCEPTIONS.iter().any(|(file, terms, _)| *file == path && terms.contains(&term))
}

#[test]
fn facts_about_an_agent_stay_in_its_directory() {
    let files = repository();
    let found: Vec<(&str, usize, &str)> = files
        .iter()
        .flat_map(|file| terms_outside(file).into_iter().map(|(no, term)| (&*file.path, no, term)))
        .collect();
    let wrong: Vec<String> = found
        .iter()
        .filter(|(path, _, term)| !is_excepted(path, term))
        .map(|(path, no, term)| format!("{path}:{no}: `{term}`"))
        .collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    for (file, terms, _) in EXCEPTIONS {
        for term in *terms {
            let is_used = found.iter().any(|(path, _, used)| path == file && used == term);
            assert!(is_used, "{file} needs no exception for `{term}`");
        }
    }
}

#[test]
fn every_term_occurs_in_the_directory_of_its_agent() {
    let files = repository();
    let mut unused: Vec<&str> = Vec::new();
    for agent in AGENTS {
        let own = || files.iter().filter(|file| agent.owns(&file.path));
        let is_used = |term: &str| own().any(|file| file.text.to_lowercase().contains(&term.to_lowercase()));
        unused.extend(agent.names.iter().chain(agent.terms).filter(|term| !is_used(term)));
    }
    assert!(unused.is_empty(), "not terms of their agent: {unused:?}");
}

#[test]
fn every_agent_has_terms() {
    let files = repository();
    let list =
        files.iter().find(|file| file.path == "agentline-core/src/agents.rs").expect("the list of agents");
    let agents = list.code().filter_map(|(_, line)| line.strip_prefix("pub mod ")?.strip_suffix(';'));
    let listed: Vec<&str> = agents.collect();
    let known: Vec<&str> = AGENTS.iter().map(|agent| agent.agent).collect();
    assert_eq!(listed.iter().filter(|name| known.contains(name)).count(), known.len());
    for name in listed {
        assert!(known.contains(&name), "the agent `{name}` has no terms");
    }
}

#[test]
fn a_term_outside_its_directory_is_found() {
    let found = |path: &str, line: &str| -> Vec<&str> {
        let file = Source::new(path, &format!("//! A.\n{line}\n"));
        terms_outside(&file).into_iter().map(|(_, term)| term).collect()
    };
    let run = "agentline/src/run.rs";
    for (line, terms) in [
        ("let tool = \"write_file\";", vec!["write_file"]),
        ("fn is_gemini_key() {}", vec!["gemini"]),
        ("env.get(\"GEMINI_API_KEY\")", vec!["gemini"]),
        ("use agentline_core::agents::claude;", vec!["agents::claude"]),
        ("home.join(\".claude/settings.json\")", vec!["\".claude"]),
        ("const NAME: &str = \"CodexCli\";", vec!["codex"]),
        ("select(\"session\", &[\"time_updated\"])", vec!["time_updated"]),
        ("OpenCode.sessions()", vec!["opencode"]),
    ] {
        assert_eq!(found(run, line), terms, "{line}");
    }
    assert!(found(run, "/// Such as `write_file`.\nfn overwrite_files() {}").is_empty());
    assert!(found("agentline-core/src/agents/codex/tools.rs", "row(\"apply_patch\")").is_empty());
    assert_eq!(found("agentline-core/src/agents/claude/tools.rs", "row(\"apply_patch\")"), ["apply_patch"]);
}
