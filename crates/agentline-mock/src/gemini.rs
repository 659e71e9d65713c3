//! A scripted Gemini API on loopback for the real Gemini CLI.
//!
//! The agent needs the variables of [`GeminiModel::env`], and in its `settings.json` the value of [`SETTINGS`], because
//! Gemini CLI rejects a custom base address while no auth method is selected.
//!
//! The server handles `POST /v1beta/models/{model}:streamGenerateContent`, `:generateContent` and `:countTokens`;
//! anything else is a 404. Requests that the agent makes for itself (the router of the model `auto`, summaries, checks)
//! do not advance the script: see [`Purpose`]. They are recognized by their content: helper requests use
//! `:generateContent` without functions or request JSON, turns use `:streamGenerateContent`.

mod bytes;
mod demo;
mod request;
mod script;
mod step;
mod utility;
mod wire;

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use serde_json::{Value, json};

use crate::http::{HttpConnection, Incoming};
use crate::server::{After, LoopbackServer, lock};

pub use demo::demo_script;
pub use request::{GeminiRequest, Purpose};
pub use script::Script;
pub use step::{GeminiPart, GeminiStep, GeminiTokens};

/// The `settings.json` with which Gemini CLI accepts a model at a custom address.
pub const SETTINGS: &str = r#"{"security":{"auth":{"selectedType":"gemini-api-key"}}}"#;

/// The key that [`GeminiModel::env`] gives the agent. It is not a real key.
pub const FAKE_KEY: &str = "fake-key-for-the-scripted-model";

/// Returns a loopback address without a listener: a connection to it is refused.
pub fn refused_url() -> io::Result<String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(format!("http://{}", listener.local_addr()?))
}

/// A model that answers by script. It serves from [`GeminiModel::start`] until it is dropped.
pub struct GeminiModel {
    server: LoopbackServer,
    requests: Arc<Mutex<Vec<GeminiRequest>>>,
}

impl GeminiModel {
    /// Plays one script. Several agents may use the model at the same time; they then share its steps.
    pub fn start(script: Script) -> io::Result<Self> {
        let asked = Mutex::new(0_usize);
        Self::by_prompt(move |_| {
            let mut asked = lock(&asked);
            *asked += 1;
            script.at(*asked - 1)
        })
    }

    /// Answers each request to the main model by its content, for agents with different scripts at the same time.
    ///
    /// ```no_run
    /// use agentline_mock::gemini::{Script, GeminiModel, GeminiStep};
    ///
    /// let model = GeminiModel::by_prompt(|request| {
    ///     let asks_for_red = request.user_texts().iter().any(|text| text.contains("red"));
    ///     let script = Script::new([GeminiStep::text(if asks_for_red { "red" } else { "blue" })]);
    ///     script.at(request.turn())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn by_prompt(
        respond: impl Fn(&GeminiRequest) -> GeminiStep + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let started = Instant::now();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let server = LoopbackServer::start({
            let requests = Arc::clone(&requests);
            move |incoming, connection, wait| {
                let (request, streams) = read(incoming, started);
                let index = {
                    let mut requests = lock(&requests);
                    requests.push(request.clone());
                    requests.len() - 1
                };
                let served = |tokens| lock(&requests)[index].tokens = tokens;
                answer(&request, streams, &respond, &served, connection, wait)
            }
        })?;
        Ok(Self { server, requests })
    }

    /// Answers each prompt with the first of these scripts whose words it contains, from its first step, so that
    /// several sessions of one agent, and several prompts in one session, each have their own. The empty text matches
    /// every prompt; a prompt without a match is answered with status 500.
    pub fn matching<'a>(scripts: impl IntoIterator<Item = (&'a str, Script)>) -> io::Result<Self> {
        let scripts: Vec<(String, Script)> =
            scripts.into_iter().map(|(phrase, script)| (phrase.to_owned(), script)).collect();
        Self::by_prompt(move |request| {
            let prompt = request.prompt();
            match scripts.iter().find(|(phrase, _)| prompt.contains(phrase.as_str())) {
                Some((_, script)) => script.at(request.turn_in_prompt()),
                None => {
                    let message = format!("no script fits the prompt `{prompt}`");
                    GeminiStep::api_error(500, "INTERNAL", &message, Value::Null)
                }
            }
        })
    }

    /// Returns the base address, without a trailing slash.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// Returns the environment with which Gemini CLI uses this model. It also needs [`SETTINGS`].
    pub fn env(&self) -> Vec<(String, String)> {
        vec![
            ("GOOGLE_GEMINI_BASE_URL".to_owned(), self.url()),
            ("GEMINI_API_KEY".to_owned(), FAKE_KEY.to_owned()),
        ]
    }

    /// Returns every request so far, in order of arrival.
    pub fn requests(&self) -> Vec<GeminiRequest> {
        lock(&self.requests).clone()
    }

    /// Returns the requests that advanced the script.
    pub fn requests_to_main(&self) -> Vec<GeminiRequest> {
        let requests = lock(&self.requests);
        requests.iter().filter(|request| request.purpose == Purpose::Main).cloned().collect()
    }
}

