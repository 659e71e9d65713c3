//! Filters the caller's environment for an agent, and collects the secrets in it.

use crate::{McpServer, looks_secret, secret::SHORTEST_SECRET};
use std::collections::{BTreeMap, BTreeSet};

/// Variables that every agent sees; a trailing `*` matches a prefix. An agent's own variables are in its `AgentInfo`.
const ALLOWED: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "TZ",
    "LANG",
    "LC_*",
    "TMPDIR",
    "XDG_*",
    // Proxy variables are read in both cases.
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "DBUS_SESSION_BUS_ADDRESS",
    "SSH_AUTH_SOCK",
    "NODE_EXTRA_CA_CERTS",
    "SSL_CERT_*",
    "DOCKER_HOST",
    // Directories of toolchains, and of version managers that choose which Node.js runs the agent.
    "CARGO_HOME",
    "RUSTUP_HOME",
    "JAVA_HOME",
    "GOPATH",
    "VIRTUAL_ENV",
    "NVM_DIR",
    "PYENV_ROOT",
    "VOLTA_HOME",
    "FNM_DIR",
    "ASDF_DIR",
    "ASDF_DATA_DIR",
    "MISE_DATA_DIR",
];

/// Variables that programs need to start on Windows.
const ALLOWED_ON_WINDOWS: &[&str] = &[
    "SYSTEMROOT",
    "SYSTEMDRIVE",
    "WINDIR",
    "COMSPEC",
    "PATHEXT",
    "TEMP",
    "TMP",
    "USERNAME",
    "USERPROFILE",
    "HOMEDRIVE",
    "HOMEPATH",
    "APPDATA",
    "LOCALAPPDATA",
    "PROGRAMDATA",
    "PROGRAMFILES*",
    "PROCESSOR_ARCHITECTURE",
    "NUMBER_OF_PROCESSORS",
];

/// Variables that no agent sees, whatever the caller adds: they give access to this program's own servers and queues.
const WITHHELD: &[&str] = &["AGENTLINE_MCP_TOKEN", "AGENTLINE_QUEUE"];

/// The caller's variables, split into those that an agent sees and those that it does not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilteredEnv {
    /// The variables that the agent sees.
    pub passed: BTreeMap<String, String>,
    /// The names of the variables that the agent does not see.
    pub withheld: Vec<String>,
}

/// Splits the caller's variables by the allow-list, the agent's own names, and the names that the caller adds.
///
/// ```
/// use agentline_core::filter_env;
/// let caller = [("PATH", "/bin"), ("GEMINI_API_KEY", "k"), ("AWS_TOKEN", "t")];
/// let caller = caller.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
/// let filtered = filter_env(&caller, &["GEMINI_*"], &[]);
/// assert_eq!(filtered.withheld, ["AWS_TOKEN"]);
/// ```
#[must_use]
pub fn filter_env(caller: &BTreeMap<String, String>, agents_own: &[&str], added: &[String]) -> FilteredEnv {
    let windows: &[&str] = if cfg!(windows) { ALLOWED_ON_WINDOWS } else { &[] };
    let mut divided = FilteredEnv::default();
    for (name, value) in caller {
        let passes = ALLOWED.iter().chain(windows).chain(agents_own).any(|p| matches(p, name))
            || added.iter().any(|p| matches(p, name));
        if passes && !WITHHELD.iter().any(|p| matches(p, name)) {
            divided.passed.insert(name.clone(), value.clone());
        } else {
            divided.withheld.push(name.clone());
        }
    }
    divided
}

/// Endings of names that look secret but contain a location, if their value is a path.
const PATH_SUFFIXES: &[&str] = &["_SOCK", "_FILE", "_PATH", "_DIR", "_HOME", "_CREDENTIALS"];

