//! The runs of a suite by their keys, and what an experiment stores about the suite.

use super::BatchError;
use super::requests::{resolve, settings_key};
use crate::key::{self, RunKeys};
use crate::store::{DESCRIPTION, Experiment, SELECTED, VARIANT_SETTINGS};
use crate::suite::Suite;
use crate::template::PinnedRevision;
use agentline::Agentline;
use serde_json::{Map, Value};
use std::collections::HashMap;

/// Returns the names of each run of a suite, with the settings of the user's configuration and environment.
///
/// # Errors
/// Fails if a workspace, or a file that the settings name, cannot be read.
pub(crate) fn run_keys(agentline: &Agentline, suite: &Suite) -> Result<RunKeys, BatchError> {
    let mut known: HashMap<String, Option<String>> = HashMap::new();
    let resolved = |settings: &Map<String, Value>| {
        let name = settings_key(settings);
        if let Some(digest) = known.get(&name) {
            return Ok(digest.clone());
        }
        // Invalid settings are reported where they are validated.
        let digest = match resolve(agentline, settings) {
            Ok((_, request)) => Some(key::settings_digest(&request, &agentline.host_env().cwd)?),
            Err(_) => None,
        };
        known.insert(name, digest.clone());
        Ok(digest)
    };
    key::keys(suite, resolved)
        .map_err(|error| BatchError::Io("a workspace or a file of the settings cannot be read".into(), error))
}

/// Stores what the suite is now. Reports are about its runs only, whatever else was run in this directory.
pub(crate) fn store_suite(
    agentline: &Agentline,
    suite: &Suite,
    keys: &RunKeys,
    pinned: &[PinnedRevision],
    experiment: &Experiment,
) -> Result<(), BatchError> {
    let rest = match suite.unselected.is_empty() {
        true => RunKeys::default(),
        // A case that is not run now may be incomplete. Then it has no results in the report.
        false => run_keys(agentline, &suite.rest()).unwrap_or_default(),
    };
    let list = |ids: &[&String]| serde_json::to_string(ids).unwrap_or_default();
    let variants: Vec<&String> = suite.variants.iter().map(|variant| &variant.id).collect();
    let values = [
        ("name", suite.name.clone()),
        (DESCRIPTION, suite.description.clone().unwrap_or_default()),
        (VARIANT_SETTINGS, variant_settings(suite).to_string()),
        ("cases", list(&suite.case_ids.iter().collect::<Vec<_>>())),
        (SELECTED, list(&suite.cases.iter().map(|case| &case.id).collect::<Vec<_>>())),
        ("variants", list(&variants)),
        ("repeat", suite.repeat.to_string()),
        (REVISIONS, serde_json::to_string(pinned).unwrap_or_default()),
        (DEFAULTS, serde_json::to_string(&suite.below).unwrap_or_default()),
    ];
    let values: Vec<(&str, &str)> = values.iter().map(|(name, value)| (*name, value.as_str())).collect();
    Ok(experiment.set_suite(keys.iter().chain(rest.iter()), &values)?)
}

/// Returns what distinguishes the variants: the settings and the prompt of each, without secrets.
fn variant_settings(suite: &Suite) -> Value {
    let settings = suite.variants.iter().map(|variant| {
        let mut settings = variant.settings.clone();
        settings.extend(variant.prompt.clone().map(|prompt| ("prompt".to_owned(), prompt.into())));
        (variant.id.clone(), settings.into())
    });
    let mut all = Value::Object(settings.collect());
    if let Value::Object(variants) = &mut all {
        // Ids are no names of secrets.
        variants.values_mut().for_each(key::remove_secrets);
    }
    all
}

/// The name of the stored commits of revisions.
pub(crate) const REVISIONS: &str = "revisions";

/// The name of the stored settings below those of the suite.
pub(crate) const DEFAULTS: &str = "defaults";
