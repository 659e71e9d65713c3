//! The state of a session on this connection: its modes, its models and the run in it.

use crate::{
    McpServer, ModelInfo, RunId, Tokens,
    wire::{List, Str, wire},
};
use std::collections::{BTreeMap, BTreeSet};

wire! { struct Opened<'a> {
    session: Str<'a> = "sessionId", modes: Option<Modes<'a>> = "modes", models: Option<Models<'a>> = "models",
    options: List<Config<'a>> = "configOptions",
} }
wire! { struct Modes<'a> { current: Option<Str<'a>> = "currentModeId", all: List<Mode<'a>> = "availableModes" } }
wire! { struct Mode<'a> { id: Str<'a> = "id" } }
wire! { struct Models<'a> { current: Option<Str<'a>> = "currentModelId", all: List<Model<'a>> = "availableModels" } }
wire! { struct Model<'a> { id: Str<'a> = "modelId", name: Option<Str<'a>> = "name" } }
wire! { struct Config<'a> {
    id: Str<'a> = "id", category: Str<'a> = "category", current: Option<Str<'a>> = "currentValue",
    choices: List<Choice<'a>> = "options",
} }
wire! { struct Choice<'a> { value: Option<Str<'a>> = "value", name: Option<Str<'a>> = "name", group: List<Value<'a>> = "options" } }
wire! { struct Value<'a> { value: Str<'a> = "value", name: Option<Str<'a>> = "name" } }

wire! { struct Sessions<'a> { all: List<SessionListed<'a>> = "sessions" } }
wire! { struct SessionListed<'a> { id: Str<'a> = "sessionId", updated: Str<'a> = "updatedAt" } }

/// The available modes or models of a session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Choices {
    /// The current choice.
    pub(crate) current: Option<String>,
    /// All choices that the agent lists.
    pub(crate) all: Vec<String>,
    /// The display names, by id.
    pub(crate) names: BTreeMap<String, String>,
    /// Whether the agent has a separate method to set it.
    pub(crate) by_method: bool,
    /// The id of the configuration option that sets it.
    pub(crate) option: Option<String>,
    /// The values of that option, which may differ from those of the method.
    pub(crate) values: Vec<String>,
}

impl Choices {
    fn list(&mut self, listed: impl Iterator<Item = (String, Option<String>)>) {
        self.all.clear();
        for (id, name) in listed {
            if let Some(name) = name {
                self.names.insert(id.clone(), name);
            }
            self.all.push(id);
        }
    }

    /// Returns whether the agent lists a choice.
    pub(crate) fn has(&self, id: &String) -> bool {
        self.all.contains(id) || self.values.contains(id)
    }

    /// Returns whether only the configuration option has a choice.
    pub(crate) fn is_only_optional(&self, id: &String) -> bool {
        !self.all.contains(id) && self.values.contains(id)
    }

    /// Returns all choices with their display names.
    pub(crate) fn infos(&self) -> Vec<ModelInfo> {
        self.all.iter().map(|id| ModelInfo::new(id.clone(), self.names.get(id).cloned())).collect()
    }
}

/// A session on this connection.
#[derive(Debug, Default)]
pub(crate) struct AcpSession {
    /// Whether the agent has opened the session.
    pub(crate) open: bool,
    /// The last run in the session, until that run is settled.
    pub(crate) run: Option<RunId>,
    pub(crate) modes: Choices,
    pub(crate) models: Choices,
    /// The last model outside the agent's list for which a run in this session got a warning.
    pub(crate) unlisted: Option<String>,
    /// The MCP servers that the session was opened with.
    pub(crate) servers: BTreeMap<String, McpServer>,
    /// The last reported total cost of the session, in US dollars. `None` if its initial cost is unknown.
    pub(crate) cost: Option<f64>,
    /// The last reported tokens of the session, for agents that report its total. `None` if the initial count is unknown.
    pub(crate) spent: Option<Tokens>,
    /// The number of updates that arrived while no run was in the session.
    pub(crate) stray: u32,
    /// Calls that earlier runs left open. Their results may arrive during a later run.
    pub(crate) left: BTreeSet<String>,
}

/// Returns the session id in a response, if there is one.
pub(crate) fn id_of(result: &str) -> Option<String> {
    let opened = serde_json::from_str::<Opened<'_>>(result).unwrap_or_default();
    Some(opened.session.own()).filter(|id| !id.is_empty())
}

