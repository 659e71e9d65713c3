//! Options that only one agent has. Each agent declares its own; the table of settings includes them.

use crate::Problem;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::collections::BTreeMap;

/// An option of one agent: a setting whose value is in
/// [`RunRequest::agent_options`](crate::RunRequest::agent_options) under its name.
///
/// An option of a built-in agent is also a configuration key. A program sets the options of its own agents with
/// [`RunRequest::agent_option`](crate::RunRequest::agent_option).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AgentOption {
    /// The name in files and maps; its `camelCase` form is accepted too.
    pub name: &'static str,
    /// Other accepted names.
    pub aliases: &'static [&'static str],
    /// The kind of its values.
    pub kind: OptionKind,
    /// An example value, as TOML.
    pub example: &'static str,
    /// A one-sentence description.
    pub doc: &'static str,
    /// The long flag of `agentline run`, if it has one.
    pub flag: Option<&'static str>,
}

/// The kind of values that an option of an agent has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OptionKind {
    /// A string.
    Text,
    /// A list of strings.
    List,
    /// `true` or `false`.
    Flag,
}

impl OptionKind {
    /// Returns whether a value has this kind.
    fn accepts(self, value: &Value) -> bool {
        match self {
            Self::Text => value.is_string(),
            Self::List => value.as_array().is_some_and(|list| list.iter().all(Value::is_string)),
            Self::Flag => value.is_boolean(),
        }
    }

    /// Describes the accepted values.
    fn takes(self) -> &'static str {
        match self {
            Self::Text => "a string",
            Self::List => "a list of strings",
            Self::Flag => "`true` or `false`",
        }
    }
}

impl AgentOption {
    /// Creates an option without other names.
    #[must_use]
    pub const fn new(name: &'static str, kind: OptionKind, example: &'static str, doc: &'static str) -> Self {
        Self { name, aliases: &[], kind, example, doc, flag: None }
    }

    /// Sets the flag of `agentline run`.
    #[must_use]
    pub const fn flag(mut self, flag: &'static str) -> Self {
        self.flag = Some(flag);
        self
    }

    /// Sets the other accepted names.
    #[must_use]
    pub const fn aliases(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }
}

/// Returns a problem for each option that the agent with this title does not have, and for each value of the wrong
/// kind. `owner` returns the id of the agent that has an option.
pub(crate) fn check_options(
    own: &[AgentOption],
    title: &str,
    options: &BTreeMap<String, Value>,
    owner: impl Fn(&str) -> Option<&'static str>,
) -> Vec<Problem> {
    let check = |(name, value): (&String, &Value)| {
        let Some(option) = own.iter().find(|option| option.name == name) else {
            let hint = match owner(name) {
                Some(agent) => format!("remove it, or use the agent `{agent}`, which has this option"),
                None => "remove it".to_owned(),
            };
            return Some(Problem::new(name.as_str(), format!("is not supported by {title}")).hint(hint));
        };
        let is_valid = option.kind.accepts(value);
        (!is_valid).then(|| {
            Problem::new(name.as_str(), format!("must be {}, not `{value}`", option.kind.takes()))
                .hint(format!("write, for example, `{name} = {}`", option.example))
        })
    };
    options.iter().filter_map(check).collect()
}

/// Reads the options of a serialized request: all fields that `RunRequest` does not define. A `null` sets nothing.
pub(crate) fn deserialize_options<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, Value>, D::Error> {
    let mut options = BTreeMap::<String, Value>::deserialize(deserializer)?;
    options.retain(|_, value| !value.is_null());
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    static OWN: &[AgentOption] = &[
        AgentOption::new("region", OptionKind::Text, r#""eu""#, "The region."),
        AgentOption::new("plugins", OptionKind::List, r#"["a"]"#, "The plugins."),
        AgentOption::new("fast", OptionKind::Flag, "true", "Answer faster."),
    ];

    fn problems(own: &[AgentOption], options: &Value) -> Vec<String> {
        let options = options.as_object().unwrap().clone().into_iter().collect();
        check_options(own, "My Agent", &options, |name| (name == "speed").then_some("other"))
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn own_options_are_accepted() {
        assert!(problems(OWN, &json!({"region": "eu", "plugins": [], "fast": false})).is_empty());
    }

    #[test]
    fn unknown_option_is_refused_with_its_name_and_its_agent() {
        let found = problems(OWN, &json!({"sped": 1, "speed": 1}));
        assert_eq!(found.len(), 2);
        assert!(found[0].contains("sped") && found[0].ends_with("remove it"), "{found:?}");
        for part in ["speed", "is not supported by My Agent", "use the agent `other`"] {
            assert!(found[1].contains(part), "{found:?}");
        }
    }

    #[test]
    fn value_of_the_wrong_kind_is_refused() {
        for (value, accepted) in [
            (json!({"region": 1}), "a string"),
            (json!({"plugins": ["a", 1]}), "a list of strings"),
            (json!({"fast": "yes"}), "`true` or `false`"),
        ] {
            let found = problems(OWN, &value);
            assert!(found.len() == 1 && found[0].contains(accepted), "{value}: {found:?}");
        }
    }
}
