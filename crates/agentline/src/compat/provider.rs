//! The workflow provider: takes a prompt and returns the complete answer and the files that the agent wrote.
//!
//! A workflow engine creates one provider from its own map of settings and calls it repeatedly. It is a thin layer over
//! [`Agentline::run`] with other defaults, other error messages and a smaller result. `docs/providers.md` has the
//! tables.
//!
//! ```no_run
//! use agentline::{Agentline, provider::{CallContext, Provider}};
//! let config = serde_json::json!({"model": "gemini-2.5-pro", "timeout": 300});
//! let provider = Provider::new(Agentline::from_env()?, config.as_object().cloned().unwrap_or_default())?;
//! provider.validate()?;
//! let context = CallContext::default().project_root("/srv/project");
//! let result = provider.generate("Write the missing tests.", &context, None)?;
//! println!("{}", serde_json::to_string(&result)?); // {"response":"…","files":{"tests/sum.rs":null}}
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod context;
mod error;
mod metadata;
mod result;

pub use crate::compat::provider::context::CallContext;
pub use crate::compat::provider::error::{ErrorKind, ProviderError};
pub use crate::compat::provider::metadata::{CONFIG_KEYS, Metadata};
pub use crate::compat::provider::result::{ProviderResult, ResultCollector};

use crate::agentline::Agentline;
use agentline_core::{Agent, Event, Layer, Notice, Problem, RunRequest, agents, config::UnknownKeys};
use serde_json::{Map, Value, json};
use std::{fmt, sync::Arc};

/// Runs an agent for a workflow engine. Cheap to clone.
#[derive(Clone)]
pub struct Provider {
    agentline: Agentline,
    agent: Arc<dyn Agent>,
    /// The request that every call starts from.
    request: RunRequest,
    warnings: Vec<Notice>,
}

impl Provider {
    /// Creates a provider for the agent that the configuration names, or for Gemini CLI if it names none. The agent may be
    /// a built-in one, one that `agents` of the configuration defines, or one of the instance's own registry.
    ///
    /// Every key of `docs/configuration.md` is accepted; the map may be empty. By default, the agent may do everything
    /// (`permission_mode` is `bypass`) and sees the caller's whole environment (`pass_env` is `*`). A key that
    /// resembles a known one is an error; other unknown keys are ignored and reported by [`Provider::warnings`].
    ///
    /// # Errors
    /// Returns all problems of the configuration together.
    pub fn new(agentline: Agentline, config: Map<String, Value>) -> Result<Self, ProviderError> {
        let defaults = json!({"permission_mode": "bypass", "pass_env": ["*"]});
        let defaults = defaults.as_object().cloned().unwrap_or_default();
        let user_layer = Layer::map("configuration", config)
            .home(agentline.host_env().home.clone())
            .unknown_keys(UnknownKeys::RefuseSimilar);
        let mut config = crate::settings::build(&[Layer::map("provider", defaults), user_layer])?;
        let warnings = std::mem::take(&mut config.notices);
        let (agentline, request) = agentline.with_config(&config);
        let agent = agentline.registry().find(&request.agent)?;
        Ok(Self { agentline, agent, request, warnings })
    }

    /// Creates the provider with this id: `gemini-cli`, `google:gemini-cli`, `gemini`, or the name of a configured agent.
    ///
    /// # Errors
    /// Returns an error if the id is unknown or the configuration names another agent, and in the cases of
    /// [`Provider::new`].
    pub fn by_id(id: &str, agentline: Agentline, config: Map<String, Value>) -> Result<Self, ProviderError> {
        let mut config = config;
        let default = agents::find(id).map_or_else(|_| id.to_owned(), |agent| agent.info().id.to_owned());
        let named = config.entry("agent").or_insert_with(|| default.into()).clone();
        let provider = Self::new(agentline, config)?;
        let agent = provider.agentline.registry().find(id)?;
        if provider.agent.info().id != agent.info().id {
            let problem = Problem::new("agent", format!("agent is {named}, but the provider is `{id}`"));
            return Err(problem.hint("remove `agent`").into());
        }
        Ok(provider)
    }

    /// Returns the metadata of a built-in provider, for a registry that lists providers before it creates one.
    ///
    /// # Errors
    /// Returns an error if the id is unknown.
    pub fn metadata_of(id: &str) -> Result<Metadata, ProviderError> {
        Ok(Metadata::of(&agents::find(id)?.info()))
    }

    /// Returns the metadata of this provider.
    #[must_use]
    pub fn metadata(&self) -> Metadata {
        Metadata::of(&self.agent.info())
    }

    /// Returns the non-fatal problems of the configuration, such as unknown keys. Every result repeats them.
    #[must_use]
    pub fn warnings(&self) -> &[Notice] {
        &self.warnings
    }

    /// Checks that the agent's program is installed. Starts nothing and blocks for a few milliseconds.
    ///
    /// # Errors
    /// Returns an error if the program, or the interpreter that runs it, is not found.
    pub fn validate(&self) -> Result<(), ProviderError> {
        match self.agentline.detect(&*self.agent).problems.first() {
            Some(problem) => Err(ProviderError::not_found(&self.agent.info(), problem)),
            None => Ok(()),
        }
    }

    /// Sends a prompt to the agent and blocks until it has answered.
    ///
    /// With [`CallContext::prompt_file`], the agent is instructed to read that file, and `prompt` is not
    /// sent, because engines pass the same text in both. `system_prompt` is put before the prompt, separated
    /// by a blank line.
    ///
    /// # Errors
    /// Returns an error if the agent could not be started or did not answer; [`ProviderError::outcome`] has the outcome
    /// of the run. An answer without text is not an error, nor are refused tools, which are in
    /// [`ProviderResult::denied`].
    pub fn generate(
        &self,
        prompt: &str,
        context: &CallContext,
        system_prompt: Option<&str>,
    ) -> Result<ProviderResult, ProviderError> {
        // A separate thread, because the caller may be inside a runtime, where another one cannot block.
        let wait = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(crate::Error::io("start", "a runtime"))?;
            runtime.block_on(self.generate_async(prompt, context, system_prompt))
        };
        match std::thread::scope(|scope| scope.spawn(wait).join()) {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// Sends a prompt to the agent and waits for its answer, for callers with a runtime.
    ///
    /// Dropping the future stops the agent and everything that it started.
    ///
    /// # Errors
    /// As [`Provider::generate`].
    pub async fn generate_async(
        &self,
        prompt: &str,
        context: &CallContext,
        system_prompt: Option<&str>,
    ) -> Result<ProviderResult, ProviderError> {
        let request =
            context.apply(self.request.clone(), prompt, system_prompt, &self.agentline.host_env().cwd);
        let mut run = self.agentline.run(request).await?;
        let mut gathered = ResultCollector::default();
        let outcome = loop {
            match run.next().await {
                Some(record) => match record.event {
                    Event::Outcome { outcome } => break *outcome,
                    event => gathered.take(&event),
                },
                None => break run.outcome().await,
            }
        };
        match ProviderError::of_outcome(&self.agent.info(), outcome) {
            Ok(outcome) => Ok(gathered.finish(outcome, &self.warnings)),
            Err(error) => Err(error),
        }
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The request may contain an API key.
        f.debug_struct("Provider").field("name", &self.agent.info().provider).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
