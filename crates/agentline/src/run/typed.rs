//! Runs whose answer is a value of a Rust type.

use crate::{agentline::Agentline, error::Error, run::options::RunOptions, schema::Schema};
use agentline_core::{Outcome, Phase, RunRequest, Verdict};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

/// The value that an agent answered with, and the outcome of the run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Typed<T> {
    /// The value.
    pub value: T,
    /// The complete outcome. Its verdict is `done`, or `done_with_denials` if tool calls were refused.
    pub outcome: Outcome,
}

/// The reason why there is no value.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TypedError {
    /// The run could not be started.
    #[error(transparent)]
    NotTried(#[from] Error),
    /// The run ended without a value.
    #[error("{}: {}", .0.verdict.name(), message(.0))]
    Failed(Box<Outcome>),
    /// The value matches the schema of the type but cannot be deserialized as the type.
    #[error("the value matches the schema of the type, but not the type")]
    Mismatch {
        /// The error of `serde`.
        source: serde_json::Error,
        /// The outcome of the run.
        outcome: Box<Outcome>,
    },
}

impl TypedError {
    /// Returns the outcome of the run, if it was started.
    #[must_use]
    pub fn outcome(&self) -> Option<&Outcome> {
        match self {
            Self::NotTried(_) => None,
            Self::Failed(outcome) | Self::Mismatch { outcome, .. } => Some(outcome),
        }
    }

    /// Returns the verdict of the run, if it was started.
    #[must_use]
    pub fn verdict(&self) -> Option<Verdict> {
        self.outcome().map(|outcome| outcome.verdict)
    }

    /// Returns the phase of the run in which it failed: `Request` if it was not started.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match self {
            Self::NotTried(_) => Phase::Request,
            Self::Failed(outcome) => outcome.error.as_ref().map_or(Phase::Response, |error| error.phase),
            Self::Mismatch { .. } => Phase::Response,
        }
    }

    /// Returns the agent's text.
    #[must_use]
    pub fn text(&self) -> &str {
        self.outcome().map_or("", |outcome| &outcome.text)
    }
}

impl Agentline {
    /// Runs a prompt whose answer is a value of type `T`, and waits for the value.
    ///
    /// # Errors
    /// Fails if there is no such value. The error has the reason, and the outcome if there is one.
    pub async fn run_typed<T: DeserializeOwned + JsonSchema>(
        &self,
        request: RunRequest,
    ) -> Result<Typed<T>, TypedError> {
        self.run_typed_with(request, RunOptions::new()).await
    }

    /// Runs a prompt like [`run_typed`](Self::run_typed), with the caller's options.
    ///
    /// # Errors
    /// Fails like [`run_typed`](Self::run_typed).
    pub async fn run_typed_with<T: DeserializeOwned + JsonSchema>(
        &self,
        request: RunRequest,
        options: RunOptions,
    ) -> Result<Typed<T>, TypedError> {
        run_typed(|schema| async move {
            Ok(self.run_with(request, options.schema(schema)).await?.outcome().await)
        })
        .await
    }
}

/// Calls `run` with the schema of a type and deserializes the resulting value as that type.
///
/// # Errors
/// Fails if there is no value. The error contains the outcome, if there is one.
async fn run_typed<T, F, Fut>(run: F) -> Result<Typed<T>, TypedError>
where
    T: DeserializeOwned + JsonSchema,
    F: FnOnce(Schema) -> Fut,
    Fut: Future<Output = Result<Outcome, Error>>,
{
    let schema = Schema::from_type::<T>().map_err(Error::from)?;
    read(run(schema).await?)
}

fn read<T: DeserializeOwned>(outcome: Outcome) -> Result<Typed<T>, TypedError> {
    let worked = matches!(outcome.verdict, Verdict::Done | Verdict::DoneWithDenials);
    let Some(output) = outcome.output.as_ref().filter(|_| worked) else {
        return Err(TypedError::Failed(Box::new(outcome)));
    };
    match serde_json::from_str(output.get()) {
        Ok(value) => Ok(Typed { value, outcome }),
        Err(source) => Err(TypedError::Mismatch { source, outcome: Box::new(outcome) }),
    }
}

fn message(outcome: &Outcome) -> &str {
    outcome.error.as_ref().map_or("the agent submitted no value", |error| &error.message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentline_core::{Failure, FailureKind, Problem, Problems, RunInfo};
    use serde::Deserialize;
    use serde_json::{json, value::RawValue};

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    struct Count {
        count: u8,
    }

    fn outcome(verdict: Verdict, output: Option<&str>) -> Outcome {
        let mut outcome = Outcome::not_started(
            &RunInfo::default(),
            verdict,
            Failure::new(FailureKind::InvalidOutput, "no value"),
        );
        outcome.error.take_if(|_| output.is_some());
        outcome.output = output.map(|json| RawValue::from_string(json.to_owned()).unwrap());
        outcome.text = "the text".into();
        outcome
    }

    async fn typed(outcome: Outcome) -> Result<Typed<Count>, TypedError> {
        run_typed(|schema| async move {
            assert!(schema.check(&json!({"count": 3})).is_ok() && schema.check(&json!({})).is_err());
            Ok(outcome)
        })
        .await
    }

    #[tokio::test]
    async fn successful_run_returns_value_and_outcome() {
        for verdict in [Verdict::Done, Verdict::DoneWithDenials] {
            let typed = typed(outcome(verdict, Some("{\"count\": 3}"))).await.unwrap();
            assert_eq!((typed.value, typed.outcome.verdict), (Count { count: 3 }, verdict));
        }
    }

    #[tokio::test]
    async fn errors_contain_verdict_phase_and_text() {
        let failed = typed(outcome(Verdict::InvalidOutput, None)).await.unwrap_err();
        assert_eq!(failed.to_string(), "invalid_output: no value");
        assert_eq!(failed.verdict(), Some(Verdict::InvalidOutput));
        assert_eq!((failed.phase(), failed.text()), (Phase::Response, "the text"));
        // A value that was submitted before a run failed is not the answer.
        let stopped = typed(outcome(Verdict::TimedOut, Some("{\"count\": 3}"))).await.unwrap_err();
        assert_eq!(stopped.verdict(), Some(Verdict::TimedOut));
        let mismatch = typed(outcome(Verdict::Done, Some("{\"count\": 300}"))).await.unwrap_err();
        assert!(
            matches!(&mismatch, TypedError::Mismatch { source, .. } if source.to_string().contains("300")),
            "{mismatch}"
        );
        assert_eq!(mismatch.phase(), Phase::Response);
        let problem = Error::from(Problems::from(Problem::new("model", "is wrong")));
        let untried = run_typed::<Count, _, _>(|_| async { Err(problem) }).await.unwrap_err();
        assert_eq!((untried.verdict(), untried.phase(), untried.text()), (None, Phase::Request, ""));
        assert_eq!(untried.to_string(), "`model`: is wrong");
    }
}
