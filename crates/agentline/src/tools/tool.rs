//! A tool: its description, its function, its policy and its hook.

use crate::tools::output::{ToolError, ToolOutput};
use schemars::{JsonSchema, generate::SchemaSettings};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use std::{fmt, future::Ready, pin::Pin, sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

/// The default timeout of a tool.
const TIMEOUT: Duration = Duration::from_secs(60);

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;
type Run = dyn Fn(Value, ToolCall) -> Boxed<ToolOutput> + Send + Sync;
type Policy = dyn Fn(Value, ToolCall) -> Boxed<CallDecision> + Send + Sync;
type After = dyn Fn(ToolCall, Value, ToolOutput) -> Boxed<Option<String>> + Send + Sync;

/// An async function that an agent can call.
///
/// A panic in the function is returned to the agent as an error.
pub struct Tool {
    name: String,
    description: String,
    schema: Value,
    timeout: Duration,
    run: Box<Run>,
    policy: Option<Box<Policy>>,
    after: Option<Box<After>>,
}

impl Tool {
    /// Creates a tool whose arguments are described by a JSON Schema of type `object`. The arguments are not
    /// validated.
    ///
    /// ```
    /// use agentline::tools::Tool;
    /// use serde_json::{Value, json};
    /// let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    /// let tool = Tool::new("weather", "Tells the weather", schema, |args: Value, _call| async move {
    ///     Ok(json!({"city": args["city"], "sky": "clear"}))
    /// });
    /// # let _ = tool;
    /// ```
    pub fn new<R, F, Fut>(
        name: impl Into<String>,
        description: impl Into<String>,
        schema: Value,
        run: F,
    ) -> Self
    where
        R: Serialize + Send + 'static,
        F: Fn(Value, ToolCall) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, ToolError>> + Send + 'static,
    {
        let run = move |args, call| -> Boxed<ToolOutput> {
            let work = run(args, call);
            Box::pin(async move { ToolOutput::from_result(work.await) })
        };
        Self {
            name: name.into(),
            description: description.into(),
            schema,
            timeout: TIMEOUT,
            run: Box::new(run),
            policy: None,
            after: None,
        }
    }

    /// Creates a tool whose arguments are a Rust type.
    ///
    /// The schema is generated from the type. Arguments that do not match are answered with an error for the model.
    pub fn typed<A, R, F, Fut>(name: impl Into<String>, description: impl Into<String>, run: F) -> Self
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        R: Serialize + Send + 'static,
        F: Fn(A, ToolCall) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, ToolError>> + Send + 'static,
    {
        let run = Arc::new(run);
        Self::new(name, description, schema_of::<A>(), move |args: Value, call| {
            let run = Arc::clone(&run);
            async move {
                let args = serde_json::from_value(args)
                    .map_err(|error| format!("the arguments do not match the schema of the tool: {error}"))?;
                run(args, call).await
            }
        })
    }

    /// Sets the timeout, which is a minute by default. It does not apply to the policy, which may have to ask a user.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets a policy that decides on each call. The agent gets the reason for a denial. The policy may be sync or
    /// async.
    ///
    /// ```
    /// use agentline::tools::{CallDecision, Tool};
    /// # let tool = |name: &str| Tool::new(name, "", serde_json::json!({"type": "object"}), |_, _| async { Ok(()) });
    /// tool("a").policy(|args, _call| if args["path"] == "/" { CallDecision::deny("not that") } else { CallDecision::Allow });
    /// tool("b").policy(|_args, _call| async { CallDecision::Allow });
    /// ```
    #[must_use]
    pub fn policy<F, D>(mut self, policy: F) -> Self
    where
        F: Fn(Value, ToolCall) -> D + Send + Sync + 'static,
        D: IntoFuture<Output = CallDecision>,
        D::IntoFuture: Send + 'static,
    {
        self.policy = Some(Box::new(move |args, call| Box::pin(policy(args, call).into_future())));
        self
    }

    /// Sets a hook that runs after each call, with the arguments and the result. A text that it returns is appended to
    /// the result.
    #[must_use]
    pub fn after<F, Fut>(mut self, after: F) -> Self
    where
        F: Fn(ToolCall, Value, ToolOutput) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Option<String>> + Send + 'static,
    {
        self.after = Some(Box::new(move |call, args, output| Box::pin(after(call, args, output))));
        self
    }

    /// Returns the name of the tool.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn description(&self) -> &str {
        &self.description
    }

    /// Returns the schema of the arguments, which [`check`](Self::check) requires to be an object.
    pub(super) fn schema(&self) -> Map<String, Value> {
        self.schema.as_object().cloned().unwrap_or_default()
    }

    /// Returns whether the schema declares an argument.
    pub(super) fn accepts(&self, argument: &str) -> bool {
        self.schema["properties"].get(argument).is_some()
    }

    /// Checks the name and the schema.
    pub(super) fn check(&self) -> Result<(), String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if self.name.is_empty() || !self.name.chars().all(plain) {
            return Err(format!("`{}` may contain only letters, digits, `-` and `_`", self.name));
        }
        if self.schema["type"] != "object" {
            return Err("the schema of the arguments must have the type `object`".into());
        }
        Ok(())
    }

    pub(super) const fn limit(&self) -> Duration {
        self.timeout
    }

    pub(super) fn start(&self, args: Value, call: ToolCall) -> Boxed<ToolOutput> {
        (self.run)(args, call)
    }

    pub(super) fn decision(&self, args: &Value, call: &ToolCall) -> Option<Boxed<CallDecision>> {
        self.policy.as_ref().map(|policy| policy(args.clone(), call.clone()))
    }

    pub(super) fn has_after(&self) -> bool {
        self.after.is_some()
    }

    pub(super) fn note(
        &self,
        call: &ToolCall,
        args: Value,
        output: &ToolOutput,
    ) -> Option<Boxed<Option<String>>> {
        self.after.as_ref().map(|after| after(call.clone(), args, output.clone()))
    }
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tool")
            .field("name", &self.name)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// Returns a schema for models: inlined where possible, without parts that are only for validators.
