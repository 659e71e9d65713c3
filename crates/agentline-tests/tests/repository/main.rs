//! Tests rules about the source itself: layers, dependencies, and the speed of everything that scans input.

mod dependencies;
mod layers;
mod modules;
mod scanners;
