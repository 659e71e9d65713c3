//! How a configured agent deviates from ACP, according to its profile.

use crate::{
    AgentProfile, ErrorPlace, Failure, RunId, Sink, ToolKind, ToolUse, Version,
    acp::{
        profile::{AcpProfile, Chunk, Quirks, message_of, plain_failure, plain_tool},
        tool_call::AcpToolCall,
    },
    agents::builtin_quirks,
    rpc::JsonRpcError,
    wire::{Str, wire},
};

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
}

impl CustomProfile {
    pub(super) fn new(profile: &AgentProfile) -> Self {
        let quirks = Quirks {
            usage: profile.usage.unwrap_or_default(),
            session_file: profile.session_store.is_some(),
            denial_ends_turn: true,
            ..Quirks::default()
        };
        Self { profile: profile.clone(), quirks }
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
        let known = self.profile.error(ErrorPlace::Text, &message_of(error));
        known.unwrap_or_else(|| plain_failure(error))
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

    fn session_line(&mut self, _run: RunId, text: &str, sink: &mut Sink) {
        if let Some(failure) = self.profile.error(ErrorPlace::Session, text) {
            sink.retry(failure);
        }
    }

    fn tool(&self, call: &AcpToolCall) -> ToolUse {
        let mut tool = plain_tool(call);
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
    use crate::{ErrorPattern, FailureKind, ReportedUsage, agents::opencode};

    #[test]
    fn configured_agent_is_recognized_by_its_own_name() {
        let mut profile = CustomProfile::new(&AgentProfile::default());
        profile.set_agent_version("something", None);
        assert_eq!(profile.quirks(), Quirks { denial_ends_turn: true, ..Quirks::default() });
        profile.set_agent_version(opencode::profile::ACP_NAME, Version::parse("1.18.33"));
        assert_eq!(profile.quirks().usage, ReportedUsage::LastRequest);
    }

    #[test]
    fn errors_and_noise_are_recognized_by_their_texts() {
        let profile = CustomProfile::new(&AgentProfile {
            errors: Some(vec![ErrorPattern::new("Error: *429*", FailureKind::RateLimited)]),
            noise: Some(vec!["Info: *".into()]),
            ..AgentProfile::default()
        });
        assert!(
            matches!(profile.message_chunk("Error: HTTP 429\n"), Chunk::Failed(failure) if failure.kind == FailureKind::RateLimited)
        );
        assert_eq!(profile.message_chunk("Info: retrying"), Chunk::Noise);
        assert_eq!(profile.message_chunk("It says `Error: 429`."), Chunk::Plain);
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