/// Prefixes of values that are keys, whatever the name of the variable.
const KEY_BEGINNINGS: &[&str] = &[
    "AIza",
    "sk-",
    "ghp_",
    "gho_",
    "ghs_",
    "ghu_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "AKIA",
    "ASIA",
    "ya29.",
    "eyJ",
    "Bearer ",
];

/// The values that must not appear in any output.
#[derive(Clone, Debug, Default)]
pub struct Secrets(BTreeSet<String>);

impl Secrets {
    /// Adds a secret. Values too short to distinguish from ordinary text are ignored.
    pub fn add(&mut self, value: &str) {
        let value = value.trim();
        if value.len() >= SHORTEST_SECRET {
            self.0.insert(value.to_owned());
        }
    }

    /// Adds the values of all variables whose name looks secret or whose value looks like a key.
    pub fn add_variables<'a>(&mut self, variables: impl IntoIterator<Item = (&'a String, &'a String)>) {
        for (name, value) in variables {
            let is_location = || {
                let upper = name.to_ascii_uppercase();
                PATH_SUFFIXES.iter().any(|end| upper.ends_with(end)) && is_path(value)
            };
            if (looks_secret(name) && !is_location()) || is_key(value) {
                self.add(value);
            }
            self.add_url(value);
        }
    }

    /// Adds the value of a header: all of it, and the part after its scheme.
    pub fn add_header(&mut self, value: &str) {
        self.add(value);
        if let Some((_, credentials)) = value.split_once(' ') {
            self.add(credentials);
        }
    }

    /// Adds the values of flags such as `--api-key`, after a space or `=`, and the secrets in any URL among the
    /// arguments.
    pub fn add_arguments<'a>(&mut self, arguments: impl IntoIterator<Item = &'a str>) {
        let mut is_after_secret_flag = false;
        for word in arguments {
            let (flag, value) = word.split_once('=').map_or((word, None), |(f, v)| (f, Some(v)));
            let names_secret = looks_secret(flag.trim_start_matches('-'));
            match value {
                _ if is_after_secret_flag => self.add(word),
                Some(value) if names_secret || is_key(value) => self.add(value),
                _ if is_key(word) => self.add(word),
                _ => {}
            }
            is_after_secret_flag =
                !is_after_secret_flag && names_secret && value.is_none() && flag.starts_with('-');
            self.add_url(word);
        }
    }

    /// Adds the password of a URL (or a user name without a password), and query parameters that look secret.
    pub fn add_url(&mut self, url: &str) {
        let Some((_, rest)) = url.split_once("://") else { return };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        if let Some((user, _)) = rest[..end].rsplit_once('@') {
            self.add(user.split_once(':').map_or(user, |(_, password)| password));
        }
        let query = rest.split_once('?').map_or("", |(_, q)| q);
        for (name, value) in query.split(['&', '#']).filter_map(|p| p.split_once('=')) {
            if looks_secret(name) || name.eq_ignore_ascii_case("sig") || is_key(value) {
                self.add(value);
            }
        }
    }

    /// Adds the value of a variable for a tool server. For a path or URL, only secrets in the URL are added.
    pub fn add_server_variable(&mut self, value: &str) {
        if is_path(value) || value.contains("://") {
            self.add_url(value);
        } else {
            self.add(value);
        }
    }

    /// Adds the secrets of MCP servers: variables, arguments, URLs, headers.
    pub fn add_servers<'a>(&mut self, servers: impl IntoIterator<Item = &'a McpServer>) {
        for server in servers {
            match server {
                McpServer::Command { args, env, .. } => {
                    env.values().for_each(|v| self.add_server_variable(v));
                    self.add_arguments(args.iter().map(String::as_str));
                }
                McpServer::Url { url, headers } => {
                    self.add_url(url);
                    headers.values().for_each(|v| self.add_header(v));
                }
            }
        }
    }

    /// Returns all secrets without duplicates.
    #[must_use]
    pub fn into_vec(self) -> Vec<String> {
        self.0.into_iter().collect()
    }
}

