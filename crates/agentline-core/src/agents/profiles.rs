//! The profiles that agentline ships: agents that speak ACP and need no code. Each file is a table `[agents.NAME]`.

use super::CustomAgent;
use crate::{Agent, AgentSettings};
use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

const FILES: &[(&str, &str)] = &[
    ("copilot", include_str!("profiles/copilot.toml")),
    ("qwen", include_str!("profiles/qwen.toml")),
    ("goose", include_str!("profiles/goose.toml")),
    ("kimi", include_str!("profiles/kimi.toml")),
    ("vibe", include_str!("profiles/vibe.toml")),
    ("grok", include_str!("profiles/grok.toml")),
    ("droid", include_str!("profiles/droid.toml")),
    ("pi", include_str!("profiles/pi.toml")),
];

static SETTINGS: LazyLock<BTreeMap<&str, AgentSettings>> = LazyLock::new(|| {
    FILES.iter().map(|(name, text)| (*name, toml::from_str(text).unwrap_or_default())).collect()
});

static AGENTS: LazyLock<Vec<Arc<dyn Agent>>> = LazyLock::new(|| {
    let agent = |name: &str| Some(Arc::new(CustomAgent::of(name, &SETTINGS[name])?) as Arc<dyn Agent>);
    FILES.iter().filter_map(|(name, _)| agent(name)).collect()
});

/// Returns the names of the shipped profiles.
pub fn profile_names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name)
}

/// Returns the agents that agentline has a profile of.
#[must_use]
pub fn profiled_agents() -> &'static [Arc<dyn Agent>] {
    &AGENTS
}

/// Returns the settings of a configured agent with those of its profile: the named one, or the one with its own name.
pub(super) fn with_profile(name: &str, settings: &AgentSettings) -> AgentSettings {
    let base = settings.profile.base.as_deref().unwrap_or(name);
    let mut merged = SETTINGS.get(base).cloned().unwrap_or_default();
    if settings.command.is_some() {
        // The arguments of the profile belong to its own command.
        (merged.command, merged.args) = (None, None);
    }
    merged.overlay(settings);
    if settings.profile.base.is_some() {
        // The names of the profile belong to its own agent.
        merged.profile.aliases.clone_from(&settings.profile.aliases);
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ErrorPlace, FailureKind,
        agents::{AgentRegistry, Pins},
        config::{Config, Layer},
    };

    #[test]
    fn shipped_profiles_are_valid_settings() {
        for (name, text) in FILES {
            let table: toml::Table = toml::from_str(text).unwrap();
            let config = toml::Table::from_iter([(
                "agents".to_owned(),
                toml::Value::Table(toml::Table::from_iter([((*name).to_owned(), toml::Value::Table(table))])),
            )]);
            let config = Config::build(&[Layer::file("profile", config.to_string())]).unwrap();
            assert_eq!(config.notices, [], "{name}");
            assert_eq!(config.agents[*name], SETTINGS[*name], "{name}: both readers agree");
        }
    }

    #[test]
    fn every_shipped_profile_is_complete_and_pinned() {
        for agent in profiled_agents() {
            let (info, settings) = (agent.info(), agent.settings().unwrap());
            assert!(Pins::shipped().find(info.package, info.pinned).is_some(), "{}", info.id);
            assert!(
                !info.title.is_empty() && !info.home_page.is_empty() && !info.variables.is_empty(),
                "{}",
                info.id
            );
            let profile = settings.profile;
            assert!(profile.asks.is_some() && profile.usage.is_some(), "{}", info.id);
            let kinds: Vec<FailureKind> = profile.errors.iter().flatten().map(|error| error.kind).collect();
            for kind in [FailureKind::RateLimited, FailureKind::NotAuthenticated] {
                assert!(kinds.contains(&kind), "{} {kind:?}", info.id);
            }
            assert!(!info.project_files.is_empty(), "{}", info.id);
        }
        assert_eq!(profiled_agents().len(), FILES.len());
    }

    #[test]
    fn ordinary_answers_are_not_errors() {
        const ANSWERS: &[&str] = &[
            "The server returns 404 Not Found.",
            "404 Not Found is what the server returns.",
            "HTTP 401 Unauthorized means that the key is wrong.",
            "429 is the status for too many requests; the rate limit is 10 per minute.",
            "Error: 500 appears in the log.",
            "Rate limit: 10 requests. Connection error.",
            "Invalid API key",
            "terminated",
        ];
        for (name, settings) in SETTINGS.iter() {
            for answer in ANSWERS {
                assert_eq!(settings.profile.error(ErrorPlace::Text, answer), None, "{name}: {answer}");
            }
            for pattern in settings.profile.errors.iter().flatten() {
                let is_anchored = pattern.place != ErrorPlace::Text || !pattern.text.starts_with('*');
                assert!(is_anchored, "{name}: {}", pattern.text);
            }
        }
    }

    #[test]
    fn configured_agent_extends_a_shipped_profile() {
        let mut settings = AgentSettings::default();
        settings.env.insert("A".into(), "1".into());
        let registry = AgentRegistry::of(&[("qwen".to_owned(), settings.clone())].into());
        let qwen = registry.find("qwen").unwrap();
        assert_eq!((qwen.info().program, qwen.info().title), ("qwen", "Qwen Code"));
        assert_eq!(qwen.settings().unwrap().env["A"], "1");
        assert!(registry.find("qwen-code").is_ok() && registry.find("qwen@0.24.4").is_ok());

        settings.profile.base = Some("qwen".into());
        settings.command = Some(vec!["my-qwen".into(), "--acp".into()]);
        let registry = AgentRegistry::of(&[("mine".to_owned(), settings)].into());
        let mine = registry.find("mine").unwrap();
        assert_eq!((mine.info().program, mine.info().title), ("my-qwen", "Qwen Code"));
        assert_eq!(registry.find("qwen-code").unwrap().info().id, "qwen", "the name stays with the profile");
        assert_eq!(registry.available().len(), registry.all().len() + FILES.len());
    }
}
