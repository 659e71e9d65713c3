// Functions with the names of agent-cli-sdk. They share one agentline, which does not have to be closed.

import type { Agentline } from './client.js';
import type { ModelInfo, StartedEvent } from './events.js';
import type { ContentBlock, SlashCommandBlock, ToolUseBlock, UnifiedMessage, UnifiedUsage } from './messages.js';
import type { Outcome } from './outcome.js';
import type { Keys, PermissionMode } from './options.js';

/** Selects the agentline to use. */
export interface SharedOptions {
  /** Your own client. The default is one client for the whole process, which the first call starts. */
  client?: Agentline;
  /** The program `agentline`. */
  bin?: string;
}

/** The tokens of a message with the names of agent-cli-sdk, as the agent counts them: Claude's input excludes cached tokens. */
export interface SdkUsage {
  inputTokens: number;
  outputTokens: number;
  totalTokens: number;
  cacheReadTokens?: number;
  cacheCreationTokens?: number;
}

/** A message of the view `unified` with the fields that every message of agent-cli-sdk has. */
export type SdkMessage = WithSdkFields<UnifiedMessage>;

type WithSdkFields<M> = M extends unknown
  ? Omit<M, 'id' | 'timestamp' | 'usage'> & { id: string; timestamp: number; usage?: UnifiedUsage & SdkUsage }
  : never;

/** A run that has started. `kill` stops it with every process that it started. */
export interface ExecuteProcess {
  /** agentline does not report the process id of an agent. */
  readonly pid: undefined;
  readonly killed: boolean;
  readonly started: StartedEvent;
  kill(signal?: string | number): boolean;
}

/** One line that Claude Code would print, whatever the agent is. */
export interface OnEventData {
  /** The line. */
  raw: string;
  /** The line as an object. `type` is `system`, `assistant`, `user` or `result`. */
  event: any;
  /** The message in the line; null if it has none. */
  message: SdkMessage | null;
}

/** All lines so far. */
export interface OnStdoutData {
  raw: string;
  events: any[];
  messages: SdkMessage[];
}

export interface ExecuteOptions extends SharedOptions {
  prompt: string;
  /** The agent. The default is `gemini`. */
  tool?: string;
  /** The default is the current directory. */
  workingDir?: string;
  /** The default is `default`. */
  permissionMode?: PermissionMode;
  /** The same as `permissionMode: 'bypassPermissions'`, which it does not override. */
  dangerouslySkipPermissions?: boolean;
  /** Tools that need no permission, and tools that are denied, as rules of Claude Code or of agentline. */
  toolSettings?: { allowedTools?: string[]; disallowedTools?: string[] };
  model?: string;
  /** The session to continue. For Gemini and Claude without `resume`, the id of the new session. */
  sessionId?: string;
  /** `true` continues `sessionId`, or the latest session of the directory. A string is a session id. */
  resume?: boolean | string;
  /** Whether to continue the latest session of the directory. */
  continue?: boolean;
  /** Replaces the system prompt, where the agent allows it. */
  systemPrompt?: string;
  /** Is added to the system prompt, or put before the prompt where the agent has no such option. */
  appendSystemPrompt?: string;
  /** MCP servers as Claude Code's `--mcp-config` takes them: JSON texts, or paths of JSON files. */
  mcpConfig?: string[];
  /** Images that are sent with the prompt. Paths are relative to `workingDir`. */
  images?: { path: string }[];
  /** Milliseconds. The default is ten minutes. */
  timeout?: number;
  /** Whether `onStderr` also receives every warning. */
  verbose?: boolean;
  /** Whether `data` is the JSON value in the answer, if there is one. */
  json?: boolean;
  /** `false` disables `onEvent` and `onStdout`. */
  streaming?: boolean;
  /** Whether to use a warm agent where possible. The default is `true`. */
  warm?: boolean;
  signal?: AbortSignal;
  /** Other settings of the run. */
  options?: Keys;
  /** Called when the agent has started. */
  onStart?: (process: ExecuteProcess) => void;
  /** Called with each line. */
  onEvent?: (data: OnEventData) => void;
  /** Called after each line with all lines so far. */
  onStdout?: (data: OnStdoutData) => void;
  /** Called with the agent's stderr: recognized messages immediately, and the last part of stderr at the end. */
  onStderr?: (text: string) => void;
  /** Called once if the run failed. */
  onError?: (error: Error) => void;
  /** Called once at the end, after all other callbacks. */
  onClose?: (exitCode: number) => void;
}

export interface ExecuteResult<T = string> {
  /** Whether the agent finished without an error. */
  success: boolean;
  /** The exit code of the agent. 0 if the run succeeded and the agent stays warm; -1 if there is no exit code. */
  exitCode: number;
  /** `unknown` if the agent reported none. */
  sessionId: string;
  /** Milliseconds. */
  duration: number;
  /** The messages of the run without the prompt, as `loadMessages` returns them. */
  messages: SdkMessage[];
  /** The text of the answer; with `json`, the JSON value in it, if there is one. */
  data: T;
  error?: string | undefined;
  /** Whether the model's service rejected the run for quota or load. */
  quotaExceeded: boolean;
  /** The outcome of the run; null if no run was started. */
  outcome: Outcome<T, UnifiedMessage> | null;
}

