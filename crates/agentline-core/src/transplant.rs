//! Rewriting a saved session of one agent for another: what the writers in the agents' directories need, what they
//! return, and the comparison of the result with its source.
//!
//! Nothing here touches a disk. `agentline-sessions` writes the files, and reads the result back to compare it.

mod conversation;
mod losses;

pub(crate) use conversation::{TransplantSource, TransplantedTool};
pub use losses::{Loss, LossKind, transplant_losses};

use crate::{FileSystem, Millis, RawJson};
use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

/// Everything that a writer needs besides the session itself.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct TransplantContext<'a> {
    /// The directory of the project that the new session belongs to, as an absolute path.
    pub project: &'a Path,
    /// The SHA-256 of that path in hexadecimal.
    pub project_sha256: &'a str,
    /// The model that the new session names where its format requires one, as the target names it.
    pub model: Option<&'a str>,
    /// The service that the models of the source session belong to, if it is known.
    pub provider: Option<&'a str>,
    /// Random bytes, from which all new ids are derived.
    pub seed: [u8; 16],
    /// The current time, in milliseconds since 1970.
    pub now: Millis,
    /// The user's environment.
    pub env: &'a BTreeMap<String, String>,
    /// The user's home directory.
    pub home: &'a Path,
    /// The user's files.
    pub fs: &'a dyn FileSystem,
}

impl<'a> TransplantContext<'a> {
    /// Creates a context without a model and a provider.
    #[must_use]
    pub fn new(
        (project, project_sha256): (&'a Path, &'a str),
        (seed, now): ([u8; 16], Millis),
        (env, home): (&'a BTreeMap<String, String>, &'a Path),
        fs: &'a dyn FileSystem,
    ) -> Self {
        Self { project, project_sha256, model: None, provider: None, seed, now, env, home, fs }
    }

    /// Returns the bytes of the id with this number. Numbers give different ids, and 0 is the session itself.
    pub(crate) fn id_bytes(&self, number: u32) -> [u8; 16] {
        let mut bytes = self.seed;
        let [.., a, b, c, d] = bytes;
        let last = u32::from_be_bytes([a, b, c, d]).wrapping_add(number);
        bytes[12..].copy_from_slice(&last.to_be_bytes());
        bytes
    }

    /// Returns a random UUID (version 4).
    pub(crate) fn uuid(&self, number: u32) -> String {
        uuid(self.id_bytes(number), 4)
    }

    /// Returns a UUID that begins with a time (version 7).
    pub(crate) fn timed_uuid(&self, at: Millis) -> String {
        let mut bytes = self.id_bytes(0);
        bytes[..6].copy_from_slice(&at.to_be_bytes()[2..]);
        uuid(bytes, 7)
    }
}

impl fmt::Debug for TransplantContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransplantContext").field("project", &self.project).finish_non_exhaustive()
    }
}

fn uuid(mut bytes: [u8; 16], version: u8) -> String {
    bytes[6] = bytes[6] & 0x0f | version << 4;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// A session in an agent's own format that is not stored yet.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NewSession {
    /// The id of the session.
    pub id: String,
    /// The records of the session in the order in which the agent's reader takes them.
    pub records: Vec<RawJson>,
    /// How the session is added to the agent's sessions.
    pub storage: NewSessionStorage,
}

/// How a new session is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NewSessionStorage {
    /// The records are the lines of a new file.
    Lines {
        /// The path of the file, which must not exist.
        file: PathBuf,
        /// Small files that make the agent find it, with their contents. One that already exists stays as it is.
        markers: Vec<(PathBuf, String)>,
    },
    /// The agent's own program imports the only record from a file, in the directory of the project.
    Import {
        /// The arguments of the program before the name of the file.
        args: Vec<String>,
        /// Variables that are added to the user's environment.
        env: Vec<(String, String)>,
    },
}

impl NewSession {
    /// Creates a session that is a new file with these lines.
    pub(crate) fn lines(
        id: String,
        file: PathBuf,
        lines: impl IntoIterator<Item = serde_json::Value>,
    ) -> Self {
        let records = lines.into_iter().map(|line| RawJson::new(line.to_string())).collect();
        Self { id, records, storage: NewSessionStorage::Lines { file, markers: Vec::new() } }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::memory_fs::MemoryFs;

    /// Calls a function with a context for `/srv/app`.
    pub(crate) fn in_context<T>(fs: &MemoryFs, f: impl FnOnce(&TransplantContext<'_>) -> T) -> T {
        let (env, seed) = (BTreeMap::new(), *b"0123456789abcdef");
        let project = (Path::new("/srv/app"), "5ea1");
        f(&TransplantContext::new(project, (seed, 1_794_717_069_025), (&env, Path::new("/h")), fs))
    }

    #[test]
    fn ids_are_uuids_and_differ() {
        in_context(&MemoryFs::default(), |context| {
            assert_eq!(context.uuid(0), "30313233-3435-4637-b839-616263646566");
            assert_eq!(context.uuid(1), "30313233-3435-4637-b839-616263646567");
            assert_eq!(context.timed_uuid(0x0102_0304_0506), "01020304-0506-7637-b839-616263646566");
        });
    }
}
