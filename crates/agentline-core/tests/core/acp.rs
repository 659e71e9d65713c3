//! The Agent Client Protocol as a machine: scripted agents, recorded ones, damaged ones.

mod basics;
mod desk;
mod quirks;
mod recorded;
mod replay;
