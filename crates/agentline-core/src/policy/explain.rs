//! Tells beforehand what an agent will do under a policy, and who holds it to that.

use super::{Decision, Policy, Resolved, changes_files, files};
use crate::{Agent, PermissionAsk, RunRequest, Surface, ToolKind};
use serde::Serialize;

/// What an agent does by itself with a use of a tool, before anybody of ours is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stance {
    /// It asks, and our answer counts.
    Asks,
    /// It goes ahead without asking anybody, for this reason.
    Runs(&'static str),
    /// It refuses, or does not offer the tool to its model, for this reason.
    Refuses(&'static str),
    /// Whether it asks is not known; where it does, our answer counts.
    Unknown,
}

/// A use of a tool that an agent is asked about its stance on.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Prospect<'a> {
    /// The use.
    pub ask: &'a PermissionAsk,
    /// What the policy says about it.
    pub decision: &'a Decision,
    /// All files that it names lie in the workspace or an included folder.
    pub inside: bool,
}

/// What will become of a use of a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Explained {
    /// `allow`, `deny` or `ask`.
    pub decision: &'static str,
    /// Who decides: `rule`, `mode`, `agentline` or `agent`.
    pub by: String,
    /// The rule behind it, as it was written.
    pub rule: Option<String>,
    /// Why: a stable word.
    pub reason: Option<String>,
    /// Who holds the agent to it: `agent` (its own engine), `agentline` (our answer), or `nobody`.
    pub held_by: &'static str,
    /// What else is to be known.
    pub note: Option<String>,
}

impl Policy {
    /// What will become of a use of a tool on a surface of an agent. `resolve` finds out where a path really leads.
    #[must_use]
    pub fn explain(
        &self,
        agent: &dyn Agent,
        request: &RunRequest,
        surface: Surface,
        ask: &PermissionAsk,
        resolve: &dyn Fn(&str) -> Resolved,
    ) -> Explained {
        let decision = self.decide(ask, resolve);
        let inside = files(ask).into_iter().all(|path| resolve(path).inside);
        let stance = agent.stance(request, surface, &Prospect { ask, decision: &decision, inside });
        let ruling = decision.ruling();
        let told = Explained {
            decision: decision.name(),
            by: ruling.by.clone(),
            rule: ruling.rule.clone(),
            reason: ruling.reason.clone(),
            held_by: "agentline",
            note: None,
        };
        let by_agent = |told: Explained, decision| Explained {
            decision,
            by: "agent".into(),
            rule: None,
            reason: None,
            ..told
        };
        match (stance, &decision) {
            (Stance::Asks, Decision::Ask(_)) => {
                Explained { note: Some("refused where nobody is there to be asked".into()), ..told }
            }
            (Stance::Asks, _) => told,
            (Stance::Runs(why), Decision::Allow(_)) => {
                Explained { held_by: "agent", note: Some(why.into()), ..told }
            }
            // What the mode leaves to the agent's question is the agent's own affair when it does not ask.
            (Stance::Runs(why), Decision::Ask(refusal)) if refusal.by == "mode" => {
                Explained { held_by: "agent", note: Some(why.into()), ..by_agent(told, "allow") }
            }
            (Stance::Runs(why), _) => {
                let note = format!("the policy says {}, but the agent {why}", decision.name());
                Explained { held_by: "nobody", note: Some(note), ..by_agent(told, "allow") }
            }
            (Stance::Refuses(why), Decision::Deny(_)) => {
                Explained { held_by: "agent", note: Some(why.into()), ..told }
            }
            (Stance::Refuses(why), _) => {
                Explained { held_by: "agent", note: Some(why.into()), ..by_agent(told, "deny") }
            }
            (Stance::Unknown, _) => {
                let note = Some("as far as the agent asks, which is not known".into());
                let can_ask = agent.abilities(surface, None).asks_permission;
                Explained { held_by: if can_ask { "agentline" } else { "nobody" }, note, ..told }
            }
        }
    }
}

impl Prospect<'_> {
    /// Whether a rule decides.
    #[must_use]
    pub fn by_rule(&self) -> bool {
        self.decision.ruling().by == "rule"
    }

    /// Whether it changes files.
    #[must_use]
    pub fn changes_files(&self) -> bool {
        changes_files(self.ask)
    }

    /// Whether it is for looking at files only.
    #[must_use]
    pub fn looks_at_files(&self) -> bool {
        matches!(self.ask.kind, ToolKind::Read | ToolKind::Search)
    }
}
