//! Tests the Agent Client Protocol as a state machine, with scripted, recorded and damaged agents.

mod basics;
mod compatibility;
mod desk;
mod harm;
mod opening;
mod quirks;
mod recorded;
mod replay;
mod rooms;
mod times;
mod tools;
mod updates;
