//! Formats texts for messages.

/// Formats the sentences as a list with one line each.
pub(crate) fn listed(sentences: &[String]) -> String {
    let lines: Vec<String> = sentences.iter().map(|sentence| format!("- {sentence}")).collect();
    lines.join("\n")
}

/// Returns the first `most` characters of a text, with an ellipsis if it was cut.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
