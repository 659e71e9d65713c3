//! Completes a suite: fills in templates, and gives every case what the suite states for all.

use super::mistakes::{Mistakes, joined};
use super::read::{RawCase, classes, limits, settings, settings_of, variables, variants};
use super::template::{TemplateError, render, render_value};
use super::{Suite, TestCase, Variant, WorkspaceSource};
use crate::check::Check;
use crate::document::{DocumentNode, NodeValue};
use agentline_core::config::find;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Completes a suite. `base` is the directory that relative paths start from.
pub(super) fn suite(
    root: &DocumentNode,
    cases: Vec<RawCase>,
    name: &str,
    base: &Path,
    below: &Map<String, Value>,
    mistakes: &mut Mistakes,
) -> Suite {
    let defaults = merge(below.clone(), settings(root, "", "defaults", &[], mistakes));
    let variants = variants(root, mistakes);
    let expansion = Expansion {
        base,
        root,
        prompt: mistakes.text(root, "", "prompt"),
        vars: variables(root, "", mistakes),
        settings: variants
            .iter()
            .map(|variant| Arc::new(merge(defaults.clone(), variant.settings.clone())))
            .collect(),
        repeatable: mistakes.flag(root, "", "repeatable"),
        variants: &variants,
    };
    let mut complete: Vec<TestCase> = Vec::with_capacity(cases.len());
    let mut lines: HashMap<String, String> = HashMap::new();
    let suite_file = mistakes.file.clone();
    for (index, raw) in cases.into_iter().enumerate() {
        mistakes.file.clone_from(&raw.file);
        let case = expansion.case(raw, index, mistakes);
        if let Some(first) = lines.insert(case.id.clone(), case.source.clone()) {
            let message = format!("the id `{}` is already used by the case at {first}", case.id);
            let line = case.source.rsplit(':').next().and_then(|line| line.parse().ok()).unwrap_or(1);
            mistakes.add(line, "id", message, "give each case its own `id`");
        }
        complete.push(case);
    }
    mistakes.file = suite_file;
    if complete.is_empty() && mistakes.problems.is_empty() {
        mistakes.add(root.line, "cases", "there are no cases", "add at least one case");
    }
    let repeat = mistakes.count(root, "", "repeat").unwrap_or(1);
    let shares_workspace = mistakes.flag(root, "", "share_workspace").unwrap_or(false);
    Suite {
        name: mistakes.text(root, "", "name").unwrap_or_else(|| name.to_owned()),
        description: mistakes.text(root, "", "description"),
        case_ids: complete.iter().map(|case| case.id.clone()).collect(),
        cases: complete,
        unselected: Vec::new(),
        below: below.clone(),
        repeat: u32::try_from(repeat).unwrap_or(u32::MAX),
        limits: limits(root, mistakes),
        classes: classes(root, mistakes),
        shares_workspace,
        files: Vec::new(),
        unused: Vec::new(),
        variants,
    }
}

struct Expansion<'a> {
    base: &'a Path,
    root: &'a DocumentNode,
    prompt: Option<String>,
    vars: Map<String, Value>,
    /// The settings of each variant, which cases without their own share.
    settings: Vec<Arc<Map<String, Value>>>,
    repeatable: Option<bool>,
    variants: &'a [Variant],
}

