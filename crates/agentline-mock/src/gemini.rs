//! A scripted Gemini API on loopback, for the real Gemini CLI to talk to.
//!
//! The agent needs three things: the variables of [`ScriptedModel::env`], and in its `settings.json` the value of
//! [`SETTINGS`], because Gemini CLI refuses a base address of one's own while no way to log in is selected.
//!
//! Served are `POST /v1beta/models/{model}:streamGenerateContent`, `:generateContent` and `:countTokens`; anything
//! else is a 404. Requests that the agent makes for itself (the router of the model `auto`, summaries, checks) do
//! not use up steps: see [`Purpose`]. They are told apart by what they ask for: helper requests use
//! `:generateContent` without functions or ask for JSON, turns use `:streamGenerateContent`.

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

/// The `settings.json` with which Gemini CLI accepts a model at an address of one's own.
pub const SETTINGS: &str = r#"{"security":{"auth":{"selectedType":"gemini-api-key"}}}"#;

/// The key that [`ScriptedModel::env`] gives the agent. It is no key of anything.
pub const FAKE_KEY: &str = "fake-key-for-the-scripted-model";

/// A loopback address where nothing listens: a connection to it is refused.
pub fn refused_url() -> io::Result<String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(format!("http://{}", listener.local_addr()?))
}

/// A model that answers by script. It serves from [`ScriptedModel::start`] until it is dropped.
pub struct GeminiModel {
    server: LoopbackServer,
    requests: Arc<Mutex<Vec<GeminiRequest>>>,
}

impl GeminiModel {
    /// Plays one script. Several agents may talk to the model at once; they then share its steps.
    pub fn start(script: Script) -> io::Result<Self> {
        let asked = Mutex::new(0_usize);
        Self::by_prompt(move |_| {
            let mut asked = lock(&asked);
            *asked += 1;
            script.at(*asked - 1)
        })
    }

    /// Answers each request to the main model by what it says, for agents with different scripts at the same time.
    ///
    /// ```no_run
    /// use agentline_mock::gemini::{Script, ScriptedModel, Step};
    ///
    /// let model = ScriptedModel::by_prompt(|request| {
    ///     let asks_for_red = request.user_texts().iter().any(|text| text.contains("red"));
    ///     let script = Script::new([Step::text(if asks_for_red { "red" } else { "blue" })]);
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
                lock(&requests).push(request.clone());
                answer(&request, streams, &respond, connection, wait)
            }
        })?;
        Ok(Self { server, requests })
    }

    /// Answers each prompt by the first of these scripts whose words stand in it, from its first step, so that several
    /// sessions of one agent, and several prompts in one session, each have their own. The empty word fits every
    /// prompt; one that nothing fits is answered with status 500.
    pub fn matching<'a>(scripts: impl IntoIterator<Item = (&'a str, Script)>) -> io::Result<Self> {
        let scripts: Vec<(String, Script)> =
            scripts.into_iter().map(|(words, script)| (words.to_owned(), script)).collect();
        Self::by_prompt(move |request| {
            let prompt = request.prompt();
            match scripts.iter().find(|(words, _)| prompt.contains(words.as_str())) {
                Some((_, script)) => script.at(request.turn_in_prompt()),
                None => {
                    let message = format!("no script fits the prompt `{prompt}`");
                    GeminiStep::api_error(500, "INTERNAL", &message, Value::Null)
                }
            }
        })
    }

    /// The base address, without a slash at its end.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// The environment that makes Gemini CLI use this model. It also needs [`SETTINGS`].
    pub fn env(&self) -> Vec<(String, String)> {
        vec![
            ("GOOGLE_GEMINI_BASE_URL".to_owned(), self.url()),
            ("GEMINI_API_KEY".to_owned(), FAKE_KEY.to_owned()),
        ]
    }

    /// Every request so far, in the order in which they came.
    pub fn requests(&self) -> Vec<GeminiRequest> {
        lock(&self.requests).clone()
    }

    /// The requests that used up a step.
    pub fn requests_to_main(&self) -> Vec<GeminiRequest> {
        let requests = lock(&self.requests);
        requests.iter().filter(|request| request.purpose == Purpose::Main).cloned().collect()
    }
}

impl fmt::Debug for GeminiModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedModel").field("address", &self.server.address).finish_non_exhaustive()
    }
}

fn answer(
    request: &GeminiRequest,
    streams: bool,
    respond: &dyn Fn(&GeminiRequest) -> GeminiStep,
    connection: &mut HttpConnection,
    wait: &dyn Fn(u64) -> bool,
) -> io::Result<After> {
    match request.purpose {
        Purpose::Main => {
            let step = respond(request);
            wire::send(&step, &request.model, streams, connection, wait)
        }
        Purpose::Router | Purpose::Utility if streams => {
            let step = GeminiStep::text(utility::answer(&request.body));
            wire::send(&step, &request.model, streams, connection, wait)
        }
        Purpose::Router | Purpose::Utility => {
            wire::send_json(&wire::plain_answer(&request.model, utility::answer(&request.body)), connection)
        }
        // About four bytes make a token; nobody can tell better without the model.
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

/// Where the models are: of the Gemini API, and of Vertex AI with a key.
const MODELS: &[&str] = &["/v1beta/models/", "/v1beta1/publishers/google/models/"];

/// Takes a request apart, and says whether its answer is an event stream.
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
        path: incoming.target.clone(),
    };
    (request, verb == "streamGenerateContent")
}