impl fmt::Debug for GeminiModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GeminiModel").field("address", &self.server.address).finish_non_exhaustive()
    }
}

fn answer(
    request: &GeminiRequest,
    streams: bool,
    respond: &dyn Fn(&GeminiRequest) -> GeminiStep,
    served: &dyn Fn(Option<GeminiTokens>),
    connection: &mut HttpConnection,
    wait: &dyn Fn(u64) -> bool,
) -> io::Result<After> {
    match request.purpose {
        Purpose::Main => {
            let step = respond(request);
            served(step.tokens());
            wire::send(&step, &request.model, streams, connection, wait)
        }
        Purpose::Router | Purpose::Utility if streams => {
            let step = GeminiStep::text(utility::answer(&request.body));
            served(step.tokens());
            wire::send(&step, &request.model, streams, connection, wait)
        }
        Purpose::Router | Purpose::Utility => {
            served(Some(GeminiTokens::default()));
            wire::send_json(&wire::plain_answer(&request.model, utility::answer(&request.body)), connection)
        }
        // About four bytes make a token; an exact count needs the model.
        Purpose::Count => {
            let tokens = request.body["contents"].to_string().len() / 4;
            wire::send_json(&json!({"totalTokens": tokens}), connection)
        }
        Purpose::Unknown => {
            let step =
                GeminiStep::api_error(404, "NOT_FOUND", "the scripted model has no such path", Value::Null);
            wire::send(&step, "", false, connection, wait)
        }
    }
}

/// The path prefixes of the models: of the Gemini API, and of Vertex AI with a key.
const MODELS: &[&str] = &["/v1beta/models/", "/v1beta1/publishers/google/models/"];

/// Parses a request, and returns whether its answer is an event stream.
fn read(incoming: Incoming, started: Instant) -> (GeminiRequest, bool) {
    let body: Value = serde_json::from_slice(&incoming.body).unwrap_or(Value::Null);
    let path = incoming.target.split('?').next().unwrap_or_default();
    let (model, verb) = MODELS
        .iter()
        .find_map(|prefix| path.strip_prefix(prefix)?.rsplit_once(':'))
        .filter(|_| incoming.method == "POST")
        .unwrap_or_default();
    let purpose = match verb {
        "streamGenerateContent" => utility::purpose(true, &body),
        "generateContent" => utility::purpose(false, &body),
        "countTokens" => Purpose::Count,
        _ => Purpose::Unknown,
    };
    let request = GeminiRequest {
        model: model.to_owned(),
        headers: incoming.headers,
        body,
        at_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
        purpose,
        tokens: None,
        path: incoming.target.clone(),
    };
    (request, verb == "streamGenerateContent")
}
