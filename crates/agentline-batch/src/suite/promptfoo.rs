//! Reads a promptfoo configuration as a suite: its prompts, tests and common assertions.

use super::mistakes::{Mistakes, joined};
use crate::document::{DocumentNode, NodeValue, TableEntry};
use serde_json::{Value, json};
use std::path::Path;

/// The keys of a configuration that have an equivalent.
const READ: &[&str] = &["description", "prompts", "tests", "defaultTest"];

/// The keys of a test that have an equivalent.
const TEST_KEYS: &[&str] = &["description", "vars", "assert", "metadata"];

/// Returns whether a document is a promptfoo configuration.
pub(super) fn is_config(root: &DocumentNode) -> bool {
    root.get("cases").is_none() && root.get("prompts").is_some()
}

/// Converts a configuration into the document of a suite. Keys without an equivalent are added to `unused`.
pub(super) fn convert(
    root: &DocumentNode,
    base: &Path,
    mistakes: &mut Mistakes,
    unused: &mut Vec<String>,
) -> DocumentNode {
    let entries = root.entries().unwrap_or_default();
    unused.extend(entries.iter().map(|entry| entry.key.clone()).filter(|key| !READ.contains(&key.as_str())));
    let mut suite = Vec::new();
    for key in ["description"] {
        if let Some(node) = root.get(key) {
            suite.push(entry(key, node.line, node.clone()));
        }
    }
    let prompts = prompts(root, base, mistakes);
    match prompts.as_slice() {
        [only] => suite.push(entry("prompt", only.line, only.clone())),
        several => {
            let variants = several.iter().enumerate().map(|(index, prompt)| {
                let id = DocumentNode::scalar(prompt.line, format!("prompt-{}", index + 1));
                table(
                    prompt.line,
                    vec![entry("id", prompt.line, id), entry("prompt", prompt.line, prompt.clone())],
                )
            });
            suite.push(entry("variants", root.line, list(root.line, variants.collect())));
        }
    }
    let defaults = root.get("defaultTest");
    let of_defaults = defaults.and_then(DocumentNode::entries).unwrap_or_default().iter();
    let of_defaults = of_defaults.filter(|entry| !TEST_KEYS.contains(&entry.key.as_str()));
    unused.extend(of_defaults.map(|entry| format!("defaultTest.{}", entry.key)));
    if let Some(vars) = defaults.and_then(|node| node.get("vars")) {
        let mut read = variables(vars, "defaultTest", base, mistakes);
        if read.len() != 1 {
            let message = "has a list of values, which has no equivalent";
            mistakes.add(vars.line, "defaultTest.vars", message, "move the variable to the tests");
        }
        suite.push(entry("vars", vars.line, table(vars.line, read.pop().unwrap_or_default())));
    }
    if let Some(checks) = defaults.and_then(|node| checks(node, "defaultTest", mistakes)) {
        suite.push(entry("checks", checks.line, checks));
    }
    let tests = root.get("tests");
    let cases = match tests {
        // A file with tests has the columns of cases.
        Some(node) if node.text().is_some() => {
            let path = node.text().unwrap_or_default();
            DocumentNode::scalar(node.line, path.strip_prefix("file://").unwrap_or(path))
        }
        node => {
            let tests = node.and_then(DocumentNode::list).unwrap_or_default();
            let cases = tests.iter().enumerate().flat_map(|(index, test)| cases(test, index, base, mistakes));
            let cases: Vec<DocumentNode> = cases.collect();
            // Without tests, each prompt runs once.
            let cases = if cases.is_empty() { vec![table(root.line, Vec::new())] } else { cases };
            list(root.line, cases)
        }
    };
    suite.push(entry("cases", cases.line, cases));
    table(root.line, suite)
}

/// Returns the texts of the prompts.
fn prompts(root: &DocumentNode, base: &Path, mistakes: &mut Mistakes) -> Vec<DocumentNode> {
    let Some(node) = root.get("prompts") else { return Vec::new() };
    let nodes = node.list().map_or_else(|| vec![node], |list| list.iter().collect());
    let mut prompts = Vec::new();
    for node in nodes {
        let text = node.text().or_else(|| node.get("raw")?.text());
        let Some(text) = text else {
            mistakes.add(
                node.line,
                "prompts",
                "has a prompt that is not text",
                "write the prompt, or `file://…`",
            );
            continue;
        };
        match text.strip_prefix("file://") {
            None => prompts.push(DocumentNode::scalar(node.line, text)),
            Some(path) => match std::fs::read_to_string(base.join(path)) {
                Ok(text) => prompts.push(DocumentNode::scalar(node.line, text.trim_end())),
                Err(error) => {
                    mistakes.add(
                        node.line,
                        "prompts",
                        format!("`{path}` cannot be read: {error}"),
                        "correct the path",
                    );
                }
            },
        }
    }
    prompts
}

