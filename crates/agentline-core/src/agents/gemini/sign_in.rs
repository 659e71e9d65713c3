//! The sign-in of Gemini CLI: it chooses a method, then uses the first available credential for that method.
//!
//! Based on the CLI's own `getAuthTypeFromEnv` and `validateAuthMethod`, and verified with 0.61.0: a method in the
//! settings overrides every variable, and a variable that selects another method hides an available key.

use super::environment;
use super::user::{EnvValue, UserConfig, pick};
use crate::agents::gemini::Gemini;
use crate::{FileSystem, Problem, SetupContext, SetupProbe, SignIn};
use std::{
    cell::OnceCell,
    collections::BTreeMap,
    path::{Path, PathBuf},
};

impl SetupProbe for Gemini {
    fn stored_secrets(
        &self,
        env: &BTreeMap<String, String>,
        home: &Path,
        fs: &dyn FileSystem,
    ) -> Vec<String> {
        environment::stored_secrets(env, home, fs)
    }

    fn sign_in(&self, context: &SetupContext<'_>) -> Vec<SignIn> {
        sign_in(&user_config(context))
    }

    fn settings_problems(&self, context: &SetupContext<'_>) -> Vec<Problem> {
        user_config(context).problems()
    }

    fn trusts(&self, context: &SetupContext<'_>) -> Option<bool> {
        user_config(context).trusts()
    }
}

fn user_config<'a>(context: &SetupContext<'a>) -> UserConfig<'a> {
    UserConfig::new(context.cwd, context.env, context.home, context.fs)
}

/// What to do if Vertex AI has no credential.
pub(super) const VERTEX_ADVICE: &str = "set `GOOGLE_API_KEY`, or `GOOGLE_CLOUD_PROJECT` and `GOOGLE_CLOUD_LOCATION` and run \
     `gcloud auth application-default login`";

/// The sign-in methods of the CLI, as named in its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Method {
    ApiKey,
    Vertex,
    Google,
    Compute,
    /// `gateway`, `cloud-shell` or an unknown name, which the CLI refuses without a terminal.
    Refused(String),
}

impl Method {
    fn parse(word: &str) -> Self {
        match word {
            "gemini-api-key" => Self::ApiKey,
            "vertex-ai" => Self::Vertex,
            "oauth-personal" => Self::Google,
            "compute-default-credentials" => Self::Compute,
            other => Self::Refused(other.to_owned()),
        }
    }

    fn word(&self) -> &str {
        match self {
            Self::ApiKey => "gemini-api-key",
            Self::Vertex => "vertex-ai",
            Self::Google => "oauth-personal",
            Self::Compute => "compute-default-credentials",
            Self::Refused(word) => word,
        }
    }

    /// Returns the credentials that the method accepts, in order of precedence.
    fn takes(&self) -> &'static [Credential] {
        use Credential::*;
        match self {
            Self::ApiKey => &[GeminiKey, StoredKey],
            Self::Vertex => &[GoogleKey, Project],
            Self::Google => &[AccessToken, OauthFile, ApplicationFile],
            Self::Compute => &[OauthFile, ApplicationFile, Machine],
            Self::Refused(_) => &[],
        }
    }

    /// Returns what to do if no credential is available.
    fn way_out(&self) -> &'static str {
        match self {
            Self::ApiKey => "set `GEMINI_API_KEY`",
            Self::Vertex => VERTEX_ADVICE,
            Self::Google => {
                "run `gemini` once in a terminal and sign in, or choose another method there with `/auth`"
            }
            Self::Compute => "run on Google Cloud, or choose another method with `/auth`",
            Self::Refused(word) if word == "gateway" => "also set `GEMINI_API_KEY`",
            Self::Refused(_) => {
                "choose `gemini-api-key`, `vertex-ai` or `oauth-personal` in `security.auth.selectedType`"
            }
        }
    }
}

/// A credential that a method can use.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Credential {
    GeminiKey,
    StoredKey,
    GoogleKey,
    Project,
    AccessToken,
    OauthFile,
    ApplicationFile,
    Gcloud,
    Machine,
}

/// The credentials in the order in which they are reported.
const CREDENTIALS: &[Credential] = &[
    Credential::GeminiKey,
    Credential::StoredKey,
    Credential::GoogleKey,
    Credential::Project,
    Credential::AccessToken,
    Credential::OauthFile,
    Credential::ApplicationFile,
    Credential::Gcloud,
    Credential::Machine,
];

