//! The names of threads, which Codex stores in one file. A renamed thread occurs several times.

use crate::wire::{Str, wire};
use std::collections::BTreeMap;

wire! { struct Named<'a> { id: Str<'a> = "id", name: Str<'a> = "thread_name" } }

/// Returns the last name of each thread. Unreadable lines are ignored.
pub(in crate::agents::codex) fn titles(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Named<'_>>(line).ok());
    let mut titles = BTreeMap::new();
    for line in lines.filter(|line| !line.id.is_empty()) {
        let (id, name) = (line.id.own(), line.name.trim().to_owned());
        // An empty name removes the title.
        if name.is_empty() {
            titles.remove(&id)
        } else {
            titles.insert(id, name)
        };
    }
    titles
}

#[cfg(test)]
mod tests {
    use super::titles;

    #[test]
    fn last_title_wins_and_invalid_lines_are_ignored() {
        let text = concat!(
            "{\"id\":\"a\",\"thread_name\":\"first\",\"updated_at\":\"2026-11-15T00:00:00Z\"}\n",
            "junk\n{\"id\":\"b\",\"thread_name\":5}\n{\"id\":\"c\",\"thread_name\":\"gone\"}\n[]\n",
            "{\"id\":\"a\",\"thread_name\":\" second \"}\n{\"id\":\"c\",\"thread_name\":\"\"}\n{\"id\":\"d\",\"thread",
        );
        let found = titles(text);
        assert_eq!(found.get("a").map(String::as_str), Some("second"));
        assert!(!found.contains_key("c") && !found.contains_key("d"), "{found:?}");
    }
}
