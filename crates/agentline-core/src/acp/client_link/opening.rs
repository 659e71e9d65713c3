//! A session that the client opens: it gets the extensions, the mode and the model that the host requires.

use super::ClientCall;
use crate::{
    Sink,
    acp::{
        Acp,
        opening::{mode_request, model_request},
        session::id_of,
    },
    rpc::{self, INTERNAL_ERROR, RpcMessage, RpcResult},
};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// A response to `session/new` that waits until the session has its mode and model.
#[derive(Debug)]
pub(super) struct OpeningSession {
    id: String,
    frame: String,
    waits_for: u32,
    failure: Option<String>,
}

impl Acp {
    /// Registers a session that the client has opened, and sets the mode and the model that the host requires.
    pub(super) fn opened_for_client(
        &mut self,
        loaded: Option<String>,
        result: RpcResult<'_>,
        text: &str,
        sink: &mut Sink,
    ) {
        let Ok(result) = result else { return sink.client(text) };
        let is_new = loaded.is_none();
        let opened = || id_of(result.get());
        let Some(id) = loaded.or_else(opened) else { return sink.client(text) };
        let session = self.sessions.entry(id.clone()).or_default();
        session.opened(result.get());
        session.stray = 0;
        // What a stored session has used before is unknown.
        session.cost = is_new.then_some(0.0);
        session.spent = is_new.then(Default::default);
        let (modes, models) = (session.modes.clone(), session.models.clone());
        let Some(link) = &mut self.link else { return };
        let mut frames = Vec::new();
        if let Some(mode) = link.sessions.mode.clone().filter(|mode| modes.current.as_ref() != Some(&mode.id))
        {
            let (method, params) = mode_request(&id, &modes, &mode.id);
            frames.push((method, params, mode.must.then(|| mode.id.clone())));
            session.modes.current = Some(mode.id);
        }
        if let Some(model) =
            link.sessions.model.clone().filter(|model| models.current.as_ref() != Some(model))
        {
            let (method, params) = model_request(&id, &models, &model);
            frames.push((method, params, None));
        }
        if frames.is_empty() {
            return sink.client(text);
        }
        let request = rpc::read(text);
        let Some(RpcMessage::Response { id: request, .. }) = request else { return };
        let waits_for = u32::try_from(frames.len()).unwrap_or(1);
        let waiting =
            OpeningSession { id: request.get().to_owned(), frame: text.to_owned(), waits_for, failure: None };
        link.opening.insert(id.clone(), waiting);
        for (method, params, must) in frames {
            let own = link.own_id();
            link.calls.insert(own.clone(), ClientCall::Configure { opening: id.clone(), must });
            if let Ok(own) = serde_json::from_str::<&RawValue>(&own) {
                sink.frame(rpc::request_with_id(own, method, &params));
            }
        }
    }

    /// Handles the response to a request that configures a new session. After the last one, the client gets the session.
    pub(super) fn configured(
        &mut self,
        opening: &str,
        must: Option<String>,
        result: RpcResult<'_>,
        sink: &mut Sink,
    ) {
        let Some(link) = &mut self.link else { return };
        let Some(waiting) = link.opening.get_mut(opening) else { return };
        if let (Err(error), Some(mode)) = (result, must) {
            waiting.failure = Some(format!("the agent rejected the mode `{mode}`: {}", error.message));
        }
        waiting.waits_for -= 1;
        if waiting.waits_for > 0 {
            return;
        }
        let Some(OpeningSession { id, frame, failure, .. }) = link.opening.remove(opening) else { return };
        match (failure, serde_json::from_str::<&RawValue>(&id)) {
            (Some(failure), Ok(id)) => {
                self.sessions.remove(opening);
                sink.client(&rpc::refuse(id, INTERNAL_ERROR, &failure));
            }
            _ => sink.client(&frame),
        }
    }
}

/// Adds extensions to the parameters of a request. The other parameters stay as they were written.
pub(super) fn with_meta(text: &str, meta: Option<&str>) -> Option<String> {
    let meta: BTreeMap<String, &RawValue> = serde_json::from_str(meta?).ok()?;
    let mut request: BTreeMap<String, &RawValue> = serde_json::from_str(text).ok()?;
    let mut params: BTreeMap<String, &RawValue> = serde_json::from_str(request.get("params")?.get()).ok()?;
    let of_client = params.get("_meta").and_then(|meta| serde_json::from_str(meta.get()).ok());
    let mut all: BTreeMap<String, &RawValue> = of_client.unwrap_or_default();
    // What the host requires overrides what the client asks for.
    all.extend(meta);
    let all = serde_json::value::to_raw_value(&all).ok()?;
    params.insert("_meta".to_owned(), &all);
    let params = serde_json::value::to_raw_value(&params).ok()?;
    request.insert("params".to_owned(), &params);
    serde_json::to_string(&request).ok()
}
