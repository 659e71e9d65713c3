//! The table of an agent's tools: canonical names, kinds, and the translation of names and arguments in both
//! directions.
//!
//! The rows are in the agents' directories.

mod fields;

use crate::{
    ToolKind, ToolUse,
    wire::{Entries, List, Str},
};
use serde_json::value::RawValue;

/// All tools of an agent, in all supported versions.
#[derive(Debug)]
pub struct ToolTable {
    rows: &'static [ToolRow],
    mcp: McpNames,
}

/// One tool of an agent.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ToolRow {
    /// The agent's own name for the tool.
    pub native: &'static str,
    /// The canonical name: Claude Code's name if it has such a tool, otherwise the agent's own.
    pub name: &'static str,
    /// What the tool does.
    pub kind: ToolKind,
    /// Arguments with another name in the canonical form, as (native, canonical).
    pub renames: &'static [(&'static str, &'static str)],
    /// Names of arguments in other versions, as (native, canonical). They are only read, never written.
    pub older: &'static [(&'static str, &'static str)],
    /// Arguments that the canonical form does not have.
    pub drops: &'static [&'static str],
    /// Arguments that only the canonical form has, with their JSON values.
    pub adds: &'static [(&'static str, &'static str)],
    /// A list argument whose items have renamed fields.
    pub items: Option<Items>,
    /// Whether it reads from `start_line` to `end_line`, which are an offset and a limit in the canonical form.
    pub lines: bool,
}

/// Renamed fields in the items of a list argument.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Items {
    /// The canonical name of the list.
    pub of: &'static str,
    /// The field names of its items, as (native, canonical).
    pub renames: &'static [(&'static str, &'static str)],
}

impl Items {
    pub(crate) const fn new(
        of: &'static str,
        renames: &'static [(&'static str, &'static str)],
    ) -> Option<Self> {
        Some(Self { of, renames })
    }
}

impl ToolRow {
    /// Creates a tool whose arguments are the same in both forms.
    pub(crate) const fn new(native: &'static str, name: &'static str, kind: ToolKind) -> Self {
        Self {
            native,
            name,
            kind,
            renames: &[],
            older: &[],
            drops: &[],
            adds: &[],
            items: None,
            lines: false,
        }
    }
}

/// An agent's naming scheme for tools of MCP servers. The canonical form is `mcp__server__tool`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum McpNames {
    /// In the canonical form.
    Canonical,
    /// With a prefix before the server and one underscore after it. The end of the server's name is ambiguous, so it is
    /// assumed to contain no underscore.
    Joined {
        /// The prefix before the server.
        prefix: &'static str,
    },
}

const OURS: &str = "mcp__";

impl ToolTable {
    /// A table without tools, which leaves all names unchanged.
    pub const EMPTY: &'static Self = &Self::new(&[], McpNames::Canonical);

    pub(crate) const fn new(rows: &'static [ToolRow], mcp: McpNames) -> Self {
        Self { rows, mcp }
    }