impl Expansion<'_> {
    fn case(&self, raw: RawCase, index: usize, mistakes: &mut Mistakes) -> TestCase {
        let id = raw.id.clone().unwrap_or_else(|| format!("case-{}", index + 1));
        let mut vars = self.vars.clone();
        vars.extend(raw.vars.clone());
        vars.entry("id").or_insert_with(|| id.clone().into());
        let own = raw.prompt.clone().or_else(|| self.prompt.clone());
        let own = own.map(|prompt| fill(&prompt, &vars, &raw, "prompt", mistakes));
        let mut with_prompt = vars.clone();
        if let Some(prompt) = &own {
            with_prompt.entry("prompt").or_insert_with(|| prompt.clone().into());
        }
        let mut prompts = Vec::with_capacity(self.variants.len());
        for variant in self.variants {
            prompts.push(match (&variant.prompt, &own) {
                (Some(template), _) => fill(template, &with_prompt, &raw, "prompt", mistakes),
                (None, Some(prompt)) => prompt.clone(),
                (None, None) => {
                    // One message per case is enough.
                    if prompts.is_empty() {
                        let hint = "add `prompt` to the case, the suite or the variant";
                        mistakes.add(raw.line, &joined(&raw.key, "prompt"), "is missing", hint);
                    }
                    String::new()
                }
            });
        }
        let settings = self.settings.iter().map(|settings| match raw.overrides.is_empty() {
            true => Arc::clone(settings),
            false => Arc::new(merge(Map::clone(settings), raw.overrides.clone())),
        });
        let own = mistakes.flag(&raw.node, &raw.key, "repeatable");
        let repeatable = self.variants.iter().map(|variant| own.or(variant.repeatable).or(self.repeatable));
        let workspace = self.workspace(&raw, &vars, mistakes);
        TestCase {
            settings: settings.collect(),
            repeatable: repeatable.collect(),
            hidden: self.hidden(&raw, workspace.as_ref(), &vars, mistakes),
            workspace,
            setup: self.inherited(&raw, "setup", &vars, mistakes),
            teardown: self.inherited(&raw, "teardown", &vars, mistakes),
            checks: self.checks(&raw, &vars, mistakes),
            worker_labels: self.inherited(&raw, "worker_labels", &vars, mistakes),
            source: mistakes.source(raw.line),
            tags: raw.tags,
            prompts,
            id,
        }
    }

    fn hidden(
        &self,
        raw: &RawCase,
        workspace: Option<&WorkspaceSource>,
        vars: &Map<String, Value>,
        mistakes: &mut Mistakes,
    ) -> Vec<PathBuf> {
        let paths = self.inherited(raw, "hidden", vars, mistakes);
        let paths: Vec<PathBuf> = paths.iter().map(|path| self.path(path)).collect();
        for path in paths.iter().filter(|path| !path.exists()) {
            let message = format!("`{}` does not exist", path.display());
            mistakes.add(raw.line, &joined(&raw.key, "hidden"), message, "create it, or correct the path");
        }
        let workspace = match workspace {
            Some(WorkspaceSource::Directory(path)) => path.canonicalize().ok(),
            _ => None,
        };
        let is_inside = |path: &PathBuf| {
            path.canonicalize().ok().zip(workspace.as_ref()).is_some_and(|(a, b)| a.starts_with(b))
        };
        for path in paths.iter().filter(|path| is_inside(path)) {
            let message = format!("`{}` is in the workspace, where the agent sees it", path.display());
            mistakes.add(raw.line, &joined(&raw.key, "hidden"), message, "move it out of the workspace");
        }
        paths
    }

    fn path(&self, path: &str) -> PathBuf {
        self.base.join(path)
    }

    /// Returns the texts under a key of the case, or else of the suite.
    fn inherited(
        &self,
        raw: &RawCase,
        key: &str,
        vars: &Map<String, Value>,
        mistakes: &mut Mistakes,
    ) -> Vec<String> {
        let table = if raw.node.get(key).is_some() { &raw.node } else { self.root };
        let texts = mistakes.texts(table, &raw.key, key);
        texts.iter().map(|text| fill(text, vars, raw, key, mistakes)).collect()
    }

    fn workspace(
        &self,
        raw: &RawCase,
        vars: &Map<String, Value>,
        mistakes: &mut Mistakes,
    ) -> Option<WorkspaceSource> {
        let node = raw.node.get("workspace").or_else(|| self.root.get("workspace"))?;
        let key = joined(&raw.key, "workspace");
        match &node.content {
            NodeValue::Scalar(Value::Null) => None,
            NodeValue::Scalar(Value::String(path)) => {
                let path = self.path(&fill(path, vars, raw, "workspace", mistakes));
                if !path.is_dir() {
                    let message = format!("`{}` is not a directory", path.display());
                    mistakes.add(node.line, &key, message, "create it, or correct the path");
                }
                Some(WorkspaceSource::Directory(path))
            }
            _ => {
                mistakes.table(node, &key, &["git", "rev"]);
                let mut part = |name: &str| {
                    let text = mistakes.text(node, &key, name)?;
                    Some(fill(&text, vars, raw, name, mistakes))
                };
                let (repository, revision) = (part("git"), part("rev"));
                let Some(repository) = repository else {
                    mistakes.add(
                        node.line,
                        &key,
                        "has no `git`",
                        "write `workspace: {git: path-or-url, rev: main}`",
                    );
                    return None;
                };
                let is_remote = repository.contains("://") || repository.contains('@');
                let local = self.path(&repository);
                let name = repository.clone();
                let repository = if is_remote { repository } else { local.to_string_lossy().into_owned() };
                if !is_remote && !local.exists() {
                    let message = format!("`{repository}` does not exist");
                    mistakes.add(node.line, &key, message, "correct the path of the repository");
                }
                let revision = revision.unwrap_or_else(|| "HEAD".into());
                Some(WorkspaceSource::Git { repository, name, revision })
            }
        }
    }

    /// Returns the checks of the suite, then those of the case.
    fn checks(&self, raw: &RawCase, vars: &Map<String, Value>, mistakes: &mut Mistakes) -> Vec<Check> {
        let mut checks = Vec::new();
        for (table, parent) in [(self.root, ""), (&raw.node, raw.key.as_str())] {
            let Some(node) = table.get("checks").filter(|node| !node.is_null()) else { continue };
            let key = joined(parent, "checks");
            let Some(list) = node.list() else {
                mistakes.add(node.line, &key, "is not a list", "write `checks: [{contains: \"…\"}]`");
                continue;
            };
            for (index, node) in list.iter().enumerate() {
                let key = format!("{key}[{index}]");
                let value = match render_value(&node.value(), vars) {
                    Ok(value) => value,
                    Err(error) => {
                        report(&error, node.line, &key, vars, mistakes);
                        continue;
                    }
                };
                if value == node.value() {
                    check_judge(node, &key, mistakes);
                } else {
                    check_judge(&DocumentNode::at_line(node.line, value.clone()), &key, mistakes);
                }
                match Check::read(&value) {
                    Ok(check) => checks.push(check),
                    Err(problem) => mistakes.add(node.line, &key, problem.message, problem.hint),
                }
            }
        }
        checks
    }
}