/// Returns all sign-in methods for a run with `--skip-trust`, and marks the one that is used.
pub(super) fn sign_in(user: &UserConfig<'_>) -> Vec<SignIn> {
    let facts = Facts::new(user);
    let Choice { method, mut methods, .. } = choose(user, &facts);
    let winner = method
        .as_ref()
        .and_then(|m| m.takes().iter().copied().find(|c| *c == Credential::Machine || facts.has(*c)));
    if let (Some(method), None) = (&method, winner)
        && let Some(decider) = methods.iter_mut().find(|s| s.wins)
    {
        let note = decider.note.take().unwrap_or_default();
        decider.note = Some(format!("{note}, but no credential for it was found"));
        decider.fix = Some(method.way_out().into());
    }
    // Only the credential that the agent really uses wins. The note of the entry that chose the method
    // explains this.
    methods.iter_mut().for_each(|s| s.wins = false);
    for credential in CREDENTIALS {
        if *credential == Credential::Machine && method != Some(Method::Compute) {
            continue;
        }
        let mut entry = facts.entry(*credential);
        entry.wins = winner == Some(*credential);
        let unused = entry.found && !entry.wins;
        if unused && let Some(method) = method.as_ref().filter(|m| !m.takes().contains(credential)) {
            let reason = format!("not used: the selected method is `{}`", method.word());
            entry.note = Some(entry.note.map_or_else(|| reason.clone(), |note| format!("{note}; {reason}")));
        } else if entry.found && method.is_none() && entry.note.is_none() {
            entry.note = Some("not used: no method is selected".into());
        }
        methods.push(entry);
    }
    methods
}

/// Returns the method that a run must name in its settings because the CLI would not choose it by itself: the one for a
/// key that is read too late or hidden by a base URL.
pub(super) fn method_to_name(user: &UserConfig<'_>) -> Option<&'static str> {
    choose(user, &Facts::new(user)).by_us.then_some("gemini-api-key")
}

/// The chosen method.
struct Choice {
    method: Option<Method>,
    /// The settings and variables that can choose a method. The one that did is marked as winning.
    methods: Vec<SignIn>,
    /// Whether the method is chosen only because agentline names it.
    by_us: bool,
}

fn choose(user: &UserConfig<'_>, facts: &Facts<'_>) -> Choice {
    let mut methods = Vec::new();
    let mut method = None;
    let layers = user.layers(user.trusts() == Some(true));
    let mut selected = None;
    for layer in layers {
        if let Some((_, value)) = pick(std::slice::from_ref(layer), "/security/auth/selectedType")
            && let Some(word) = value.as_str().filter(|w| !w.is_empty())
        {
            let name = format!("`security.auth.selectedType` in {}", layer.path.display());
            let mut entry = SignIn::new(name, true);
            if selected.is_none() {
                selected = Some(word.to_owned());
                entry = entry.note(format!("selects `{word}`"));
            } else {
                entry = entry.note(format!("`{word}`, overridden by the line above"));
            }
            methods.push(entry);
        }
    }
    if methods.is_empty() {
        let name = format!("`security.auth.selectedType` in {}", user.own("settings.json").display());
        methods.push(SignIn::new(name, false));
    }

    let is_true = |name: &str| facts.chosen_with(name).is_some_and(|v| v.value == "true");
    let compute = ["CLOUD_SHELL", "GEMINI_CLI_USE_COMPUTE_ADC"].into_iter().find(|n| is_true(n));
    let legacy = selected.as_deref() == Some("cloud-shell");
    if let Some(word) = &selected
        && !(legacy && compute.is_some())
    {
        methods[0].wins = true;
        method = Some(Method::parse(word));
    }
    let switches: [(&str, bool, Method); 3] = [
        (compute.unwrap_or("GEMINI_CLI_USE_COMPUTE_ADC"), compute.is_some(), Method::Compute),
        ("GOOGLE_GENAI_USE_GCA", is_true("GOOGLE_GENAI_USE_GCA"), Method::Google),
        ("GOOGLE_GENAI_USE_VERTEXAI", is_true("GOOGLE_GENAI_USE_VERTEXAI"), Method::Vertex),
    ];
    for (name, set, its_method) in switches {
        let mut entry = SignIn::new(format!("`{name}`"), set);
        if set && method.is_none() {
            entry.wins = true;
            entry = entry.note(format!("selects `{}`", its_method.word()));
            method = Some(its_method);
        }
        methods.push(entry);
    }
    let mut by_us = false;
    let gateway = facts.chosen_with("GOOGLE_GEMINI_BASE_URL").is_some();
    let mut entry = SignIn::new("`GOOGLE_GEMINI_BASE_URL`", gateway);
    if method.is_none() && facts.used("GEMINI_API_KEY").is_some() {
        by_us = gateway || facts.chosen_with("GEMINI_API_KEY").is_none();
        method = Some(Method::ApiKey);
        if gateway {
            entry =
                entry.note("`gemini` rejects it on its own; agentline selects `gemini-api-key` for its runs");
        }
    } else if method.is_none() && gateway {
        entry.wins = true;
        entry = entry.note("selects `gateway`");
        method = Some(Method::Refused("gateway".into()));
    }
    methods.push(entry);
    if let Some(enforced) = pick(layers, "/security/auth/enforcedType").and_then(|(_, v)| v.as_str())
        && let Some(chosen) = &method
        && chosen.word() != enforced
    {
        let refused = Method::Refused(chosen.word().to_owned());
        let name = "`security.auth.enforcedType`";
        methods.iter_mut().for_each(|s| s.wins = false);
        let mut entry = SignIn::new(name, true).note(format!("allows only `{enforced}`"));
        entry.wins = true;
        methods.insert(0, entry);
        return Choice { method: Some(refused), methods, by_us: false };
    }
    Choice { method, methods, by_us }
}

/// The available credentials.
struct Facts<'a> {
    user: &'a UserConfig<'a>,
    /// The variables of `.env` files when the method is chosen.
    early: BTreeMap<String, EnvValue>,
    /// The variables of `.env` files when the method is used.
    late: BTreeMap<String, EnvValue>,
    /// The variables that `.env` files of the workspace would set if it were fully trusted.
    ignored: OnceCell<BTreeMap<String, EnvValue>>,
}

