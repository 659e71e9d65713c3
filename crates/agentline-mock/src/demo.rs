//! The demo: its agent, its prompt, and the model and home that it needs.

use crate::gemini::{GeminiModel, GeminiStep, SETTINGS, Script, demo_script};
use std::{fs, io, path::Path};

/// The agent of the demo.
pub const AGENT: &str = "gemini";

/// Its model, which has a price and is requested directly, without a router.
pub const MODEL: &str = "gemini-2.5-pro";

/// Its prompt.
pub const PROMPT: &str = "Write a program that prints the primes below 50, and leave a note that says so.";

/// The scripted model of the demo. It serves until it is dropped.
#[derive(Debug)]
pub struct Demo {
    model: GeminiModel,
}

impl Demo {
    /// Starts the model, and prepares an empty home in which the agent accepts it.
    ///
    /// # Errors
    /// Returns an error if the home cannot be written or there is no free port on loopback.
    pub fn start(home: &Path) -> io::Result<Self> {
        accept(home)?;
        Ok(Self { model: GeminiModel::start(demo_script())? })
    }

    /// Starts a model for any number of runs: every prompt is answered from the first step of this script. Without one,
    /// a prompt about primes gets the demo's own answers, and any other prompt gets one sentence.
    ///
    /// # Errors
    /// Returns an error if the home cannot be written or there is no free port on loopback.
    pub fn for_every_prompt(home: &Path, script: Option<Script>) -> io::Result<Self> {
        accept(home)?;
        let other = || {
            Script::always(GeminiStep::text(
                "I am a scripted model. I can write a program that prints primes.",
            ))
        };
        let scripts = match script {
            Some(script) => vec![("", script)],
            None => vec![("primes", demo_script()), ("", other())],
        };
        Ok(Self { model: GeminiModel::matching(scripts)? })
    }

    /// Starts a model that answers a prompt with the first text whose mark the prompt contains.
    ///
    /// # Errors
    /// Returns an error if the home cannot be written or there is no free port on loopback.
    pub fn with_answers(home: &Path, answers: &[(&str, &str)]) -> io::Result<Self> {
        accept(home)?;
        let scripts = answers.iter().map(|(mark, text)| (*mark, Script::always(GeminiStep::text(*text))));
        Ok(Self { model: GeminiModel::matching(scripts)? })
    }

    /// Returns the address of the model.
    #[must_use]
    pub fn url(&self) -> String {
        self.model.url()
    }

    /// Returns the variables with which the agent uses the model.
    #[must_use]
    pub fn env(&self) -> Vec<(String, String)> {
        self.model.env()
    }
}

/// Prepares a home in which the agent accepts the model.
fn accept(home: &Path) -> io::Result<()> {
    let settings = home.join(".gemini");
    fs::create_dir_all(&settings)?;
    fs::write(settings.join("settings.json"), SETTINGS)
}
