//! A resolved run: everything that is known about it before a process is chosen, from one read of the disk.

use crate::{
    agentline::Inner,
    resolve::{
        PlannedRun, StartFailure, not_ready_in_time, preparation_time,
        spec::{ProcessSpec, ResolvedRun},
    },
    run::options::RunOptions,
    tools::RunningTools,
};
use agentline_core::{Agent, Outcome, Problem, Problems, RunRequest, Surface, Version};
use std::time::Duration;

/// A resolved run. A cold start, the pool, the cache and a conversation all read it.
pub(crate) struct ResolvedStart {
    /// The process that serves the run.
    pub(crate) process: ProcessSpec,
    /// The session and the turn.
    pub(crate) run: ResolvedRun,
    /// The options of the caller, with the schema of the request.
    pub(crate) options: RunOptions,
    /// The tools that the agent finds in its settings.
    pub(crate) served: Option<RunningTools>,
}

/// A run that has not started yet.
pub(crate) enum PendingStart {
    Planned(Box<(PlannedRun, RunOptions)>),
    Resolved(Box<ResolvedStart>),
}

impl PendingStart {
    /// Resolves the run, unless that is done. Blocks.
    pub(crate) fn resolve(self, inner: &Inner) -> Result<Box<ResolvedStart>, StartFailure> {
        match self {
            Self::Planned(planned) => inner.resolve(planned.0, &planned.1),
            Self::Resolved(resolved) => Ok(resolved),
        }
    }

    fn request(&self) -> &RunRequest {
        match self {
            Self::Planned(planned) => &planned.0.plan.request,
            Self::Resolved(resolved) => &resolved.run.plan.request,
        }
    }

    /// Returns how long the preparation may take, and the outcome of a run that takes longer.
    pub(crate) fn limit(&self) -> (Duration, Outcome) {
        (preparation_time(self.request()), not_ready_in_time(self.request()))
    }
}

impl Inner {
    /// Resolves a planned run: finds the program and the workspace, serves the tools that the agent's settings must
    /// name, and builds the launch. Blocks. Must be called inside a runtime.
    pub(crate) fn resolve(
        &self,
        planned: PlannedRun,
        options: &RunOptions,
    ) -> Result<Box<ResolvedStart>, StartFailure> {
        let mut checked = self.check(planned)?;
        let options = self.with_schema(&mut checked, options)?;
        let version = checked.context.program.version;
        refuse_unsupported(&*checked.agent, checked.plan.surface, version, &options)?;
        // An ACP session receives its servers when it is opened; other runs find them in the agent's settings.
        let mut served = None;
        if !checked.plan.is_live {
            let servers = &checked.plan.request.mcp_servers;
            served = self.serve(&*checked.agent, &checked.context.cwd, &RunOptions::default(), servers)?;
        }
        let (process, run) = self.launch(checked, served.as_ref().map(RunningTools::servers))?;
        Ok(Box::new(ResolvedStart { process, run, options, served }))
    }
}

/// Refuses functions of the caller and structured answers if the agent, or this version of it, does not support them.
fn refuse_unsupported(
    agent: &dyn Agent,
    surface: Surface,
    version: Option<Version>,
    options: &RunOptions,
) -> Result<(), Problems> {
    let (newest, this) = (agent.abilities(surface, None), agent.abilities(surface, version));
    let has_tools = options.tools.as_ref().is_some_and(|tools| !tools.is_empty());
    let needed = [
        ("tools", has_tools, this.hosted_tools, newest.hosted_tools),
        ("output_schema", options.schema.is_some(), this.schema, newest.schema),
    ];
    let info = agent.info();
    let missing = needed.into_iter().filter(|(_, is_set, is_supported, _)| *is_set && !*is_supported);
    let found = version.map(|version| format!(" {version}")).unwrap_or_default();
    let problems: Vec<Problem> = missing
        .map(|(key, _, _, is_newer)| {
            let message = format!("is not supported by {}{found} on the surface `{surface}`", info.title);
            Problem::new(key, message).hint(match is_newer {
                true => format!("use {} {}", info.title, info.pinned),
                false => "remove it, or use another agent".to_owned(),
            })
        })
        .collect();
    Problems(problems).into_result()
}

#[cfg(all(test, feature = "schema"))]
mod tests {

    use super::*;
    use crate::{
        Schema,
        tools::{Tool, ToolHost},
    };
    use serde_json::json;

    #[test]
    fn version_without_functions_of_the_caller_or_schemas_refuses_them() {
        let agent = agentline_core::agents::find("gemini").unwrap();
        let refused = |version: &str, options: &RunOptions| {
            let version = Version::parse(version);
            refuse_unsupported(&*agent, Surface::Acp, version, options)
                .err()
                .map(|found| found.0[0].key.clone())
        };
        let tool = Tool::new("t", "about", json!({"type": "object"}), |_: serde_json::Value, _| async {
            Ok(String::new())
        });
        let tools = RunOptions::new().tools(ToolHost::new().tool(tool));
        let schema = RunOptions::new().schema(Schema::from_value(json!({"type": "object"})).unwrap());
        for (version, tools_key, schema_key) in [
            ("0.11.3", Some("tools"), Some("output_schema")),
            ("0.24.0", Some("tools"), None),
            ("0.61.0", None, None),
            ("unknown", None, None),
        ] {
            assert_eq!(refused(version, &tools).as_deref(), tools_key, "{version}");
            assert_eq!(refused(version, &schema).as_deref(), schema_key, "{version}");
        }
        assert_eq!(refused("0.11.3", &RunOptions::new()), None);
        let agent = agentline_core::agents::AgentRegistry::default().find("pi").unwrap();
        let refused =
            |options: &RunOptions| refuse_unsupported(&*agent, Surface::Acp, None, options).is_err();
        assert!(refused(&tools) && refused(&schema) && !refused(&RunOptions::new()), "it has no MCP servers");
    }
}
