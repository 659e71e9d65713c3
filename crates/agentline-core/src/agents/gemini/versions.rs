//! The minimum versions of Gemini CLI features that a launch uses, taken from the tags of its repository.

use crate::Version;

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
/// `--skip-trust`. Earlier versions start in any directory.
pub(super) const SKIP_TRUST: Version = Version(0, 40, 0);
/// `--session-id`.
pub(super) const SESSION_ID: Version = Version(0, 41, 0);

/// `--acp`. Earlier versions have only `--experimental-acp`, which later ones still accept.
pub(super) const ACP: Version = Version(0, 33, 0);
/// Modes that can be set for each session over ACP.
pub(super) const ACP_MODES: Version = Version(0, 31, 0);
/// Models that can be set for each session over ACP.
pub(super) const ACP_MODELS: Version = Version(0, 33, 0);
/// The first version for which tests show that no updates follow the answer to a prompt over ACP.
pub(super) const ACP_NOTHING_FOLLOWS: Version = Version(0, 61, 0);

/// Returns whether a version has a feature. An unknown version counts as the newest.
pub(super) fn has(version: Option<Version>, since: Version) -> bool {
    version.is_none_or(|v| v >= since)
}
