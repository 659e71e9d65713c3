//! Session updates from the agent: those of the protocol, and unknown ones.

use super::{
    Acp, Step,
    blocks::{ContentPiece, pieces},
    profile::{Chunk, UpdateMeaning},
    tools::ToolWire,
};
use crate::{
    ContextWindow, Event, ReportedUsage, RunId, Sink,
    wire::{Num, Str, wire},
};
use serde_json::value::RawValue;

wire! { struct Params<'a> { session: Str<'a> = "sessionId", update: Option<&'a RawValue> = "update" } }
wire! { struct Update<'a> {
    kind: Str<'a> = "sessionUpdate", content: Option<&'a RawValue> = "content", entries: Option<&'a RawValue> = "entries",
    commands: Option<&'a RawValue> = "availableCommands", mode: Option<Str<'a>> = "currentModeId",
    options: Option<&'a RawValue> = "configOptions", call: Str<'a> = "toolCallId", cost: Option<Cost<'a>> = "cost",
    used: Num = "used", size: Num = "size", meta: Option<&'a RawValue> = "_meta",
} }
wire! { struct Cost<'a> { amount: Option<&'a RawValue> = "amount", currency: Str<'a> = "currency" } }

impl Cost<'_> {
    fn dollars(&self) -> Option<f64> {
        let known = self.currency.is_empty() || self.currency.eq_ignore_ascii_case("USD");
        self.amount?.get().trim_matches('"').parse().ok().filter(|usd: &f64| known && usd.is_finite())
    }
}

/// Updates about the session itself. They may arrive at any time and do not belong to a turn.
const SESSION_UPDATES: &[&str] = &[
    "available_commands_update",
    "current_mode_update",
    "config_option_update",
    "session_info_update",
    "usage_update",
];

impl Acp {
    pub(super) fn update(&mut self, params: &RawValue, sink: &mut Sink) {
        let notification = serde_json::from_str::<Params<'_>>(params.get()).unwrap_or_default();
        let raw = notification.update.map_or("null", RawValue::get);
        let update = serde_json::from_str::<Update<'_>>(raw).unwrap_or_default();
        let only = if notification.session.is_empty() { self.only_session() } else { None };
        let id = only.as_deref().unwrap_or(&notification.session);
        let Some(session) = self.sessions.get_mut(id) else { return };
        let is_chunk = matches!(&*update.kind, "agent_message_chunk" | "agent_thought_chunk");
        let pieces = update.content.filter(|_| is_chunk).map(pieces);
        let mut is_session_update = SESSION_UPDATES.contains(&&*update.kind);
        match &*update.kind {
            "current_mode_update" => session.modes.current = update.mode.as_ref().map(|m| m.to_string()),
            "config_option_update" => session.reconfigured(raw),
            "usage_update" => {
                // The cost is the total of the session.
                if let Some(total) = update.cost.as_ref().and_then(Cost::dollars) {
                    let before = session.cost.replace(total);
                    if let (Some(run), Some(before)) = (session.run, before) {
                        // A lower total means that the agent has reset it.
                        sink.cost(run, if total < before { total } else { total - before });
                    }
                }
            }
            "agent_message_chunk" => {
                if let Some(ContentPiece::Text(text)) = pieces.as_ref().and_then(|pieces| pieces.first())
                    && let Chunk::Mode(mode) = self.profile.message_chunk(text)
                {
                    // The mode has not changed.
                    if session.modes.current.as_ref() == Some(&mode) {
                        return session.run.into_iter().for_each(|run| sink.alive(run));
                    }
                    session.modes.current = Some(mode);
                    is_session_update = true;
                }
            }
            "tool_call" => _ = session.left.remove(&*update.call),
            _ => {}
        }
        let of_another = &*update.kind == "tool_call_update" && session.left.contains(&*update.call);
        let Some(run) = session.run else {
            session.stray += u32::from(!is_session_update);
            return;
        };
        let Some(turn) = self.turns.get_mut(&run) else { return };
        // A request may fail after some of its text. A tool is used after a request has succeeded.
        if matches!(&*update.kind, "tool_call" | "tool_call_update") {
            turn.failed_requests = 0;
        }
        match turn.step {
            // The history of a loaded session is not emitted again.
            _ if !is_session_update && turn.prompts == 0 => {
                turn.replayed += 1;
                if let Step::Draining { got_history, .. } = &mut turn.step {
                    *got_history = true;
                }
                return sink.alive(run);
            }
            // The result of a cancelled command may arrive long after its run ended.
            _ if of_another => {
                sink.event(run, Event::agent(raw));
                return sink.alive(run);
            }
            Step::Answered
                if !is_session_update && turn.spec.timeouts.quiet == 0 && !turn.is_late_reported =>
            {
                turn.is_late_reported = true;
                let text = "the agent sent updates after the turn had ended";
                sink.event(run, Event::warning("late_update", text));
            }
            _ => {}
        }
        if let Some(meta) = update.meta.filter(|_| self.profile.quirks().usage == ReportedUsage::PerRequest) {
            turn.spent.add_request(run, meta, &*self.profile, sink);
        }
        match self.profile.interpret(run, &update.kind, raw, sink) {
            UpdateMeaning::Standard => {}
            UpdateMeaning::Noise => {
                sink.event(run, Event::agent(raw));
                return sink.alive(run);
            }
            UpdateMeaning::GiveUp(failure) => {
                turn.gave_up.get_or_insert(failure);
                self.stop_session(run, sink);
            }
        }
        match pieces {
            Some(pieces) => self.chunk(run, pieces, &update.kind, raw, sink),
            None => self.report(run, &update, raw, sink),
        }
    }

