//! The sign-in of OpenCode: the file that `opencode auth login` writes, a model provider of its settings, or
//! variables.

use crate::agents::adapter::{self, found};
use crate::agents::opencode::{INFO, OpenCode};
use crate::{SetupContext, SetupProbe, SignIn};
use std::path::PathBuf;

impl SetupProbe for OpenCode {
    fn sign_in(&self, context: &SetupContext<'_>) -> Vec<SignIn> {
        let SetupContext { env, home, fs, .. } = *context;
        let folder = |name: &str, plain: &str| {
            env.get(name)
                .filter(|v| !v.is_empty())
                .map_or_else(|| home.join(plain), PathBuf::from)
                .join("opencode")
        };
        let mut ways = vec![found(
            folder("XDG_DATA_HOME", ".local/share").join("auth.json"),
            fs,
            "written by `opencode auth login`",
        )];
        let config = folder("XDG_CONFIG_HOME", ".config");
        for name in ["opencode.json", "opencode.jsonc"] {
            let path = env.get("OPENCODE_CONFIG").map_or_else(|| config.join(name), PathBuf::from);
            if fs.text(&path).is_some_and(|text| text.contains("\"provider\"")) {
                ways.push(found(path, fs, "custom model provider"));
            }
        }
        let keys = env.keys().filter(|name| {
            name.ends_with("_API_KEY")
                && INFO.variables.iter().any(|v| {
                    v.strip_suffix('*').map_or(*v == name.as_str(), |prefix| name.starts_with(prefix))
                })
        });
        ways.extend(keys.map(|name| SignIn::new(name.clone(), true)));
        adapter::first_wins(ways)
    }
}
