//! The differences that agents force on scenarios, each with its reason. An exception that is not needed fails the kit.

mod gemini;
mod profiles;

use crate::expected::{Aspect, Difference};
use crate::target::TestedSurface;
use agentline::Surface;
use agentline::agents::Version;

/// A difference that an agent forces on some scenarios.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Exception {
    /// The id of the agent.
    pub agent: &'static str,
    /// The surfaces; none for all of them.
    pub surfaces: &'static [Surface],
    /// The first version with the difference.
    pub since: Option<Version>,
    /// The first version without it.
    pub until: Option<Version>,
    /// The names of the scenarios; none for all of them.
    pub scenarios: &'static [&'static str],
    /// The aspects that differ.
    pub aspects: &'static [Aspect],
    /// A part of what is observed instead; empty for anything.
    pub observed: &'static str,
    /// Whether the difference occurs in some runs only, because the agent does not wait for something. Runs without it
    /// are accepted too, and the exception is always reported.
    pub is_race: bool,
    /// The largest number of requests that is accepted, if it is known.
    pub most_requests: Option<usize>,
    /// Why the agent differs.
    pub reason: &'static str,
}

impl Exception {
    /// Returns whether the exception is about this target and scenario.
    #[must_use]
    pub fn covers(&self, target: &TestedSurface, scenario: &str) -> bool {
        let in_range = match target.version {
            Some(version) => {
                self.since.is_none_or(|since| version >= since)
                    && self.until.is_none_or(|until| version < until)
            }
            // An unknown version counts as the newest.
            None => self.until.is_none(),
        };
        self.agent == target.agent
            && (self.surfaces.is_empty() || self.surfaces.contains(&target.surface))
            && in_range
            && (self.scenarios.is_empty() || self.scenarios.contains(&scenario))
    }

    /// Returns whether the exception explains a difference.
    #[must_use]
    pub fn explains(&self, difference: &Difference) -> bool {
        let is_in_range =
            |most: usize| difference.observed.parse::<usize>().is_ok_and(|requests| requests <= most);
        self.aspects.contains(&difference.aspect)
            && difference.observed.contains(self.observed)
            && self.most_requests.is_none_or(is_in_range)
    }
}

/// Creates an exception for all surfaces and versions of an agent.
const fn exception(
    agent: &'static str,
    scenarios: &'static [&'static str],
    aspects: &'static [Aspect],
    observed: &'static str,
    reason: &'static str,
) -> Exception {
    Exception {
        agent,
        surfaces: &[],
        since: None,
        until: None,
        scenarios,
        aspects,
        observed,
        is_race: false,
        most_requests: None,
        reason,
    }
}

/// Creates an exception for an agent that races with its cancellation in a scenario: it sends at most this number of
/// requests.
const fn race(
    agent: &'static str,
    scenarios: &'static [&'static str],
    most_requests: usize,
    reason: &'static str,
) -> Exception {
    Exception {
        is_race: true,
        most_requests: Some(most_requests),
        ..exception(agent, scenarios, &[Aspect::Requests], "", reason)
    }
}

/// Returns every exception.
pub fn all() -> impl Iterator<Item = &'static Exception> {
    gemini::EXCEPTIONS.iter().chain(EXCEPTIONS).chain(profiles::EXCEPTIONS)
}

/// Returns the exceptions that are about a target.
pub fn of(target: &TestedSurface) -> impl Iterator<Item = &'static Exception> {
    let any_scenario = |one: &Exception| one.scenarios.first().copied().unwrap_or_default();
    all().filter(move |one| one.covers(target, any_scenario(one)))
}

/// Returns how long the model takes for its first answer in a scenario, where the agent needs that time.
pub(crate) fn thinking_ms(target: &TestedSurface, scenario: &str) -> u64 {
    gemini::thinking_ms(target, scenario)
}

/// The reason of the agents whose limits agentline enforces by cancelling the turn.
const NEXT_REQUEST: &str =
    "the agent sends its next request without waiting; a request over the limit is cancelled";
const CODEX_TMP: &str =
    "over ACP, Codex's sandbox also allows writes in `/tmp`, where this scenario is played; the run warns";
const CODEX_MODELS: &str = "Codex's ACP adapter accepts only the models of its own list, which does not have the model of this scenario";

