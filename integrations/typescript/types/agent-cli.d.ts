// Four functions with the names of agent-cli-sdk. They share one agentline, which does not have to be closed.

import type { Agentline } from './client.js';
import type { ModelInfo, RunEvent, StartedEvent } from './events.js';
import type { ClaudeMessage, UnifiedMessage } from './messages.js';
import type { Outcome } from './outcome.js';
import type { Keys, PermissionMode } from './options.js';

/** Selects the agentline to use. */
export interface SharedOptions {
  /** Your own client. The default is one client for the whole process, which the first call starts. */
  client?: Agentline;
  /** The program `agentline`. */
  bin?: string;
}

export interface ExecuteOptions extends SharedOptions {
  prompt: string;
  /** The agent. The default is `gemini`. */
  tool?: string;
  /** The default is the current directory. */
  workingDir?: string;
  /** The default is `default`. */
  permissionMode?: PermissionMode;
  model?: string;
  /** The id of the new session; with `resume: true`, the session to continue. */
  sessionId?: string;
  /** `true` continues `sessionId`, or the latest session of the directory. A string is a session id. */
  resume?: boolean | string;
  /** Milliseconds. The default is ten minutes. */
  timeout?: number;
  /** Whether `onStderr` also receives every warning. */
  verbose?: boolean;
  /** Whether the answer must contain a JSON value, which becomes `data`. */
  json?: boolean;
  /** Whether to use a warm agent where possible. The default is `true`. */
  warm?: boolean;
  signal?: AbortSignal;
  /** Other settings of the run. */
  options?: Keys;
  /** Called when the agent has started. */
  onStart?: (started: StartedEvent) => void;
  /** Called with each event. */
  onStdout?: (event: RunEvent) => void;
  /** Called with the agent's stderr: recognized messages immediately, and the last part of stderr at the end. */
  onStderr?: (text: string) => void;
  /** Called once if the run failed. */
  onError?: (message: string) => void;
  /** Called once at the end, after all other callbacks. */
  onClose?: (exitCode: number | null) => void;
}

export interface ExecuteResult<T = unknown> {
  /** Whether the agent answered. */
  success: boolean;
  /** The exit code of the agent. 0 if the run succeeded and the agent stays warm; null if there is no exit code. */
  exitCode: number | null;
  sessionId: string | null;
  /** Milliseconds. */
  duration: number;
  /** The messages of the run. */
  messages: ClaudeMessage[];
  /** The JSON value of the answer, if one was requested. */
  data: T | null;
  error: string | null;
  /** Whether the model's service rejected the run for quota or load. */
  quotaExceeded: boolean;
  /** The outcome of the run; null if no run was started. */
  outcome: Outcome<T> | null;
}

/** Runs one prompt. The result reports every failure; the promise rejects only if a callback throws. */
export function execute<T = unknown>(options: ExecuteOptions): Promise<ExecuteResult<T>>;

export interface LoadMessagesOptions extends SharedOptions {
  /** The agent. The default is `gemini`. */
  tool?: string;
  /** The default is the current directory. */
  projectPath?: string;
  /** The default is the latest session of the project. */
  sessionId?: string;
  /** Whether a missing session throws (the default) or returns an empty list. */
  missing?: 'throw' | 'empty';
}

/** Returns the messages of a saved session in the view `unified`. */
export function loadMessages(options?: LoadMessagesOptions): Promise<UnifiedMessage[]>;

/** Returns the path of an agent's program: from its variable, from PATH, or from the usual directories. Starts no agent. */
export function detectCli(tool?: string, options?: { bin?: string }): string | null;

export interface ToolCapabilities {
  supportsSlashCommands: boolean;
  supportsModels: boolean;
  models: ModelInfo[];
  supportsWebSearch: boolean;
  supportsThinking: boolean;
  /** The path of the agent's program; null if it is not installed. */
  cliPath: string | null;
  /** Where the models come from: the agent itself, or agentline's table. */
  source: 'agent' | 'table';
}

/** Returns the capabilities of one agent. An installed agent is started to list its models. */
export function getCapabilities(options: SharedOptions & { tool: string }): Promise<ToolCapabilities>;
/** Returns the capabilities of all agents, by id. */
export function getCapabilities(options?: SharedOptions): Promise<Record<string, ToolCapabilities>>;
