// agentline for Node.js. The types are in ../types.

export { detectCli, execute, getCapabilities, loadMessages } from './agent-cli.js';
export { connect } from './client.js';
export { findBinary } from './binary.js';
export {
  AbortError,
  AgentlineError,
  BinaryNotFoundError,
  HostGoneError,
  NoSessionError,
  RunError,
  UsageError,
  expectDone,
} from './errors.js';
