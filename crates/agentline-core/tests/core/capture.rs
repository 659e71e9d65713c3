//! Real runs of the agent, recorded with a scripted model: their stdout, stderr and exit code.

use crate::play::{Player, feed, spec};
use agentline_core::{ExitReason, Surface, TurnSpec};
use std::path::{Path, PathBuf};

/// One recorded run.
pub(crate) struct Capture {
    /// `folder/name` without the extension.
    pub(crate) name: String,
    pub(crate) surface: Surface,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<String>,
    /// The exit code, or `None` if the recorder had to kill the agent.
    pub(crate) exit: Option<i32>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures/gemini")
}

/// Returns the lines of a session file.
pub(crate) fn session(name: &str) -> Vec<String> {
    let path = root().join("sessions").join(format!("{name}.jsonl"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.lines().map(str::to_owned).collect()
}

/// Returns every recorded run, sorted by name.
pub(crate) fn all() -> Vec<Capture> {
    let mut captures: Vec<Capture> = ["stream-json", "json", "misc"]
        .into_iter()
        .flat_map(|folder| {
            let files = std::fs::read_dir(root().join(folder)).expect("the captures exist");
            files.map(move |f| (folder, f.expect("a file").file_name().into_string().expect("a plain name")))
        })
        .filter_map(|(folder, file)| Some((folder, file.strip_suffix(".stderr.txt")?.to_owned())))
        .map(|(folder, file)| read(folder, &file))
        .collect();
    captures.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(captures.len() > 100, "only {} captures were found", captures.len());
    captures
}

pub(crate) fn find(name: &str) -> Capture {
    all().into_iter().find(|c| c.name == name).unwrap_or_else(|| panic!("capture {name} is missing"))
}

fn read(dir: &str, file: &str) -> Capture {
    let dir_path = root().join(dir);
    // A run without output has no file.
    let stdout = std::fs::read(dir_path.join(file)).unwrap_or_default();
    let notes = std::fs::read(dir_path.join(format!("{file}.stderr.txt"))).expect("the notes exist");
    let notes = String::from_utf8_lossy(&notes).into_owned();
    let (head, stderr) = notes.split_once("# ---- stderr ----\n").expect("the notes have a header");
    let code = head.split_once("exit=").expect("the header has the exit code").1;
    let code: i32 = code.split(' ').next().and_then(|c| c.parse().ok()).expect("the exit code is a number");
    let stem = file.rsplit_once('.').map_or(file, |f| f.0);
    Capture {
        name: format!("{dir}/{stem}"),
        surface: if dir == "json" { Surface::Json } else { Surface::StreamJson },
        stdout,
        stderr: stderr.lines().map(str::to_owned).collect(),
        exit: (code >= 0).then_some(code),
    }
}

/// The order in which stderr and stdout are fed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Stderr {
    First,
    Last,
    Between,
}

impl Capture {
    /// Plays the run from its start to its outcome.
    pub(crate) fn play(&self) -> Player {
        self.play_with(spec(), &[], Stderr::Last)
    }

    pub(crate) fn play_with(&self, spec: TurnSpec, cuts: &[usize], stderr: Stderr) -> Player {
        let mut player = Player::new(self.surface);
        player.prompt(spec);
        self.play_into(&mut player, cuts, stderr);
        player
    }

    pub(crate) fn play_into(&self, player: &mut Player, cuts: &[usize], stderr: Stderr) {
        match stderr {
            Stderr::First => {
                self.stderr.iter().for_each(|line| player.stderr(line));
                feed(player, &self.stdout, cuts);
            }
            Stderr::Last => {
                feed(player, &self.stdout, cuts);
                self.stderr.iter().for_each(|line| player.stderr(line));
            }
            Stderr::Between => {
                let mut err = self.stderr.iter();
                for line in String::from_utf8_lossy(&self.stdout).lines() {
                    player.stdout(line);
                    err.next().into_iter().for_each(|line| player.stderr(line));
                }
                err.for_each(|line| player.stderr(line));
            }
        }
        match self.exit {
            Some(code) => player.exit(ExitReason::Code(code)),
            None => {
                player.ticks_to_the_end();
            }
        }
    }
}