fn schema_of<A: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = Value::from(settings.into_generator().into_root_schema_for::<A>());
    if let Some(schema) = schema.as_object_mut() {
        schema.remove("title");
    }
    schema
}

/// One call to a tool.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ToolCall {
    /// The name of the tool.
    pub tool: String,
    /// The number of the call in its run, from 1.
    pub number: u64,
    pub(super) stopped: CancellationToken,
}

impl ToolCall {
    /// Waits until the call is cancelled: the agent cancelled it, it timed out, or the run ended.
    ///
    /// The tool's own future is dropped in this case. Use this method to stop work that it has started elsewhere.
    pub async fn cancelled(&self) {
        self.stopped.cancelled().await;
    }

    /// Returns whether the call is cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.stopped.is_cancelled()
    }
}

/// The decision of a policy about a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallDecision {
    /// The call may run.
    Allow,
    /// The call may not run, for this reason, which the model reads.
    Deny(String),
}

impl CallDecision {
    /// Denies the call for this reason.
    pub fn deny(reason: impl Into<String>) -> Self {
        Self::Deny(reason.into())
    }
}

/// Allows a policy to be a plain function.
impl IntoFuture for CallDecision {
    type Output = Self;
    type IntoFuture = Ready<Self>;

    fn into_future(self) -> Ready<Self> {
        std::future::ready(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::json;

    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Trip {
        /// Where to.
        to: Stop,
        stops: Option<Vec<Stop>>,
    }

    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Stop {
        name: String,
    }

    #[test]
    fn schema_of_a_type_has_no_references() {
        let schema = schema_of::<Trip>();
        assert_eq!(schema["type"], "object");
        assert_eq!(schema["required"], json!(["to"]));
        assert_eq!(schema["properties"]["to"]["properties"]["name"]["type"], "string");
        let text = schema.to_string();
        assert!(!text.contains("$ref") && !text.contains("$schema"), "{text}");
    }
}
