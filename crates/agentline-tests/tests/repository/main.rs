//! Tests rules about the source itself: layers, the order of modules, and dependencies.

mod dependencies;
mod features;
mod layers;
mod modules;
