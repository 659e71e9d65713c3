//! The tokens that clients present, with the policy of each.

use crate::{
    messages::{SessionAccess, TokenPolicy},
    options::ServeError,
};
use agentline::PermissionMode;
use agentline_fs::{
    digest::{digest, hex},
    private_file,
    regular_file::read_regular,
};
use serde::Deserialize;
use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use subtle::ConstantTimeEq as _;

/// The name of the cookie with a token.
pub(crate) const COOKIE: &str = "agentline_token";
/// How long the link that signs a browser in is valid.
const LINK_TIME: Duration = Duration::from_secs(600);
/// The maximum size of a file with tokens in bytes.
const FILE_LIMIT: u64 = 1 << 20;
/// The name of the token that is created at the first start.
pub(crate) const OWNER: &str = "owner";

/// A token without its text.
#[derive(Debug)]
pub(crate) struct AccessToken {
    pub(crate) name: String,
    pub(crate) policy: TokenPolicy,
    digest: [u8; 32],
}

/// All tokens of a server.
#[derive(Debug)]
pub(crate) struct AccessTokens {
    tokens: Vec<Arc<AccessToken>>,
    /// The digests of links that were not used yet, and when they expire.
    links: Mutex<Vec<([u8; 32], Instant)>>,
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
    /// Reads the owner's token from the directory of the server, and creates it if necessary.
    pub(crate) fn read(dir: &Path, file: Option<&Path>) -> Result<Self, ServeError> {
        let owner = owner_token(&dir.join("token"))?;
        let policy = TokenPolicy { all_runs: true, sessions: SessionAccess::All, ..TokenPolicy::default() };
        let mut tokens =
            vec![Arc::new(AccessToken { name: OWNER.to_owned(), policy, digest: digest(owner.as_bytes()) })];
        if let Some(file) = file {
            let bytes = read_regular(file, FILE_LIMIT).map_err(ServeError::io(file.display()))?;
            for row in parse(&bytes)? {
                tokens.push(Arc::new(row));
            }
        }
        Ok(Self { tokens, links: Mutex::default(), owner })
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

    /// Returns the owner's token.
    pub(crate) fn owner(&self) -> &str {
        &self.owner
    }

    /// Creates a code that signs a browser in once.
    pub(crate) fn new_link(&self) -> String {
        let code = random();
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        links.retain(|(_, expires)| *expires > now);
        links.push((digest(code.as_bytes()), now + LINK_TIME));
        code
    }

    /// Uses a code. Returns whether it was valid.
    pub(crate) fn use_link(&self, code: &str) -> bool {
        let code = digest(code.as_bytes());
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        let (before, now) = (links.len(), Instant::now());
        links.retain(|(_, expires)| *expires > now);
        let valid = links.len();
        links.retain(|(link, _)| !bool::from(code.ct_eq(link)));
        debug_assert!(before >= valid);
        links.len() < valid
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
        Ok(AccessToken { name: row.name, policy: row.policy, digest })
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

/// Returns 64 characters with at least 240 random bits.
fn random() -> String {
    let mut bytes = [0; 32];
    let parts = [uuid::Uuid::new_v4(), uuid::Uuid::new_v4()];
    for (to, part) in bytes.chunks_exact_mut(16).zip(&parts) {
        to.copy_from_slice(part.as_bytes());
    }
    hex(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_works_once() {
        let dir = tempfile::tempdir().unwrap();
        let tokens = AccessTokens::read(dir.path(), None).unwrap();
        let code = tokens.new_link();
        assert!(!tokens.use_link("guess"));
        assert!(tokens.use_link(&code));
        assert!(!tokens.use_link(&code));
        assert!(tokens.find(tokens.owner().as_bytes()).is_some());
        assert!(tokens.find(code.as_bytes()).is_none() && tokens.find(b"").is_none());
        let again = AccessTokens::read(dir.path(), None).unwrap();
        assert_eq!(again.owner(), tokens.owner());
    }

    #[test]
    fn file_of_tokens_is_checked() {
        let digest = hex(&digest(b"secret"));
        let good = format!("[[token]]\nname = \"ci\"\nsha256 = \"{digest}\"\nagents = [\"gemini\"]\n");
        assert_eq!(parse(good.as_bytes()).unwrap()[0].policy.sessions, SessionAccess::Roots);
        for bad in [
            "[[token]]\nname = \"ci\"\n".to_owned(),
            "[[token]]\nname = \"ci\"\nsha256 = \"abc\"\n".to_owned(),
            good.replace("\"ci\"", "\"owner\""),
            format!("{good}permission_modes = [\"all\"]\n"),
            format!("{good}permission_mode = [\"plan\"]\n"),
            format!("{good}readonly = true\n"),
        ] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
