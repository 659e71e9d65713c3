//! Custom agents: any agent that speaks ACP and is configured by its command.

use super::{
    adapter::{self, AdapterLaunch},
    builtin_quirks,
};
use crate::{
    Agent, AgentInfo, AgentSettings, Dialogue, DialogueConfig, FileSystem, Launch, LaunchContext, Plan,
    Problem, PromptText, RunRequest, Surface, Version,
    acp::{
        Acp,
        profile::{AcpProfile, Quirks},
    },
};
use std::path::Path;

/// An agent that speaks ACP and about which nothing else is known: one of the configuration (`[agents.NAME]` with a
/// `command`), or one that a program registers itself.
#[derive(Clone, Debug)]
pub struct CustomAgent {
    name: String,
    program: String,
    args: Vec<String>,
    surface: Option<Surface>,
    sign_in_hint: String,
}

impl CustomAgent {
    /// Creates an agent with this name. The first word of the command is its program, the others are its arguments.
    pub fn new(name: impl Into<String>, command: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let name = name.into();
        let mut args = command.into_iter().map(Into::into);
        let sign_in_hint = format!("sign in to `{name}` as its documentation describes");
        let program = args.next().unwrap_or_default();
        Self { name, program, args: args.collect(), surface: None, sign_in_hint }
    }

    /// Returns the agent that these settings define, or `None` if they name no program.
    #[must_use]
    pub fn of(name: &str, settings: &AgentSettings) -> Option<Self> {
        let program = settings.program.as_ref().map(|path| path.to_string_lossy().into_owned());
        let mut command = settings.command.clone().unwrap_or_default();
        if command.is_empty() {
            command.push(program?);
        }
        command.extend(settings.args.clone().unwrap_or_default());
        Some(Self { surface: settings.surface, ..Self::new(name, command) })
    }
}

impl Agent for CustomAgent {
    fn info(&self) -> AgentInfo<'_> {
        AgentInfo { program: &self.program, sign_in_hint: &self.sign_in_hint, ..AgentInfo::new(&self.name) }
    }

    fn settings(&self) -> Option<AgentSettings> {
        Some(AgentSettings {
            command: Some([&self.program].into_iter().chain(&self.args).cloned().collect()),
            surface: self.surface,
            ..AgentSettings::default()
        })
    }

    fn unknown_abilities(&self) -> &'static [&'static str] {
        // ACP requires the others: it cancels by message, ends a turn with a reason, and every agent starts MCP servers.
        &[
            "streams_text",
            "thinking",
            "tool_events",
            "asks_permission",
            "resumes",
            "attachments",
            "live_usage",
            "hosted_tools",
        ]
    }

    fn check(&self, request: &RunRequest, surface: Surface) -> Vec<Problem> {
        let mut problems = adapter::check(request, &self.info());
        problems.extend(adapter::unenforceable(request, surface, |_, _| {
            let reason = format!("agentline does not know what `{}` does without asking", self.name);
            let way_out = "remove the rule, or use a built-in agent";
            Some((reason, way_out.into()))
        }));
        if let Some(wrong) = self.surface.filter(|s| *s != Surface::Acp) {
            problems.push(
                Problem::new(
                    format!("agents.{}.surface", self.name),
                    format!("`{wrong}` is not supported: custom agents support only the surface `acp`"),
                )
                .hint("write `surface = \"acp\"`, or remove it"),
            );
        }
        problems
    }

    fn launch(
        &self,
        plan: &Plan,
        context: &LaunchContext,
        fs: &dyn FileSystem,
    ) -> Result<Launch, Vec<Problem>> {
        let mut own = AdapterLaunch::new(self.info());
        own.args.clone_from(&self.args);
        own.only_when_asked = true;
        adapter::launch(plan, context, fs, own)
    }

    fn prompt_text(&self, plan: &Plan, cwd: &Path, fs: &dyn FileSystem) -> Result<PromptText, Problem> {
        adapter::prompt_text(plan, true, cwd, fs)
    }

    fn dialogue(&self, config: &DialogueConfig) -> Box<dyn Dialogue> {
        Box::new(Acp::new(config, Box::new(CustomProfile::default())))
    }
}

/// The profile of an agent that is known only by the name with which it introduces itself.
#[derive(Clone, Copy, Debug, Default)]
struct CustomProfile {
    quirks: Quirks,
}

impl AcpProfile for CustomProfile {
    fn set_agent_version(&mut self, name: &str, _version: Option<Version>) {
        // An agent that is also built in deviates in the same way under another name in the configuration.
        self.quirks = builtin_quirks(name).unwrap_or(self.quirks);
    }

    fn quirks(&self) -> Quirks {
        self.quirks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configured_agent_is_recognized_by_its_own_name() {
        let mut profile = CustomProfile::default();
        profile.set_agent_version("something", None);
        assert_eq!(profile.quirks(), Quirks::default());
        profile.set_agent_version("OpenCode", Version::parse("1.18.33"));
        assert!(profile.quirks().usage_of_last_call);
    }
}
