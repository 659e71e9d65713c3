//! Nothing in a workspace takes effect in Claude Code, Codex or OpenCode before trust.
