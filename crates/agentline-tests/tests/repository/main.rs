//! Tests rules about the source itself: layers, the order of modules, and dependencies.

mod dependencies;
mod layers;
mod modules;