    /// Returns all rows, in the order in which they are searched for the native name of a canonical tool.
    #[must_use]
    pub fn rows(&self) -> &'static [ToolRow] {
        self.rows
    }

    /// Returns the row of a tool by its native name.
    #[must_use]
    pub fn row(&self, native: &str) -> Option<&'static ToolRow> {
        self.rows.iter().find(|row| row.native == native)
    }

    /// Returns whether this is one of the agent's own tools, so that a call while it is not offered counts as denied.
    #[must_use]
    pub fn is_own(&self, native: &str) -> bool {
        self.row(native).is_some()
    }

    /// Returns the canonical name: `Write` for `write_file`, `mcp__server__tool` for a server's tool. Other names stay
    /// the same.
    #[must_use]
    pub fn canonical(&self, native: &str) -> String {
        if let Some(row) = self.row(native) {
            return row.name.to_owned();
        }
        match self.server_tool(native) {
            Some((server, tool)) => format!("{OURS}{server}__{tool}"),
            None => native.to_owned(),
        }
    }

    /// Returns the server and tool that a native name refers to.
    #[must_use]
    pub fn server_tool<'a>(&self, native: &'a str) -> Option<(&'a str, &'a str)> {
        let named = |(server, tool): &(&str, &str)| !server.is_empty() && !tool.is_empty();
        if let Some(rest) = native.strip_prefix(OURS) {
            return rest.split_once("__").filter(named);
        }
        match self.mcp {
            _ if self.is_own(native) => None,
            McpNames::Canonical => None,
            McpNames::Joined { prefix } => native.strip_prefix(prefix)?.split_once('_').filter(named),
        }
    }

    /// Returns whether this names a tool of a server, even if the name does not show where the server ends and the
    /// tool begins.
    fn is_of_server(&self, native: &str) -> bool {
        let marked = match self.mcp {
            McpNames::Joined { prefix } if !prefix.is_empty() => native.starts_with(prefix),
            _ => native.starts_with(OURS),
        };
        marked || self.server_tool(native).is_some()
    }

    /// Returns the native name of a canonical tool in the agent's newest version, or `None` if the agent does not have
    /// it.
    ///
    /// A native name is returned unchanged.
    #[must_use]
    pub fn native(&self, canonical: &str) -> Option<String> {
        if let Some(native) = self.natives(canonical).next() {
            return Some(native.to_owned());
        }
        let (server, tool) = canonical.strip_prefix(OURS)?.split_once("__")?;
        Some(match self.mcp {
            McpNames::Canonical => canonical.to_owned(),
            McpNames::Joined { prefix } => format!("{prefix}{server}_{tool}"),
        })
    }

    /// Returns all native names of a canonical tool, newest first. Empty if the agent does not have it.
    pub fn natives<'a>(&self, canonical: &'a str) -> impl Iterator<Item = &'static str> + use<'a> {
        let matches = move |row: &&ToolRow| row.name == canonical || row.native == canonical;
        self.rows.iter().filter(matches).map(|row| row.native)
    }

    /// Returns every canonical and native name of a tool.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.rows.iter().flat_map(|row| [row.name, row.native])
    }

    /// Creates a tool call with its arguments in both forms.
    #[must_use]
    pub fn tool_use(&self, id: impl Into<String>, native: &str, input: Option<&RawValue>) -> ToolUse {
        let row = self.row(native);
        let kind = match row {
            Some(row) => row.kind,
            None if self.is_of_server(native) => ToolKind::Mcp,
            None => ToolKind::Other,
        };
        let mut tool = ToolUse::new(id, self.canonical(native), native, kind);
        tool.raw_input = input.map(ToOwned::to_owned);
        tool.input = input.map(|input| self.canonical_input(native, input));
        if matches!(kind, ToolKind::Write | ToolKind::Edit) {
            tool.path = tool.input.as_deref().and_then(|input| text_of(input, "file_path"));
        }
        tool
    }

    /// Converts native arguments to canonical form. A value that is not an object stays unchanged.
    #[must_use]
    pub fn canonical_input(&self, native: &str, input: &RawValue) -> Box<RawValue> {
        let translated = self.row(native).and_then(|row| {
            let entries = entries(input);
            to_canonical::needed(row, &entries).then(|| to_canonical::all(row, &entries))?
        });
        translated.unwrap_or_else(|| input.to_owned())
    }

    /// Converts canonical arguments to native form. A value that is not an object stays unchanged.
    #[must_use]
    pub fn native_input(&self, native: &str, input: &RawValue) -> Box<RawValue> {
        let translated = self.row(native).and_then(|row| to_native(row, &entries(input)));
        translated.unwrap_or_else(|| input.to_owned())
    }
}

type Arguments<'a> = Entries<'a, &'a RawValue>;

fn entries(input: &RawValue) -> Arguments<'_> {
    serde_json::from_str(input.get()).unwrap_or_default()
}

