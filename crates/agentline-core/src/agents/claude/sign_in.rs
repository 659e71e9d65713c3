//! The sign-in of Claude Code: variables, or the credentials of its own sign-in.

use crate::agents::adapter::{self, found};
use crate::agents::claude::Claude;
use crate::{FileSystem, SetupProbe, SignIn};
use std::{collections::BTreeMap, path::Path};

impl SetupProbe for Claude {
    fn sign_in(
        &self,
        _cwd: &Path,
        env: &BTreeMap<String, String>,
        home: &Path,
        fs: &dyn FileSystem,
    ) -> Vec<SignIn> {
        let folder = adapter::home_folder(env, home, "CLAUDE_CONFIG_DIR", ".claude");
        let names = [
            "CLAUDE_CODE_USE_BEDROCK",
            "CLAUDE_CODE_USE_VERTEX",
            "ANTHROPIC_AUTH_TOKEN",
            "ANTHROPIC_API_KEY",
            "CLAUDE_CODE_OAUTH_TOKEN",
        ];
        let mut ways = adapter::variables(env, &names);
        ways.push(found(folder.join(".credentials.json"), fs, "written when you sign in with `claude`"));
        if cfg!(target_os = "macos") {
            ways.push(
                SignIn::new("keychain", false).note("not checked; it may contain a sign-in of `claude`"),
            );
        }
        adapter::first_wins(ways)
    }
}
