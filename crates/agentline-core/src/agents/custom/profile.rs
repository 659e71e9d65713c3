//! How a configured agent deviates from ACP, according to its profile.

use crate::{
    AgentProfile, CountScope, ErrorPlace, Failure, ReportedUsage, RunId, Sink, TokenCount, ToolKind, ToolUse,
    UsageSource, Version,
    acp::{
        profile::{AcpProfile, Chunk, Quirks, ToolEnd, message_of, plain_failure, plain_tool},
        tool_call::AcpToolCall,
    },
    agents::builtin_quirks,
    rpc::JsonRpcError,
    wire::{Str, wire},
};
use serde_json::Value;
use std::collections::BTreeMap;

wire! { struct Meta<'a> { tool: Str<'a> = "toolName" } }
wire! { struct Paths<'a> { path: Option<Str<'a>> = "path", file: Option<Str<'a>> = "file_path" } }

/// The canonical tools that a profile can name, with their kinds.
const KINDS: &[(&str, ToolKind)] = &[
    ("Write", ToolKind::Write),
    ("Edit", ToolKind::Edit),
    ("Bash", ToolKind::Shell),
    ("Read", ToolKind::Read),
    ("Grep", ToolKind::Search),
    ("Glob", ToolKind::Search),
    ("WebFetch", ToolKind::Web),
];

/// The deviations of a configured agent: those of its profile, and those that are known by the name with which it
/// introduces itself.
#[derive(Clone, Debug)]
pub(super) struct CustomProfile {
    profile: AgentProfile,
    quirks: Quirks,
    /// The number of recorded answers of each run.
    answers: BTreeMap<RunId, u32>,
}

impl CustomProfile {
    pub(super) fn new(profile: &AgentProfile) -> Self {
        let quirks = Quirks {
            usage: match profile.session_usage {
                // One source of tokens is enough, and the session file has those of each answer.
                Some(_) => ReportedUsage::None,
                None => profile.usage.unwrap_or_default(),
            },
            session_file: profile.session_store.is_some(),
            denial_ends_turn: true,
            stops_after_results: true,
            lists_tools_late: profile.lists_tools_late.unwrap_or(false),
            ..Quirks::default()
        };
        Self { profile: profile.clone(), quirks, answers: BTreeMap::new() }
    }

    /// Returns the server and the tool of a call whose title names them. The title of a command is written by the
    /// model, so a call of a known kind never counts.
    fn titled_mcp_tool(&self, call: &AcpToolCall) -> Option<(String, String)> {
        if !matches!(&*call.kind, "" | "other") {
            return None;
        }
        // The model writes arguments, so only that one tool counts.
        let argument = |path: &String| {
            let (_, name) = path.split_once('.').filter(|(tool, _)| *tool == call.first_title)?;
            let input: Value = serde_json::from_str(call.raw_input.as_ref()?.get()).ok()?;
            input.get(name)?.as_str().map(str::to_owned)
        };
        let title =
            self.profile.mcp_argument.as_ref().map_or_else(|| Some(call.first_title.clone()), argument)?;
        let (server, tool) = self.profile.mcp_tool(&title)?;
        Some((server.to_owned(), tool.to_owned()))
    }
}

impl AcpProfile for CustomProfile {
    fn set_agent_version(&mut self, name: &str, _version: Option<Version>) {
        // An agent that is also built in deviates in the same way under another name in the configuration.
        self.quirks = builtin_quirks(name).unwrap_or(self.quirks);
    }

    fn quirks(&self) -> Quirks {
        self.quirks
    }

    fn failure(&self, error: &JsonRpcError<'_>) -> Failure {
        let known = self.profile.error(ErrorPlace::Error, &message_of(error));
        known.unwrap_or_else(|| plain_failure(error))
    }

    fn is_cut_off(&self, error: &JsonRpcError<'_>) -> bool {
        self.profile.is_cut_off(&message_of(error))
    }

    fn message_chunk(&self, text: &str) -> Chunk {
        match self.profile.error(ErrorPlace::Text, text) {
            Some(failure) => Chunk::Failed(failure),
            None if self.profile.is_noise(text) => Chunk::Noise,
            None => Chunk::Plain,
        }
    }

    fn retried(&self, notification: &str) -> Option<Failure> {
        self.profile.error(ErrorPlace::Notification, notification)
    }

    fn recorded_failure(&self, line: &str) -> Option<Failure> {
        self.profile.error(ErrorPlace::Session, line)
    }

    fn records_answers(&self) -> bool {
        self.profile.session_usage.is_some()
    }

    fn records_ends(&self) -> bool {
        self.profile.session_usage.is_some()
    }

    fn session_line(&mut self, run: RunId, text: &str, sink: &mut Sink) {
        let Some(tokens) = self.profile.session_usage.as_ref().and_then(|usage| usage.tokens(text)) else {
            return;
        };
        sink.recorded(run, None);
        // A request that failed is recorded without tokens, as is an answer whose tokens are not known.
        if tokens.total == Some(0) {
            return;
        }
        let answers = self.answers.entry(run).or_default();
        *answers += 1;
        let scope = CountScope::Call(answers.to_string());
        sink.count(run, TokenCount::new(UsageSource::SessionFile, scope, tokens));
    }

    fn forget(&mut self, run: RunId) {
        self.answers.remove(&run);
    }

    fn max_retries(&self) -> u32 {
        self.profile.max_retries.unwrap_or(u32::MAX)
    }

    fn ended(&self, _call: &AcpToolCall, failed: bool, output: &str) -> ToolEnd {
        // Some agents report a refused call as completed.
        match failed {
            _ if self.profile.is_denial(output) => ToolEnd::Denied("agent".to_owned()),
            true => ToolEnd::Failed,
            false => ToolEnd::Ok,
        }
    }

    fn server(&self, call: &AcpToolCall) -> Option<String> {
        self.titled_mcp_tool(call).map(|(server, _)| server)
    }

    fn tool(&self, call: &AcpToolCall) -> ToolUse {
        let mut tool = plain_tool(call);
        let meta = call.meta.as_ref().map_or("null", |meta| meta.get());
        let named = serde_json::from_str::<Meta<'_>>(meta).unwrap_or_default().tool.own();
        let titled = || self.titled_mcp_tool(call).map(|(server, name)| format!("mcp__{server}__{name}"));
        if let Some(name) = Some(named).filter(|name| name.starts_with("mcp__")).or_else(titled) {
            (tool.name, tool.kind) = (name, ToolKind::Mcp);
            return tool;
        }
        let word = tool.native_name.split([' ', ':', '(']).next().unwrap_or_default();
        let Some(name) = self.profile.tools.get(word) else { return tool };
        let word = word.to_owned();
        tool.kind = KINDS.iter().find(|(known, _)| known == name).map_or(tool.kind, |(_, kind)| *kind);
        (tool.name, tool.native_name) = (name.clone(), word);
        if matches!(tool.kind, ToolKind::Write | ToolKind::Edit) {
            let input = call.raw_input.as_ref().map_or("null", |raw| raw.get());
            let paths = serde_json::from_str::<Paths<'_>>(input).unwrap_or_default();
            tool.path = call.first_path().or_else(|| paths.path.or(paths.file).map(Str::own));
        }
        tool
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ErrorPattern, FailureKind, agents::opencode};

    #[test]
    fn configured_agent_is_recognized_by_its_own_name() {
        let mut profile = CustomProfile::new(&AgentProfile::default());
        profile.set_agent_version("something", None);
        assert_eq!(
            profile.quirks(),
            Quirks { denial_ends_turn: true, stops_after_results: true, ..Quirks::default() }
        );
        profile.set_agent_version(opencode::acp::ACP_NAME, Version::parse("1.18.33"));
        assert_eq!(profile.quirks().usage, ReportedUsage::LastRequest);
    }

    #[test]
    fn errors_and_noise_are_recognized_by_their_texts() {
        let profile = CustomProfile::new(&AgentProfile {
            errors: Some(vec![
                ErrorPattern::new("Error: *429*", FailureKind::RateLimited, ErrorPlace::Text),
                ErrorPattern::new("*401*", FailureKind::NotAuthenticated, ErrorPlace::Error),
            ]),
            noise: Some(vec!["Info: *".into()]),
            ..AgentProfile::default()
        });
        assert!(
            matches!(profile.message_chunk("Error: HTTP 429\n"), Chunk::Failed(failure) if failure.kind == FailureKind::RateLimited)
        );
        assert_eq!(profile.message_chunk("Info: retrying"), Chunk::Noise);
        assert_eq!(profile.message_chunk("It says `Error: 429`."), Chunk::Plain);
        assert_eq!(profile.message_chunk("HTTP 401 means: not authorized"), Chunk::Plain);
        let kind = |message: &str| {
            let error = JsonRpcError { code: -32603, message: message.into(), data: None };
            profile.failure(&error).kind
        };
        assert_eq!(kind("HTTP 401"), FailureKind::NotAuthenticated);
        let cut = JsonRpcError { code: -32603, message: "truncated at 8000".into(), data: None };
        assert!(!profile.is_cut_off(&cut));
        let profile = CustomProfile::new(&AgentProfile {
            cut_off: Some(vec!["truncated *".into()]),
            ..profile.profile.clone()
        });
        assert!(profile.is_cut_off(&cut));
        assert_eq!(kind("Error: HTTP 429"), FailureKind::ApiError, "only as text");
    }

    #[test]
    fn refusals_of_the_agent_and_tools_of_servers_are_recognized() {
        let profile = CustomProfile::new(&AgentProfile {
            denials: Some(vec!["Plan mode is active. *".into()]),
            mcp_title: Some("{server}: {tool}".into()),
            ..AgentProfile::default()
        });
        let mut call = AcpToolCall::default();
        assert_eq!(profile.ended(&call, true, "Plan mode is active. No."), ToolEnd::Denied("agent".into()));
        assert_eq!(profile.ended(&call, false, "No."), ToolEnd::Ok);
        assert_eq!(profile.ended(&call, true, "No."), ToolEnd::Failed);
        let named = |call: &AcpToolCall| {
            let tool = profile.tool(call);
            (tool.name, tool.kind, profile.server(call))
        };
        call.first_title = "shop: double".into();
        let mcp = "mcp__shop__double";
        assert_eq!(named(&call), (mcp.into(), ToolKind::Mcp, Some("shop".into())));
        call.kind = "execute".into();
        assert_eq!(named(&call), ("Bash".into(), ToolKind::Shell, None), "a command with such a title");
        call.meta = serde_json::value::to_raw_value(&serde_json::json!({"toolName": mcp})).ok();
        assert_eq!(named(&call), (mcp.into(), ToolKind::Mcp, None), "the agent's own name");
        let profile = CustomProfile::new(&AgentProfile {
            mcp_title: Some("{server}__{tool}".into()),
            mcp_argument: Some("use_tool.tool_name".into()),
            ..AgentProfile::default()
        });
        let mut call = AcpToolCall::default();
        call.first_title = "use_tool".into();
        assert_eq!(profile.server(&call), None, "without its arguments");
        call.raw_input =
            serde_json::value::to_raw_value(&serde_json::json!({"tool_name": "shop__double"})).ok();
        assert_eq!((&*profile.tool(&call).name, profile.server(&call).as_deref()), (mcp, Some("shop")));
        call.first_title = "delete_everything".into();
        assert_eq!(profile.server(&call), None, "another tool with such an argument");
    }

    #[test]
    fn tool_of_an_unknown_kind_is_named_by_the_profile() {
        let mut profile = AgentProfile::default();
        profile.tools.insert("write".into(), "Write".into());
        let profile = CustomProfile::new(&profile);
        let raw = serde_json::value::to_raw_value(&serde_json::json!({"path": "/ws/a.txt"})).unwrap();
        let mut call = AcpToolCall::default();
        call.first_title = "write · /ws/a.txt".into();
        (call.kind, call.raw_input) = ("other".into(), Some(raw));
        let tool = profile.tool(&call);
        assert_eq!((&*tool.name, &*tool.native_name, tool.kind), ("Write", "write", ToolKind::Write));
        assert_eq!(tool.path.as_deref(), Some("/ws/a.txt"));
    }
}
