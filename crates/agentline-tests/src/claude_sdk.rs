//! Claude's own SDK for TypeScript with its types and a compiler, at fixed versions, for checks of our compatibility.

use crate::{npm::Package, real::are_disabled};
use agentline::{Agentline, install::find_node};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

/// Claude Code itself, which the package would include, is omitted.
const SDK: Package = Package {
    id: "claude-agent-sdk",
    name: "@anthropic-ai/claude-agent-sdk",
    version: "0.3.325",
    extras: &[
        "@anthropic-ai/sdk@=1.8.0",
        "@modelcontextprotocol/sdk@=1.32.2",
        "zod@=4.6.7",
        "typescript@=5.9.3",
        "@types/node@=20.19.43",
    ],
};

/// A directory in which programs for the SDK run and are checked. It is removed with this value.
#[derive(Debug)]
pub struct ClaudeSdk {
    node: PathBuf,
    modules: PathBuf,
    /// Next to the modules, where Node.js and the compiler find them.
    folder: tempfile::TempDir,
}

impl ClaudeSdk {
    /// Returns the SDK, or `None` if real agents are disabled.
    ///
    /// # Panics
    /// Panics if it cannot be installed or there is no Node.js.
    #[must_use]
    pub fn find() -> Option<Self> {
        if are_disabled() {
            return None;
        }
        let modules = SDK
            .modules()
            .unwrap_or_else(|error| panic!("{error}\nAGENTLINE_REAL_AGENTS=off disables these tests"));
        let agentline = Agentline::from_env().expect("the tests have a home");
        let node = find_node(agentline.host_env()).expect("Node.js was needed to install it").path;
        let parent = modules.parent().expect("the path has a parent");
        let folder = tempfile::Builder::new().prefix("work-").tempdir_in(parent).expect("a folder");
        Some(Self { node, modules, folder })
    }

    /// Returns the directory.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the path of Node.js.
    #[must_use]
    pub fn node(&self) -> &Path {
        &self.node
    }

    /// Compiles all programs at once, and returns the compiler's errors for each one, or an empty text.
    ///
    /// # Panics
    /// Panics if the compiler cannot be started or reports an error that belongs to no program.
    #[must_use]
    pub fn complaints<const N: usize>(&self, programs: [&str; N]) -> [String; N] {
        let name = |n: usize| format!("check{n}.ts");
        let compiler = self.modules.join("typescript").join("bin").join("tsc");
        let flags = ["--noEmit", "--strict", "--skipLibCheck", "--target", "es2022", "--module", "nodenext"];
        let mut command = Command::new(&self.node);
        command.arg(compiler).args(flags).args(["--pretty", "false"]);
        for (n, program) in programs.iter().enumerate() {
            fs::write(self.folder().join(name(n)), program).expect("a program");
            command.arg(name(n));
        }
        let done = self.run(&mut command);
        let output = String::from_utf8_lossy(&done.stdout);
        assert_eq!(done.status.success(), output.is_empty(), "{output}");
        let mut errors = programs.map(|_| String::new());
        let mut of = None;
        for line in output.lines() {
            // The lines after the first one of an error are indented.
            if !line.starts_with(' ') {
                of = (0..N).find(|n| line.starts_with(&name(*n)));
            }
            let of = of.unwrap_or_else(|| panic!("an error without a program: {output}"));
            errors[of] += line;
            errors[of] += "\n";
        }
        errors
    }

    /// Runs a command in the directory to its end.
    ///
    /// # Panics
    /// Panics if it cannot be started.
    #[must_use]
    pub fn run(&self, command: &mut Command) -> Output {
        command.current_dir(self.folder()).stdin(Stdio::null()).output().expect("it starts")
    }
}
