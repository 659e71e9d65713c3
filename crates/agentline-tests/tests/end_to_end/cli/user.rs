//! Creates a user for one test: a separate home, workspace and environment, and a fake agent.

use agentline_tests::output_of;
use serde_json::Value;
use std::{
    fs,
    io::Write,
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
};

/// A key in a realistic format that must not appear anywhere.
pub(crate) const KEY: &str = "fake-key-of-the-user-123";

/// A user with everything that a run needs. It is removed with the test.
pub(crate) struct User {
    folder: tempfile::TempDir,
    env: Vec<(String, String)>,
}

/// The result of a command.
pub(crate) struct Done {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl User {
    /// Creates a user whose agent behaves correctly.
    pub(crate) fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("agentline-test-").tempdir().unwrap();
        for part in ["home", "ws", "tmp"] {
            fs::create_dir(folder.path().join(part)).unwrap();
        }
        let user = Self { folder, env: Vec::new() };
        let tmp = user.path("../tmp");
        user.env("PATH", std::env::var("PATH").unwrap_or_default())
            .env("TMPDIR", tmp.to_string_lossy())
            .env("GEMINI_CLI_PATH", env!("CARGO_BIN_EXE_fake-gemini"))
            .env("GEMINI_API_KEY", KEY)
            .env("AGENTLINE_PASS_ENV", "FAKE_AGENT_FAULT,FAKE_AGENT_ARGS")
    }

    /// Creates a user whose agent has this fault.
    pub(crate) fn with_fault(fault: &str, args: &str) -> Self {
        Self::new().env("FAKE_AGENT_FAULT", fault).env("FAKE_AGENT_ARGS", args)
    }

    /// Creates a user whose agent is a shell script that ends with these commands.
    #[cfg(unix)]
    pub(crate) fn with_script(commands: &str) -> Self {
        use std::os::unix::fs::PermissionsExt;
        let user = Self::new();
        let program = user.path("../agent");
        fs::write(&program, format!("#!/bin/sh\ncat > /dev/null\n{commands}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        user.env("GEMINI_CLI_PATH", program.to_string_lossy())
    }

    /// Returns the program on a terminal with this number of columns, created by `script`. If there is no `script`,
    /// prints a message and returns `None`.
    pub(crate) fn on_a_terminal(&self, columns: u32, args: &[&str]) -> Option<Command> {
        let has_script = Command::new("script").arg("--version").output().is_ok_and(|o| o.status.success());
        if !has_script {
            // A print macro would be captured by the test runner.
            let _ = writeln!(std::io::stderr(), "skipped: `script` of util-linux is not installed");
            return None;
        }
        let program = self.command(args);
        let args = std::iter::once(program.get_program()).chain(program.get_args());
        let line: Vec<String> = args.map(|arg| format!("'{}'", arg.to_string_lossy())).collect();
        let line = format!("stty rows 30 cols {columns}; {}", line.join(" "));
        let mut script = Command::new("script");
        script.args(["-q", "-e", "-c", &line, "/dev/null"]).env_clear();
        script.current_dir(self.path(".")).env("TERM", "xterm-256color");
        script.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
        Some(script)
    }

    /// Sets a variable. An empty one counts as unset.
    pub(crate) fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.env.retain(|(have, _)| have != name);
        self.env.push((name.to_owned(), value.into()));
        self
    }

    /// Returns a path in the workspace.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join("ws").join(path)
    }

    /// Writes a file at a path relative to the workspace.
    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Reads a file at a path relative to the workspace.
    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    /// Returns the program, ready to start in the workspace with an empty standard input.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        self.program(env!("CARGO_BIN_EXE_agentline-under-test"), args)
    }

    /// Runs Node.js to its end.
    #[cfg(unix)]
    pub(crate) fn node(&self, args: &[&str]) -> Done {
        self.program("node", args).output().unwrap().into()
    }

    fn program(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(args)
            .current_dir(self.path("."))
            .env_clear()
            .env("HOME", self.folder.path().join("home"))
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            // `.ci/coverage` collects coverage data.
            .envs(std::env::var_os("LLVM_PROFILE_FILE").map(|file| ("LLVM_PROFILE_FILE", file)))
            .stdin(Stdio::null());
        command
    }

    /// Runs the program to its end.
    pub(crate) fn agentline(&self, args: &[&str]) -> Done {
        let child = self.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        output_of(child, &format!("the end of agentline {args:?}")).into()
    }

    /// Runs the program with this standard input.
    pub(crate) fn agentline_with_input(&self, args: &[&str], input: &[u8]) -> Done {
        let mut child = self.start(args);
        let mut stdin = child.stdin.take().unwrap();
        // A program that rejects its input may stop reading it.
        let _ = stdin.write_all(input);
        drop(stdin);
        output_of(child, &format!("the end of agentline {args:?}")).into()
    }

    /// Starts the program with pipes on all three streams.
    pub(crate) fn start(&self, args: &[&str]) -> Child {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }
}

impl Done {
    /// Returns standard output as one JSON value.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}{}", self.out, self.err))
    }

    /// Returns standard output as one JSON value per line.
    pub(crate) fn lines(&self) -> Vec<Value> {
        self.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl From<Output> for Done {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}
