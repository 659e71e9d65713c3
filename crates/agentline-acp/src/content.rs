//! The content of a prompt, as text for an agent that takes only text.

use crate::failure::{ErrorResponse, INVALID_PARAMS};
use serde_json::Value;

/// Joins the blocks of a prompt. Linked files are named, and embedded ones are quoted.
pub(crate) fn prompt_text(blocks: &[Value]) -> Result<String, ErrorResponse> {
    let texts = blocks.iter().map(block_text).collect::<Result<Vec<_>, _>>()?;
    let text = texts.concat();
    if text.trim().is_empty() {
        return Err(ErrorResponse::new(INVALID_PARAMS, "the prompt is empty"));
    }
    Ok(text)
}

fn block_text(block: &Value) -> Result<String, ErrorResponse> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    match block["type"].as_str().unwrap_or_default() {
        "text" => Ok(text(&block["text"])),
        "resource_link" => Ok(format!(" {} ", path_of(&text(&block["uri"])))),
        "resource" if block["resource"]["text"].is_string() => {
            let (uri, text) = (text(&block["resource"]["uri"]), text(&block["resource"]["text"]));
            Ok(format!("\n<file path=\"{}\">\n{text}\n</file>\n", path_of(&uri)))
        }
        kind => {
            let message = format!("a prompt cannot have content of the type `{kind}`");
            Err(ErrorResponse::new(INVALID_PARAMS, message))
        }
    }
}

fn path_of(uri: &str) -> &str {
    uri.strip_prefix("file://").unwrap_or(uri)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn blocks_become_text_and_images_are_refused() {
        let blocks = [
            json!({"type": "text", "text": "Explain"}),
            json!({"type": "resource_link", "uri": "file:///a/b.rs", "name": "b.rs"}),
            json!({"type": "resource", "resource": {"uri": "file:///c", "text": "C"}}),
        ];
        let text = prompt_text(&blocks).unwrap();
        assert_eq!(text, "Explain /a/b.rs \n<file path=\"/c\">\nC\n</file>\n");
        assert!(prompt_text(&[json!({"type": "image", "data": ""})]).unwrap_err().message.contains("image"));
        assert!(prompt_text(&[]).is_err());
    }
}