/// The exceptions of the other built-in agents.
const EXCEPTIONS: &[Exception] = &[
    Exception {
        surfaces: &[Surface::AppServer, Surface::StreamJson],
        ..exception(
            "codex",
            &["edit", "read"],
            &[Aspect::Tools],
            "Bash",
            "Codex has no tool that reads files; it reads them with commands",
        )
    },
    Exception {
        surfaces: &[Surface::StreamJson],
        ..exception(
            "codex",
            &["denied", "plan", "outside"],
            &[Aspect::Tools, Aspect::Denied],
            "Edit",
            "`codex exec` reports a refused patch only in its log, without the changes, so it is not known to create a file",
        )
    },
    Exception {
        surfaces: &[Surface::Acp],
        ..exception("codex", &["outside"], &[Aspect::Verdict], "done (None", CODEX_TMP)
    },
    Exception {
        surfaces: &[Surface::Acp],
        ..exception("codex", &["outside"], &[Aspect::Tools], "Ok", CODEX_TMP)
    },
    Exception {
        surfaces: &[Surface::Acp],
        ..exception("codex", &["outside"], &[Aspect::Denied], "[]", CODEX_TMP)
    },
    Exception {
        surfaces: &[Surface::Acp],
        ..exception("codex", &["outside"], &[Aspect::Files, Aspect::Disk], "out.txt", CODEX_TMP)
    },
    Exception {
        surfaces: &[Surface::Acp],
        ..exception(
            "codex",
            &["mcp_tool", "hosted_tool"],
            &[Aspect::Offered],
            "tool_search",
            "over ACP, Codex offers the tools of MCP servers only through its tool search",
        )
    },
    Exception {
        surfaces: &[Surface::Acp],
        ..exception("codex", &["model"], &[Aspect::Verdict], "failed (Some(UnknownModel)", CODEX_MODELS)
    },
    Exception {
        surfaces: &[Surface::Acp],
        ..exception("codex", &["model"], &[Aspect::Text], "\"\"", CODEX_MODELS)
    },
    Exception {
        surfaces: &[Surface::Acp],
        ..exception("codex", &["model"], &[Aspect::Requests], "0", CODEX_MODELS)
    },
    Exception {
        surfaces: &[Surface::Acp],
        ..exception("codex", &["model"], &[Aspect::Tokens], "input unknown, output unknown", CODEX_MODELS)
    },
    race("gemini", &["max_tool_calls", "max_tokens"], 4, NEXT_REQUEST),
    Exception { surfaces: &[Surface::Acp], ..race("claude", &["max_turns"], 3, NEXT_REQUEST) },
    Exception {
        surfaces: &[Surface::Acp],
        ..race("claude", &["max_tool_calls", "max_tokens"], 4, NEXT_REQUEST)
    },
    race("codex", &["max_turns"], 3, NEXT_REQUEST),
    race("codex", &["max_tool_calls", "max_tokens"], 4, NEXT_REQUEST),
    race("opencode", &["max_turns"], 3, NEXT_REQUEST),
    Exception {
        surfaces: &[Surface::Acp],
        is_race: true,
        ..exception(
            "opencode",
            &["dropped_midway"],
            &[Aspect::Time],
            "",
            "over ACP, a connection that is dropped in the middle of an answer sometimes reaches OpenCode a minute late",
        )
    },
    race("opencode", &["max_tool_calls", "max_tokens"], 4, NEXT_REQUEST),
    Exception {
        surfaces: &[Surface::Acp],
        ..exception(
            "opencode",
            &["cut_off"],
            &[Aspect::Verdict],
            "done",
            "over ACP, OpenCode does not report that an answer with text was cut off at the token limit",
        )
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use agentline::agents::{SurfaceFeatures, find};

    fn target(agent: &str, surface: Surface, version: Option<Version>) -> TestedSurface {
        let id = find(agent).map(|agent| agent.info().id.to_owned()).unwrap_or_default();
        TestedSurface {
            agent: id,
            surface,
            version,
            program: "/nowhere".into(),
            features: SurfaceFeatures::default(),
        }
    }

    #[test]
    fn exception_covers_its_surfaces_versions_and_scenarios() {
        let one = Exception {
            surfaces: &[Surface::Acp],
            since: Some(Version(0, 20, 0)),
            until: Some(Version(0, 61, 0)),
            ..exception("gemini", &["text"], &[Aspect::Text], "much", "a reason")
        };
        for (surface, version, scenario, covered) in [
            (Surface::Acp, Some(Version(0, 20, 0)), "text", true),
            (Surface::Acp, Some(Version(0, 60, 9)), "text", true),
            (Surface::Acp, Some(Version(0, 19, 0)), "text", false),
            (Surface::Acp, Some(Version(0, 61, 0)), "text", false),
            (Surface::Acp, None, "text", false),
            (Surface::Json, Some(Version(0, 24, 0)), "text", false),
            (Surface::Acp, Some(Version(0, 24, 0)), "write", false),
        ] {
            let target = target("gemini", surface, version);
            assert_eq!(one.covers(&target, scenario), covered, "{target} {scenario}");
        }
        assert!(!one.covers(&target("claude", Surface::Acp, Some(Version(0, 24, 0))), "text"));
        assert!(one.explains(&Difference::new(Aspect::Text, "little", "too much")));
        assert!(!one.explains(&Difference::new(Aspect::Text, "little", "nothing")));
        assert!(!one.explains(&Difference::new(Aspect::Files, "little", "too much")));
    }

    #[test]
    fn race_explains_a_bounded_number_of_requests() {
        let one = race("gemini", &["max_turns"], 3, "it does not wait");
        for (observed, is_explained) in [("3", true), ("2", true), ("4", false), ("", false)] {
            let difference = Difference::new(Aspect::Requests, "at most 2", observed);
            assert_eq!(one.explains(&difference), is_explained, "{observed}");
        }
        assert!(!one.explains(&Difference::new(Aspect::Tools, "none", "3")));
    }
}
