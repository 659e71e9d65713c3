//! Tests of reading the user's settings, `.env` files and trusted folders, with fictional homes.

use super::{UserConfig, dotenv, parse};
use crate::memory_fs::MemoryFs;
use std::{collections::BTreeMap, path::Path};

fn trusts(fs: &MemoryFs, cwd: &str, env: &[(&str, &str)]) -> Option<bool> {
    let env: BTreeMap<String, String> = env.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
    UserConfig::new(Path::new(cwd), &env, Path::new("/home/u"), fs).trusts()
}

fn problems(fs: &MemoryFs) -> Vec<String> {
    let env = BTreeMap::new();
    let user = UserConfig::new(Path::new("/w"), &env, Path::new("/home/u"), fs);
    user.problems().iter().map(|p| p.message.clone()).collect()
}

#[test]
fn environment_variables_take_precedence_for_trust() {
    let rules = r#"{"/w":"TRUST_FOLDER"}"#;
    let fs = MemoryFs::default().plain("/home/u/.gemini/trustedFolders.json", rules);
    assert_eq!(trusts(&fs, "/w", &[]), Some(true));
    assert_eq!(trusts(&fs, "/elsewhere", &[]), None);
    assert_eq!(trusts(&fs, "/w", &[("GEMINI_CLI_TRUST_WORKSPACE", "false")]), Some(false));
    assert_eq!(trusts(&fs, "/elsewhere", &[("GEMINI_CLI_TRUST_WORKSPACE", "true")]), Some(true));
    assert_eq!(trusts(&fs, "/elsewhere", &[("GEMINI_CLI_TRUST_WORKSPACE", "1")]), None);
    let both = [("GEMINI_CLI_TRUST_WORKSPACE", "true"), ("GEMINI_RESTRICTED_MODE", "true")];
    assert_eq!(trusts(&fs, "/w", &both), Some(false));
}

#[test]
fn longest_trust_rule_wins() {
    let rules = r#"{
        // a comment is allowed
        "/w": "TRUST_FOLDER",
        "/w/bad": "DO_NOT_TRUST",
        "/w/bad/good": "TRUST_FOLDER",
        "/x/child": "TRUST_PARENT"
    }"#;
    let fs = MemoryFs::default().plain("/home/u/.gemini/trustedFolders.json", rules);
    for (cwd, expected) in [
        ("/w", Some(true)),
        ("/w/a/b", Some(true)),
        ("/w/bad", Some(false)),
        ("/w/bad/deep", Some(false)),
        ("/w/bad/good/deep", Some(true)),
        ("/wide", None),
        ("/x", Some(true)),
        ("/x/other", Some(true)),
        ("/y", None),
    ] {
        assert_eq!(trusts(&fs, cwd, &[]), expected, "{cwd}");
    }
}

#[test]
fn symlinks_are_resolved_before_trust_rules_match() {
    let fs = MemoryFs::default()
        .plain("/home/u/.gemini/trustedFolders.json", r#"{"/real":"TRUST_FOLDER"}"#)
        .plain("/real/a.txt", "")
        .link("/link", "/real");
    assert_eq!(trusts(&fs, "/link", &[]), Some(true));
}

#[test]
fn trust_file_can_be_relocated_or_disabled() {
    let fs = MemoryFs::default().plain("/rules.json", r#"{"/w":"TRUST_FOLDER"}"#);
    assert_eq!(trusts(&fs, "/w", &[]), None);
    assert_eq!(trusts(&fs, "/w", &[("GEMINI_CLI_TRUSTED_FOLDERS_PATH", "/rules.json")]), Some(true));

    let off = r#"{"security":{"folderTrust":{"enabled":false}}}"#;
    let fs = MemoryFs::default().plain("/moved/.gemini/settings.json", off);
    assert_eq!(trusts(&fs, "/w", &[]), None);
    assert_eq!(trusts(&fs, "/w", &[("GEMINI_CLI_HOME", "/moved")]), Some(true));

    // A workspace cannot disable the check whether it is trusted.
    let fs = MemoryFs::default().plain("/w/.gemini/settings.json", off);
    assert_eq!(trusts(&fs, "/w", &[]), None);
}

#[test]
fn system_settings_apply_only_if_write_protected() {
    let off = r#"{"security":{"folderTrust":{"enabled":false}}}"#;
    let env = [("GEMINI_CLI_SYSTEM_SETTINGS_PATH", "/sys.json")];
    let mut fs = MemoryFs::default().plain("/sys.json", off);
    assert_eq!(trusts(&fs, "/w", &env), None);
    fs.guarded = true;
    assert_eq!(trusts(&fs, "/w", &env), Some(true));
}

#[test]
fn invalid_file_is_reported_with_its_position() {
    let fs = MemoryFs::default()
        .plain("/home/u/.gemini/settings.json", "{\n  // why\n  \"a\": 1,\n  oops\n}")
        .plain("/w/.gemini/settings.json", "[]")
        .plain("/home/u/.gemini/trustedFolders.json", r#"{"/w":"MAYBE"}"#);
    let found = problems(&fs);
    assert_eq!(found.len(), 2, "a workspace's own settings are not read: {found:?}");
    assert!(found[0].contains("line 4 column 3"), "{found:?}");
    assert!(found[1].contains("MAYBE") && found[1].contains("DO_NOT_TRUST"), "{found:?}");
    let env = BTreeMap::new();
    let trusting =
        UserConfig::new(Path::new("/w"), &env, Path::new("/home/u"), &fs).trusting(true).problems();
    assert_eq!(trusting.len(), 3, "{trusting:?}");
    let first = &trusting[0].message;
    assert!(first.contains("/w/.gemini/settings.json") && first.contains("not a JSON object"), "{first}");
    assert_eq!(trusts(&fs, "/w", &[]), None);

    let fs = MemoryFs::default().unreadable("/home/u/.gemini/settings.json");
    assert!(problems(&fs)[0].contains("cannot be read"));
    assert!(problems(&MemoryFs::default()).is_empty());
}

#[test]
fn comments_in_settings_are_ignored() {
    let text = "\u{feff}{ /* a \" b */ \"url\": \"http://x/*y*/\", // end\r\n \"q\": \"\\\"//\" /**/ }";
    let value = parse(text).unwrap();
    assert_eq!(value["url"], "http://x/*y*/");
    assert_eq!(value["q"], "\"//");
    assert!(parse("{} /* never closed").is_ok());
    assert!(parse("{\"a\":1,}").is_err(), "the CLI refuses a trailing comma too");
}

#[test]
fn env_files_are_parsed_as_assignments() {
    let text = "# note\nA=1\nexport B = two words # why\nC=\"a#b\" x\nD='it'\nno line\n=x\nE=\n";
    let pairs: Vec<(String, String)> = dotenv(text);
    let pairs: Vec<(&str, &str)> = pairs.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    assert_eq!(pairs, [("A", "1"), ("B", "two words"), ("C", "a#b"), ("D", "it"), ("E", "")]);
}
