//! Watches stderr for the confirmations that Gemini CLI has read its rules and ignores the workspace's configuration.

use crate::agents::gemini::guard::Confirmation;
use crate::{Failure, FailureKind, PolicyAck, Sink, TurnSpec};

/// The confirmations seen so far.
#[derive(Debug, Default)]
pub(super) struct PolicyAckWatch {
    required: Option<PolicyAck>,
    /// Workspace files that must be ignored.
    must_ignore: Vec<String>,
    confirmation: Confirmation,
    confirmed: bool,
    reported: bool,
    /// The number of further lines that belong to the last report about the policy file.
    rest: u8,
}

impl PolicyAckWatch {
    /// Starts a run with the rules of its specification.
    pub(super) fn begin(&mut self, spec: &TurnSpec) {
        self.required.clone_from(&spec.proof);
        self.must_ignore.clone_from(&spec.must_ignore);
    }

    /// Processes a line of stderr. Returns whether the line is handled and needs no further processing.
    pub(super) fn stderr(&mut self, text: &str, sink: &mut Sink) -> bool {
        if self.confirmation.stderr(text) {
            return true;
        }
        let Some(proof) = &self.required else { return false };
        if text.starts_with(&proof.read) {
            (self.confirmed, self.rest) = (true, 2);
            return true;
        }
        if text.starts_with(&proof.dropped) {
            self.reported = true;
            sink.abort(
                Failure::new(FailureKind::Policy, "Gemini CLI ignored a rule of `--allow` or `--deny`")
                    .hint("remove rules until it works, and report this as a bug"),
            );
            return false;
        }
        let belongs = self.rest > 0 && (text == "  Unrecognized tool name" || text.starts_with("Rule #"));
        self.rest = if belongs { self.rest - 1 } else { 0 };
        belongs
    }

    /// Checks that the agent ignores the workspace's own configuration, before it calls the model.
    pub(super) fn ready(&mut self, sink: &mut Sink) {
        if let Some(failure) = self.confirmation.failure(&self.must_ignore) {
            self.must_ignore.clear();
            sink.abort(failure);
        }
    }

    /// Checks that the rules were read, after a turn of the model. stderr is read first, so the confirmation must have
    /// arrived.
    pub(super) fn turn(&mut self, sink: &mut Sink) {
        self.ready(sink);
        if self.required.is_some() && !self.confirmed && !std::mem::replace(&mut self.reported, true) {
            sink.abort(
                Failure::new(
                    FailureKind::Policy,
                    "Gemini CLI did not load the rules of the run: `--allow`, `--deny` and those of its mode",
                )
                .hint("retry; if it fails again, report this as a bug"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{agents::gemini::policy, dialogue::SinkItem};

    const REST: [&str; 2] = ["  Unrecognized tool name", "Rule #2: The \"__\" syntax for MCP tools …"];

    fn watch(required: bool) -> PolicyAckWatch {
        let mut watch = PolicyAckWatch::default();
        let proof = required.then(|| PolicyAck::new(policy::PROOF, policy::BROKEN));
        watch.begin(&TurnSpec { proof, ..TurnSpec::default() });
        watch
    }

    fn aborts(sink: &Sink) -> usize {
        sink.items
            .iter()
            .filter(|(_, item)| matches!(item, SinkItem::Abort(f) if f.kind == FailureKind::Policy))
            .count()
    }

    #[test]
    fn policy_acknowledgements_are_not_reported() {
        let (mut watch, mut sink) = (watch(true), Sink::default());
        for _ in 0..2 {
            assert!(watch.stderr(policy::PROOF, &mut sink));
            assert!(REST.iter().all(|line| watch.stderr(line, &mut sink)));
        }
        assert!(!watch.stderr("something else", &mut sink));
        assert!(!watch.stderr("Rule #1 of the user", &mut sink), "the line belongs to another report");
        watch.turn(&mut sink);
        assert_eq!(aborts(&sink), 0);
    }

    #[test]
    fn turn_without_policy_acknowledgement_aborts_the_run_once() {
        let (mut watch, mut sink) = (watch(true), Sink::default());
        watch.stderr("[USER] Policy file warning in mine.toml:", &mut sink);
        assert_eq!(aborts(&sink), 0);
        watch.turn(&mut sink);
        watch.turn(&mut sink);
        assert_eq!(aborts(&sink), 1);
    }

    #[test]
    fn dropped_rule_aborts_the_run_immediately() {
        let (mut watch, mut sink) = (watch(true), Sink::default());
        watch.stderr(policy::BROKEN, &mut sink);
        assert_eq!(aborts(&sink), 1);
    }

    #[test]
    fn no_acknowledgement_is_required_without_rules() {
        let (mut watch, mut sink) = (watch(false), Sink::default());
        assert!(!watch.stderr(policy::PROOF, &mut sink));
        watch.turn(&mut sink);
        assert_eq!(aborts(&sink), 0);
    }
}
