//! The runs of a host, each registered under the host's name for it while it is in progress.

use crate::host::{error::RpcError, run_stop::RunStop, work_guard::WorkGuard};
use agentline_core::Problem;
use serde_json::{Value, value::RawValue};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The runs in progress, by name.
#[derive(Debug, Default)]
pub(super) struct RunRegistry(Mutex<HashMap<Arc<str>, RunStop>>);

impl RunRegistry {
    /// Returns the runs in progress.
    pub(super) fn runs(&self) -> MutexGuard<'_, HashMap<Arc<str>, RunStop>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a run under the host's name for it, or else under the id of its request.
    pub(super) fn register(
        self: &Arc<Self>,
        name: Option<&str>,
        id: Option<&RawValue>,
        work: Option<WorkGuard>,
    ) -> Result<RegisteredRun, RpcError> {
        let name: Arc<str> = match (name, id) {
            (Some(name), _) => name.into(),
            (None, Some(id)) => match serde_json::from_str(id.get()) {
                Ok(Value::String(id)) => id.into(),
                _ => id.get().into(),
            },
            (None, None) => uuid::Uuid::new_v4().to_string().into(),
        };
        let mut runs = self.runs();
        if runs.contains_key(&name) {
            let problem = Problem::new("run", format!("a run named `{name}` is already in progress"));
            return Err(RpcError::usage(&[problem.hint("give each run a unique name, or omit `run`")]));
        }
        let stop = RunStop::default();
        runs.insert(Arc::clone(&name), stop.clone());
        Ok(RegisteredRun { registry: Arc::clone(self), name, stop, _work: work })
    }
}

/// A registered run. Dropping it removes the registration.
pub(super) struct RegisteredRun {
    registry: Arc<RunRegistry>,
    pub(super) name: Arc<str>,
    pub(super) stop: RunStop,
    _work: Option<WorkGuard>,
}

impl Drop for RegisteredRun {
    fn drop(&mut self) {
        self.registry.runs().remove(&self.name);
    }
}
