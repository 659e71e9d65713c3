//! Tests the queues on the real engines: what every queue promises, and what remains of it when workers, servers and
//! connections fail.
//!
//! This is a program of its own, because its tests measure times and load both the processor and the disk.
#![cfg(target_os = "linux")]

mod contract;
mod faults;
mod nats;
mod nats_accounts;
mod postgres;
mod proxy;
mod stage;
