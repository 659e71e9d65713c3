//! The core of agentline: lines in; events, questions and frames out. No I/O, no clock.
