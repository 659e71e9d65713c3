//! Properties of every session, whether intact or damaged, read as a whole or followed.

use super::{Saved, files, recordings};
use crate::{
    play::Dice,
    saved_text::{fold, load, take, text_of},
};
use agentline_core::{RawJson, SavedSession, SessionFormat, agents};
use proptest::prelude::*;

/// Returns every recorded file.
fn all() -> Vec<Saved> {
    recordings().iter().flat_map(|recording| files(recording)).collect()
}

/// Reads the first `many` lines.
fn lines(text: &str, many: usize) -> SavedSession {
    let start: String = text.split_inclusive('\n').take(many).collect();
    load("gemini", SessionFormat::Lines, &start)
}

#[test]
fn truncated_file_yields_every_record_before_the_cut() {
    for file in all() {
        let (mut last, mut expected) = (usize::MAX, String::new());
        // Cut at every byte of two short files that differ most, and at enough positions of the others.
        let everywhere = file.name.contains("5edacfed") || file.name.contains("284bfdb5");
        let step = if everywhere { 1 } else { 1 + file.text.len() / 120 };
        for cut in (0..file.text.len()).filter(|at| file.text.is_char_boundary(*at)).step_by(step) {
            let start = &file.text[..cut];
            let session = load("gemini", file.form, start);
            if file.form == SessionFormat::Whole {
                check_complete_messages(&file, start, &session);
                continue;
            }
            let whole = start.matches('\n').count();
            let rest = start.rsplit('\n').next().unwrap_or_default();
            // A last line that only lacks its line break is complete.
            let is_whole = serde_json::from_str::<serde::de::IgnoredAny>(rest).is_ok();
            let damaged = !rest.is_empty() && !is_whole;
            assert_eq!(
                session.damage.len(),
                usize::from(damaged),
                "{} cut at {cut}: {:?}",
                file.name,
                session.damage
            );
            if !damaged {
                continue;
            }
            assert_eq!(session.damage[0].line, Some(whole as u64 + 1));
            if std::mem::replace(&mut last, whole) != whole {
                expected = text_of(&lines(&file.text, whole));
            }
            let mut session = session;
            session.damage.clear();
            // A partial line may only contribute the identity of the session.
            if whole > 0 {
                assert_eq!(text_of(&session), expected, "{} cut at {cut}", file.name);
            }
        }
    }
}

/// Checks that every message before the cut is present and that the damage is reported.
fn check_complete_messages(file: &Saved, start: &str, session: &SavedSession) {
    let expected = start.matches("\n    },").count() + start.matches("\n    }\n").count();
    let entries = session.entries.len();
    assert!(entries == expected || entries == expected + 1, "{}: {entries} of {expected}", file.name);
    let is_whole = serde_json::from_str::<serde::de::IgnoredAny>(start).is_ok() || start.is_empty();
    assert_eq!(session.damage.len(), usize::from(!is_whole), "{:?}", session.damage);
}

#[test]
fn followed_session_equals_a_session_read_at_once() {
    for file in all().into_iter().filter(|file| file.form == SessionFormat::Lines) {
        let mut followed = fold("gemini", SessionFormat::Lines);
        let text = RawJson::new(file.text.as_str());
        for (number, line) in text.as_str().lines().enumerate() {
            followed.take(text.part_of(line).expect("a line of the text"));
            let so_far = text_of(followed.session());
            assert_eq!(so_far, text_of(followed.session()), "reading changes nothing");
            assert_eq!(
                so_far,
                text_of(&lines(&file.text, number + 1)),
                "{} to line {}",
                file.name,
                number + 1
            );
        }
        assert_eq!(text_of(followed.session()), text_of(&file.load()));
        assert_eq!(text_of(&followed.finish()), text_of(&file.load()));
    }
}

#[test]
fn damaged_files_never_make_the_reader_fail() {
    let mut dice = Dice::new(11);
    for file in all() {
        for _ in 0..60 {
            let mut bytes = file.text.clone().into_bytes();
            for _ in 0..1 + dice.below(6) {
                let at = dice.below(bytes.len());
                let end = (at + 1 + dice.below(200)).min(bytes.len());
                match dice.below(4) {
                    0 => drop(bytes.drain(at..end)),
                    1 => {
                        let piece = bytes[at..end].to_vec();
                        let to = dice.below(bytes.len());
                        bytes.splice(to..to, piece);
                    }
                    2 => bytes[at] ^= 1 << dice.below(7),
                    _ => bytes.insert(at, [b'\n', b'{', b'"', b'\\', b'}', b']'][dice.below(6)]),
                }
            }
            let text = String::from_utf8_lossy(&bytes);
            // Also read some files in the wrong form.
            let form = if dice.below(8) == 0 { SessionFormat::Whole } else { file.form };
            let session = load("gemini", form, &text);
            assert!(session.entries.iter().all(|entry| !entry.originals.is_empty()));
        }
    }
}

