//! Properties of every session, however it is read and however its file is damaged.

use crate::recordings::{fold, format_session, read, recordings};
use agentline_core::RawJson;
use proptest::prelude::*;

const AGENTS: [&str; 2] = ["claude", "codex"];

#[test]
fn followed_session_equals_a_session_read_at_once() {
    for agent in AGENTS {
        for (name, text) in recordings(agent) {
            let mut fold = fold(agent);
            for line in text.lines() {
                fold.take(RawJson::new(line));
                assert!(!format_session(fold.session()).is_empty());
            }
            assert_eq!(format_session(&fold.finish()), format_session(&read(agent, &text)), "{name}");
        }
    }
}

#[test]
fn truncated_file_yields_all_complete_records() {
    for agent in AGENTS {
        for (name, text) in recordings(agent) {
            let ends = text.match_indices('\n').map(|(at, _)| at + 1);
            for (start, end) in std::iter::once(0).chain(ends.clone()).zip(ends) {
                let before = format_session(&read(agent, &text[..start]));
                // Cut at a few positions inside each line. Cutting at every byte takes minutes.
                let step = ((end - start) / 3).max(1);
                for at in (start..end - 1).step_by(step).filter(|at| text.is_char_boundary(*at)).skip(1) {
                    let mut cut = read(agent, &text[..at]);
                    assert_eq!(cut.damage.len(), 1, "{name} cut at {at}");
                    cut.damage.clear();
                    assert_eq!(format_session(&cut), before, "{name} cut at {at}");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_files_never_make_a_reader_panic(
        agent in 0..2_usize,
        file in any::<prop::sample::Index>(),
        wounds in prop::collection::vec((any::<prop::sample::Index>(), 0..6_u8, any::<char>()), 1..12),
    ) {
        let agent = AGENTS[agent];
        let all = recordings(agent);
        let (_, text) = &all[file.index(all.len())];
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        for (position, wound, letter) in wounds {
            let at = position.index(lines.len());
            match wound {
                0 => drop(lines.remove(at)),
                1 => lines.insert(at, lines[at].clone()),
                2 => lines.swap(at, 0),
                3 => lines[at] = lines[at].replace("parentUuid", "parent").replace("call_id", "called"),
                4 => lines[at] = lines[at].replace('"', "1"),
                _ => {
                    let inside = position.index(lines[at].chars().count().max(1));
                    lines[at] = lines[at].chars().enumerate().map(|(n, c)| if n == inside { letter } else { c }).collect();
                }
            }
            if lines.is_empty() {
                lines.push(String::new());
            }
        }
        format_session(&read(agent, &lines.join("\n")));
    }
}
