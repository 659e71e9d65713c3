//! Custom agents: any agent that speaks ACP and is configured by its command.

use super::adapter::{self, AdapterLaunch};
use crate::{
    Agent, AgentInfo, AgentSettings, Dialogue, DialogueConfig, FileSystem, Launch, LaunchContext, Plan,
    Problem, PromptText, RunRequest, SignIn, Surface, acp,
};
use std::{collections::BTreeMap, path::Path, sync::Mutex};

/// An agent from the configuration: `[agents.NAME]` with a `command`.
#[derive(Debug)]
pub struct Custom {
    info: &'static AgentInfo,
    args: Vec<String>,
    surface: Option<Surface>,
}

/// The values that identify an agent definition.
type Definition = (String, Vec<String>, Option<Surface>);

/// All definitions so far. They are leaked, so that an agent is a plain reference. Their number is bounded by the
/// distinct definitions in configurations.
static DEFINED: Mutex<BTreeMap<String, Vec<(Definition, &'static Custom)>>> = Mutex::new(BTreeMap::new());

impl Custom {
    /// Returns the agent that these settings define, or `None` if they name no program.
    #[must_use]
    pub fn define(name: &str, settings: &AgentSettings) -> Option<&'static Self> {
        let program = settings.program.as_ref().map(|p| p.to_string_lossy().into_owned());
        let mut words = settings.command.clone().unwrap_or_default();
        if words.is_empty() {
            words.push(program?);
        }
        words.extend(settings.args.clone().unwrap_or_default());
        let definition: Definition = (name.to_owned(), words, settings.surface);
        let mut defined = DEFINED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let known = defined.entry(name.to_owned()).or_default();
        if let Some((_, custom)) = known.iter().find(|(other, _)| *other == definition) {
            return Some(custom);
        }
        let custom = Box::leak(Box::new(Self::new(&definition)));
        known.push((definition, custom));
        Some(custom)
    }

    /// Returns the settings that define this agent, for example in another process.
    pub(super) fn settings(&self) -> (String, AgentSettings) {
        let mut settings = AgentSettings::default();
        let words = std::iter::once(self.info.program.to_owned()).chain(self.args.iter().cloned());
        settings.command = Some(words.collect());
        settings.surface = self.surface;
        (self.info.id.to_owned(), settings)
    }

    fn new((name, words, surface): &Definition) -> Self {
        let name: &'static str = name.clone().leak();
        let program: &'static str = words.first().cloned().unwrap_or_default().leak();
        let hint: &'static str = format!("sign in to `{name}` as its documentation describes").leak();
        let info = AgentInfo::new(name, &[], name, program, "", "", "", 0, hint, &[], &[Surface::Acp], None);
        Self {
            info: Box::leak(Box::new(info)),
            args: words.iter().skip(1).cloned().collect(),
            surface: *surface,
        }
    }
}

impl Agent for Custom {
    fn info(&self) -> &'static AgentInfo {
        self.info
    }

    fn check(&self, request: &RunRequest, surface: Surface) -> Vec<Problem> {
        let mut problems = adapter::check(request, surface, self.info);
        problems.extend(adapter::unenforceable(request, surface, |_, _| {
            let why = format!("agentline does not know what `{}` does without asking", self.info.id);
            let way_out = "remove the rule, or use a built-in agent";
            Some((why, way_out.into()))
        }));
        if let Some(wrong) = self.surface.filter(|s| *s != Surface::Acp) {
            problems.push(
                Problem::new(
                    format!("agents.{}.surface", self.info.id),
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
        let mut own = AdapterLaunch::new(self.info);
        own.args.clone_from(&self.args);
        own.only_when_asked = true;
        adapter::launch(plan, context, fs, own)
    }

    fn words(&self, plan: &Plan, cwd: &Path, fs: &dyn FileSystem) -> Result<PromptText, Problem> {
        adapter::words(plan, true, cwd, fs)
    }

    fn dialogue(&self, config: &DialogueConfig) -> Box<dyn Dialogue> {
        Box::new(acp::Acp::new(config, Box::new(acp::profile::PlainProfile)))
    }

    fn sign_in(&self, _: &Path, _: &BTreeMap<String, String>, _: &Path, _: &dyn FileSystem) -> Vec<SignIn> {
        Vec::new()
    }
}
