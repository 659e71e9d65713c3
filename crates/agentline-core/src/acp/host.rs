//! Reports of the tool host: which tools the agent listed, and the structured answer.

use super::{Acp, Step};
use crate::{
    Event, RunId, Sink,
    rpc::Present,
    wire::{List, Str, wire},
};
use serde_json::value::RawValue;

wire! { struct HostLine<'a> {
    listed: Option<List<Str<'a>>> = "listed", unlisted: Option<&'a RawValue> = "unlisted",
    refused: Option<&'a RawValue> = "refused", value: Present<'a> = "value", server: Str<'a> = "server",
    error: Option<Str<'a>> = "error",
} }

impl Acp {
    pub(super) fn host_line(&mut self, run: RunId, text: &str, sink: &mut Sink) {
        let line = serde_json::from_str::<HostLine<'_>>(text).unwrap_or_default();
        let Some(turn) = self.turns.get_mut(&run) else { return };
        sink.alive(run);
        if let Some(value) = line.value.0 {
            sink.value(run, value);
        }
        if !line.server.is_empty()
            && let Some(error) = line.error
        {
            let text = format!("the MCP server `{}` is unavailable: {}", &*line.server, &*error);
            sink.event(run, Event::warning("mcp_server", text));
        }
        let waits = turn.step == Step::Listing;
        if let Some(listed) = line.listed {
            turn.listed.extend(listed.0.into_iter().map(Str::own));
            if waits {
                self.wait_for_tools(run, sink);
            }
        } else if let Some(reason) = line.unlisted.or(line.refused) {
            turn.unlisted = Some(text_of(reason));
            if waits {
                self.wait_for_tools(run, sink);
            }
        }
    }
}

/// Returns the text of a JSON string, or the raw JSON of any other value.
fn text_of(raw: &RawValue) -> String {
    match serde_json::from_str::<Str<'_>>(raw.get()) {
        Ok(text) if !text.is_empty() => text.own(),
        _ => raw.get().to_owned(),
    }
}
