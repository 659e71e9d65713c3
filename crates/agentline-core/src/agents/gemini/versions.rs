//! Since which version Gemini CLI has what a launch relies on. Read from the tags of its sources.

use crate::Version;

/// `GEMINI_CLI_HOME`: without it there is no overlay home, so no settings of ours and no prompt sent verbatim.
pub(super) const HOME: Version = Version(0, 25, 0);
/// `--approval-mode plan`.
pub(super) const PLAN: Version = Version(0, 26, 0);
/// Policy files whose patterns can be anchored, and that are reported when they have been read.
pub(super) const POLICY: Version = Version(0, 35, 0);
/// `--resume`.
pub(super) const RESUME: Version = Version(0, 20, 0);
/// `projects.json` and a folder for each project named after it.
pub(super) const SLUGS: Version = Version(0, 36, 0);
/// `--skip-trust`. Earlier versions start in any folder.
pub(super) const SKIP_TRUST: Version = Version(0, 40, 0);
/// `--session-id`.
pub(super) const SESSION_ID: Version = Version(0, 41, 0);

/// `--acp`. Earlier versions have only the name `--experimental-acp`, which later ones still take.
pub(super) const ACP: Version = Version(0, 33, 0);
/// Modes that can be set for each session over ACP.
pub(super) const ACP_MODES: Version = Version(0, 31, 0);
/// A model that can be set for each session over ACP.
pub(super) const ACP_MODELS: Version = Version(0, 33, 0);
/// From here on our tests show that nothing follows the answer to a prompt over ACP.
pub(super) const ACP_NOTHING_FOLLOWS: Version = Version(0, 61, 0);

/// Whether a version has something. One that could not be read is taken to be new.
pub(super) fn has(version: Option<Version>, since: Version) -> bool {
    version.is_none_or(|v| v >= since)
}
