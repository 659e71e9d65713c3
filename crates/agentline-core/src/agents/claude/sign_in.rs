//! The sign-in of Claude Code: variables, or the credentials of its own sign-in.

use crate::agents::adapter::{self, found};
use crate::agents::claude::Claude;
use crate::{SetupContext, SetupProbe, SignIn};

impl SetupProbe for Claude {
    fn sign_in(&self, context: &SetupContext<'_>) -> Vec<SignIn> {
        let SetupContext { env, home, fs, .. } = *context;
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