/// Reports settings of a judge that no run has.
fn check_judge(check: &DocumentNode, key: &str, mistakes: &mut Mistakes) {
    if let Some(judge) = check.get("judge").filter(|judge| judge.entries().is_some()) {
        settings_of(judge, &joined(key, "judge"), &["rubric"], mistakes);
    }
}

/// Fills in a template of a case; a mistake in it is reported.
fn fill(
    template: &str,
    vars: &Map<String, Value>,
    raw: &RawCase,
    key: &str,
    mistakes: &mut Mistakes,
) -> String {
    render(template, vars).unwrap_or_else(|error| {
        let line = raw.node.get(key).map_or(raw.line, |node| node.line);
        report(&error, line, &joined(&raw.key, key), vars, mistakes);
        String::new()
    })
}

fn report(error: &TemplateError, line: usize, key: &str, vars: &Map<String, Value>, mistakes: &mut Mistakes) {
    match error {
        TemplateError::Unclosed => {
            mistakes.add(line, key, "has `{{` without `}}`", r"close it, or write `\{{` for the characters");
        }
        TemplateError::Unknown(name) => {
            let known = || vars.keys().map(String::as_str);
            let hint = agentline_core::nearest(name, known()).map_or_else(
                || format!("add it to `vars`; the variables are {}", known().collect::<Vec<_>>().join(", ")),
                |near| format!("did you mean `{{{{{near}}}}}`?"),
            );
            mistakes.add(line, key, format!("the variable `{name}` is not defined"), hint);
        }
    }
}

/// Merges settings; tables are merged entry by entry. Settings are stored under their canonical names.
pub(super) fn merge(mut below: Map<String, Value>, above: Map<String, Value>) -> Map<String, Value> {
    for (key, value) in above {
        let canonical = find(&key).map_or(key.as_str(), |setting| setting.name).to_owned();
        // An alias may mean another value (`yolo`), so whichever name is used, it replaces the setting.
        below.retain(|other, _| *other == key || find(other).is_none_or(|setting| setting.name != canonical));
        match (below.get_mut(&key), value) {
            (Some(Value::Object(below)), Value::Object(above)) => below.extend(above),
            (_, value) => {
                below.insert(key, value);
            }
        }
    }
    below
}
