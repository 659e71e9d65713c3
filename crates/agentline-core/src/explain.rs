//! Predicts what an agent will do under a policy, and who enforces it.

use crate::policy::files;
use crate::{
    Agent, NativeDecision, PermissionRequest, Policy, PolicyDecision, ResolvedPath, RunRequest, Surface,
    ToolUseContext,
};
use serde::Serialize;

/// The predicted result of a tool use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Explanation {
    /// `allow`, `deny` or `ask`.
    pub decision: &'static str,
    /// Who decides: `rule`, `mode`, `agentline` or `agent`.
    pub by: String,
    /// The rule that decides, as written.
    pub rule: Option<String>,
    /// The reason, as a stable identifier.
    pub reason: Option<String>,
    /// Who enforces the decision: `agent` (its own engine), `agentline` (its answer to the agent), or `nobody`.
    pub held_by: &'static str,
    /// A further explanation.
    pub note: Option<String>,
}

impl Policy {
    /// Predicts the result of a tool use on a surface of an agent. `resolve` returns the real location of a path.
    #[must_use]
    pub fn explain(
        &self,
        agent: &dyn Agent,
        request: &RunRequest,
        surface: Surface,
        ask: &PermissionRequest,
        resolve: &dyn Fn(&str) -> ResolvedPath,
    ) -> Explanation {
        let decision = self.decide(ask, resolve);
        let inside = files(ask).into_iter().all(|path| resolve(path).inside);
        let native_decision =
            agent.native_decision(request, surface, &ToolUseContext { ask, decision: &decision, inside });
        let ruling = decision.ruling();
        let explanation = Explanation {
            decision: decision.name(),
            by: ruling.by.clone(),
            rule: ruling.rule.clone(),
            reason: ruling.reason.clone(),
            held_by: "agentline",
            note: None,
        };
        let by_agent = |explanation: Explanation, decision| Explanation {
            decision,
            by: "agent".into(),
            rule: None,
            reason: None,
            ..explanation
        };
        match (native_decision, &decision) {
            (NativeDecision::Asks, PolicyDecision::Ask(_)) => {
                Explanation { note: Some("denied if no user can be asked".into()), ..explanation }
            }
            (NativeDecision::Asks, _) => explanation,
            (NativeDecision::Runs(reason), PolicyDecision::Allow(_)) => {
                Explanation { held_by: "agent", note: Some(reason.into()), ..explanation }
            }
            // Where the mode would ask, an agent that does not ask decides by itself.
            (NativeDecision::Runs(reason), PolicyDecision::Ask(refusal)) if refusal.by == "mode" => {
                Explanation { held_by: "agent", note: Some(reason.into()), ..by_agent(explanation, "allow") }
            }
            (NativeDecision::Runs(reason), _) => {
                let note = format!("the policy says {}, but the agent {reason}", decision.name());
                Explanation { held_by: "nobody", note: Some(note), ..by_agent(explanation, "allow") }
            }
            (NativeDecision::Refuses(reason), PolicyDecision::Deny(_)) => {
                Explanation { held_by: "agent", note: Some(reason.into()), ..explanation }
            }
            (NativeDecision::Refuses(reason), _) => {
                Explanation { held_by: "agent", note: Some(reason.into()), ..by_agent(explanation, "deny") }
            }
            (NativeDecision::Unknown, _) => {
                let note = Some("applies only if the agent asks, which agentline cannot predict".into());
                let can_ask = agent.abilities(surface, None).asks_permission;
                Explanation { held_by: if can_ask { "agentline" } else { "nobody" }, note, ..explanation }
            }
        }
    }
}
