//! Errors of the model's service. Each is reported in time, and never as a success.

use crate::expected::Expected;
use crate::scenario::{Scenario, Tier, scenario};
use crate::script::ScenarioScript;
use agentline::{FailureKind, Verdict};
use agentline_mock::agents::ServedRequest;
use agentline_mock::answer::{Answer, ServiceError};

/// The longest time from the first request to the outcome, in seconds.
pub(super) const PROMPTLY: u64 = 15;

fn failed(verdict: Verdict, kind: FailureKind) -> Expected {
    Expected::failed(verdict, kind).within(PROMPTLY)
}

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario(
            "401",
            "A rejected key is `not_authenticated`.",
            |_| ScenarioScript::always(Answer::error(ServiceError::Unauthorized)),
            |_| failed(Verdict::NotAuthenticated, FailureKind::NotAuthenticated),
        )
        .tier(Tier::Basic),
        scenario(
            "429",
            "A service that refuses too many requests is `rate_limited`.",
            |_| ScenarioScript::always(Answer::error(ServiceError::RateLimited)),
            |_| failed(Verdict::RateLimited, FailureKind::RateLimited),
        )
        .tier(Tier::Deep),
        scenario(
            "529",
            "An overloaded service is `rate_limited`.",
            |_| ScenarioScript::always(Answer::error(ServiceError::Overloaded)),
            |_| failed(Verdict::RateLimited, FailureKind::RateLimited),
        ),
        scenario(
            "500",
            "A failing service is `failed`, with the kind `api_error`.",
            |_| ScenarioScript::always(Answer::error(ServiceError::Internal)),
            |_| failed(Verdict::Failed, FailureKind::ApiError),
        ),
        scenario(
            "400",
            "A prompt that is too long is `failed`, with the kind `context_overflow`.",
            |_| ScenarioScript::always(Answer::error(ServiceError::TooLong)),
            |_| failed(Verdict::Failed, FailureKind::ContextOverflow),
        ),
        scenario(
            "404",
            "A model that the service does not have is `failed`, with the kind `unknown_model`.",
            |_| ScenarioScript::always(Answer::error(ServiceError::UnknownModel)),
            |_| failed(Verdict::Failed, FailureKind::UnknownModel),
        ),
        scenario(
            "unknown_model",
            "A requested model that does not exist is `failed`, and no other model answers instead.",
            |_| ScenarioScript::By(only_known_models),
            |_| failed(Verdict::Failed, FailureKind::UnknownModel),
        )
        .request(|scene, request| request.model(scene.bench.scripted.unknown_model)),
        scenario(
            "dropped",
            "A connection that closes without an answer is `failed`, with the kind `network`.",
            |_| ScenarioScript::always(Answer::drop_connection()),
            |_| failed(Verdict::Failed, FailureKind::Network),
        ),
        scenario(
            "dropped_midway",
            "A connection that closes in the middle of an answer is `failed`, with the kind `network`.",
            |_| ScenarioScript::always(Answer::text("The beginning ").drop_midway()),
            |_| failed(Verdict::Failed, FailureKind::Network),
        ),
        scenario(
            "recovered",
            "A request that fails once and then succeeds does not fail the run.",
            |_| {
                ScenarioScript::Answers(vec![
                    Answer::error(ServiceError::Internal),
                    Answer::text("Recovered."),
                ])
            },
            |_| Expected::done("Recovered.").turns(2),
        ),
    ]
}

fn only_known_models(request: &ServedRequest) -> Answer {
    if request.model.contains("nope") || request.model.contains("no-such") {
        return Answer::error(ServiceError::UnknownModel);
    }
    Answer::text("Another model answers.")
}
