//! The interface of an agent. Each directory under `agents` implements it; no other module knows facts about an agent.

use crate::{
    AgentDescription, Dialogue, DialogueConfig, Failure, FileSystem, Launch, LaunchContext, NativeDecision,
    Plan, Problem, PromptText, RunRequest, SessionSource, SetupProbe, Surface, ToolUseContext,
    session_source::NoSessions, setup_probe::UnknownSetup,
};
use std::path::Path;

/// A coding agent that agentline can drive: its launch and its dialogue.
///
/// Its [`AgentDescription`] says what it is, its [`SessionSource`] reads its stored sessions, and its [`SetupProbe`]
/// inspects the user's setup.
pub trait Agent: AgentDescription {
    /// Chooses the best surface for a request that names none.
    ///
    /// # Errors
    /// Returns a problem with the reason if no surface fits the request.
    fn choose(&self, request: &RunRequest) -> Result<Surface, Problem> {
        let _ = request;
        Ok(Surface::Acp)
    }

    /// Checks a request for this agent, before anything is looked up or started.
    fn check(&self, request: &RunRequest, surface: Surface) -> Vec<Problem>;

    /// Builds the launch of a checked plan.
    ///
    /// # Errors
    /// Returns all problems together. Nothing has been changed on disk.
    fn launch(
        &self,
        plan: &Plan,
        context: &LaunchContext,
        fs: &dyn FileSystem,
    ) -> Result<Launch, Vec<Problem>>;

    /// Returns why no session may be opened in a workspace that is not fully trusted: it contains a file that
    /// the agent would act on, and the agent cannot be kept from reading it. Returns `None` if there are no
    /// such files or if the agent ignores them.
    fn refuses_workspace(
        &self,
        plan: &Plan,
        context: &LaunchContext,
        fs: &dyn FileSystem,
    ) -> Option<Failure> {
        let _ = (plan, context, fs);
        None
    }

    /// Returns the prompt text for ACP, as in [`Agent::launch`]. Nothing else in a launch may depend on the prompt or
    /// the prompt file of a plan, so that a running process can serve other prompts.
    ///
    /// # Errors
    /// Returns the same problems as the launch.
    fn prompt_text(&self, plan: &Plan, cwd: &Path, fs: &dyn FileSystem) -> Result<PromptText, Problem>;

    /// Creates the translator for one live connection.
    fn dialogue(&self, config: &DialogueConfig) -> Box<dyn Dialogue>;

    /// Returns a problem for each rule of `prompt` that the agent cannot enforce in an open session, because
    /// it accepts such rules only when its process starts. `opened` is the request that opened the session.
    fn unenforced_in_session(&self, opened: &RunRequest, prompt: &RunRequest) -> Vec<Problem> {
        let _ = (opened, prompt);
        Vec::new()
    }

    /// Returns whether a run of this plan may share a process with other runs. It may if it cannot start processes,
    /// because those could not be distinguished from the processes of other runs.
    fn shares(&self, plan: &Plan) -> bool {
        let _ = plan;
        false
    }

    /// Returns how the agent itself decides on a tool use, before it asks for permission.
    fn native_decision(
        &self,
        request: &RunRequest,
        surface: Surface,
        prospect: &ToolUseContext<'_>,
    ) -> NativeDecision {
        let _ = (request, surface, prospect);
        NativeDecision::Unknown
    }

    /// Returns how to read what the agent stores about its sessions. By default, it stores nothing that can be read.
    fn sessions(&self) -> &dyn SessionSource {
        &NoSessions
    }

    /// Returns how to inspect the user's setup of the agent. By default, nothing is known about it.
    fn setup(&self) -> &dyn SetupProbe {
        &UnknownSetup
    }
}
