//! The reports of the tool host to a dialogue: which tools the agent listed, and the structured answer.

use crate::{
    Event, Failure, FailureKind, RunId, Sink, TurnEnd, TurnSpec,
    rpc::Present,
    wire::{List, Str, wire},
};
use serde_json::value::RawValue;
use std::collections::BTreeSet;

wire! { struct HostLine<'a> {
    listed: Option<List<Str<'a>>> = "listed", unlisted: Option<&'a RawValue> = "unlisted",
    refused: Option<&'a RawValue> = "refused", value: Present<'a> = "value", server: Str<'a> = "server",
    error: Option<Str<'a>> = "error",
} }

/// What a dialogue does with a run whose session is open.
#[derive(Debug)]
pub(crate) enum NextStep {
    /// It waits until the agent has listed all tools that the host serves. Otherwise an agent that did not find them
    /// would work without them.
    Wait,
    /// It sends this prompt.
    Prompt(String),
    /// It ends the run, which only opens a session, or whose tools the agent will not list.
    End(TurnEnd),
}

impl NextStep {
    /// Returns the next step of a run that waits for no tools.
    pub(crate) fn of(spec: &TurnSpec) -> Self {
        if spec.only_open { Self::End(TurnEnd::ok()) } else { Self::Prompt(spec.prompt.clone()) }
    }
}

/// The tools of the host that an agent has listed in a run.
#[derive(Debug, Default)]
pub(crate) struct HostedTools {
    listed: BTreeSet<String>,
    /// Why the tools were not listed.
    unlisted: Option<String>,
}

impl HostedTools {
    /// Handles a line of the tool host. Returns whether it says something about the listed tools.
    pub(crate) fn line(&mut self, run: RunId, text: &str, sink: &mut Sink) -> bool {
        let line = serde_json::from_str::<HostLine<'_>>(text).unwrap_or_default();
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
        if let Some(listed) = line.listed {
            self.listed.extend(listed.0.into_iter().map(Str::own));
            return true;
        }
        let reason = line.unlisted.or(line.refused);
        if let Some(reason) = reason {
            self.unlisted = Some(text_of(reason));
        }
        reason.is_some()
    }

    /// Returns what to do next with a run whose session is open.
    pub(crate) fn next_step(&mut self, spec: &TurnSpec) -> NextStep {
        let unlisted = self.unlisted.take();
        if spec.hosted.iter().all(|name| self.listed.contains(name)) {
            return NextStep::of(spec);
        }
        let Some(reason) = unlisted else { return NextStep::Wait };
        let text = format!("the agent did not list the tools of this run: {reason}");
        NextStep::End(TurnEnd::failed(Some(Failure::new(FailureKind::Mcp, text))))
    }
}

/// Returns the text of a JSON string, or the raw JSON of any other value.
fn text_of(raw: &RawValue) -> String {
    match serde_json::from_str::<Str<'_>>(raw.get()) {
        Ok(text) if !text.is_empty() => text.own(),
        _ => raw.get().to_owned(),
    }
}
