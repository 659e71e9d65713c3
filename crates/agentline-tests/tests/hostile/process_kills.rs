//! Nothing survives when agentline, its supervisor or both are killed.
