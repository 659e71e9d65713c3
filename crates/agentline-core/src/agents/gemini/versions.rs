//! The minimum versions of Gemini CLI features that a launch uses, taken from the tags of its repository.

use crate::{Surface, Version};

/// `GEMINI_CLI_HOME`. Without it there is no overlay home, so no generated settings and no verbatim prompts.
pub(super) const HOME: Version = Version(0, 25, 0);
/// `--approval-mode plan`.
pub(super) const PLAN: Version = Version(0, 26, 0);
/// Policy files with anchored patterns, which are reported after they are read.
pub(super) const POLICY: Version = Version(0, 35, 0);
/// `--resume`.
pub(super) const RESUME: Version = Version(0, 20, 0);
/// `projects.json`, and a directory for each project named after it.
pub(super) const SLUGS: Version = Version(0, 36, 0);
/// Session files with a record on each line, which are read while the CLI works. Earlier ones are one document.
pub(super) const SESSION_LINES: Version = Version(0, 40, 0);
/// `--skip-trust`. Earlier versions start in any directory.
pub(super) const SKIP_TRUST: Version = Version(0, 40, 0);
/// `--session-id`.
pub(super) const SESSION_ID: Version = Version(0, 41, 0);

/// `--acp`. Earlier versions have only `--experimental-acp`, which later ones still accept.
pub(super) const ACP: Version = Version(0, 33, 0);
/// MCP servers over HTTP over ACP, which structured answers need. 0.11.3 does not have them.
pub(super) const ACP_HTTP: Version = Version(0, 24, 0);
/// Modes that can be set for each session over ACP.
pub(super) const ACP_MODES: Version = Version(0, 31, 0);
/// Models that can be set for each session over ACP.
pub(super) const ACP_MODELS: Version = Version(0, 33, 0);
/// Stored sessions that can be resumed over ACP. The minute in which a session began, which matters for that, is known
/// only if sessions have a directory for each project.
pub(super) const ACP_RESUME: Version = SLUGS;
/// The first version for which tests show that no updates follow the answer to a prompt over ACP.
pub(super) const ACP_NOTHING_FOLLOWS: Version = Version(0, 61, 0);

/// Returns the first version whose session file is read while the CLI works on a surface. On `json`, the file is found
/// only if the session has a known id.
pub(super) fn session_file(surface: Surface) -> Version {
    if surface == Surface::Json { SESSION_ID } else { SESSION_LINES }
}

/// Returns whether a version has a feature. An unknown version counts as the newest.
pub(super) fn has(version: Option<Version>, since: Version) -> bool {
    version.is_none_or(|v| v >= since)
}