/// Returns the cases of a test: one for each combination of the values of its variables that are lists.
fn cases(test: &DocumentNode, index: usize, base: &Path, mistakes: &mut Mistakes) -> Vec<DocumentNode> {
    let key = format!("tests[{index}]");
    mistakes.table(test, &key, TEST_KEYS);
    let checks = checks(test, &key, mistakes);
    let combinations = match test.get("vars") {
        Some(vars) => variables(vars, &key, base, mistakes),
        None => vec![Vec::new()],
    };
    let is_single = combinations.len() == 1;
    let case = |(number, vars): (usize, Vec<TableEntry>)| {
        let mut entries = Vec::new();
        if let Some(description) = test.get("description") {
            let id = match description.text() {
                Some(text) if !is_single => {
                    DocumentNode::scalar(description.line, format!("{text}-{}", number + 1))
                }
                _ => description.clone(),
            };
            entries.push(entry("id", description.line, id));
        }
        if let Some(node) = test.get("vars") {
            entries.push(entry("vars", node.line, table(node.line, vars)));
        }
        entries.extend(checks.clone().map(|checks| entry("checks", checks.line, checks)));
        table(test.line, entries)
    };
    combinations.into_iter().enumerate().map(case).collect()
}

/// Returns every combination of the values of variables. A value may be in a file.
fn variables(vars: &DocumentNode, key: &str, base: &Path, mistakes: &mut Mistakes) -> Vec<Vec<TableEntry>> {
    let key = joined(key, "vars");
    let Some(entries) = vars.entries() else {
        mistakes.add(vars.line, &key, "is not a table", "write `vars: {name: value}`");
        return vec![Vec::new()];
    };
    let mut combinations = vec![Vec::new()];
    for TableEntry { key: name, line, node } in entries {
        let values = node.list().map_or_else(|| vec![node], |list| list.iter().collect());
        let values: Vec<DocumentNode> =
            values.into_iter().map(|value| variable(value, &joined(&key, name), base, mistakes)).collect();
        combinations = combinations
            .into_iter()
            .flat_map(|known: Vec<TableEntry>| {
                let with =
                    |value: &DocumentNode| [known.clone(), vec![entry(name, *line, value.clone())]].concat();
                values.iter().map(with).collect::<Vec<_>>()
            })
            .collect();
    }
    combinations
}

/// Returns the value of a variable.
fn variable(value: &DocumentNode, key: &str, base: &Path, mistakes: &mut Mistakes) -> DocumentNode {
    let Some(path) = value.text().and_then(|text| text.strip_prefix("file://")) else { return value.clone() };
    let is_text = Path::new(path).extension().is_none_or(|extension| {
        !["js", "cjs", "mjs", "ts", "py", "yaml", "yml", "json"].iter().any(|code| extension == *code)
    });
    if !is_text {
        let message = format!("`{path}` would have to be executed or parsed, which has no equivalent");
        mistakes.add(value.line, key, message, "write the value, or use a file with text");
        return value.clone();
    }
    match std::fs::read_to_string(base.join(path)) {
        Ok(text) => DocumentNode::scalar(value.line, text.trim_end()),
        Err(error) => {
            mistakes.add(value.line, key, format!("`{path}` cannot be read: {error}"), "correct the path");
            value.clone()
        }
    }
}

/// Converts the assertions of a test.
fn checks(test: &DocumentNode, key: &str, mistakes: &mut Mistakes) -> Option<DocumentNode> {
    let assertions = test.get("assert")?;
    let key = joined(key, "assert");
    let mut checks = Vec::new();
    for node in assertions.list().unwrap_or_default() {
        let Some(name) = node.get("type").and_then(DocumentNode::text) else {
            mistakes.add(node.line, &key, "has an assertion without a `type`", "add its `type`");
            continue;
        };
        let (name, is_negated) = name.strip_prefix("not-").map_or((name, false), |name| (name, true));
        let value = node.get("value").map(DocumentNode::value);
        let threshold = node.get("threshold").map(DocumentNode::value);
        let is_file = value.as_ref().and_then(Value::as_str).is_some_and(|text| text.starts_with("file://"));
        // The negation of several checks is not that of each.
        let converted =
            check(name, value, threshold).filter(|checks| !is_file && (!is_negated || checks.len() == 1));
        let Some(converted) = converted else {
            let name = node.get("type").and_then(DocumentNode::text).unwrap_or_default();
            let file = if is_file { " with a file" } else { "" };
            let message = format!("the assertion `{name}`{file} has no equivalent");
            mistakes.add(
                node.line,
                &key,
                message,
                "replace it, for example with a `command` check of a suite",
            );
            continue;
        };
        for check in converted {
            let check = if is_negated { json!({ "not": check }) } else { check };
            checks.push(DocumentNode::at_line(node.line, check));
        }
    }
    Some(list(assertions.line, checks))
}