fn is_key(value: &str) -> bool {
    KEY_BEGINNINGS.iter().any(|b| value.starts_with(b))
}

fn is_path(value: &str) -> bool {
    let mut chars = value.chars();
    value.starts_with(['/', '~'])
        || (chars.next().is_some_and(char::is_alphabetic) && chars.next() == Some(':'))
}

/// Returns whether a name equals the pattern, or starts with it if the pattern ends in `*`.
fn matches(pattern: &str, name: &str) -> bool {
    let same = |a: &str, b: &str| if cfg!(windows) { a.eq_ignore_ascii_case(b) } else { a == b };
    match pattern.strip_suffix('*') {
        Some(prefix) => name.get(..prefix.len()).is_some_and(|start| same(start, prefix)),
        None => same(pattern, name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn allow_list_matches_the_documented_one() {
        let caller = map(&[
            ("PATH", "/bin"),
            ("LC_ALL", "C"),
            ("XDG_CONFIG_HOME", "/x"),
            ("https_proxy", "p"),
            ("SSL_CERT_FILE", "f"),
            ("GEMINI_MODEL", "m"),
            ("MINE", "1"),
            ("NODE_OPTIONS", "--inspect"),
            ("ANTHROPIC_API_KEY", "k"),
        ]);
        let divided = filter_env(&caller, &["GEMINI_*"], &["MINE".into()]);
        assert_eq!(divided.withheld, ["ANTHROPIC_API_KEY", "NODE_OPTIONS"]);
        assert_eq!(divided.passed.len(), 7);
        let all = filter_env(&caller, &[], &["*".into()]);
        assert_eq!((all.passed, all.withheld), (caller, Vec::new()));
    }

    #[test]
    fn keys_to_our_own_servers_reach_no_agent() {
        let caller = map(&[("AGENTLINE_MCP_TOKEN", "t"), ("AGENTLINE_QUEUE", "q"), ("AGENTLINE_MODEL", "m")]);
        let added = ["*".to_owned(), "AGENTLINE_QUEUE".to_owned()];
        let filtered = filter_env(&caller, &["AGENTLINE_*"], &added);
        assert_eq!(filtered.passed, map(&[("AGENTLINE_MODEL", "m")]));
        assert_eq!(filtered.withheld, ["AGENTLINE_MCP_TOKEN", "AGENTLINE_QUEUE"]);
    }

    #[test]
    fn secrets_are_collected_from_server_arguments() {
        let mut secrets = Secrets::default();
        let args = ["-y", "server", "--token=tok-12345678", "--api-key", "qwertyuiop", "--port", "123456789"];
        secrets.add_arguments(args.into_iter().chain(["postgres://u:hunter2222@h/db", "PASSWORD=asdfghjkl"]));
        assert_eq!(secrets.into_vec(), ["asdfghjkl", "hunter2222", "qwertyuiop", "tok-12345678"]);
    }

    #[test]
    fn secrets_are_collected_from_variables_headers_and_urls() {
        let mut secrets = Secrets::default();
        secrets.add_variables(&map(&[
            ("A_TOKEN", "tok-12345678"),
            ("SHORT_KEY", "1234567"),
            ("PLAIN", "nothing to hide"),
            ("ODD", "sk-abcdefgh"),
            ("SSH_AUTH_SOCK", "/tmp/ssh/agent.1"),
            ("GOOGLE_APPLICATION_CREDENTIALS", "/home/me/c.json"),
            ("DATABASE_URL", "postgres://me:hunter2222@db/x"),
        ]));
        secrets.add_header("Bearer abcdefghij");
        secrets.add_url("https://x.test/mcp?api_key=qwertyuiop&page=12345678#top");
        assert_eq!(
            secrets.into_vec(),
            ["Bearer abcdefghij", "abcdefghij", "hunter2222", "qwertyuiop", "sk-abcdefgh", "tok-12345678"]
        );
    }
}
