//! A step: the scripted answer to one request, and its constructors.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::bytes;

/// One answer of the scripted model, possibly with a fault.
///
/// ```
/// use agentline_mock::gemini::{GeminiStep, GeminiTokens};
/// use serde_json::json;
///
/// let step = GeminiStep::thought("I will write the file.")
///     .and_text("Writing it now.")
///     .and_call("write_file", json!({"file_path": "a.txt", "content": "a\n"}))
///     .usage(GeminiTokens { prompt: 10, ..GeminiTokens::default() });
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GeminiStep {
    pub(super) answer: GeminiAnswer,
    /// The `finishReason` of the last chunk, if any.
    #[serde(default = "stop")]
    pub(super) finish: Option<String>,
    #[serde(default)]
    pub(super) usage: GeminiTokens,
    /// The delay before the first byte.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) delay_ms: u64,
    /// The delay between two chunks.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) chunk_delay_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) midway: Option<Midway>,
    /// The number of requests that this step answers before the script advances.
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub(super) times: u32,
}

/// The content that a step sends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum GeminiAnswer {
    /// Chunks of the stream, each with its parts.
    Chunks(Vec<Vec<GeminiPart>>),
    /// A repeated text, one chunk each, with the chunk's number for `{n}`.
    Many { count: u64, text: String },
    /// The prompt was blocked: no candidate, only this block reason.
    Blocked(String),
    /// A status other than 200. A string body is sent verbatim, anything else as JSON.
    Http { status: u16, body: Value },
    /// 404 for the model in the path.
    UnknownModel,
    /// The raw bytes of the event stream.
    Raw(#[serde(with = "bytes")] Vec<u8>),
    /// The connection closes without a byte.
    Drop,
    /// Nothing is ever sent.
    Hang,
}

/// A fault after the first chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Midway {
    Drop,
    Hang,
}

/// One part of the model's content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum GeminiPart {
    /// Text of the answer.
    Text(String),
    /// A thought, which headless Gemini CLI shows in no output.
    Thought(String),
    /// A tool call.
    Call {
        /// The tool's name, for example `write_file`.
        name: String,
        /// Its arguments.
        args: Value,
    },
}

/// The token counts that an answer reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GeminiTokens {
    /// Tokens of the prompt, including cached ones.
    pub prompt: u64,
    /// Tokens of the answer.
    pub candidates: u64,
    /// Tokens of the prompt that came from a cache.
    pub cached: u64,
    /// Tokens of the thoughts.
    pub thoughts: u64,
    /// The reported total. By default, the true sum of prompt, answer and thoughts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
}

impl Default for GeminiTokens {
    fn default() -> Self {
        Self { prompt: 100, candidates: 20, cached: 30, thoughts: 5, total: None }
    }
}

/// Successful answers.
impl GeminiStep {
    /// Answers with one chunk of text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::chunks([GeminiPart::Text(text.into())])
    }

    /// Answers with one thought. Alone, it is an answer without text, which Gemini CLI treats as an error.
    pub fn thought(text: impl Into<String>) -> Self {
        Self::chunks([GeminiPart::Thought(text.into())])
    }

    /// Answers with one tool call.
    pub fn call(name: impl Into<String>, args: Value) -> Self {
        Self::chunks([GeminiPart::Call { name: name.into(), args }])
    }

    /// Answers with several tool calls in one chunk, as a model sends parallel calls.
    pub fn calls<N: Into<String>>(calls: impl IntoIterator<Item = (N, Value)>) -> Self {
        let parts = calls.into_iter().map(|(name, args)| GeminiPart::Call { name: name.into(), args });
        Self::of(GeminiAnswer::Chunks(vec![parts.collect()]))
    }

    /// Answers with these parts, each in its own chunk. See [`GeminiStep::chunk_delay`].
    pub fn chunks(parts: impl IntoIterator<Item = GeminiPart>) -> Self {
        Self::of(GeminiAnswer::Chunks(parts.into_iter().map(|part| vec![part]).collect()))
    }

    /// Answers with one chunk of `bytes` bytes of text, made of numbered lines.
    pub fn big_text(bytes: usize) -> Self {
        let mut text = String::with_capacity(bytes + 16);
        let mut line = 0_u64;
        while text.len() < bytes {
            line += 1;
            text.push_str(&format!("line {line:09}\n"));
        }
        text.truncate(bytes);
        Self::text(text)
    }

    /// Answers with a text `count` times, one chunk each, as fast as the client reads. `{n}` is replaced by the number
    /// of the chunk, starting at 1: Gemini CLI stops a model that repeats itself, so a text without `{n}` ends early.
    /// Its loop detection also slows down with each chunk (46,000 in a minute, on 0.61.0); with the setting
    /// `model.disableLoopDetection`, it processes 100,000 in eight seconds.
    pub fn many_chunks(count: u64, text: impl Into<String>) -> Self {
        Self::of(GeminiAnswer::Many { count, text: text.into() })
    }

    /// Adds a chunk of text.
    #[must_use]
    pub fn and_text(self, text: impl Into<String>) -> Self {
        self.and_chunks([GeminiPart::Text(text.into())])
    }

    /// Adds a tool call in its own chunk.
    #[must_use]
    pub fn and_call(self, name: impl Into<String>, args: Value) -> Self {
        self.and_chunks([GeminiPart::Call { name: name.into(), args }])
    }

    /// Adds parts, each in its own chunk. A step without content stays unchanged.
    #[must_use]
    pub fn and_chunks(mut self, parts: impl IntoIterator<Item = GeminiPart>) -> Self {
        if let GeminiAnswer::Chunks(chunks) = &mut self.answer {
            chunks.extend(parts.into_iter().map(|part| vec![part]));
        }
        self
    }
}

