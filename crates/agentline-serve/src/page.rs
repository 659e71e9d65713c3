//! The files of the page, embedded in the program.

/// A file of the page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageFile {
    /// The name below `/assets/`.
    pub(crate) name: &'static str,
    /// The content type.
    pub(crate) content_type: &'static str,
    /// The text.
    pub(crate) text: &'static str,
}

const CSS: &str = "text/css; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// Embeds files by their names and content types.
macro_rules! files {
    ($($name:literal: $content_type:ident,)*) => {
        &[$(PageFile {
            name: $name,
            content_type: $content_type,
            text: include_str!(concat!("page/", $name)),
        }),*]
    };
}

/// The page.
pub(crate) const INDEX: &str = include_str!("page/index.html");

/// The files that the page loads.
pub(crate) const FILES: &[PageFile] = files! {
    "answer_guard.js": JAVASCRIPT,
    "api.js": JAVASCRIPT,
    "app.js": JAVASCRIPT,
    "attachments.js": JAVASCRIPT,
    "card_list.js": JAVASCRIPT,
    "charts.js": JAVASCRIPT,
    "code.js": JAVASCRIPT,
    "composer.js": JAVASCRIPT,
    "continue_dialog.js": JAVASCRIPT,
    "diff.js": JAVASCRIPT,
    "directory_picker.js": JAVASCRIPT,
    "docs.css": CSS,
    "dom.js": JAVASCRIPT,
    "experiments_view.js": JAVASCRIPT,
    "file_changes.js": JAVASCRIPT,
    "file_list.js": JAVASCRIPT,
    "format.js": JAVASCRIPT,
    "held_runs.js": JAVASCRIPT,
    "home_view.js": JAVASCRIPT,
    "icon.svg": SVG,
    "markdown.js": JAVASCRIPT,
    "mode_choice.js": JAVASCRIPT,
    "narrow.css": CSS,
    "new_run.js": JAVASCRIPT,
    "origin.js": JAVASCRIPT,
    "outcome_card.js": JAVASCRIPT,
    "permission_card.js": JAVASCRIPT,
    "rows.js": JAVASCRIPT,
    "run_log.js": JAVASCRIPT,
    "run_panel.js": JAVASCRIPT,
    "runs.js": JAVASCRIPT,
    "sessions_view.js": JAVASCRIPT,
    "shortcuts.js": JAVASCRIPT,
    "sidebar.js": JAVASCRIPT,
    "sign_out.js": JAVASCRIPT,
    "states.js": JAVASCRIPT,
    "store.js": JAVASCRIPT,
    "stream.js": JAVASCRIPT,
    "style.css": CSS,
    "text.js": JAVASCRIPT,
    "theme.js": JAVASCRIPT,
    "thread.css": CSS,
    "thread_view.js": JAVASCRIPT,
    "threads.js": JAVASCRIPT,
    "timeline.js": JAVASCRIPT,
    "tool_row.js": JAVASCRIPT,
    "transcript_view.js": JAVASCRIPT,
    "usage_view.js": JAVASCRIPT,
    "verdicts.js": JAVASCRIPT,
    "virtual_list.js": JAVASCRIPT,
};

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::BTreeSet, fs, path::Path};

    fn names() -> BTreeSet<&'static str> {
        FILES.iter().map(|file| file.name).collect()
    }

    /// Returns what follows a prefix up to a quote, at every place of a text.
    fn quoted<'a>(text: &'a str, prefix: &'a str, quote: char) -> impl Iterator<Item = &'a str> {
        text.split(prefix).skip(1).filter_map(move |rest| rest.split(quote).next())
    }

    #[test]
    fn every_file_of_the_folder_is_served() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/page");
        let entries =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let found: BTreeSet<String> = entries.filter(|name| name != "index.html").collect();
        assert_eq!(found, names().into_iter().map(str::to_owned).collect());
    }

    #[test]
    fn files_and_imports_exist() {
        for name in quoted(INDEX, "\"/assets/", '"') {
            assert!(names().contains(name), "index.html names {name}");
        }
        for file in FILES.iter().filter(|file| file.content_type == JAVASCRIPT) {
            for name in quoted(file.text, "from './", '\'') {
                assert!(names().contains(name), "{} imports {name}", file.name);
            }
            assert!(
                INDEX.contains(&format!("\"/assets/{}\"", file.name)),
                "index.html does not load {}",
                file.name
            );
        }
    }

    #[test]
    fn scripts_insert_no_markup() {
        for file in FILES {
            for word in
                ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"]
            {
                assert!(!file.text.contains(word), "{} contains {word}", file.name);
            }
        }
    }
}
