//! A generated home with saved sessions of all four agents. It is deterministic and has the requested number and size
//! of sessions, with copies, subagents and a rare word in known places.

mod claude;
mod codex;
mod gemini;
mod opencode;
mod words;

use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};
use words::WordSource;

/// A word that only some sessions contain, in visible text.
pub const RARE: &str = "zyzzyva";
/// A word that one session contains only in a record that the agent writes for itself.
pub const UNSEARCHABLE: &str = "quokkabranch";

/// The requested store.
#[derive(Clone, Copy, Debug)]
pub struct StoreSpec {
    /// The number of sessions.
    pub sessions: usize,
    /// The approximate size of all sessions in bytes.
    pub bytes: u64,
    /// The approximate size in bytes of one additional session each of Claude and Gemini.
    pub big: Option<u64>,
}

/// The content of a generated store.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GeneratedStore {
    /// The home that contains the sessions.
    pub home: PathBuf,
    /// The sessions of users by agent.
    pub sessions: BTreeMap<String, u64>,
    /// The sessions of subagents.
    pub sub_agents: u64,
    /// The tokens of each agent, each answer once: uncached prompt, cached prompt, answer.
    pub tokens: BTreeMap<String, [u64; 3]>,
    /// The agents and ids of the sessions that contain the rare word.
    pub rare: Vec<(String, String)>,
    /// The files of the large sessions by agent.
    pub big: BTreeMap<String, PathBuf>,
    /// The size of all files in bytes.
    pub bytes: u64,
}

/// One session to be written.
struct Plan<'a> {
    home: &'a Path,
    number: usize,
    id: String,
    project: String,
    /// Its target size in bytes.
    bytes: u64,
    /// Its start in milliseconds since 1970.
    start: u64,
    rare: bool,
    unsearchable: bool,
}

/// One turn of a session, for all agents.
struct Turn {
    prompt: String,
    thought: String,
    text: String,
    command: String,
    output: String,
    input: u64,
    cached: u64,
    answer: u64,
}

impl GeneratedStore {
    /// Generates a store below an empty home, or returns the one that was generated there with the same specification.
    ///
    /// # Errors
    /// Returns an error if files cannot be written.
    pub fn make(home: &Path, wish: StoreSpec) -> io::Result<Self> {
        let note = home.join(format!("made-{FORMAT}-{}-{}-{:?}.json", wish.sessions, wish.bytes, wish.big));
        if let Some(store) = fs::read(&note).ok().and_then(|json| serde_json::from_slice(&json).ok()) {
            return Ok(store);
        }
        if home.exists() {
            fs::remove_dir_all(home)?;
        }
        fs::create_dir_all(home)?;
        let mut store = Self { home: home.to_owned(), ..Self::default() };
        let mut words = WordSource::new(7);
        let mut registry = BTreeMap::new();
        let mut database = opencode::Writer::create(home)?;
        for number in 0..wish.sessions {
            let plan = store.plan(home, number, wish, &mut words);
            let agent = agent_of(number);
            let count = store.sessions.entry(agent.to_owned()).or_default();
            *count += 1;
            if plan.rare {
                store.rare.push((agent.to_owned(), plan.id.clone()));
            }
            let used = store.tokens.entry(agent.to_owned()).or_default();
            match agent {
                "claude" => {
                    let [forks, helpers] = claude::write(&plan, &mut words, used)?;
                    *count += forks;
                    store.sub_agents += helpers;
                }
                "gemini" => drop(gemini::write(&plan, &mut words, used, &mut registry)?),
                "codex" => codex::write(&plan, &mut words, used)?,
                _ => database.write(&plan, &mut words, used)?,
            }
        }
        for (agent, last) in wish.big.iter().flat_map(|_| [("claude", 1), ("gemini", 2)]) {
            let mut plan = store.plan(home, 0, wish, &mut words);
            plan.id = format!("bbbbbbbb-0000-4000-8000-00000000000{last}");
            (plan.bytes, plan.number, plan.rare, plan.unsearchable) =
                (wish.big.unwrap_or(0), 1, false, false);
            let used = store.tokens.entry(agent.to_owned()).or_default();
            let file = if agent == "claude" {
                claude::write(&plan, &mut words, used)?;
                claude::file(&plan)
            } else {
                gemini::write(&plan, &mut words, used, &mut registry)?
            };
            *store.sessions.entry(agent.to_owned()).or_default() += 1;
            store.big.insert(agent.to_owned(), file);
        }
        database.finish()?;
        let json = serde_json::json!({ "projects": registry }).to_string();
        fs::create_dir_all(home.join(".gemini"))?;
        fs::write(home.join(".gemini/projects.json"), json)?;
        store.bytes = size_of(home)?;
        fs::write(&note, serde_json::to_vec(&store)?)?;
        Ok(store)
    }

