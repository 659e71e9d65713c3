// The types of the package for a CommonJS program, which are those of the ES module.

import type * as agentline from './index.js' with { 'resolution-mode': 'import' };

export type * from './index.js' with { 'resolution-mode': 'import' };

export const AbortError: typeof agentline.AbortError;
export type AbortError = agentline.AbortError;
export const AgentlineError: typeof agentline.AgentlineError;
export type AgentlineError = agentline.AgentlineError;
export const BinaryNotFoundError: typeof agentline.BinaryNotFoundError;
export type BinaryNotFoundError = agentline.BinaryNotFoundError;
export const HostGoneError: typeof agentline.HostGoneError;
export type HostGoneError = agentline.HostGoneError;
export const NoSessionError: typeof agentline.NoSessionError;
export type NoSessionError = agentline.NoSessionError;
export const RunError: typeof agentline.RunError;
export type RunError = agentline.RunError;
export const StopRun: typeof agentline.StopRun;
export type StopRun = agentline.StopRun;
export const UsageError: typeof agentline.UsageError;
export type UsageError = agentline.UsageError;
export const connect: typeof agentline.connect;
export const detectClaudeCli: typeof agentline.detectClaudeCli;
export const detectCli: typeof agentline.detectCli;
export const detectCodexCli: typeof agentline.detectCodexCli;
export const detectGeminiCli: typeof agentline.detectGeminiCli;
export const detectLauncher: typeof agentline.detectLauncher;
export const execute: typeof agentline.execute;
export const expectDone: typeof agentline.expectDone;
export const extractJSON: typeof agentline.extractJSON;
export const extractSessionIdFromEvents: typeof agentline.extractSessionIdFromEvents;
export const extractTextContent: typeof agentline.extractTextContent;
export const findBinary: typeof agentline.findBinary;
export const getCapabilities: typeof agentline.getCapabilities;
export const isAskUserQuestionTool: typeof agentline.isAskUserQuestionTool;
export const isBashTool: typeof agentline.isBashTool;
export const isEditTool: typeof agentline.isEditTool;
export const isExitPlanModeTool: typeof agentline.isExitPlanModeTool;
export const isGlobTool: typeof agentline.isGlobTool;
export const isGrepTool: typeof agentline.isGrepTool;
export const isMcpTool: typeof agentline.isMcpTool;
export const isReadTool: typeof agentline.isReadTool;
export const isSlashCommand: typeof agentline.isSlashCommand;
export const isTodoWriteTool: typeof agentline.isTodoWriteTool;
export const isWebSearchTool: typeof agentline.isWebSearchTool;
export const isWriteTool: typeof agentline.isWriteTool;
export const loadMessages: typeof agentline.loadMessages;
export const parse: typeof agentline.parse;