#[test]
fn format_is_recognized_by_the_start_of_a_file() {
    let agent = agents::find("gemini").expect("the agent is listed");
    for file in all() {
        for most in [200, 4096, usize::MAX] {
            let head = &file.text.as_bytes()[..file.text.len().min(most)];
            assert_eq!(
                agent.sessions().format(head),
                Some(file.form),
                "{} by {} bytes",
                file.name,
                head.len()
            );
        }
    }
    for other in ["", "{}", "[1]", "hello", r#"{"type":"user","sessionId":"s","cwd":"/w"}"#, "\u{feff}\n"] {
        assert_eq!(agent.sessions().format(other.as_bytes()), None, "{other}");
    }
    assert_eq!(agent.sessions().format(br#"{"$set":{"lastUpdated":"x"}}"#), Some(SessionFormat::Lines));
    assert_eq!(
        agent.sessions().format(br#"{"id":"1","type":"gemini","content":""}"#),
        Some(SessionFormat::Lines)
    );
    assert!(agent.sessions().reader(SessionFormat::Database).is_none());
}

#[test]
fn records_after_a_partial_line_are_not_lost() {
    let record = |id: &str| format!(r#"{{"id":"{id}","type":"user","content":[{{"text":"{id}"}}]}}"#);
    let session = load(
        "gemini",
        SessionFormat::Lines,
        &format!("{}\n{{\"id\":\"x\",\"cont{}\n", record("a"), record("b")),
    );
    let ids: Vec<&str> = session.entries.iter().map(|entry| entry.id.as_str()).collect();
    assert_eq!(ids, ["a", "b"]);
    assert_eq!(session.damage.len(), 1);
    // The messages in a truncated list do not count as records.
    let list = format!("{}\n{{\"$set\":{{\"messages\":[{},{}", record("a"), record("b"), record("c"));
    let session = load("gemini", SessionFormat::Lines, &list);
    assert_eq!(session.entries.len(), 1);
    assert_eq!(session.damage[0].message, "truncated");
}

/// Generates one record of a session.
fn record() -> impl Strategy<Value = String> {
    let id = 0..6_u8;
    prop_oneof![
        4 => id.clone().prop_map(|id| format!(r#"{{"id":"{id}","type":"user","content":[{{"text":"user {id}"}}]}}"#)),
        4 => (id.clone(), 0..6_u8).prop_map(|(id, call)| format!(
            r#"{{"id":"{id}","type":"gemini","content":"answer","tokens":{{"input":1}},"toolCalls":[{{"id":"c{call}","name":"glob","args":{{}},"status":"success","result":"x"}}]}}"#
        )),
        2 => (id.clone(), 0..6_u8).prop_map(|(id, call)| format!(
            r#"{{"id":"{id}","type":"user","content":[{{"functionResponse":{{"id":"c{call}","name":"glob","response":{{"output":"y"}}}}}}]}}"#
        )),
        1 => id.clone().prop_map(|id| format!(r#"{{"$rewindTo":"{id}"}}"#)),
        1 => proptest::collection::vec(id, 0..4).prop_map(|ids| {
            let list: Vec<String> = ids.iter().map(|id| format!(r#"{{"id":"{id}","type":"gemini","content":[{{"functionCall":{{"id":"c{id}","name":"glob"}}}}]}}"#)).collect();
            format!(r#"{{"$set":{{"messages":[{}]}}}}"#, list.join(","))
        }),
        1 => Just(r#"{"sessionId":"s","projectHash":"h"}"#.to_owned()),
    ]
}

proptest! {
    #[test]
    fn no_record_order_loses_tokens_or_repeats_a_call(records in proptest::collection::vec(record(), 0..30)) {
        let text = records.join("\n");
        let session = load("gemini", SessionFormat::Lines, &text);
        prop_assert!(session.damage.is_empty(), "{:?}", session.damage);
        let mut calls: Vec<&str> = session.entries.iter().flat_map(|entry| entry.tools()).map(|tool| tool.call.id.as_str()).collect();
        calls.sort_unstable();
        let count = calls.len();
        calls.dedup();
        prop_assert_eq!(count, calls.len(), "a call is reported twice");
        let mut ids: Vec<&str> = session.entries.iter().chain(&session.abandoned).map(|entry| entry.id.as_str()).collect();
        let entries = ids.len();
        ids.sort_unstable();
        ids.dedup();
        prop_assert_eq!(entries, ids.len(), "an entry is reported twice");
        let mut fold = fold("gemini", SessionFormat::Lines);
        take(fold.as_mut(), SessionFormat::Lines, &text);
        prop_assert_eq!(text_of(fold.session()), text_of(&session));
    }
}
