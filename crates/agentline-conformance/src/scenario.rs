//! A scenario: what the model answers, what the request is, and what the outcome must be, for every agent.

use crate::bench::Scene;
use crate::expected::Expected;
use crate::script::ScenarioScript;
use agentline::agents::SurfaceFeatures;
use agentline::{RunOptions, RunRequest};
use std::fmt;

/// One scenario.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Scenario {
    /// Its name on the command line and in the matrix.
    pub name: &'static str,
    /// What it shows, in one sentence.
    pub about: &'static str,
    /// What it belongs to.
    pub group: Group,
    /// How often it runs.
    pub tier: Tier,
    pub(crate) need: Option<Need>,
    pub(crate) may_be_refused: bool,
    pub(crate) cold: bool,
    pub(crate) play: Play,
    pub(crate) script: fn(&Scene) -> ScenarioScript,
    pub(crate) request: fn(&Scene, RunRequest) -> RunRequest,
    pub(crate) options: fn(&Scene) -> RunOptions,
    pub(crate) expect: fn(&Scene) -> Expected,
}

/// The groups of scenarios.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Group {
    /// Text, reasoning and structured answers.
    #[default]
    Answers,
    /// Files, commands and tools of others.
    Tools,
    /// Modes, rules and limits.
    Permissions,
    /// Errors of the model's service.
    Service,
    /// Cancellation, silence and crashes.
    Control,
    /// Conversations and stored sessions.
    Sessions,
}

/// How often a scenario runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Tier {
    /// On every surface in CI.
    Basic,
    /// Also in `agentline doctor --deep`.
    Deep,
    /// In CI on the default surface of an agent, and in the whole matrix.
    Full,
}

/// What a surface must be able to do for a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Thinking,
    MultiTurn,
    HostedTools,
    Schema,
    Resume,
    Mcp,
}

impl Need {
    /// Returns why a surface with these abilities cannot play the scenario.
    pub(crate) fn missing(self, features: &SurfaceFeatures) -> Option<&'static str> {
        let (has, reason) = match self {
            Self::Thinking => (features.thinking, "the surface does not report reasoning"),
            Self::MultiTurn => (features.multi_turn, "the surface takes one prompt per process"),
            Self::HostedTools => (features.hosted_tools, "the surface has no tools of the caller"),
            Self::Schema => (features.schema, "the surface has no structured answers"),
            Self::Resume => (features.resumes, "the surface does not resume sessions"),
            Self::Mcp => (features.mcp, "the surface accepts no MCP servers"),
        };
        (!has).then_some(reason)
    }
}

/// How a scenario is played.
#[derive(Clone, Copy)]
pub(crate) enum Play {
    /// One run, read at once.
    Run,
    /// One run, whose events are read only when the model has answered.
    ReadLate,
    /// One run, which is cancelled when this holds.
    CancelWhen(fn(&Scene) -> bool),
    /// One run, whose agent is killed when the model is asked.
    Kill,
    /// Two runs; the second resumes the session of the first.
    Resume(ResumeBy),
    /// Two prompts of one conversation.
    Conversation,
}

/// How the second run names the session of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResumeBy {
    Id,
    Latest,
}

/// Creates a scenario with the usual options. [`all`](crate::scenarios::all) sets its group.
pub(crate) fn scenario(
    name: &'static str,
    about: &'static str,
    script: fn(&Scene) -> ScenarioScript,
    expect: fn(&Scene) -> Expected,
) -> Scenario {
    Scenario {
        name,
        about,
        group: Group::default(),
        tier: Tier::Full,
        need: None,
        may_be_refused: false,
        cold: false,
        play: Play::Run,
        script,
        request: |_, request| request,
        options: |_| RunOptions::default(),
        expect,
    }
}

impl Scenario {
    pub(crate) fn tier(mut self, tier: Tier) -> Self {
        self.tier = tier;
        self
    }

    /// Plays it only on surfaces that can do this.
    pub(crate) fn needs(mut self, need: Need) -> Self {
        self.need = Some(need);
        self
    }

    /// Accepts that an agent refuses the request before it starts, with a reason.
    pub(crate) fn may_be_refused(mut self) -> Self {
        self.may_be_refused = true;
        self
    }

    /// Plays it on a process of its own, even where agents can be kept warm.
    pub(crate) fn cold(mut self) -> Self {
        self.cold = true;
        self
    }

    pub(crate) fn play(mut self, play: Play) -> Self {
        self.play = play;
        self
    }

    pub(crate) fn request(mut self, request: fn(&Scene, RunRequest) -> RunRequest) -> Self {
        self.request = request;
        self
    }

    pub(crate) fn options(mut self, options: fn(&Scene) -> RunOptions) -> Self {
        self.options = options;
        self
    }
}

impl fmt::Debug for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scenario").field("name", &self.name).field("tier", &self.tier).finish_non_exhaustive()
    }
}