fn text_of(input: &RawValue, name: &str) -> Option<String> {
    let entries = entries(input);
    let (_, raw) = entries.0.iter().rev().find(|(key, _)| &**key == name)?;
    Some(serde_json::from_str::<Str<'_>>(raw.get()).ok()?.own()).filter(|text| !text.is_empty())
}

fn number(entries: &Arguments<'_>, name: &str) -> Option<u64> {
    entries.0.iter().find(|(key, _)| &**key == name).and_then(|(_, raw)| raw.get().parse().ok())
}

/// An object under construction, in which the first of two equal keys is kept.
#[derive(Default)]
struct Object(Vec<(String, String)>);

impl Object {
    fn put(&mut self, key: &str, value: impl Into<String>) {
        if !self.0.iter().any(|(k, _)| k == key) {
            self.0.push((key.to_owned(), value.into()));
        }
    }

    fn json(self) -> Option<Box<RawValue>> {
        let body = self.0.into_iter().map(|(key, value)| {
            let key = serde_json::to_string(&key).unwrap_or_default();
            format!("{key}:{value}")
        });
        RawValue::from_string(format!("{{{}}}", body.collect::<Vec<_>>().join(","))).ok()
    }
}

/// Renames the keys of the objects in a list without parsing their values.
fn rename_items(list: &RawValue, name: impl Fn(&str) -> String) -> String {
    let Ok(items) = serde_json::from_str::<List<&RawValue>>(list.get()) else { return list.get().to_owned() };
    if !list.get().starts_with('[') {
        return list.get().to_owned();
    }
    let renamed = items.0.into_iter().map(|item| {
        let mut object = Object::default();
        for (key, value) in entries(item).0 {
            object.put(&name(&key), value.get());
        }
        let is_object = item.get().starts_with('{');
        object.json().filter(|_| is_object).map_or_else(|| item.get().to_owned(), |o| o.get().to_owned())
    });
    format!("[{}]", renamed.collect::<Vec<_>>().join(","))
}

fn swapped(
    pairs: &'static [(&'static str, &'static str)],
) -> impl Iterator<Item = (&'static str, &'static str)> {
    pairs.iter().map(|(theirs, ours)| (*ours, *theirs))
}

fn renamed(pairs: impl IntoIterator<Item = (&'static str, &'static str)>, key: &str) -> String {
    pairs.into_iter().find(|(from, _)| *from == key).map_or(key, |(_, to)| to).to_owned()
}

mod to_canonical {
    use super::{Arguments, Object, ToolRow, number, rename_items, renamed};
    use serde_json::value::RawValue;

    /// Returns whether anything needs to be changed.
    pub(super) fn needed(row: &ToolRow, entries: &Arguments<'_>) -> bool {
        let touched = |key: &str| {
            row.renames.iter().chain(row.older).any(|(theirs, _)| *theirs == key)
                || row.drops.contains(&key)
                || row.items.is_some_and(|items| items.of == key)
                || (row.lines && matches!(key, "start_line" | "end_line"))
        };
        !row.adds.is_empty() || entries.0.iter().any(|(key, _)| touched(key))
    }

    /// Renames, drops and adds arguments without parsing their values.
    pub(super) fn all(row: &ToolRow, entries: &Arguments<'_>) -> Option<Box<RawValue>> {
        let mut out = Object::default();
        for (key, value) in row.adds {
            out.put(key, *value);
        }
        for (key, value) in &entries.0 {
            match &**key {
                key if row.drops.contains(&key) => {}
                "start_line" if row.lines => out.put("offset", value.get()),
                "end_line" if row.lines => {
                    if let Some(end) = number(entries, "end_line") {
                        let start = number(entries, "start_line").unwrap_or(1);
                        out.put("limit", end.saturating_sub(start).saturating_add(1).to_string());
                    }
                }
                key => {
                    let name = renamed(row.renames.iter().chain(row.older).copied(), key);
                    match row.items.filter(|items| items.of == name) {
                        Some(items) => {
                            out.put(
                                &name,
                                rename_items(value, |key| renamed(items.renames.iter().copied(), key)),
                            );
                        }
                        None => out.put(&name, value.get()),
                    }
                }
            }
        }
        out.json()
    }
}

/// Converts arguments to native form. Arguments that the agent does not have are omitted.
fn to_native(row: &ToolRow, entries: &Arguments<'_>) -> Option<Box<RawValue>> {
    if entries.0.is_empty() {
        return None;
    }
    let mut out = Object::default();
    for (key, value) in &entries.0 {
        match &**key {
            key if row.adds.iter().any(|(ours, _)| *ours == key) => {}
            "offset" if row.lines => out.put("start_line", value.get()),
            "limit" if row.lines => {
                if let Some(limit) = number(entries, "limit") {
                    let start = number(entries, "offset").unwrap_or(1);
                    out.put("end_line", start.saturating_add(limit).saturating_sub(1).to_string());
                }
            }
            key => {
                let name = renamed(swapped(row.renames), key);
                match row.items.filter(|items| items.of == key) {
                    Some(items) => {
                        out.put(&name, rename_items(value, |key| renamed(swapped(items.renames), key)));
                    }
                    None => out.put(&name, value.get()),
                }
            }
        }
    }
    out.json()
}
