//! The sign-in of Codex: variables, the file that `codex login` writes, or a model provider of its settings.

use crate::agents::adapter::{self, found};
use crate::agents::codex::Codex;
use crate::{SetupContext, SetupProbe, SignIn};

impl SetupProbe for Codex {
    fn sign_in(&self, context: &SetupContext<'_>) -> Vec<SignIn> {
        let SetupContext { env, home, fs, .. } = *context;
        let folder = adapter::home_folder(env, home, "CODEX_HOME", ".codex");
        let mut ways = adapter::variables(env, &["CODEX_API_KEY", "OPENAI_API_KEY"]);
        ways.push(found(folder.join("auth.json"), fs, "written by `codex login`"));
        let config = folder.join("config.toml");
        if fs.text(&config).is_some_and(|text| text.contains("model_provider")) {
            ways.push(found(config, fs, "custom model provider"));
        }
        adapter::first_wins(ways)
    }
}
