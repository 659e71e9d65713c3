//! Scripted models on loopback and a fake agent.
