//! A checked request for one agent and surface.

use crate::{RunRequest, Surface};

/// A request that was checked for one agent and surface.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Plan {
    /// The request, with the agent's own id and a non-empty prompt.
    pub request: RunRequest,
    /// The surface to use.
    pub surface: Surface,
    /// Whether the agent stays alive between prompts on this surface and asks the host while it works.
    pub is_live: bool,
}

impl Plan {
    /// Creates a plan for a surface that the agent supports. The agent's own checks run at the launch.
    #[must_use]
    pub fn new(request: RunRequest, surface: Surface) -> Self {
        Self { request, surface, is_live: surface.is_live() }
    }
}