/**
 * Runs one prompt. The result reports every failure. The promise rejects only if the agent is not installed or a callback
 * throws. An option that does not exist is an error.
 */
export function execute<T = string>(options: ExecuteOptions): Promise<ExecuteResult<T>>;

export interface LoadSessionOptions extends SharedOptions {
  /** The default is the current directory. */
  projectPath?: string;
  /** The default is the latest session of the project. */
  sessionId?: string;
  /** A session file, instead of an id. */
  sessionPath?: string;
}

export interface LoadMessagesOptions extends LoadSessionOptions {
  /** The agent. The default is `gemini`. */
  tool?: string;
  /** Whether a missing session throws (the default) or returns an empty list. */
  missing?: 'throw' | 'empty';
}

/** Returns the messages of a saved session in the view `unified`. */
export function loadMessages(options?: LoadMessagesOptions): Promise<SdkMessage[]>;

/**
 * Returns the message in one record of a session file or in one line that an agent printed; null if it has none. Synchronous:
 * the first call starts agentline, later calls take less than a millisecond.
 */
export function parse(record: string | object, options?: { tool?: string; bin?: string }): SdkMessage | null;

/** Returns the JSON value in a text, such as an answer; null if there is none. Synchronous. */
export function extractJSON<T = any>(text: string, options?: { bin?: string }): T | null;

/** Returns the path of an agent's CLI: from its variable, from PATH, or from the usual directories. Starts no agent. */
export function detectCli(tool?: string, options?: { bin?: string }): string | null;
export function detectGeminiCli(options?: { bin?: string }): string | null;
export function detectClaudeCli(options?: { bin?: string }): string | null;
export function detectCodexCli(options?: { bin?: string }): string | null;

/**
 * Returns the program and first arguments with which agentline starts an agent: its CLI, Node.js with a script, or an adapter.
 * Null if the agent cannot be started.
 */
export function detectLauncher(tool?: string, options?: { bin?: string }): string[] | null;

export interface ToolCapabilities {
  supportsSlashCommands: boolean;
  supportsModels: boolean;
  models: ModelInfo[];
  supportsWebSearch: boolean;
  supportsThinking: boolean;
  /** Whether the agent's CLI was found. */
  installed: boolean;
  /** The path of the agent's CLI. */
  cliPath?: string;
  /** The program and first arguments with which agentline starts the agent. */
  launcher?: string[];
  /** Where the models come from: the agent itself, or agentline's table. */
  source: 'agent' | 'table';
}

/** Returns the capabilities of one agent. An installed agent is started to list its models. */
export function getCapabilities(agent: string, options?: SharedOptions): Promise<ToolCapabilities>;
export function getCapabilities(options: SharedOptions & { tool: string }): Promise<ToolCapabilities>;
/** Returns the capabilities of all agents, by id. */
export function getCapabilities(options?: SharedOptions): Promise<Record<string, ToolCapabilities>>;

/** The functions of one agent: the modules `agentline/gemini`, `agentline/claude`, `agentline/codex`, `agentline/opencode`. */
export interface AgentModule {
  /** Returns the message in a record; null if it has none. */
  parse(record: string | object, options?: { bin?: string }): SdkMessage | null;
  /** Returns the messages of a saved session; an empty list if it does not exist. */
  loadSession(options?: LoadSessionOptions): Promise<SdkMessage[]>;
  execute<T = string>(options: Omit<ExecuteOptions, 'tool'>): Promise<ExecuteResult<T>>;
  detectCli(options?: { bin?: string }): string | null;
}

/** Returns all text of a message. */
export function extractTextContent(message: Pick<UnifiedMessage, 'content'>): string;
/** Returns the first session id in a list of events, or `unknown`. */
export function extractSessionIdFromEvents<T extends { sessionId?: string | undefined }>(events: T[]): string;

/** A call of the tool with this canonical name. */
export type CallOf<Name extends string> = ToolUseBlock & { name: Name };
export function isBashTool(block: ContentBlock): block is CallOf<'Bash'>;
export function isReadTool(block: ContentBlock): block is CallOf<'Read'>;
export function isWriteTool(block: ContentBlock): block is CallOf<'Write'>;
export function isEditTool(block: ContentBlock): block is CallOf<'Edit'>;
export function isGlobTool(block: ContentBlock): block is CallOf<'Glob'>;
export function isGrepTool(block: ContentBlock): block is CallOf<'Grep'>;
export function isTodoWriteTool(block: ContentBlock): block is CallOf<'TodoWrite'>;
export function isWebSearchTool(block: ContentBlock): block is CallOf<'WebSearch'>;
export function isAskUserQuestionTool(block: ContentBlock): block is CallOf<'AskUserQuestion'>;
export function isExitPlanModeTool(block: ContentBlock): block is CallOf<'ExitPlanMode'>;
export function isMcpTool(block: ContentBlock): block is ToolUseBlock;
export function isSlashCommand(block: ContentBlock): block is SlashCommandBlock;
