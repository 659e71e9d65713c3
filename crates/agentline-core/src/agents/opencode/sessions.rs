//! OpenCode's saved sessions: where they are, and how they are stored.

use super::{OpenCode, database::OpenCodeDatabase, session_reader::OpenCodeReader, transplant};
use crate::agents::adapter::home_folder;
use crate::{
    FileSystem, SessionDatabase, SessionFormat, SessionReader, SessionRoot, SessionSource, SessionWriter,
};
use std::{collections::BTreeMap, path::Path};

impl SessionSource for OpenCode {
    fn roots(&self, env: &BTreeMap<String, String>, home: &Path, fs: &dyn FileSystem) -> Vec<SessionRoot> {
        let data = home_folder(env, home, "XDG_DATA_HOME", ".local/share").join("opencode");
        if let Some(named) = env.get("OPENCODE_DB").filter(|v| !v.is_empty()) {
            // A relative path is resolved as OpenCode does. An in-memory database cannot be read.
            let named = (named != ":memory:").then(|| SessionRoot::database(data.join(named)));
            return named.into_iter().collect();
        }
        // Preview releases have separate databases.
        let mut names = fs.list(&data).unwrap_or_default();
        names.retain(|name| name.starts_with("opencode") && name.ends_with(".db"));
        names.sort_by_key(|name| (name != "opencode.db", name.clone()));
        if names.is_empty() {
            names.push("opencode.db".to_owned());
        }
        names.into_iter().map(|name| SessionRoot::database(data.join(name))).collect()
    }

    fn format(&self, head: &[u8]) -> Option<SessionFormat> {
        form(head)
    }

    fn reader(&self, format: SessionFormat) -> Option<Box<dyn SessionReader>> {
        matches!(format, SessionFormat::Whole | SessionFormat::Database)
            .then(|| Box::new(OpenCodeReader::new()) as Box<dyn SessionReader>)
    }

    fn database(&self) -> Option<&'static dyn SessionDatabase> {
        Some(&OpenCodeDatabase)
    }

    fn writer(&self) -> Option<SessionWriter> {
        Some(transplant::write)
    }
}

/// Detects the storage format from the beginning of a file.
pub(super) fn form(head: &[u8]) -> Option<SessionFormat> {
    if head.starts_with(b"SQLite format 3\0") {
        return Some(SessionFormat::Database);
    }
    let text = String::from_utf8_lossy(head);
    let squeezed: String = text.chars().filter(|c| !c.is_whitespace()).take(40).collect();
    let begins = squeezed.trim_start_matches('\u{feff}').starts_with("{\"info\":{\"id\":\"ses_");
    begins.then_some(SessionFormat::Whole)
}