    /// Returns the session of the only run, for messages that name no session.
    pub(super) fn only_session(&self) -> Option<String> {
        let mut turns = self.turns.values();
        turns.next().filter(|_| turns.next().is_none())?.session.clone()
    }

    fn report(&mut self, run: RunId, update: &Update<'_>, raw: &str, sink: &mut Sink) {
        let as_it_is = || Event::agent(raw);
        match &*update.kind {
            kind @ ("tool_call" | "tool_call_update") => {
                let wire = serde_json::from_str::<ToolWire<'_>>(raw).unwrap_or_default();
                let Some(turn) = self.turns.get_mut(&run) else { return };
                turn.restore_held(run, sink);
                if !turn.tools.update(run, kind == "tool_call", wire, &*self.profile, sink) {
                    sink.event(run, as_it_is());
                } else if self.profile.quirks().stops_after_results && turn.tools.are_over() {
                    sink.next_request(run);
                }
                sink.alive(run);
            }
            "plan" => sink.event(run, Event::Plan { entries: owned(update.entries) }),
            "available_commands_update" => {
                sink.event(run, Event::Commands { commands: owned(update.commands) })
            }
            "current_mode_update" => {
                let mode = update.mode.as_ref().map(|m| m.to_string()).unwrap_or_default();
                sink.event(run, Event::Mode { mode });
            }
            "config_option_update" => sink.event(run, Event::ConfigOption { options: owned(update.options) }),
            "session_info_update" => {
                let info =
                    RawValue::from_string(raw.to_owned()).unwrap_or_else(|_| RawValue::NULL.to_owned());
                sink.event(run, Event::SessionInfo { info });
            }
            "usage_update" if update.used.0.is_some() => {
                let used = update.used.0.unwrap_or_default();
                sink.context(run, ContextWindow::new(used, update.size.0));
            }
            // The echo of the prompt, and updates of later protocol versions.
            _ => sink.event(run, as_it_is()),
        }
    }

    fn chunk(&mut self, run: RunId, pieces: Vec<ContentPiece<'_>>, kind: &str, raw: &str, sink: &mut Sink) {
        let thought = kind == "agent_thought_chunk";
        let Some(turn) = self.turns.get_mut(&run) else { return };
        for piece in pieces {
            let text = match piece {
                ContentPiece::Text(text) => text,
                ContentPiece::Other(block) => {
                    if let Ok(block) = RawValue::from_string(block.to_owned()) {
                        turn.restore_held(run, sink);
                        sink.event(run, Event::Content { block });
                    }
                    continue;
                }
            };
            let chunk =
                if thought { self.profile.thought_chunk(&text) } else { self.profile.message_chunk(&text) };
            let is_blank = text.trim().is_empty();
            match chunk {
                Chunk::Mode(mode) => sink.event(run, Event::Mode { mode }),
                Chunk::Noise => sink.event(run, Event::agent(raw)),
                Chunk::Failed(failure) => turn.held.hold(failure, text, raw),
                Chunk::Plain if thought => {
                    turn.restore_held(run, sink);
                    sink.event(run, Event::Thinking { text });
                }
                Chunk::Plain if is_blank => {
                    if let Some(text) = turn.held.hold_behind(text, raw) {
                        sink.event(run, Event::Text { text });
                    }
                }
                Chunk::Plain => {
                    turn.restore_held(run, sink);
                    turn.note_text();
                    sink.event(run, Event::Text { text });
                }
            }
        }
        sink.alive(run);
    }
}

fn owned(raw: Option<&RawValue>) -> Box<RawValue> {
    raw.unwrap_or(RawValue::NULL).to_owned()
}
