//! A suite: cases, variants and how often each is run.

mod expand;
mod files;
mod mistakes;
mod promptfoo;
mod read;
pub(crate) mod template;
#[cfg(test)]
mod tests;

pub use files::{SuiteInput, load, load_with};

use crate::check::Check;
use crate::class::ClassTable;
use serde_json::{Map, Value};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A suite that has been checked: every prompt and check is complete.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Suite {
    /// The name of the experiment.
    pub name: String,
    /// What it is about.
    pub description: Option<String>,
    /// The cases.
    pub cases: Vec<TestCase>,
    /// The cases that [`Self::select`] left out. Their results stay in the report.
    pub unselected: Vec<TestCase>,
    /// The ids of all cases, in the order of the suite.
    pub(crate) case_ids: Vec<String>,
    /// The settings below those of the suite, such as the flags of a command.
    pub(crate) below: Map<String, Value>,
    /// The variants.
    pub variants: Vec<Variant>,
    /// How often each case is run with each variant.
    pub repeat: u32,
    /// The limits of the whole batch.
    pub limits: BatchLimits,
    /// The classes that the suite assigns to outcomes itself.
    pub classes: ClassTable,
    /// Whether the runs may share the workspace itself instead of copies of it.
    pub shares_workspace: bool,
    /// The files with cases and checks from which the suite was read.
    pub files: Vec<PathBuf>,
    /// The keys of a promptfoo configuration that were not used, such as `providers`.
    pub unused: Vec<String>,
}

/// A task for the agents.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TestCase {
    /// The id, unique in the suite.
    pub id: String,
    /// The tags, for `--filter`.
    pub tags: Vec<String>,
    /// The prompt of each variant, in their order.
    pub prompts: Vec<String>,
    /// The settings of the run for each variant, in their order: the suite's defaults, then the variant's, then the
    /// case's.
    pub settings: Vec<Arc<Map<String, Value>>>,
    /// Whether an interrupted run may be executed again, for each variant, in their order: what the case says, or else
    /// the variant, or else the suite. `None` if none of them does, which means yes.
    pub repeatable: Vec<Option<bool>>,
    /// The files that the agent starts with.
    pub workspace: Option<WorkspaceSource>,
    /// Files that only checks can see.
    pub hidden: Vec<PathBuf>,
    /// Commands to run in the workspace before the agent.
    pub setup: Vec<String>,
    /// Commands to run in the workspace after the checks.
    pub teardown: Vec<String>,
    /// The checks of the result.
    pub checks: Vec<Check>,
    /// The labels that a worker of a queue must have to run the case.
    pub worker_labels: Vec<String>,
    /// The file and line at which the case is defined.
    pub source: String,
}

impl TestCase {
    /// Returns whether a run with this variant may be executed again if it was interrupted or failed.
    pub(crate) fn is_repeatable(&self, variant: usize) -> bool {
        self.repeatable.get(variant).copied().flatten().unwrap_or(true)
    }
}

/// One way to run the cases.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Variant {
    /// The id, unique in the suite.
    pub id: String,
    /// The variant's own settings, without the defaults.
    pub settings: Map<String, Value>,
    /// Its template for prompts, if it has one.
    pub prompt: Option<String>,
    /// Whether an interrupted run may be executed again, if the variant says.
    pub repeatable: Option<bool>,
}

/// Where the files of a workspace come from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WorkspaceSource {
    /// A directory.
    Directory(PathBuf),
    /// A revision of a Git repository.
    Git {
        /// A local path or a URL.
        repository: String,
        /// The path or URL as the suite has it, which stays the same if the repository is moved with the suite.
        name: String,
        /// A commit, tag or branch.
        revision: String,
    },
}

/// Limits of a whole batch. Reaching one ends it with the results so far.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct BatchLimits {
    /// The cost of all runs in US dollars.
    pub cost_usd: Option<f64>,
    /// The tokens of all runs.
    pub tokens: Option<u64>,
    /// The number of failed runs.
    pub failures: Option<u32>,
    /// The number of infrastructure failures in a row.
    pub infrastructure_in_a_row: Option<u32>,
    /// The time that the batch takes.
    pub time: Option<Duration>,
}

impl Default for BatchLimits {
    fn default() -> Self {
        Self { cost_usd: None, tokens: None, failures: None, infrastructure_in_a_row: Some(20), time: None }
    }
}

/// One run of a suite: a case, a variant and an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub struct RunIndex {
    /// The attempt, from 0.
    pub attempt: u32,
    /// The position of the case in the suite.
    pub case: usize,
    /// The position of the variant in the suite.
    pub variant: usize,
}

impl Suite {
    /// Returns all runs of the suite: every case with every variant before the next attempt.
    pub fn runs(&self) -> impl Iterator<Item = RunIndex> + use<> {
        let (cases, variants) = (self.cases.len(), self.variants.len());
        (0..self.repeat).flat_map(move |attempt| {
            (0..cases)
                .flat_map(move |case| (0..variants).map(move |variant| RunIndex { attempt, case, variant }))
        })
    }

    /// Checks a pattern for [`Self::select`].
    ///
    /// # Errors
    /// Returns why it is not a pattern.
    pub fn check_filter(filter: &str) -> Result<(), String> {
        globset::Glob::new(filter).map(|_| ()).map_err(|error| error.kind().to_string())
    }

    /// Keeps the cases whose id or one of whose tags matches one of the patterns, then at most `limit` of them.
    ///
    /// A pattern is a glob over the id, or `tag:NAME`.
    pub fn select(&mut self, filters: &[String], limit: Option<usize>) {
        if filters.is_empty() && limit.is_none() {
            return;
        }
        let matchers: Vec<_> = filters.iter().filter_map(|filter| globset::Glob::new(filter).ok()).collect();
        let matchers: Vec<_> = matchers.iter().map(globset::Glob::compile_matcher).collect();
        let matches = |case: &TestCase| {
            filters.is_empty()
                || matchers.iter().any(|matcher| {
                    matcher.is_match(&case.id)
                        || case.tags.iter().any(|tag| matcher.is_match(format!("tag:{tag}")))
                })
        };
        let mut left = limit.unwrap_or(usize::MAX);
        let is_selected = |case: &TestCase| {
            let is_selected = left > 0 && matches(case);
            left -= usize::from(is_selected);
            is_selected
        };
        let (selected, unselected) = std::mem::take(&mut self.cases).into_iter().partition(is_selected);
        (self.cases, self.unselected) = (selected, unselected);
    }

    /// Returns a suite with the cases that [`Self::select`] left out.
    pub(crate) fn rest(&self) -> Self {
        Self { cases: self.unselected.clone(), unselected: Vec::new(), ..self.clone() }
    }
}
