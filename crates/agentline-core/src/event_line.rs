//! Parses events from the lines printed by `--output events`.

use crate::{Event, Millis, Origin, PermissionEvent, Record};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use std::borrow::Cow;

#[derive(Deserialize)]
struct Head<'a> {
    seq: u32,
    at_ms: Millis,
    from: Origin,
    #[serde(default)]
    line: Option<u64>,
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
}

/// Uses one struct per kind of event, since a tagged enum would reformat raw values.
macro_rules! bodies {
    ($line:expr, $kind:expr; $($word:literal => $event:ident { $($field:ident : $type:ty),* };)*) => {
        match $kind {
            $($word => {
                #[derive(Deserialize)]
                struct Body { $(#[serde(default = "none")] $field: Option<$type>),* }
                let body: Body = body($line)?;
                Some(Event::$event { $($field: body.$field?),* })
            })*
            _ => None,
        }
    };
}

impl Record {
    /// Parses an event from its line; returns `None` if the line is not an event.
    ///
    /// ```
    /// use agentline_core::{Event, Record};
    /// let record = Record::from_line(r#"{"seq":2,"at_ms":10,"from":"stdout","line":1,"type":"text","text":"Hi"}"#).unwrap();
    /// assert!(matches!(record.event, Event::Text { text } if text == "Hi"));
    /// ```
    #[must_use]
    pub fn from_line(line: &str) -> Option<Self> {
        let head: Head<'_> = serde_json::from_str(line).ok()?;
        let event = match &*head.kind {
            "started" => Event::Started(body(line)?),
            "tool_use" => Event::ToolUse(body(line)?),
            "usage" => Event::Usage(body(line)?),
            "tool_result" => Event::ToolResult(body(line)?),
            "file_change" => file_change(line)?,
            "permission" => permission(line)?,
            "retry" => retry(line)?,
            kind => bodies! { line, kind;
                "text" => Text { text: String };
                "tool_output" => ToolOutput { tool_use_id: String, text: String };
                "thinking" => Thinking { text: String };
                "content" => Content { block: Box<RawValue> };
                "plan" => Plan { entries: Box<RawValue> };
                "commands" => Commands { commands: Box<RawValue> };
                "mode" => Mode { mode: String };
                "config_option" => ConfigOption { options: Box<RawValue> };
                "session_info" => SessionInfo { info: Box<RawValue> };
                "warning" => Warning { code: String, message: String };
                "unreadable" => Unreadable { sample: String, length: u64 };
                "agent" => Agent { raw: Box<RawValue> };
                "outcome" => Outcome { outcome: Box<crate::Outcome> };
            }?,
        };
        Some(Self::new(head.seq, head.at_ms, head.from, head.line, event))
    }
}

fn body<T: DeserializeOwned>(line: &str) -> Option<T> {
    serde_json::from_str(line).ok()
}

fn none<T>() -> Option<T> {
    None
}

fn file_change(line: &str) -> Option<Event> {
    #[derive(Deserialize)]
    struct Body {
        path: String,
        change: crate::FileChangeKind,
        source: crate::ChangeSource,
        tool_use_id: Option<String>,
        verified: bool,
        diff: Option<String>,
    }
    let Body { path, change, source, tool_use_id, verified, diff } = body(line)?;
    Some(Event::FileChange { path, change, source, tool_use_id, verified, diff })
}

fn permission(line: &str) -> Option<Event> {
    #[derive(Deserialize)]
    struct Body {
        tool_use_id: String,
        tool: String,
        request: Option<Box<RawValue>>,
        decision: String,
        by: String,
        reason: Option<String>,
        rule: Option<String>,
    }
    let Body { tool_use_id, tool, request, decision, by, reason, rule } = body(line)?;
    let decision = if decision == "allow" { "allow" } else { "deny" };
    Some(Event::from(PermissionEvent { tool_use_id, tool, request, decision, by, reason, rule }))
}

fn retry(line: &str) -> Option<Event> {
    #[derive(Deserialize)]
    struct Body {
        attempt: u32,
        wait_ms: Millis,
        reason: String,
        model: Option<String>,
    }
    let Body { attempt, wait_ms, reason, model } = body(line)?;
    Some(Event::Retry { attempt, wait_ms, reason, model })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ChangeSource, Diff, Failure, FailureKind, FileChangeKind, RunInfo, Started, ToolKind, ToolLocation,
        ToolResult, ToolStatus, ToolUse, Usage, Verdict,
    };

    #[test]
    fn every_event_round_trips() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let mut tool = ToolUse::new("t", "Write", "write_file", ToolKind::Other);
        tool.input = Some(raw(r#"{"b":1.0,"a":12345678901234567890123}"#));
        tool.title = Some("Write p".into());
        tool.locations = vec![ToolLocation::new("/w/p", Some(3))];
        tool.diffs = vec![Diff { path: "/w/p".into(), old: None, new: "x\n".into() }];
        let mut result = ToolResult::new("t", ToolStatus::Ok, None);
        result.title = Some("p".into());
        result.locations = tool.locations.clone();
        result.diffs = tool.diffs.clone();
        result.raw_output = Some(raw(r#"{"b" : 1.0,"a":[]}"#));
        let outcome = crate::Outcome::not_started(
            &RunInfo::default(),
            Verdict::Failed,
            Failure::new(FailureKind::Mcp, "x"),
        );
        let events = [
            Event::from(Started::default()),
            Event::Text { text: "a\n\u{1F600}".into() },
            Event::Thinking { text: "b".into() },
            Event::from(tool),
            Event::from(ToolResult::new("t", ToolStatus::Error, Some("no".into()))),
            Event::from(ToolResult::refused("t", "rule", None)),
            Event::from(result),
            Event::ToolOutput { tool_use_id: "t".into(), text: "one\n".into() },
            Event::Retry { attempt: 2, wait_ms: 1500, reason: "busy".into(), model: None },
            Event::Retry { attempt: 3, wait_ms: 0, reason: "busy".into(), model: Some("m".into()) },
            Event::FileChange {
                path: "p".into(),
                change: FileChangeKind::Created,
                source: ChangeSource::Shell,
                tool_use_id: None,
                verified: true,
                diff: Some("--- a/p\n".into()),
            },
            Event::from(PermissionEvent {
                tool_use_id: "t".into(),
                tool: "Bash".into(),
                request: Some(raw(r#"{"command" : "ls"}"#)),
                decision: "deny",
                by: "rule".into(),
                reason: Some("rule".into()),
                rule: Some("Bash".into()),
            }),
            Event::Content { block: raw(r#"{"type":"image"}"#) },
            Event::Plan { entries: raw("[]") },
            Event::Commands { commands: raw("[1]") },
            Event::Mode { mode: "yolo".into() },
            Event::ConfigOption { options: raw("[]") },
            Event::SessionInfo { info: raw("{}") },
            Event::from(Usage::default()),
            Event::warning("c", "m"),
            Event::unreadable("junk", 4),
            Event::Agent { raw: raw(r#"{"z":1,"a":2}"#) },
            Event::Outcome { outcome: Box::new(outcome) },
        ];
        let sampled: std::collections::BTreeSet<&str> = events.iter().map(Event::type_word).collect();
        assert_eq!(sampled, Event::TYPES.iter().copied().collect(), "an event is missing here");
        for (at, event) in events.into_iter().enumerate() {
            let line =
                serde_json::to_string(&Record::new(at as u32, 7, Origin::Stdout, Some(3), event)).unwrap();
            let back = Record::from_line(&line).unwrap_or_else(|| panic!("{line}"));
            assert_eq!(serde_json::to_string(&back).unwrap(), line);
        }
        assert!(Record::from_line("{}").is_none());
        assert!(Record::from_line(r#"{"seq":1,"at_ms":1,"from":"stdout","type":"other"}"#).is_none());
    }
}