impl<'a> Facts<'a> {
    fn new(user: &'a UserConfig<'a>) -> Self {
        Self { user, early: user.env_files(false), late: user.env_files(true), ignored: OnceCell::new() }
    }

    fn chosen_with(&self, name: &str) -> Option<EnvValue> {
        self.variable(name, &self.early)
    }

    fn used(&self, name: &str) -> Option<EnvValue> {
        self.variable(name, &self.late)
    }

    fn variable(&self, name: &str, files: &BTreeMap<String, EnvValue>) -> Option<EnvValue> {
        let own = self.user.variable(name).map(|v| EnvValue { value: v.to_owned(), file: None });
        own.or_else(|| files.get(name).filter(|v| !v.value.is_empty()).cloned())
    }

    fn has(&self, credential: Credential) -> bool {
        self.entry(credential).found
    }

    /// Returns the location of a credential and whether it exists, without its content.
    fn entry(&self, credential: Credential) -> SignIn {
        match credential {
            Credential::GeminiKey => {
                let entry = self.of_variable("GEMINI_API_KEY");
                if entry.found && self.chosen_with("GEMINI_API_KEY").is_none() {
                    let note = "`gemini` reads it too late in an untrusted directory; agentline selects \
                               `gemini-api-key` for its runs";
                    return entry.note(note);
                }
                entry
            }
            Credential::StoredKey => self
                .of_file(self.user.own("gemini-credentials.json"))
                .note("the system keychain, which is not checked, may also contain a key"),
            Credential::GoogleKey => self.of_variable("GOOGLE_API_KEY"),
            Credential::Project => {
                let set = |n| self.used(n).is_some();
                let found = set("GOOGLE_CLOUD_PROJECT") && set("GOOGLE_CLOUD_LOCATION");
                let entry = SignIn::new("`GOOGLE_CLOUD_PROJECT` and `GOOGLE_CLOUD_LOCATION`", found);
                let backed = self.has(Credential::ApplicationFile) || self.has(Credential::Gcloud);
                if found && !backed {
                    entry.note("works only on Google Cloud, because no application credentials were found")
                } else {
                    entry
                }
            }
            Credential::AccessToken => {
                let mut entry = self.of_variable("GOOGLE_CLOUD_ACCESS_TOKEN");
                // The CLI uses the token only in combination with this switch.
                if entry.found && self.used("GOOGLE_GENAI_USE_GCA").is_none() {
                    entry.found = false;
                    entry.note = Some("set, but used only together with `GOOGLE_GENAI_USE_GCA`".into());
                }
                entry
            }
            Credential::OauthFile => {
                let encrypted = self.user.variable("GEMINI_FORCE_ENCRYPTED_FILE_STORAGE") == Some("true");
                let name = if encrypted { "gemini-credentials.json" } else { "oauth_creds.json" };
                self.of_file(self.user.own(name))
            }
            Credential::ApplicationFile => {
                let name = "GOOGLE_APPLICATION_CREDENTIALS";
                let Some(set) = self.used(name) else { return self.of_variable(name) };
                let exists = self.user.has(&PathBuf::from(set.value));
                let entry = SignIn::new(format!("`{name}`"), exists);
                if exists { entry } else { entry.note("set, but the file does not exist") }
            }
            Credential::Gcloud => self.of_file(self.user.gcloud_file()),
            Credential::Machine => {
                SignIn::new("service account of the machine", false).note("available only on Google Cloud")
            }
        }
    }

    fn ignored(&self) -> &BTreeMap<String, EnvValue> {
        self.ignored.get_or_init(|| self.user.env_files_if_trusted())
    }

    fn of_variable(&self, name: &str) -> SignIn {
        match self.used(name) {
            None => match self.ignored().get(name) {
                Some(EnvValue { file: Some(file), .. }) => {
                    SignIn::new(format!("`{name}` in {}", file.display()), false)
                        .note("not used: files in the workspace are read only with `--trust full`")
                }
                _ => SignIn::new(format!("`{name}`"), false),
            },
            Some(EnvValue { file: None, .. }) => SignIn::new(format!("`{name}`"), true),
            Some(EnvValue { file: Some(file), .. }) => {
                SignIn::new(format!("`{name}` in {}", file.display()), true)
            }
        }
    }

    fn of_file(&self, path: PathBuf) -> SignIn {
        let exists = self.user.has(&path);
        SignIn::new(path.display().to_string(), exists)
    }
}

#[cfg(test)]
#[path = "sign_in_tests.rs"]
mod tests;
