//! What a scenario runs on: a surface of an agent at a version.

use agentline::agents::{Agent, Program, SurfaceFeatures, Version};
use agentline::detect::detect_for;
use agentline::{HostEnv, Problem, RunRequest, Surface};
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;

/// A surface of an agent at a version.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct TestedSurface {
    /// The id of the agent.
    pub agent: String,
    /// The surface.
    pub surface: Surface,
    /// The version of the program, if known.
    pub version: Option<Version>,
    /// The path of the program.
    #[serde(skip)]
    pub program: PathBuf,
    #[serde(skip)]
    pub(crate) features: SurfaceFeatures,
}

/// Why there is no target: the program was not found, or cannot provide the surface.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TargetError {
    /// The problem.
    pub problem: Problem,
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem.message)
    }
}

impl std::error::Error for TargetError {}

impl TestedSurface {
    /// Returns a surface of an agent with this program.
    ///
    /// # Errors
    /// Fails if this version of the agent does not have the surface.
    pub fn new(agent: &dyn Agent, surface: Surface, program: &Program) -> Result<Self, TargetError> {
        let info = agent.info();
        let features = agent.abilities(surface, program.version);
        if !info.surfaces.contains(&surface) || !features.works {
            let message = format!("{} has no surface `{surface}`", info.title);
            return Err(TargetError { problem: Problem::new("surface", message) });
        }
        Ok(Self {
            agent: info.id.to_owned(),
            surface,
            version: program.version,
            program: program.path.clone(),
            features,
        })
    }

    /// Returns a surface of an agent with the program that the caller has installed.
    ///
    /// # Errors
    /// Fails if the program is not installed or does not provide the surface.
    pub fn installed(agent: &dyn Agent, surface: Surface, host_env: &HostEnv) -> Result<Self, TargetError> {
        let found = detect_for(agent, surface, host_env);
        match (found.program, found.problems.into_iter().next()) {
            (_, Some(problem)) => Err(TargetError { problem }),
            (Some(program), None) => Self::new(agent, surface, &program),
            (None, None) => {
                let info = agent.info().for_surface(surface);
                let message = format!("`{}` is not installed", info.program);
                Err(TargetError { problem: Problem::new(info.id, message) })
            }
        }
    }

    /// Returns the surface that an agent uses for a request without special needs.
    #[must_use]
    pub fn default_surface(agent: &dyn Agent) -> Option<Surface> {
        agent.choose(&RunRequest::new("Say hello").agent(agent.info().id)).ok()
    }

    /// Returns whether agents on this surface can be kept warm.
    pub(crate) fn is_warm(&self) -> bool {
        self.features.warm
    }

    /// Returns whether this is another version of the same surface.
    #[must_use]
    pub fn is_same_surface(&self, other: &Self) -> bool {
        self.agent == other.agent && self.surface == other.surface
    }
}

impl fmt::Display for TestedSurface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.agent, self.surface)?;
        self.version.map_or(Ok(()), |version| write!(f, " {version}"))
    }
}
