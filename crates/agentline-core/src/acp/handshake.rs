//! The handshake: exchanging capabilities, and signing in if the caller requested it.

use super::{Acp, Call, Step, blocks::PromptCapabilities};
use crate::{
    Failure, FailureKind, RunId, Sink, Version,
    rpc::{NO_RUN, RpcResult},
    wire::{Flag, List, Num, Str, wire},
};
use serde_json::{json, value::RawValue};

wire! { struct Initialized<'a> {
    protocol: Num = "protocolVersion", info: Info<'a> = "agentInfo", can: Can<'a> = "agentCapabilities",
    sign_in: List<Method<'a>> = "authMethods",
} }
wire! { struct Info<'a> { name: Str<'a> = "name", version: Option<Str<'a>> = "version" } }
wire! { struct Can<'a> {
    load: Flag = "loadSession", prompt: PromptCan<'a> = "promptCapabilities", mcp: McpCan<'a> = "mcpCapabilities",
    session: SessionCan<'a> = "sessionCapabilities",
} }
wire! { struct SessionCan<'a> { close: Option<&'a RawValue> = "close", list: Option<&'a RawValue> = "list" } }
wire! { struct PromptCan<'a> { image: Flag = "image", audio: Flag = "audio", embedded: Flag = "embeddedContext" } }
wire! { struct McpCan<'a> { http: Flag = "http" } }
wire! { struct Method<'a> { id: Str<'a> = "id" } }

/// The supported protocol version.
const PROTOCOL: u64 = 1;

/// The properties that the agent reported in the handshake.
#[derive(Clone, Debug, Default)]
pub(super) struct AgentCapabilities {
    pub(super) version: Option<String>,
    pub(super) loads: bool,
    /// Whether the agent supports `session/close`.
    pub(super) closes: bool,
    /// Whether the agent supports `session/list`.
    pub(super) lists: bool,
    pub(super) takes: PromptCapabilities,
    pub(super) http_servers: bool,
    /// The ids of the agent's sign-in methods.
    sign_in: Vec<String>,
    /// Whether sessions can be opened.
    pub(super) ready: bool,
}

impl Acp {
    pub(super) fn initialize(&mut self, sink: &mut Sink) {
        let params = json!({
            "protocolVersion": PROTOCOL,
            // Claim only the features that the host provides: the agent leaves everything that the client
            // claims to the client.
            "clientCapabilities": {
                "fs": {"readTextFile": self.config.read_files, "writeTextFile": self.config.write_files},
                "terminal": false,
            },
            "clientInfo": {"name": "agentline", "title": "agentline", "version": env!("CARGO_PKG_VERSION")},
        });
        self.call(NO_RUN, Call::Initialize, "initialize", &params, sink);
    }

    pub(super) fn initialized(&mut self, result: RpcResult<'_>, sink: &mut Sink) {
        let result = match result {
            Ok(result) => serde_json::from_str::<Initialized<'_>>(result.get()).unwrap_or_default(),
            Err(error) => {
                let failure = self.profile.failure(&error);
                // No request has reached a model yet, so this cannot be an error of the model's service.
                let failure = match failure.kind {
                    FailureKind::ApiError => Failure { kind: FailureKind::Input, ..failure },
                    _ => failure,
                };
                return self.fail_all(failure, sink);
            }
        };
        // An agent that does not support the requested version answers with one that it supports. No other version is
        // supported here.
        if let Some(other) = result.protocol.0.filter(|version| *version != PROTOCOL) {
            let text = format!(
                "the agent uses version {other} of the Agent Client Protocol, but agentline supports only version {PROTOCOL}"
            );
            let hint = "install a version of the agent that supports it, or pass another `--surface`";
            return self.fail_all(Failure::new(FailureKind::Input, text).hint(hint), sink);
        }
        let version = result.info.version.map(Str::own);
        self.profile.set_agent_version(&result.info.name, version.as_deref().and_then(Version::parse));
        self.capabilities = Some(AgentCapabilities {
            version,
            loads: result.can.load.0,
            closes: is_supported(result.can.session.close),
            lists: is_supported(result.can.session.list),
            takes: PromptCapabilities {
                image: result.can.prompt.image.0,
                audio: result.can.prompt.audio.0,
                embedded: result.can.prompt.embedded.0,
            },
            http_servers: result.can.mcp.http.0,
            sign_in: result.sign_in.0.into_iter().map(|method| method.id.own()).collect(),
            ready: false,
        });
        // Sign in only on request, because agents store the choice in the user's own settings.
        match self.config.authenticate.clone() {
            Some(method) => {
                self.call(NO_RUN, Call::Authenticate, "authenticate", &json!({"methodId": method}), sink);
            }
            None => self.be_ready(sink),
        }
    }

    pub(super) fn authenticated(&mut self, result: RpcResult<'_>, sink: &mut Sink) {
        match result {
            Ok(_) => self.be_ready(sink),
            Err(error) => {
                let known = self.capabilities.as_ref().map(|c| c.sign_in.join(", ")).unwrap_or_default();
                let failure = self.profile.failure(&error);
                let failure = Failure {
                    kind: FailureKind::NotAuthenticated,
                    message: format!("the sign-in was rejected: {}", failure.message),
                    ..failure
                };
                let failure = if known.is_empty() {
                    failure
                } else {
                    failure.hint(format!("use one of the agent's sign-in methods: {known}"))
                };
                self.fail_all(failure, sink);
            }
        }
    }

    fn be_ready(&mut self, sink: &mut Sink) {
        if let Some(capabilities) = &mut self.capabilities {
            capabilities.ready = true;
        }
        sink.ready();
        for run in self.waiting() {
            self.open(run, sink);
        }
    }

    /// Marks the agent as unusable and fails all waiting runs.
    fn fail_all(&mut self, failure: Failure, sink: &mut Sink) {
        self.broken = Some(failure.clone());
        for run in self.waiting() {
            self.fail(run, Some(failure.clone()), sink);
        }
        sink.shut();
    }

    fn waiting(&self) -> Vec<RunId> {
        self.turns.iter().filter(|(_, turn)| turn.step == Step::Waiting).map(|(run, _)| *run).collect()
    }
}

/// Returns whether a capability is supported. It is an object; an absent value, `null` or `false` means that it is not.
fn is_supported(capability: Option<&RawValue>) -> bool {
    capability.is_some_and(|value| !matches!(value.get(), "null" | "false"))
}
