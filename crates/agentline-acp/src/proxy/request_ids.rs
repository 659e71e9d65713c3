//! The ids of requests to an agent: clients that follow each other use the same ones, and an agent may respond late.

use crate::frame;
use agentline_core::rpc;
use serde_json::value::RawValue;
use std::{
    borrow::Cow,
    collections::{HashMap, VecDeque},
};

/// How many requests without a response are remembered.
const MOST_LATE: usize = 1024;

/// The ids that are in use at the agent besides those of the current client.
#[derive(Debug, Default)]
pub(super) struct RequestIds {
    /// The requests that the agent has not answered, although their client has a response or has disconnected.
    late: VecDeque<String>,
    /// The client's ids of requests that the agent knows by another id.
    aliases: HashMap<String, Box<RawValue>>,
    last: u64,
}

/// A request of the client as the agent gets it.
pub(super) struct AgentRequest<'a> {
    /// The id in one spelling.
    pub(super) key: String,
    pub(super) text: Cow<'a, str>,
}

impl RequestIds {
    /// Records that the response to a request is no longer waited for.
    pub(super) fn add_late(&mut self, key: String) {
        if self.late.len() == MOST_LATE
            && let Some(oldest) = self.late.pop_front()
        {
            self.aliases.remove(&oldest);
        }
        self.late.push_back(key);
    }

    /// Returns whether a response is late, and forgets it.
    pub(super) fn take_late(&mut self, key: &str) -> bool {
        let found = self.late.iter().position(|late| late == key);
        found.and_then(|at| self.late.remove(at)).is_some_and(|key| {
            self.aliases.remove(&key);
            true
        })
    }

    /// Returns whether this is the agent's id of a late request.
    pub(super) fn is_late(&self, key: &str) -> bool {
        self.late.iter().any(|late| late == key)
    }

    /// Forgets the late requests, whose agent has been replaced.
    pub(super) fn clear_late(&mut self) {
        for key in self.late.drain(..) {
            self.aliases.remove(&key);
        }
    }

    /// Returns a request as the agent gets it: with an id of its own if the client's is in use there.
    pub(super) fn for_agent<'a>(
        &mut self,
        id: &RawValue,
        text: &'a str,
        is_in_use: impl Fn(&str) -> bool,
    ) -> AgentRequest<'a> {
        let key = rpc::id_key(id);
        if !self.is_late(&key) && !is_in_use(&key) {
            return AgentRequest { key, text: text.into() };
        }
        self.last += 1;
        let own = format!("\"agentline-{}\"", self.last);
        let Some(text) = frame::with_id(text, &own) else { return AgentRequest { key, text: text.into() } };
        self.aliases.insert(own.clone(), id.to_owned());
        AgentRequest { key: own, text: text.into() }
    }

    /// Returns the client's spelling of an id.
    pub(super) fn of_client<'a>(&'a self, key: &'a str) -> &'a str {
        self.aliases.get(key).map_or(key, |id| id.get())
    }

    /// Returns whether a request of the agent is the client's request with this id.
    pub(super) fn is(&self, key: &str, of_client: &str) -> bool {
        match self.aliases.get(key) {
            Some(id) => rpc::id_key(id) == of_client,
            None => key == of_client,
        }
    }

    /// Gives a response the client's id.
    pub(super) fn restored(&mut self, key: &str, frame: String) -> String {
        let id = self.aliases.remove(key);
        id.and_then(|id| frame::with_id(&frame, id.get())).unwrap_or(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ids_that_are_in_use_change() {
        let mut ids = RequestIds::default();
        let id: Box<RawValue> = serde_json::from_str("2").unwrap();
        let text = r#"{ "id" : 2,"method":"a","params":{"id":2}}"#;
        let request = ids.for_agent(&id, text, |_| false);
        assert_eq!((&*request.key, &*request.text), ("2", text));
        ids.add_late("2".to_owned());
        let request = ids.for_agent(&id, text, |_| false);
        assert_eq!(request.text, r#"{ "id" : "agentline-1","method":"a","params":{"id":2}}"#);
        assert!(ids.is(&request.key, "2") && ids.of_client(&request.key) == "2");
        let response = ids.restored(&request.key, r#"{"result":[ 1 ], "id":"agentline-1"}"#.to_owned());
        assert_eq!(response, r#"{"result":[ 1 ], "id":2}"#);
        assert!(ids.take_late("2") && !ids.take_late("2"));
    }

    #[test]
    fn forgotten_late_requests_leave_no_alias() {
        let mut ids = RequestIds::default();
        let id: Box<RawValue> = serde_json::from_str("2").unwrap();
        for _ in 0..2 * MOST_LATE {
            let request = ids.for_agent(&id, r#"{"id":2,"method":"a"}"#, |key| key == "2");
            ids.add_late(request.key);
        }
        assert_eq!((ids.late.len(), ids.aliases.len()), (MOST_LATE, MOST_LATE));
    }
}
