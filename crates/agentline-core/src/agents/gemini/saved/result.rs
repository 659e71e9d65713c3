//! What came of a call of a tool, from the call itself or from the response that the model got.

use super::super::call::{self, Call, FunctionResponse};
use super::message::Content;
use crate::{
    Media, SavedDiff, SavedResult, moment,
    wire::{Flag, Str, on_one_line, wire},
};
use serde_json::value::RawValue;

wire! { struct Diff<'a> {
    name: Str<'a> = "fileName", path: Str<'a> = "filePath", old: Option<Str<'a>> = "originalContent", new: Option<Str<'a>> = "newContent",
    unified: Option<Str<'a>> = "fileDiff", is_new: Flag = "isNewFile",
} }

/// What a call says of itself; `None` when it was not over.
pub(super) fn of_call(call: &Call<'_>) -> Option<SavedResult> {
    let over = matches!(&*call.status, "success" | "error" | "cancelled");
    if !over && call.result.is_none() {
        return None;
    }
    let mut back = Back::default();
    if let Some(told) = call.result {
        back.told(told, Some(&*call.id));
    }
    let displayed = call.displayed();
    let mut result = back.result(&call.name, &call.status, displayed.as_deref());
    result.timestamp = moment::millis(&call.timestamp);
    Some(result)
}

/// What the model was told.
pub(super) fn of_response(response: &FunctionResponse<'_>) -> SavedResult {
    let mut back = Back::default();
    back.response(response);
    back.result(&response.name, "", None)
}

/// The change of a file, as it was displayed.
pub(super) fn diff(call: &Call<'_>) -> Option<SavedDiff> {
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

/// Everything that came back for one call.
#[derive(Default)]
struct Back<'a> {
    outputs: Vec<String>,
    errors: Vec<String>,
    media: Vec<Media>,
    /// What was no text: the only answer, or all of them together.
    raw: Option<&'a RawValue>,
}

impl<'a> Back<'a> {
    /// A text, a part, or a list of them. A record that was written anew holds the answers to all calls of its turn at
    /// each of them, so those to others are passed over.
    fn told(&mut self, told: &'a RawValue, id: Option<&str>) {
        let content = serde_json::from_str::<Content<'a>>(told.get()).unwrap_or_default();
        let mine = |r: &FunctionResponse<'_>| Some(&*r.id) == id;
        let has_own = content.0.iter().filter_map(|piece| piece.response.as_ref()).any(mine);
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
        if self.raw.is_some() && self.outputs.len() + self.errors.len() > 1 {
            self.raw = Some(told);
        }
    }

    fn response(&mut self, response: &FunctionResponse<'a>) {
        let body = response.body();
        if let Some(error) = body.error {
            let text = self.text(error);
            self.errors.push(text);
        }
        let whole = response.response.filter(|r| body.error.is_none() && r.get().trim() != "{}");
        if let Some(output) = body.output.or(whole) {
            let text = self.text(output);
            self.outputs.push(text);
        }
        if let Some(parts) = response.parts {
            self.told(parts, None);
        }
    }

    fn text(&mut self, value: &'a RawValue) -> String {
        call::text(value).unwrap_or_else(|| {
            self.raw = self.raw.or(Some(value));
            value.get().to_owned()
        })
    }

    fn result(self, tool: &str, said: &str, displayed: Option<&str>) -> SavedResult {
        let first = |texts: &[String]| texts.first().cloned();
        let (output, error) = (first(&self.outputs), first(&self.errors));
        let (status, _) = call::ending(tool, said, displayed, output.as_deref(), error.as_deref());
        let mut texts = self.outputs;
        texts.extend(self.errors);
        if texts.is_empty() {
            texts.extend(displayed.map(str::to_owned));
        }
        let mut result = SavedResult::new(status, texts.join("\n"));
        result.media = self.media;
        result.raw = self.raw.map(on_one_line);
        result
    }
}