/// Returns the checks that are equivalent to an assertion.
fn check(name: &str, value: Option<Value>, threshold: Option<Value>) -> Option<Vec<Value>> {
    let texts = |value: &Value| -> Option<Vec<String>> {
        value.as_array()?.iter().map(|text| text.as_str().map(str::to_owned)).collect()
    };
    let any = |texts: Vec<String>, flags: &str| {
        let parts: Vec<String> = texts.iter().map(|text| regex::escape(text)).collect();
        vec![json!({ "regex": format!("{flags}{}", parts.join("|")) })]
    };
    Some(match name {
        "contains" | "icontains" | "equals" | "regex" => vec![json!({ name: value? })],
        "contains-all" => texts(&value?)?.into_iter().map(|text| json!({ "contains": text })).collect(),
        "icontains-all" => texts(&value?)?.into_iter().map(|text| json!({ "icontains": text })).collect(),
        "contains-any" => any(texts(&value?)?, ""),
        "icontains-any" => any(texts(&value?)?, "(?i)"),
        "starts-with" => vec![json!({ "regex": format!("^{}", regex::escape(value?.as_str()?)) })],
        "is-json" => match value {
            None => vec![json!({ "json_path": "$" })],
            Some(schema) => vec![json!({ "json_schema": schema })],
        },
        "llm-rubric" => vec![json!({ "judge": value?.as_str()? })],
        "cost" => vec![json!({ "max_cost": threshold? })],
        "latency" => vec![json!({ "max_time": threshold?.as_f64()? / 1000.0 })],
        _ => return None,
    })
}

fn entry(key: &str, line: usize, node: DocumentNode) -> TableEntry {
    TableEntry { key: key.to_owned(), line, node }
}

fn table(line: usize, entries: Vec<TableEntry>) -> DocumentNode {
    DocumentNode { line, content: NodeValue::Table(entries) }
}

fn list(line: usize, nodes: Vec<DocumentNode>) -> DocumentNode {
    DocumentNode { line, content: NodeValue::List(nodes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_tests_and_assertions_are_read() {
        let config = "description: d\nprompts: ['Say {{word}}', 'Write {{word}}']\nproviders: [x]\n\
            defaultTest: {assert: [{type: cost, threshold: 0.1}]}\n\
            tests:\n  - description: one\n    vars: {word: a}\n    assert:\n\
            \x20     - {type: contains-all, value: [a, b]}\n      - {type: not-icontains, value: c}\n\
            \x20     - {type: javascript, value: 'x'}\n";
        let root = DocumentNode::yaml(config).expect("YAML");
        assert!(is_config(&root));
        let (mut mistakes, mut unused) = (Mistakes::default(), Vec::new());
        let suite = convert(&root, Path::new(""), &mut mistakes, &mut unused).value();
        assert_eq!(unused, ["providers"]);
        assert_eq!(suite["variants"][1], json!({"id": "prompt-2", "prompt": "Write {{word}}"}));
        assert_eq!(suite["checks"], json!([{"max_cost": 0.1}]));
        let case = &suite["cases"][0];
        assert_eq!((&case["id"], &case["vars"]), (&json!("one"), &json!({"word": "a"})));
        assert_eq!(
            case["checks"],
            json!([{"contains": "a"}, {"contains": "b"}, {"not": {"icontains": "c"}}])
        );
        assert_eq!(mistakes.problems.len(), 1);
        assert!(mistakes.problems[0].message.contains("`javascript`"), "{:?}", mistakes.problems);
        assert_eq!(mistakes.problems[0].source.as_deref(), Some(":11"));
    }

    #[test]
    fn lists_of_values_are_cases_and_values_can_be_files() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("text.txt"), "from a file\n").expect("a file");
        let config = "prompts: ['{{a}} {{b}} {{c}}']\ndefaultTest: {options: {x: 1}, vars: {c: file://text.txt}}\n\
            tests:\n  - {description: d, vars: {a: [1, 2], b: [x, y]}}\n  - {vars: {a: file://code.js, b: file://none.txt}}\n\
            \x20 - {assert: [{type: not-contains-all, value: [a, b]}, {type: not-contains-all, value: [a]}, \
            {type: equals, value: file://x.txt}]}\n";
        let root = DocumentNode::yaml(config).expect("YAML");
        let (mut mistakes, mut unused) = (Mistakes::default(), Vec::new());
        let suite = convert(&root, dir.path(), &mut mistakes, &mut unused).value();
        assert_eq!(unused, ["defaultTest.options"]);
        assert_eq!(suite["vars"], json!({"c": "from a file"}));
        let cases: Vec<&Value> = suite["cases"].as_array().expect("cases").iter().collect();
        assert_eq!(cases.len(), 6);
        assert_eq!(cases[1], &json!({"id": "d-2", "vars": {"a": 1, "b": "y"}}));
        assert_eq!(cases[2], &json!({"id": "d-3", "vars": {"a": 2, "b": "x"}}));
        assert_eq!(cases[5]["checks"], json!([{"not": {"contains": "a"}}]));
        let messages: Vec<&str> = mistakes.problems.iter().map(|problem| problem.message.as_str()).collect();
        assert!(messages[0].starts_with("`code.js` would have to be executed"), "{messages:?}");
        assert!(messages[1].starts_with("`none.txt` cannot be read"), "{messages:?}");
        assert_eq!(messages[2], "the assertion `not-contains-all` has no equivalent");
        assert_eq!(messages[3], "the assertion `equals` with a file has no equivalent");
        assert_eq!(messages.len(), 4);
    }
}