    fn plan<'a>(&self, home: &'a Path, number: usize, wish: StoreSpec, words: &mut WordSource) -> Plan<'a> {
        let mean = wish.bytes / wish.sessions.max(1) as u64;
        // Most sessions are short and some are long, as in real stores.
        let bytes = mean * [20, 30, 40, 60, 80, 100, 120, 150, 200, 200][words.below(10)] / 100;
        Plan {
            home,
            number,
            id: words.uuid(),
            project: format!("/home/user/projects/project-{}", number % 39),
            bytes,
            start: 1_767_225_600_000 + number as u64 * 3_700_000,
            rare: if wish.sessions < RARE_IN { number % 7 == 3 } else { number % RARE_IN == 5 },
            unsearchable: number == 4,
        }
    }
}

/// Changes with the written format, so that a store of an older version is generated again.
const FORMAT: u32 = 3;

/// One of this many sessions contains the rare word; every agent has some of them.
const RARE_IN: usize = 373;

/// Returns the agent of a session: of twenty, nine are Claude's, six Gemini's, three Codex's and two OpenCode's.
fn agent_of(number: usize) -> &'static str {
    match number % 20 {
        0..9 => "claude",
        9..15 => "gemini",
        15..18 => "codex",
        _ => "opencode",
    }
}

/// Returns the turns of a session, up to its target size.
fn turns(
    plan: &Plan<'_>,
    words: &mut WordSource,
    mut write: impl FnMut(usize, Turn) -> io::Result<u64>,
) -> io::Result<()> {
    let mut written = 0;
    let mut number = 0;
    while written < plan.bytes || number == 0 {
        let mut turn = Turn {
            prompt: words.sentence(12),
            thought: words.sentence(30),
            text: words.text(60),
            command: format!("grep -rn \"{}\" src\\lib", words.word()),
            output: words.text(900),
            input: 1000 + words.below(4000) as u64,
            cached: words.below(60_000) as u64,
            answer: 50 + words.below(900) as u64,
        };
        if plan.rare && number == 0 {
            let texts = [&mut turn.prompt, &mut turn.text, &mut turn.output, &mut turn.thought];
            texts.into_iter().nth(plan.number % 4).expect("four places").push_str(&format!(" {RARE} end"));
        }
        written += write(number, turn)?;
        number += 1;
    }
    Ok(())
}

/// Formats a time as RFC 3339.
fn moment(at: u64) -> String {
    let (day, rest) = (agentline_core::day_of(at, 0), at % 86_400_000);
    let (hour, minute, second) = (rest / 3_600_000, rest / 60_000 % 60, rest / 1000 % 60);
    format!("{day}T{hour:02}:{minute:02}:{second:02}.{:03}Z", rest % 1000)
}

fn count(used: &mut [u64; 3], turn: &Turn) {
    used[0] += turn.input;
    used[1] += turn.cached;
    used[2] += turn.answer;
}

fn size_of(folder: &Path) -> io::Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        sum += if metadata.is_dir() { size_of(&entry.path())? } else { metadata.len() };
    }
    Ok(sum)
}

/// Writes lines of JSON to a file, and counts their bytes.
struct Lines(io::BufWriter<fs::File>);

impl Lines {
    fn create(path: &Path) -> io::Result<Self> {
        fs::create_dir_all(path.parent().expect("a file in a folder"))?;
        Ok(Self(io::BufWriter::new(fs::File::create(path)?)))
    }

    fn line(&mut self, value: &serde_json::Value) -> io::Result<u64> {
        use io::Write;
        let text = value.to_string();
        self.0.write_all(text.as_bytes())?;
        self.0.write_all(b"\n")?;
        Ok(text.len() as u64 + 1)
    }

    fn finish(self) -> io::Result<()> {
        self.0.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok(())
    }
}
