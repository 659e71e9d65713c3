//! Results of tool calls, from the call itself or from the response to the model.

use crate::agents::gemini::{
    call::{self, Call},
    parts::{self, FunctionResponse, PartList},
    shell_output,
};
use crate::{
    Media, SavedDiff, SavedResult, ToolStatus, time,
    wire::{Flag, Str, on_one_line, wire},
};
use serde_json::value::RawValue;

wire! { struct Diff<'a> {
    name: Str<'a> = "fileName", path: Str<'a> = "filePath", old: Option<Str<'a>> = "originalContent", new: Option<Str<'a>> = "newContent",
    unified: Option<Str<'a>> = "fileDiff", is_new: Flag = "isNewFile",
} }

/// Returns the result in a call, or `None` if the call has not ended.
pub(super) fn of_call(call: &Call<'_>) -> Option<SavedResult> {
    let over = matches!(&*call.status, "success" | "error" | "cancelled");
    if !over && call.result.is_none() {
        return None;
    }
    let mut back = Back::default();
    if let Some(content) = &call.result {
        back.content(content, Some(&*call.id));
    }
    let displayed = call.displayed();
    let mut result = back.result(&call.name, &call.status, displayed.as_deref());
    result.timestamp = time::millis(&call.timestamp);
    Some(result)
}

/// Returns the result in a response to the model.
pub(super) fn of_response(response: &FunctionResponse<'_>) -> SavedResult {
    let mut back = Back::default();
    back.response(response);
    back.result(&response.name, "", None)
}

/// Returns the displayed change to a file.
pub(in crate::agents::gemini) fn diff(call: &Call<'_>) -> Option<SavedDiff> {
    let shown = call.display.filter(|d| d.get().starts_with('{'))?;
    let diff: Diff<'_> = serde_json::from_str(shown.get()).ok()?;
    if diff.unified.is_none() && diff.new.is_none() {
        return None;
    }
    let is_new = diff.is_new.0;
    let path = if diff.path.is_empty() { diff.name } else { diff.path };
    let has_texts = diff.new.is_some() && (is_new || diff.old.is_some());
    Some(SavedDiff {
        path: path.own(),
        old: diff.old.map(Str::own).filter(|_| !is_new),
        new: diff.new.map(Str::own),
        unified: diff.unified.map(Str::own).filter(|_| !has_texts),
    })
}

/// All content that was returned for one call.
#[derive(Default)]
struct Back {
    outputs: Vec<String>,
    errors: Vec<String>,
    media: Vec<Media>,
    /// Values that are not text.
    odd: Vec<Box<RawValue>>,
}

impl Back {
    /// Adds content, which is a text, a part, or a list of them. In a rewritten record, each call contains the
    /// responses to all calls of its turn, so those to other calls are skipped.
    fn content(&mut self, content: &PartList<'_>, id: Option<&str>) {
        let mine = |response: &FunctionResponse<'_>| Some(&*response.id) == id;
        let has_own = content.responses().any(mine);
        for piece in &content.0 {
            match &piece.response {
                Some(response) if has_own && !mine(response) => {}
                Some(response) => self.response(response),
                None => {
                    self.outputs.extend(piece.text.as_ref().map(|text| text.to_string()));
                    self.media.extend(piece.media());
                }
            }
        }
    }

    fn response(&mut self, response: &FunctionResponse<'_>) {
        let (output, error) = (response.output(), response.error());
        if let Some(error) = error {
            let text = self.text(error);
            self.errors.push(text);
        }
        let whole = if output.is_none() && error.is_none() { response.whole() } else { None };
        if let Some(output) = output.or(whole.as_deref()) {
            let text = self.text(output);
            self.outputs.push(text);
        }
        self.content(&response.parts, None);
    }

    fn text(&mut self, value: &RawValue) -> String {
        parts::text(value).unwrap_or_else(|| {
            self.odd.push(on_one_line(value));
            value.get().to_owned()
        })
    }

    fn result(mut self, tool: &str, answer_text: &str, displayed: Option<&str>) -> SavedResult {
        let (output, error) =
            (self.outputs.first().map(String::as_str), self.errors.first().map(String::as_str));
        let (mut status, _) = call::ending(tool, answer_text, displayed, output, error);
        let mut texts = std::mem::take(&mut self.outputs);
        for text in &mut texts {
            if let Some(output) = shell_output::read(tool, text, displayed) {
                if output.failed && status == ToolStatus::Ok {
                    status = ToolStatus::Error;
                }
                *text = output.text;
            }
        }
        texts.append(&mut self.errors);
        if texts.is_empty() {
            texts.extend(displayed.map(str::to_owned));
        }
        let content = if texts.len() == 1 { texts.remove(0) } else { texts.join("\n") };
        let mut result = SavedResult::new(status, content);
        result.media = self.media;
        result.raw = match self.odd.len() {
            0 | 1 => self.odd.pop(),
            _ => serde_json::value::to_raw_value(&self.odd).ok(),
        };
        result
    }
}
