//! The pinned versions of the agents' packages, with the integrity hash of every package that is downloaded for them.
//!
//! `.ci/pin-agents` writes `pins.json`. Its lists have no addresses: packages come from the registry that the user has
//! configured, and the hashes decide whether they are accepted.

use crate::PYPI;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, sync::LazyLock};

static SHIPPED: LazyLock<Pins> =
    LazyLock::new(|| serde_json::from_str(include_str!("pins.json")).unwrap_or_default());

/// Pinned versions of packages.
///
/// ```
/// use agentline_core::agents::Pins;
///
/// let pins = Pins::shipped();
/// assert!(pins.all().iter().all(|pin| !pins.integrity(pin).is_empty()));
/// ```
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Pins {
    /// The packages from npm that pins consist of, by `name@version`: the fields of npm's lock file.
    packages: BTreeMap<String, Map<String, Value>>,
    pins: Vec<Pin>,
}

/// A pinned version of a package.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Pin {
    /// The package; those from PyPI begin with [`PYPI`].
    pub package: String,
    /// The version.
    pub version: String,
    /// Other packages that the program needs but does not depend on, with their versions.
    pub with: BTreeMap<String, String>,
    /// For npm: the version of the package in each directory, followed by its flags. The name of the package is before
    /// the version if it is not that of the directory.
    tree: BTreeMap<String, String>,
    /// For PyPI: the accepted hashes of each `name==version`.
    requirements: BTreeMap<String, Vec<String>>,
}

impl Pins {
    /// Returns the pins that agentline is tested with.
    #[must_use]
    pub fn shipped() -> &'static Self {
        &SHIPPED
    }

    /// Returns all pinned versions, by package and with the newest version first.
    #[must_use]
    pub fn all(&self) -> &[Pin] {
        &self.pins
    }

    /// Returns the pinned versions of a package, newest first.
    pub fn of<'a>(&'a self, package: &'a str) -> impl Iterator<Item = &'a Pin> {
        self.pins.iter().filter(move |pin| pin.package == package)
    }

    /// Returns a pinned version of a package.
    #[must_use]
    pub fn find(&self, package: &str, version: &str) -> Option<&Pin> {
        self.pins.iter().find(|pin| pin.package == package && pin.version == version)
    }

    /// Returns the accepted hashes of the package itself. A package from PyPI has one for each platform.
    #[must_use]
    pub fn integrity<'a>(&'a self, pin: &'a Pin) -> Vec<&'a str> {
        if let Some(name) = pin.package.strip_prefix(PYPI) {
            let hashes = pin.requirements.get(&format!("{name}=={}", pin.version));
            return hashes.into_iter().flatten().map(String::as_str).collect();
        }
        let package = self.packages.get(&format!("{}@{}", pin.package, pin.version));
        package.and_then(|package| package.get("integrity")).and_then(Value::as_str).into_iter().collect()
    }

    /// Returns npm's lock file of a pinned version.
    #[must_use]
    pub fn package_lock(&self, pin: &Pin) -> Value {
        let mut packages = Map::new();
        packages.insert(String::new(), pin.package_json());
        for (path, text) in &pin.tree {
            let mut words = text.split(' ');
            let word = words.next().unwrap_or_default();
            let key = key_of(path, word);
            let mut entry = self.packages.get(&key).cloned().unwrap_or_default();
            let (name, version) = key.rsplit_once('@').unwrap_or_default();
            entry.insert("version".into(), version.into());
            if word.contains('@') {
                entry.insert("name".into(), name.into());
            }
            entry.extend(words.map(|flag| (flag.to_owned(), true.into())));
            packages.insert(path.clone(), entry.into());
        }
        json!({"lockfileVersion": 3, "requires": true, "packages": packages})
    }
}

/// Returns the key of the package in a directory of a tree.
fn key_of(path: &str, version: &str) -> String {
    if version.contains('@') {
        return version.to_owned();
    }
    let name = path.rsplit_once("node_modules/").map_or(path, |(_, name)| name);
    format!("{name}@{version}")
}

