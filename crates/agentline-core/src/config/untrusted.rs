//! Applies the file of a workspace that the user does not fully trust: it may choose and restrict, but never
//! widen.

use super::{Config, ConfigKey, UntrustedUse, findings::one_line, keys::Restriction, layer::Layer};
use crate::{Notice, agents::split_version};

/// The code of the warning about changes that the file of an untrusted workspace made or attempted.
pub const WORKSPACE_CONFIG: &str = "workspace_config";

/// The changes that one untrusted layer made, and its ignored keys.
#[derive(Debug)]
pub(super) struct UntrustedReport {
    layer: String,
    changed: Vec<&'static ConfigKey>,
    ignored: Vec<String>,
    /// Rules to add after all layers are read, so that they replace no rules and no higher layer replaces them.
    rules: Vec<(&'static ConfigKey, Config)>,
}

impl UntrustedReport {
    pub(super) fn new(layer: &Layer) -> Self {
        Self { layer: one_line(&layer.name), changed: Vec::new(), ignored: Vec::new(), rules: Vec::new() }
    }

    /// Records a key that is not allowed in this layer, or a value that would allow more.
    pub(super) fn ignored(&mut self, spelled: &str) {
        self.ignored.push(spelled.to_owned());
    }

    /// Records a key that changed the configuration.
    pub(super) fn changed(&mut self, key: &'static ConfigKey) {
        self.changed.push(key);
    }

    /// Applies a value as far as its key permits, and returns whether the setting now comes from this layer.
    pub(super) fn apply(
        &mut self,
        config: &mut Config,
        key: &'static ConfigKey,
        spelled: &str,
        parsed: &Config,
    ) -> bool {
        let restriction = match key.untrusted {
            UntrustedUse::Ignore => Restriction::Refused,
            UntrustedUse::Add => {
                self.rules.push((key, parsed.clone()));
                return false;
            }
            UntrustedUse::Accept if key.get(config) == key.get(parsed) => Restriction::Unchanged,
            // An old version of an agent may lack a protection.
            UntrustedUse::Accept
                if key.name == "agent" && split_version(&parsed.request.agent).1.is_some() =>
            {
                Restriction::Refused
            }
            UntrustedUse::Accept => {
                key.merge(config, parsed);
                Restriction::Applied
            }
            UntrustedUse::Lower | UntrustedUse::Stricter => key.restrict(config, parsed),
        };
        match restriction {
            Restriction::Applied => self.changed(key),
            Restriction::Refused => self.ignored(spelled),
            Restriction::Unchanged => {}
        }
        restriction == Restriction::Applied
    }

    /// Adds the rules of this layer to the merged configuration.
    ///
    /// A specific `ask` rule outranks a general `deny` rule. So if the user has any `deny` rules, the `ask` rules of
    /// this layer become `deny` rules.
    pub(super) fn add_rules(&mut self, config: &mut Config, user_denies: bool) {
        for (mut key, mut parsed) in std::mem::take(&mut self.rules) {
            if user_denies
                && let Some(deny) = super::find("deny")
                && key.name == "ask"
            {
                key = deny;
                parsed.request.deny = std::mem::take(&mut parsed.request.ask);
            }
            let had_rules = key.get(config).as_array().is_some_and(|rules| !rules.is_empty());
            if key.restrict(config, &parsed) == Restriction::Applied {
                let others = config.origins.remove(key.name).filter(|_| had_rules);
                let origin = others.map_or_else(|| self.layer.clone(), |o| format!("{o}, {}", self.layer));
                config.origins.insert(key.name.to_owned(), origin);
                if !self.changed.iter().any(|other| other.name == key.name) {
                    self.changed.push(key);
                }
            }
        }
    }

    /// Returns the warning about this layer, if it changed anything or had ignored keys.
    pub(super) fn notice(&self, config: &Config) -> Option<Notice> {
        let is_in_force = |key: &&&'static ConfigKey| {
            key.untrusted == UntrustedUse::Add
                || config.origins.get(key.name).is_some_and(|origin| one_line(origin) == self.layer)
        };
        let changed: Vec<String> = self
            .changed
            .iter()
            .filter(is_in_force)
            .map(|key| format!("{} `{}`", verb(key), key.name))
            .collect();
        let ignored: Vec<String> = self.ignored.iter().map(|name| format!("`{}`", one_line(name))).collect();
        let mut parts = Vec::new();
        if !changed.is_empty() {
            parts.push(changed.join(", "));
        }
        if !ignored.is_empty() {
            let hint = "run `agentline trust` in the workspace to apply the whole file";
            parts.push(format!("ignored {} ({hint})", ignored.join(", ")));
        }
        let message = format!("`{}` of the untrusted workspace: {}", self.layer, parts.join("; "));
        (!parts.is_empty()).then(|| Notice::new(WORKSPACE_CONFIG, message))
    }
}

fn verb(key: &ConfigKey) -> &'static str {
    match key.untrusted {
        UntrustedUse::Lower => "lowered",
        UntrustedUse::Add => "added rules to",
        UntrustedUse::Stricter => "restricted",
        UntrustedUse::Accept | UntrustedUse::Ignore => "set",
    }
}