/// Failing answers.
impl GeminiStep {
    /// Answers with any HTTP status. A JSON string is sent verbatim (for example an HTML page), anything else as JSON.
    pub fn http(status: u16, body: impl Into<Value>) -> Self {
        Self::of(GeminiAnswer::Http { status, body: body.into() })
    }

    /// Answers with an error in the format of Google's API: `{"error": {"code", "message", "status", "details"}}`.
    pub fn api_error(status: u16, name: &str, message: &str, details: Value) -> Self {
        let mut error = json!({"code": status, "message": message, "status": name});
        if !details.is_null() {
            error["details"] = details;
        }
        Self::http(status, json!({"error": error}))
    }

    /// Answers with 429, optionally with the retry delay that the server suggests (`RetryInfo`).
    pub fn rate_limited(retry_after_secs: Option<u64>) -> Self {
        match retry_after_secs {
            Some(secs) => Self::api_error(
                429,
                "RESOURCE_EXHAUSTED",
                &format!("Please retry in {secs}s."),
                json!([{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": format!("{secs}s")}]),
            ),
            None => Self::api_error(429, "RESOURCE_EXHAUSTED", "Resource has been exhausted.", Value::Null),
        }
    }

    /// Answers with 429 because the daily quota is exhausted: Gemini CLI does not retry this.
    pub fn daily_quota() -> Self {
        let violation = json!({
            "quotaMetric": "generativelanguage.googleapis.com/generate_content_free_tier_requests",
            "quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier",
            "quotaDimensions": {"model": "gemini-2.5-pro"},
            "quotaValue": "50",
        });
        let kind = "type.googleapis.com/google.rpc.QuotaFailure";
        Self::api_error(
            429,
            "RESOURCE_EXHAUSTED",
            "You exceeded your current quota",
            json!([{"@type": kind, "violations": [violation]}]),
        )
    }

    /// Answers with 400 and the reason `API_KEY_INVALID`.
    pub fn invalid_key() -> Self {
        let kind = "type.googleapis.com/google.rpc.ErrorInfo";
        Self::api_error(
            400,
            "INVALID_ARGUMENT",
            "API key not valid. Please pass a valid API key.",
            json!([{"@type": kind, "reason": "API_KEY_INVALID", "domain": "googleapis.com"}]),
        )
    }

    /// Answers with 404 for the requested model.
    pub fn unknown_model() -> Self {
        Self::of(GeminiAnswer::UnknownModel)
    }

    /// Blocks the prompt: `promptFeedback.blockReason` and no candidate.
    pub fn blocked() -> Self {
        Self::of(GeminiAnswer::Blocked("SAFETY".to_owned()))
    }

    /// Answers with a candidate with an empty text.
    pub fn empty() -> Self {
        Self::text("")
    }

    /// Closes the connection without an answer.
    pub fn drop_connection() -> Self {
        Self::of(GeminiAnswer::Drop)
    }

    /// Never answers; the connection stays open until the client or the model closes it.
    pub fn hang() -> Self {
        Self::of(GeminiAnswer::Hang)
    }

    /// Answers with a raw event stream, valid or not.
    pub fn raw_sse(bytes: impl Into<Vec<u8>>) -> Self {
        Self::of(GeminiAnswer::Raw(bytes.into()))
    }

    /// Closes the connection after the first chunk.
    #[must_use]
    pub fn drop_midway(mut self) -> Self {
        self.midway = Some(Midway::Drop);
        self
    }

    /// Sends the first chunk and then nothing more.
    #[must_use]
    pub fn hang_midway(mut self) -> Self {
        self.midway = Some(Midway::Hang);
        self
    }
}

/// Options of an answer.
impl GeminiStep {
    /// Sets the reported token counts.
    #[must_use]
    pub fn usage(mut self, tokens: GeminiTokens) -> Self {
        self.usage = tokens;
        self
    }

    /// Sets the `finishReason`: `"STOP"` (the default), `"SAFETY"`, `"MAX_TOKENS"`, `"RECITATION"`,
    /// `"MALFORMED_FUNCTION_CALL"`, or `None` for a stream that ends without one.
    #[must_use]
    pub fn finish<'a>(mut self, reason: impl Into<Option<&'a str>>) -> Self {
        self.finish = reason.into().map(str::to_owned);
        self
    }

    /// Waits before the answer starts.
    #[must_use]
    pub fn delay(mut self, millis: u64) -> Self {
        self.delay_ms = millis;
        self
    }

    /// Waits between two chunks.
    #[must_use]
    pub fn chunk_delay(mut self, millis: u64) -> Self {
        self.chunk_delay_ms = millis;
        self
    }

    /// Gives this answer to this many requests before the script advances, for errors that a retry overcomes.
    #[must_use]
    pub fn times(mut self, count: u32) -> Self {
        self.times = count;
        self
    }

    /// Returns the token counts that the answer reports, if it reports any.
    pub(super) fn tokens(&self) -> Option<GeminiTokens> {
        let answers = matches!(
            self.answer,
            GeminiAnswer::Chunks(_) | GeminiAnswer::Many { .. } | GeminiAnswer::Blocked(_)
        );
        (answers && self.midway.is_none()).then_some(self.usage)
    }

    fn of(answer: GeminiAnswer) -> Self {
        Self {
            answer,
            finish: stop(),
            usage: GeminiTokens::default(),
            delay_ms: 0,
            chunk_delay_ms: 0,
            midway: None,
            times: once(),
        }
    }
}

fn stop() -> Option<String> {
    Some("STOP".to_owned())
}

fn once() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_once(times: &u32) -> bool {
    *times == 1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(millis: &u64) -> bool {
    *millis == 0
}
