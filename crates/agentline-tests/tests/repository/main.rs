//! Tests rules about the source itself: layers, the order of modules, facts about agents, and dependencies.

mod agent_words;
mod cycles;
mod dependencies;
mod features;
mod fuzz;
mod layers;
mod modules;
mod platforms;
mod source;
