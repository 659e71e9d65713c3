// agentline for Node.js. The types are in ../types.

export {
  detectClaudeCli,
  detectCli,
  detectCodexCli,
  detectGeminiCli,
  detectLauncher,
  execute,
  extractJSON,
  getCapabilities,
  loadMessages,
  parse,
} from './agent-cli.js';
export { connect } from './client.js';
export { findBinary } from './binary.js';
export {
  AbortError,
  AgentlineError,
  BinaryNotFoundError,
  HostGoneError,
  NoSessionError,
  RunError,
  StopRun,
  UsageError,
  expectDone,
} from './errors.js';
export {
  extractSessionIdFromEvents,
  extractTextContent,
  isAskUserQuestionTool,
  isBashTool,
  isEditTool,
  isExitPlanModeTool,
  isGlobTool,
  isGrepTool,
  isMcpTool,
  isReadTool,
  isSlashCommand,
  isTodoWriteTool,
  isWebSearchTool,
  isWriteTool,
} from './unified.js';
