//! The Agent Client Protocol as a machine: scripted agents, recorded ones, damaged ones.

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
