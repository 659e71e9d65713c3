//! Tests the reading of suites.

use super::read::{CASE_KEYS, LIMIT_KEYS, SOURCE_KEYS, SUITE_KEYS, VARIANT_KEYS};
use super::{Suite, SuiteInput, WorkspaceSource, load};
use agentline::{Problems, Schema};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::fs;

fn read(text: &str) -> Result<Suite, Problems> {
    let base = std::env::temp_dir();
    load(&SuiteInput::Text { name: "suite".into(), text: text.into(), base }, &Map::new())
}

fn ids(suite: &Suite) -> Vec<&str> {
    suite.cases.iter().map(|case| case.id.as_str()).collect()
}

#[test]
fn settings_are_merged_and_prompts_filled_in() {
    let suite = read(
        "defaults: {timeout: 60, env: {A: '1'}}\nvars: {who: you}\nprompt: 'Hello {{who}}'\ncases:\n\
         - {id: a, overrides: {timeout: 90, env: {B: '2'}}}\n- {id: b, prompt: 'Bye {{who}}', vars: {who: me}}\n\
         variants:\n- {id: x, yolo: true}\n- {id: y, prompt: '{{prompt}}!', permission_mode: plan}\n\
         matrix: {model: [m, n]}\nrepeat: 3\n",
    )
    .expect("a suite");
    let variants: Vec<&str> = suite.variants.iter().map(|variant| variant.id.as_str()).collect();
    assert_eq!(variants, ["x/m", "x/n", "y/m", "y/n"]);
    assert_eq!(suite.runs().count(), 2 * 4 * 3);
    assert_eq!(suite.cases[0].prompts, ["Hello you", "Hello you", "Hello you!", "Hello you!"]);
    assert_eq!(suite.cases[1].prompts[2], "Bye me!");
    let settings = Value::Object(Map::clone(&suite.cases[0].settings[0]));
    assert_eq!(settings, json!({"timeout": 90, "env": {"A": "1", "B": "2"}, "yolo": true, "model": "m"}));
}

#[test]
fn most_specific_level_says_whether_runs_are_repeatable() {
    let text = "cases:\n- {id: a, prompt: x}\n- {id: b, prompt: x, repeatable: true}\n- {id: c, prompt: x, repeatable: false}\n\
                variants: [{id: v}, {id: w, repeatable: false}, {id: x, repeatable: true}]\nmatrix: {model: [m]}\n";
    let (yes, no) = (Some(true), Some(false));
    for (suite, inherited, is_repeatable) in
        [("", None, true), ("repeatable: true\n", yes, true), ("repeatable: false\n", no, false)]
    {
        let suite = read(&format!("{text}{suite}")).expect("a suite");
        let found: Vec<&[Option<bool>]> = suite.cases.iter().map(|case| &*case.repeatable).collect();
        assert_eq!(found, [[inherited, no, yes], [yes; 3], [no; 3]]);
        assert_eq!(
            [0, 1, 2].map(|variant| suite.cases[0].is_repeatable(variant)),
            [is_repeatable, false, true]
        );
        assert!(suite.cases[0].settings.iter().all(|settings| !settings.contains_key("repeatable")));
    }
}

#[test]
fn cases_come_from_files_of_all_kinds() {
    let dir = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        fs::write(path, text).expect("a file");
    };
    write("cases.jsonl", "{\"id\": \"l1\", \"prompt\": \"one\"}\n\n{\"id\": \"l2\", \"prompt\": \"two\"}\n");
    write("table.csv", "id,prompt,tags,n\nc1,\"a, {{n}}\",slow big,7\nc2,b,,8\n");
    write("prompts/p1.md", "first\n");
    write("prompts/deep/p2.md", "second\n");
    write("template/file", "");
    write(
        "suite.toml",
        "workspace = 'template'\ncases = ['cases.jsonl', {file = 'table.csv', tags = ['csv']}, {glob = 'prompts/**/*.md'}]\n",
    );
    let at = |name: &str| SuiteInput::Path(dir.path().join(name));
    let mut suite = load(&at("suite.toml"), &Map::new()).expect("a suite");
    assert_eq!(ids(&suite), ["l1", "l2", "c1", "c2", "p2", "p1"]);
    assert_eq!((suite.name.as_str(), suite.cases[2].prompts[0].as_str()), ("suite", "a, 7"));
    assert_eq!(suite.cases[2].tags, ["slow", "big", "csv"]);
    let template = fs::canonicalize(dir.path()).expect("a path").join("template");
    let Some(WorkspaceSource::Directory(found)) = &suite.cases[0].workspace else { panic!("no directory") };
    assert_eq!(fs::canonicalize(found).expect("a path"), template);
    suite.select(&["tag:big".into(), "l*".into()], Some(2));
    assert_eq!(ids(&suite), ["l1", "l2"]);
    assert_eq!(ids(&load(&at("cases.jsonl"), &Map::new()).expect("a suite")), ["l1", "l2"]);
    assert_eq!(ids(&load(&at("table.csv"), &Map::new()).expect("a suite")), ["c1", "c2"]);
    assert_eq!(ids(&load(&at("prompts"), &Map::new()).expect("a suite")), ["p1"]);
    assert_eq!(
        ids(&read("{\"id\": \"s1\", \"prompt\": \"x\"}\n{\"prompt\": \"y\"}\n").expect("a suite")),
        ["s1", "case-2"]
    );
}