impl Pin {
    /// Returns the `package.json` of an installation of this version.
    #[must_use]
    pub fn package_json(&self) -> Value {
        let mut dependencies = self.with.clone();
        dependencies.insert(self.package.clone(), self.version.clone());
        json!({"private": true, "dependencies": dependencies})
    }

    /// Returns the requirements of a version from PyPI, in pip's format with hashes.
    #[must_use]
    pub fn requirements(&self) -> String {
        let line = |(requirement, hashes): (&String, &Vec<String>)| {
            let hashes = hashes.iter().map(|hash| format!(" --hash={hash}"));
            format!("{requirement}{}\n", hashes.collect::<String>())
        };
        self.requirements.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Surface, agents};

    #[test]
    fn every_pinned_package_has_a_hash_and_no_address() {
        let pins = Pins::shipped();
        for pin in pins.all() {
            let name = format!("{} {}", pin.package, pin.version);
            assert!(!pins.integrity(pin).is_empty(), "{name}");
            let lock = pins.package_lock(pin);
            let packages = lock["packages"].as_object().unwrap();
            for (path, entry) in packages.iter().filter(|(path, _)| !path.is_empty()) {
                let hash = entry["integrity"].as_str().unwrap_or_default();
                assert!(hash.starts_with("sha512-"), "{name}: {path}");
            }
            let is_sha256 = |hash: &String| hash.len() == 71 && hash.starts_with("sha256:");
            assert!(pin.requirements.values().all(|hashes| hashes.iter().all(is_sha256)), "{name}");
        }
        assert!(!include_str!("pins.json").contains("://"), "a lock file has the address of a registry");
    }

    #[test]
    fn lock_file_has_aliases_flags_and_nested_packages() {
        let pins: Pins = serde_json::from_value(json!({
            "packages": {
                "a@1.0.0": {"integrity": "sha512-a", "bin": {"a": "a.js"}},
                "a@1.0.0-linux": {"integrity": "sha512-l", "os": ["linux"]},
                "@s/b@2.0.0": {"integrity": "sha512-b"},
                "a@0.9.0": {"integrity": "sha512-o"},
            },
            "pins": [
                {"package": "a", "version": "1.0.0", "with": {"@s/b": "2.0.0"}, "tree": {
                    "node_modules/a": "1.0.0",
                    "node_modules/a-linux": "a@1.0.0-linux optional",
                    "node_modules/@s/b": "2.0.0",
                    "node_modules/@s/b/node_modules/a": "0.9.0 peer",
                }},
                {"package": "pypi:p", "version": "1.0", "requirements": {"p==1.0": ["sha256:0", "sha256:1"]}},
            ],
        }))
        .unwrap();
        let pin = pins.find("a", "1.0.0").unwrap();
        assert_eq!(pins.integrity(pin), ["sha512-a"]);
        let root = json!({"private": true, "dependencies": {"a": "1.0.0", "@s/b": "2.0.0"}});
        assert_eq!(pin.package_json(), root);
        let expected = json!({
            "": root,
            "node_modules/a": {"version": "1.0.0", "integrity": "sha512-a", "bin": {"a": "a.js"}},
            "node_modules/a-linux":
                {"name": "a", "version": "1.0.0-linux", "integrity": "sha512-l", "os": ["linux"], "optional": true},
            "node_modules/@s/b": {"version": "2.0.0", "integrity": "sha512-b"},
            "node_modules/@s/b/node_modules/a": {"version": "0.9.0", "integrity": "sha512-o", "peer": true},
        });
        assert_eq!(pins.package_lock(pin)["packages"], expected);
        let python = pins.find("pypi:p", "1.0").unwrap();
        assert_eq!(python.requirements(), "p==1.0 --hash=sha256:0 --hash=sha256:1\n");
        assert_eq!(pins.integrity(python), ["sha256:0", "sha256:1"]);
    }

    #[test]
    fn tested_version_of_each_agent_is_pinned() {
        for agent in agents::built_in() {
            let info = agent.info();
            for info in [info, info.for_surface(Surface::Acp)] {
                let pin = Pins::shipped().find(info.package, info.pinned);
                assert!(pin.is_some(), "{} {}", info.package, info.pinned);
            }
        }
    }
}
