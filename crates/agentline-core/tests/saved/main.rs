//! Sessions as Claude Code and Codex saved them: recorded ones as they are read, and the promises that every one keeps,
//! whole, cut, or damaged.

mod agents;
mod look;
mod numbers;
mod offloaded;
mod older;
mod places;
mod promises;
