//! Tests which sign-in is used, with fictional homes and environments.

use super::{method_to_name, sign_in};
use crate::{SignIn, agents::gemini::user::UserConfig, memory_fs::MemoryFs};
use std::{collections::BTreeMap, path::Path};

const SETTINGS: &str = "/home/u/.gemini/settings.json";

fn methods(fs: &MemoryFs, env: &[(&str, &str)]) -> Vec<SignIn> {
    let env: BTreeMap<String, String> = env.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
    sign_in(&UserConfig::new(Path::new("/w/p"), &env, Path::new("/home/u"), fs))
}

/// Returns the winning entry. The cases are taken from runs of the CLI.
fn winner(fs: &MemoryFs, env: &[(&str, &str)]) -> Option<String> {
    let methods = methods(fs, env);
    let winners: Vec<&SignIn> = methods.iter().filter(|s| s.wins).collect();
    assert!(winners.len() <= 1, "{winners:?}");
    winners.first().map(|s| s.source.clone())
}

fn selected(word: &str) -> MemoryFs {
    let settings = format!(r#"{{"security":{{"auth":{{"selectedType":"{word}"}}}}}}"#);
    MemoryFs::default().plain(SETTINGS, &settings)
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[test]
fn variables_select_the_method_in_the_clis_order() {
    let none = MemoryFs::default();
    assert_eq!(winner(&none, &[]), None);
    assert_eq!(winner(&none, &[("GEMINI_API_KEY", "k")]), some("`GEMINI_API_KEY`"));
    // Exit code 41 in the CLI: this key is only for Vertex AI, which is not selected.
    assert_eq!(winner(&none, &[("GOOGLE_API_KEY", "k")]), None);
    let vertex = ("GOOGLE_GENAI_USE_VERTEXAI", "true");
    assert_eq!(winner(&none, &[("GOOGLE_API_KEY", "k"), vertex]), some("`GOOGLE_API_KEY`"));
    // Exit code 41: the switch hides an available key.
    assert_eq!(winner(&none, &[("GEMINI_API_KEY", "k"), vertex]), None);
    let base = ("GOOGLE_GEMINI_BASE_URL", "http://127.0.0.1:1");
    assert_eq!(winner(&none, &[base]), None);
    // The CLI alone refuses this with exit code 41, so runs name the method.
    assert_eq!(winner(&none, &[("GEMINI_API_KEY", "k"), base]), some("`GEMINI_API_KEY`"));
    assert_eq!(
        winner(&none, &[("GOOGLE_GENAI_USE_VERTEXAI", "1"), ("GEMINI_API_KEY", "k")]),
        some("`GEMINI_API_KEY`")
    );
    let gca = ("GOOGLE_GENAI_USE_GCA", "true");
    assert_eq!(winner(&none, &[gca, vertex, ("GOOGLE_API_KEY", "k")]), None);
    let token = ("GOOGLE_CLOUD_ACCESS_TOKEN", "t");
    assert_eq!(winner(&none, &[gca, token]), some("`GOOGLE_CLOUD_ACCESS_TOKEN`"));
    let compute = ("GEMINI_CLI_USE_COMPUTE_ADC", "true");
    assert_eq!(winner(&none, &[compute, ("GEMINI_API_KEY", "k")]), some("service account of the machine"));
}

#[test]
fn method_in_the_settings_overrides_variables() {
    let key = ("GEMINI_API_KEY", "k");
    let base = ("GOOGLE_GEMINI_BASE_URL", "http://127.0.0.1:1");
    assert_eq!(winner(&selected("gemini-api-key"), &[key, base]), some("`GEMINI_API_KEY`"));
    assert_eq!(winner(&selected("vertex-ai"), &[key]), None);
    assert_eq!(winner(&selected("oauth-personal"), &[key]), None);
    assert_eq!(winner(&selected("nonsense"), &[key]), None);
    assert_eq!(winner(&selected("gateway"), &[key]), None);
    assert_eq!(winner(&selected("gemini-api-key"), &[]), None);
    // The old location of the setting is no longer read.
    let old = MemoryFs::default().plain(SETTINGS, r#"{"selectedAuthType":"vertex-ai"}"#);
    assert_eq!(winner(&old, &[key]), some("`GEMINI_API_KEY`"));
}

#[test]
fn missing_credentials_are_reported_with_the_selected_method() {
    let entries = methods(&selected("vertex-ai"), &[("GEMINI_API_KEY", "topsecretvalue")]);
    let note = entries[0].note.as_deref().unwrap();
    assert!(note.contains("selects `vertex-ai`, but no credential"), "{note}");
    assert!(entries[0].fix.as_deref().unwrap().contains("`GOOGLE_CLOUD_LOCATION`"));
    let key = entries.iter().find(|s| s.source == "`GEMINI_API_KEY`").unwrap();
    assert_eq!(key.note.as_deref(), Some("not used: the selected method is `vertex-ai`"));
    assert!(!format!("{entries:?}").contains("topsecretvalue"));
}

#[test]
fn vertex_prefers_the_key_over_the_project() {
    let env = [("GOOGLE_CLOUD_PROJECT", "p"), ("GOOGLE_CLOUD_LOCATION", "l"), ("GOOGLE_API_KEY", "k")];
    assert_eq!(winner(&selected("vertex-ai"), &env), some("`GOOGLE_API_KEY`"));
    assert_eq!(winner(&selected("vertex-ai"), &env[..1]), None);
    let project = some("`GOOGLE_CLOUD_PROJECT` and `GOOGLE_CLOUD_LOCATION`");
    assert_eq!(winner(&selected("vertex-ai"), &env[..2]), project);
    let note =
        |fs: &MemoryFs| methods(fs, &env[..2]).into_iter().find(|s| s.wins).unwrap().note.unwrap_or_default();
    assert!(note(&selected("vertex-ai")).contains("no application credentials"));
    let gcloud = "/home/u/.config/gcloud/application_default_credentials.json";
    if !cfg!(windows) {
        assert_eq!(note(&selected("vertex-ai").plain(gcloud, "{}")), "");
    }
}

#[test]
fn google_credential_files_are_tried_in_order() {
    let fs = selected("oauth-personal").plain("/adc.json", "{}");
    let adc = ("GOOGLE_APPLICATION_CREDENTIALS", "/adc.json");
    assert_eq!(winner(&fs, &[adc]), some("`GOOGLE_APPLICATION_CREDENTIALS`"));
    let fs = fs.plain("/home/u/.gemini/oauth_creds.json", "{}");
    assert_eq!(winner(&fs, &[adc]), some("/home/u/.gemini/oauth_creds.json"));
    let missing = methods(&fs, &[("GOOGLE_APPLICATION_CREDENTIALS", "/none.json")]);
    let missing = missing.iter().find(|s| s.source.contains("APPLICATION")).unwrap();
    assert!(!missing.found && missing.note.as_deref().unwrap().contains("does not exist"));
}

#[test]
fn env_files_apply_according_to_folder_trust() {
    let key = "GEMINI_API_KEY=secret-in-a-file\n";
    // A key of a workspace is never used, even if the CLI trusts the workspace. The note explains why.
    for file in ["/w/p/.env", "/w/p/.gemini/.env", "/w/.env", "/.env"] {
        let project = MemoryFs::default().plain(file, key);
        assert_eq!(winner(&project, &[]), None, "{file}");
        assert_eq!(winner(&project, &[("GEMINI_CLI_TRUST_WORKSPACE", "true")]), None, "{file}");
        let entries = methods(&project, &[]);
        let entry = entries.iter().find(|s| s.source.contains(file)).unwrap();
        assert!(!entry.found && entry.note.as_deref().unwrap().contains("--trust full"), "{entry:?}");
    }
    let at_home = MemoryFs::default().plain("/home/u/.env", key);
    assert_eq!(winner(&at_home, &[]), some("`GEMINI_API_KEY` in /home/u/.env"));
    // An empty variable overrides the value of the file.
    assert_eq!(winner(&at_home, &[("GEMINI_API_KEY", "")]), None);

    // In an untrusted folder, the home's own file is read too late, unless the settings name the method.
    let own = || MemoryFs::default().plain("/home/u/.gemini/.env", key);
    let in_file = some("`GEMINI_API_KEY` in /home/u/.gemini/.env");
    assert_eq!(winner(&own(), &[]), in_file);
    assert_eq!(winner(&own(), &[("GEMINI_CLI_TRUST_WORKSPACE", "true")]), in_file);
    let chosen = own().plain(SETTINGS, r#"{"security":{"auth":{"selectedType":"gemini-api-key"}}}"#);
    assert_eq!(winner(&chosen, &[]), in_file);
    assert_eq!(winner(&chosen, &[("GEMINI_RESTRICTED_MODE", "true")]), None);

    // In a directory that the CLI does not trust, a file may set keys but not change the method.
    let switch = "GOOGLE_GENAI_USE_VERTEXAI=true\nGOOGLE_API_KEY=k\n";
    let switch = MemoryFs::default().plain("/home/u/.env", switch);
    assert_eq!(winner(&switch, &[]), None);
    let trusted = [("GEMINI_CLI_TRUST_WORKSPACE", "true")];
    assert_eq!(winner(&switch, &trusted), some("`GOOGLE_API_KEY` in /home/u/.env"));
}

#[test]
fn run_sets_the_method_only_if_the_cli_would_not_detect_it() {
    let key = ("GEMINI_API_KEY", "k");
    let base = ("GOOGLE_GEMINI_BASE_URL", "http://127.0.0.1:1");
    let vertex = ("GOOGLE_GENAI_USE_VERTEXAI", "true");
    let trusted = ("GEMINI_CLI_TRUST_WORKSPACE", "true");
    let none = MemoryFs::default();
    let own = MemoryFs::default().plain("/home/u/.gemini/.env", "GEMINI_API_KEY=k");
    let named = |fs: &MemoryFs, env: &[(&str, &str)]| {
        let env: BTreeMap<String, String> = env.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        method_to_name(&UserConfig::new(Path::new("/w/p"), &env, Path::new("/home/u"), fs)).is_some()
    };
    assert!(named(&none, &[key, base]) && named(&own, &[]) && named(&own, &[base, trusted]));
    assert!(
        !named(&none, &[key]) && !named(&none, &[base]) && !named(&none, &[]) && !named(&own, &[trusted])
    );
    assert!(!named(&none, &[key, base, vertex]) && !named(&selected("oauth-personal"), &[key, base]));
}

#[test]
fn workspace_selects_the_method_only_with_full_trust() {
    let fs = selected("gemini-api-key")
        .plain("/w/p/.gemini/settings.json", r#"{"security":{"auth":{"selectedType":"vertex-ai"}}}"#);
    let key = ("GEMINI_API_KEY", "k");
    assert_eq!(winner(&fs, &[key]), some("`GEMINI_API_KEY`"));
    let trusted = ("GEMINI_CLI_TRUST_WORKSPACE", "true");
    assert_eq!(winner(&fs, &[key, trusted]), some("`GEMINI_API_KEY`"));
    let env: BTreeMap<String, String> = [key, trusted].map(|(k, v)| (k.into(), v.into())).into();
    let user = UserConfig::new(Path::new("/w/p"), &env, Path::new("/home/u"), &fs).trusting(true);
    assert!(sign_in(&user).iter().all(|entry| !entry.wins));
}

#[test]
fn enforced_method_rejects_other_methods() {
    let settings = r#"{"security":{"auth":{"enforcedType":"vertex-ai"}}}"#;
    let fs = MemoryFs::default().plain(SETTINGS, settings);
    assert_eq!(winner(&fs, &[("GEMINI_API_KEY", "k")]), None);
    assert!(
        methods(&fs, &[("GEMINI_API_KEY", "k")])[0].note.as_deref().unwrap().contains("only `vertex-ai`")
    );
    let vertex = [("GOOGLE_GENAI_USE_VERTEXAI", "true"), ("GOOGLE_API_KEY", "k")];
    assert_eq!(winner(&fs, &vertex), some("`GOOGLE_API_KEY`"));
}
