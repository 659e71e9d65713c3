//! The tokens that clients present, with the policy of each.

use crate::{
    messages::{SessionAccess, TokenPolicy},
    options::ServeError,
    random::random,
    token_use::TokenUse,
};
use agentline::PermissionMode;
use agentline_fs::{digest::digest, private_file, regular_file::read_regular};
use serde::Deserialize;
use std::{collections::BTreeMap, path::Path, sync::Arc};
use subtle::ConstantTimeEq as _;

/// The maximum size of a file with tokens in bytes.
const FILE_LIMIT: u64 = 1 << 20;
/// The name of the token that is created at the first start.
pub(crate) const OWNER: &str = "owner";

/// A token without its text.
#[derive(Debug)]
pub(crate) struct AccessToken {
    pub(crate) name: String,
    pub(crate) policy: TokenPolicy,
    /// Shared by all tokens of this name.
    pub(crate) in_use: Arc<TokenUse>,
    digest: [u8; 32],
}

/// All tokens of a server.
#[derive(Debug)]
pub(crate) struct AccessTokens {
    tokens: Vec<Arc<AccessToken>>,
    of_owner: Arc<AccessToken>,
    owner: String,
}

/// The file of further tokens.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenFile {
    #[serde(default)]
    token: Vec<TokenRow>,
}

#[derive(Deserialize)]
struct TokenRow {
    name: String,
    sha256: String,
    #[serde(flatten)]
    policy: TokenPolicy,
    /// What is in no policy. A misspelled limit must not be an absent one.
    #[serde(flatten)]
    unknown: BTreeMap<String, toml::Value>,
}

impl AccessTokens {
    /// Reads the owner's token from the directory of the server, and creates it if necessary. The owner may use all
    /// agents, or this one.
    pub(crate) fn read(dir: &Path, file: Option<&Path>, agent: Option<String>) -> Result<Self, ServeError> {
        let owner = owner_token(&dir.join("token"))?;
        let policy = TokenPolicy {
            all_runs: true,
            sessions: SessionAccess::All,
            agents: agent.map(|agent| vec![agent]),
            ..TokenPolicy::default()
        };
        let of_owner = Arc::new(AccessToken {
            name: OWNER.to_owned(),
            policy,
            in_use: Arc::default(),
            digest: digest(owner.as_bytes()),
        });
        let mut tokens = vec![Arc::clone(&of_owner)];
        if let Some(file) = file {
            let bytes = read_regular(file, FILE_LIMIT).map_err(ServeError::io(file.display()))?;
            tokens.extend(parse(&bytes)?.into_iter().map(Arc::new));
        }
        Ok(Self { tokens, of_owner, owner })
    }

    /// Returns the token that a client presents. The time does not depend on how much of it is right.
    pub(crate) fn find(&self, presented: &[u8]) -> Option<&Arc<AccessToken>> {
        let presented = digest(presented);
        // Every token is compared, whether or not an earlier one matches.
        self.tokens.iter().fold(None, |found, token| {
            let equal: bool = presented.ct_eq(&token.digest).into();
            if equal { Some(token) } else { found }
        })
    }

    /// Returns the text of the owner's token.
    pub(crate) fn owner(&self) -> &str {
        &self.owner
    }

    /// Returns the owner's token, which browsers with a session have.
    pub(crate) fn of_owner(&self) -> &Arc<AccessToken> {
        &self.of_owner
    }
}

fn parse(bytes: &[u8]) -> Result<Vec<AccessToken>, ServeError> {
    let invalid = |message: String| {
        let hint =
            "each [[token]] needs `name` and `sha256`, the digest of the token: printf %s TOKEN | sha256sum";
        ServeError::option("--tokens", message, hint)
    };
    let text = std::str::from_utf8(bytes).map_err(|error| invalid(error.to_string()))?;
    let file: TokenFile = toml::from_str(text).map_err(|error| invalid(error.to_string()))?;
    let mut named: BTreeMap<String, (TokenPolicy, Arc<TokenUse>)> = BTreeMap::new();
    let token = |row: TokenRow| {
        if let Some(key) = row.unknown.keys().next() {
            return Err(invalid(format!("`{key}` of `{}` is unknown", row.name)));
        }
        let digest =
            from_hex(&row.sha256).ok_or_else(|| invalid(format!("`sha256` of `{}` is not one", row.name)))?;
        let known = |mode: &&String| PermissionMode::parse(mode).is_none();
        if let Some(mode) = row.policy.permission_modes.iter().flatten().find(known) {
            return Err(invalid(format!("`{mode}` is not a permission mode")));
        }
        if row.name == OWNER || row.name.is_empty() {
            return Err(invalid(format!("a token cannot be named `{}`", row.name)));
        }
        let (policy, in_use) =
            named.entry(row.name.clone()).or_insert_with(|| (row.policy.clone(), Arc::default()));
        if *policy != row.policy {
            return Err(invalid(format!("the tokens named `{}` have different policies", row.name)));
        }
        Ok(AccessToken { in_use: Arc::clone(in_use), name: row.name, policy: row.policy, digest })
    };
    file.token.into_iter().map(token).collect()
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    let text = text.trim();
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    let mut digest = [0; 32];
    for (byte, at) in digest.iter_mut().zip((0..64).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).ok()?;
    }
    Some(digest)
}

fn owner_token(path: &Path) -> Result<String, ServeError> {
    if let Ok(bytes) = read_regular(path, 4_096)
        && let Ok(text) = String::from_utf8(bytes)
        && text.trim().len() >= 64
    {
        return Ok(text.trim().to_owned());
    }
    let token = random();
    let mut file = private_file::create_file(path).map_err(ServeError::io(path.display()))?;
    private_file::set_mode(path, 0o600).map_err(ServeError::io(path.display()))?;
    std::io::Write::write_all(&mut file, token.as_bytes()).map_err(ServeError::io(path.display()))?;
    Ok(token)
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentline_fs::digest::hex;

    #[test]
    fn owner_keeps_its_token() {
        let dir = tempfile::tempdir().unwrap();
        let tokens = AccessTokens::read(dir.path(), None, None).unwrap();
        assert!(tokens.find(tokens.owner().as_bytes()).is_some());
        assert!(tokens.find(b"guess").is_none() && tokens.find(b"").is_none());
        let again = AccessTokens::read(dir.path(), None, None).unwrap();
        assert_eq!(again.owner(), tokens.owner());
    }

    #[test]
    fn file_of_tokens_is_checked() {
        let digest = hex(&digest(b"secret"));
        let good = format!("[[token]]\nname = \"ci\"\nsha256 = \"{digest}\"\nagents = [\"gemini\"]\n");
        assert_eq!(parse(good.as_bytes()).unwrap()[0].policy.sessions, SessionAccess::Roots);
        // A token that replaces another one has its name and policy, and counts with it.
        let two = parse(format!("{good}{good}").as_bytes()).unwrap();
        assert!(Arc::ptr_eq(&two[0].in_use, &two[1].in_use));
        for bad in [
            "[[token]]\nname = \"ci\"\n".to_owned(),
            "[[token]]\nname = \"ci\"\nsha256 = \"abc\"\n".to_owned(),
            good.replace("\"ci\"", "\"owner\""),
            format!("{good}permission_modes = [\"all\"]\n"),
            format!("{good}permission_mode = [\"plan\"]\n"),
            format!("{good}readonly = true\n"),
            format!("{good}{}", good.replace("gemini", "codex")),
        ] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
