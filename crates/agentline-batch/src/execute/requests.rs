//! The requests of a suite: the settings of its runs and judges, on top of those of the user.

use crate::check::Condition;
use crate::suite::Suite;
use agentline::config::Settings;
use agentline::{Agentline, Problems, RunRequest};
use agentline_core::Layer;
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};

/// The handle and the request for each set of settings of runs and judges.
#[derive(Debug, Default)]
pub(crate) struct RequestTable(HashMap<String, (Agentline, RunRequest)>);

impl RequestTable {
    /// Returns the handle and the request for settings.
    pub(crate) fn get(&self, settings: &Map<String, Value>) -> Option<&(Agentline, RunRequest)> {
        self.0.get(&settings_key(settings))
    }

    /// Adds the handle and the request for the settings with a name.
    pub(crate) fn insert(&mut self, key: String, request: (Agentline, RunRequest)) {
        self.0.insert(key, request);
    }
}

/// Returns the name of a set of settings.
pub(crate) fn settings_key(settings: &Map<String, Value>) -> String {
    serde_json::to_string(settings).unwrap_or_default()
}

/// Checks the settings of a suite for its agents. Starts nothing.
///
/// # Errors
/// Returns every problem, with the place of the case and the variant.
pub fn validate(agentline: &Agentline, suite: &Suite) -> Result<(), Problems> {
    requests(agentline, suite).map(|_| ())
}

/// Builds the request for each set of settings of a suite.
pub(crate) fn requests(agentline: &Agentline, suite: &Suite) -> Result<RequestTable, Problems> {
    let mut requests = RequestTable::default();
    let mut problems = Vec::new();
    let mut seen = HashSet::new();
    for case in &suite.cases {
        for (variant, settings) in suite.variants.iter().zip(&case.settings) {
            let key = settings_key(settings);
            if !seen.insert(key.clone()) {
                continue;
            }
            match request(agentline, settings) {
                Ok(request) => requests.insert(key, request),
                Err(found) => {
                    let source = format!("{}, variant `{}`", case.source, variant.id);
                    problems.extend(found.0.into_iter().map(|problem| problem.source(source.clone())));
                }
            }
        }
        for check in &case.checks {
            let Condition::Judge(judge) = &check.condition else { continue };
            let key = settings_key(&judge.settings);
            if !seen.insert(key.clone()) {
                continue;
            }
            match request(agentline, &judge.settings) {
                Ok(request) => requests.insert(key, request),
                Err(found) => {
                    let source = format!("{}, judge", case.source);
                    problems.extend(found.0.into_iter().map(|problem| problem.source(source.clone())));
                }
            }
        }
    }
    Problems(problems).into_result().map(|()| requests)
}

/// Builds a request from the user's settings and those of a suite, and validates it.
pub(crate) fn request(
    agentline: &Agentline,
    settings: &Map<String, Value>,
) -> Result<(Agentline, RunRequest), Problems> {
    let (agentline, request) = resolve(agentline, settings)?;
    // The prompt follows for each run.
    let mut checked = request.clone();
    "ready".clone_into(&mut checked.prompt);
    agentline.validate(&checked)?;
    Ok((agentline, request))
}

/// Builds a request from the user's settings and those of a suite.
pub(crate) fn resolve(
    agentline: &Agentline,
    settings: &Map<String, Value>,
) -> Result<(Agentline, RunRequest), Problems> {
    let host_env = agentline.host_env();
    let layer = Layer::map("suite", settings.clone());
    let found = Settings::find(&host_env.cwd, None, Some(&host_env.home), std::env::vars_os(), vec![layer])
        .build()?;
    Ok(agentline.clone().with_config(&found))
}