#[test]
fn mistakes_are_found_together() {
    for (text, key) in [
        ("cases: []", "cases"),
        ("prompt: x", "cases"),
        ("cases: [{id: a}]", "cases[0].prompt"),
        ("cases: [{id: a, prompt: x}, {id: a, prompt: y}]", "id"),
        ("cases: [{prompt: x, workspace: missing-dir}]", "cases[0].workspace"),
        ("cases: [{prompt: x, hidden: missing-dir}]", "cases[0].hidden"),
        ("workspace: .\ncases: [{prompt: x, hidden: .}]", "cases[0].hidden"),
        ("cases: [{prompt: x, workspace: {rev: a}}]", "cases[0].workspace"),
        ("cases: [{prompt: x}]\ndefaults: {working_dir: /}", "defaults.working_dir"),
        ("cases: [{prompt: x}]\ndefaults: {timeout: soon}", "defaults.timeout"),
        ("cases: [{prompt: x}]\nvariants: [{id: a}, {id: a}]", "variants"),
        ("cases: [{prompt: x}]\nmatrix: {model: m}", "matrix.model"),
        ("cases: [{prompt: x}]\nclasses: {emty: failed}", "classes.emty"),
        ("cases: [{prompt: x, checks: [{file_exists: ../x}]}]", "cases[0].checks[0]"),
        ("cases: [{prompt: x, checks: [{regex: '('}]}]", "cases[0].checks[0]"),
        ("cases: [{prompt: x, checks: [{verdict: fine}]}]", "cases[0].checks[0]"),
        ("cases: [{prompt: x, checks: [{judge: {rubric: r, agnt: y}}]}]", "cases[0].checks[0].judge.agnt"),
        ("cases: [{prompt: x, checks: [{contains: a, equals: b}]}]", "cases[0].checks[0]"),
        ("cases: [{prompt: x, repeatable: maybe}]", "cases[0].repeatable"),
        ("cases: [{prompt: x}]\nvariants: [{id: a, repeatable: 1}]", "variants[0].repeatable"),
        ("cases: [{prompt: x}]\nrepeatable: []", "repeatable"),
        ("cases: [{prompt: x}]\nmatrix: {repeatable: [true]}", "matrix.repeatable"),
        ("cases: missing.jsonl", "cases"),
        ("- a", "SUITE"),
    ] {
        let problems = read(text).expect_err(text);
        let keys: Vec<&str> = problems.0.iter().map(|problem| problem.key.as_str()).collect();
        let is_found = keys.contains(&key) || key == "SUITE";
        assert!(is_found, "{text}: {problems}");
        assert!(
            problems.0.iter().all(|problem| problem.hint.is_some() && problem.source.is_some()),
            "{problems}"
        );
    }
}

#[test]
fn schema_has_the_same_keys() {
    let schema: Value =
        serde_json::from_str(include_str!("../../../../docs/suite.schema.json")).expect("JSON");
    let keys = |path: &str| -> BTreeSet<String> {
        let table = schema.pointer(path).and_then(Value::as_object).expect(path);
        table.keys().cloned().collect()
    };
    for (path, known) in [
        ("/properties", SUITE_KEYS),
        ("/properties/variants/items/properties", VARIANT_KEYS),
        ("/$defs/case/properties", CASE_KEYS),
        ("/$defs/source/properties", SOURCE_KEYS),
        ("/properties/limits/properties", LIMIT_KEYS),
        ("/$defs/check/properties", crate::check::CHECK_NAMES),
    ] {
        assert_eq!(keys(path), known.iter().map(|&key| key.to_owned()).collect(), "{path}");
    }
    let schema = Schema::from_value(schema).expect("a schema");
    let suite = json!({"name": "a", "cases": [{"id": "x", "prompt": "p", "checks": [{"not": {"contains": "y"}}]}, "more.jsonl"]});
    assert_eq!(schema.check(&suite), Ok(()));
    assert!(schema.check(&json!({"cases": [{"promt": "x"}]})).is_err());
}

#[test]
fn value_in_csv_that_does_not_end_is_a_mistake() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("cases.csv");
    let load = |text: &str| {
        std::fs::write(&path, text).expect("a file");
        load(&SuiteInput::Path(path.clone()), &serde_json::Map::new())
    };
    let cases = load("id,prompt\na,\"a \"\"b\"\",\nc\"\nb,5\" pipe\nc,x").expect("a suite").cases;
    let prompts: Vec<&str> = cases.iter().map(|case| case.prompts[0].as_str()).collect();
    assert_eq!(prompts, ["a \"b\",\nc", "5\" pipe", "x"]);
    let problems = load("id,prompt\na,x\nb,\"open\nc,x\nd,x\n").expect_err("a mistake").0;
    assert!(
        problems[0].source.as_deref().is_some_and(|source| source.ends_with("cases.csv:3")),
        "{problems:?}"
    );
}