/// Returns the id of the newest session in a list. Sessions without a time count as listed by time.
pub(crate) fn newest(result: &str) -> Option<String> {
    let sessions = serde_json::from_str::<Sessions<'_>>(result).unwrap_or_default().all.0;
    let named = sessions.into_iter().filter(|session| !session.id.is_empty());
    // Of equal times, `max_by` returns the last one, and the first one counts.
    let listed: Vec<SessionListed<'_>> = named.collect();
    listed.into_iter().rev().max_by(|a, b| (*a.updated).cmp(&*b.updated)).map(|session| session.id.own())
}

impl AcpSession {
    /// Applies the response to `session/new` or `session/load`.
    pub(crate) fn opened(&mut self, result: &str) {
        self.open = true;
        let opened = serde_json::from_str::<Opened<'_>>(result).unwrap_or_default();
        if let Some(modes) = opened.modes {
            self.modes.by_method = true;
            self.modes.current = modes.current.map(Str::own);
            self.modes.all = modes.all.0.into_iter().map(|mode| mode.id.own()).collect();
        }
        if let Some(models) = opened.models {
            self.models.by_method = true;
            self.models.current = models.current.map(Str::own);
            let named = models.all.0.into_iter().map(|model| (model.id.own(), model.name.map(Str::own)));
            self.models.list(named);
        }
        self.configured(opened.options);
    }

    /// Applies a new list of configuration options.
    pub(crate) fn reconfigured(&mut self, update: &str) {
        let opened = serde_json::from_str::<Opened<'_>>(update).unwrap_or_default();
        self.configured(opened.options);
    }

    fn configured(&mut self, options: List<Config<'_>>) {
        for option in options.0 {
            let is = |name: &str| &*option.category == name || &*option.id == name;
            let choices = match () {
                () if is("model") => &mut self.models,
                () if is("mode") => &mut self.modes,
                () => continue,
            };
            choices.option = Some(option.id.own());
            let listed = option.choices.0.into_iter().flat_map(|choice| {
                let own = choice.value.map(|value| (value.own(), choice.name.map(Str::own)));
                let group = choice.group.0.into_iter().map(|v| (v.value.own(), v.name.map(Str::own)));
                own.into_iter().chain(group)
            });
            let listed: Vec<_> = listed.collect();
            choices.values = listed.iter().map(|(id, _)| id.clone()).collect();
            // If the agent sends both, the list of the method takes precedence, because the method expects its ids.
            if !choices.by_method || choices.all.is_empty() {
                choices.list(listed.into_iter());
            }
            if !choices.by_method || choices.current.is_none() {
                choices.current = option.current.map(Str::own);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_session_is_found_by_its_time_or_its_place() {
        let of = |text: &str| newest(text);
        assert_eq!(of(r#"{"sessions":[{"sessionId":"a"},{"sessionId":"b"}]}"#).as_deref(), Some("a"));
        let timed = r#"{"sessions":[{"sessionId":"a","updatedAt":"2026-11-01"},{"sessionId":"b","updatedAt":"2026-11-02"}]}"#;
        assert_eq!(of(timed).as_deref(), Some("b"));
        assert_eq!((of("null"), of(r#"{"sessions":[{}]}"#)), (None, None));
    }

    #[test]
    fn modes_and_models_are_read_from_lists_or_config_options() {
        let mut session = AcpSession::default();
        session.opened(
            r#"{"sessionId":"s","modes":{"currentModeId":"default","availableModes":[{"id":"default"},{"id":"plan"}]},
            "models":{"currentModelId":"auto","availableModels":[{"modelId":"auto"},{"modelId":"pro"}]}}"#,
        );
        assert_eq!((session.modes.current.as_deref(), session.modes.all.len()), (Some("default"), 2));
        assert_eq!((session.models.current.as_deref(), &*session.models.all[1]), (Some("auto"), "pro"));
        assert!(session.models.by_method && session.models.option.is_none());

        let mut session = AcpSession::default();
        session.opened(
            r#"{"configOptions":[{"id":"llm","category":"model","currentValue":"a","options":[
            {"value":"a"},{"group":"g","options":[{"value":"b"}]}]},{"id":"mode","currentValue":"build"}]}"#,
        );
        assert_eq!(session.models.option.as_deref(), Some("llm"));
        assert_eq!(session.models.all, ["a", "b"]);
        assert!(!session.models.by_method);
        assert_eq!(session.modes.current.as_deref(), Some("build"));
        session.reconfigured(r#"{"configOptions":[{"id":"mode","currentValue":"plan"}]}"#);
        assert_eq!(session.modes.current.as_deref(), Some("plan"));
        session.opened("null");
        session.opened(r#"{"modes":7,"models":[]}"#);
        assert_eq!(session.modes.current, None);
    }
}
