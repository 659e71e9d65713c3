// Four functions under the names that programs of an agent-CLI SDK know. They share one agentline that needs no closing.

import type { Agentline } from './client.js';
import type { ModelInfo, RunEvent, StartedEvent } from './events.js';
import type { ClaudeMessage, UnifiedMessage } from './messages.js';
import type { Outcome } from './outcome.js';
import type { Keys, PermissionMode } from './options.js';

/** Which agentline is used. */
export interface SharedOptions {
  /** One of your own; without it one for the whole process is started when it is first needed. */
  client?: Agentline;
  /** Its program. */
  bin?: string;
}

export interface ExecuteOptions extends SharedOptions {
  prompt: string;
  /** The agent; `gemini` when nothing is said. */
  tool?: string;
  /** The current directory when nothing is said. */
  workingDir?: string;
  /** `default` when nothing is said. */
  permissionMode?: PermissionMode;
  model?: string;
  /** The id that the session shall have; with `resume: true` the session to go on with. */
  sessionId?: string;
  /** `true` goes on with `sessionId`, or with the latest session of the folder; a text is an id. */
  resume?: boolean | string;
  /** Milliseconds; ten minutes when nothing is said. */
  timeout?: number;
  /** `onStderr` also hears every warning. */
  verbose?: boolean;
  /** The answer is to hold a JSON value, which becomes `data`. */
  json?: boolean;
  /** Use a warm agent where that is possible; that is the default. */
  warm?: boolean;
  signal?: AbortSignal;
  /** Any other key of a run. */
  options?: Keys;
  /** Called once, when the agent is up. */
  onStart?: (started: StartedEvent) => void;
  /** Called with everything that happens. */
  onStdout?: (event: RunEvent) => void;
  /** Called with what the agent wrote on standard error: what was understood at once, the end of it all at the end. */
  onStderr?: (text: string) => void;
  /** Called once where it failed. */
  onError?: (message: string) => void;
  /** Called once at the end, after everything else. */
  onClose?: (exitCode: number | null) => void;
}

export interface ExecuteResult<T = unknown> {
  /** The agent finished and answered. */
  success: boolean;
  /** The agent's own, where it ended; 0 where it worked and lives on for the next call; else null. */
  exitCode: number | null;
  sessionId: string | null;
  /** Milliseconds. */
  duration: number;
  /** What came of the prompt. */
  messages: ClaudeMessage[];
  /** The JSON value of the answer, where one was asked for. */
  data: T | null;
  error: string | null;
  /** The model's service refused for quota or load. */
  quotaExceeded: boolean;
  /** All that the run came to; null where nothing was started. */
  outcome: Outcome<T> | null;
}

/** Runs one prompt to its end. Whatever happens is told in the result: only a callback that throws rejects it. */
export function execute<T = unknown>(options: ExecuteOptions): Promise<ExecuteResult<T>>;

export interface LoadMessagesOptions extends SharedOptions {
  /** The agent; `gemini` when nothing is said. */
  tool?: string;
  /** The current directory when nothing is said. */
  projectPath?: string;
  /** The latest of the project when nothing is said. */
  sessionId?: string;
  /** Whether a missing session is an error, which is the default, or an empty list. */
  missing?: 'throw' | 'empty';
}

/** The messages of a saved session in the view `unified`. */
export function loadMessages(options?: LoadMessagesOptions): Promise<UnifiedMessage[]>;

/** Where an agent's program is: what its variable names, else what PATH has, else the usual places. Starts no agent. */
export function detectCli(tool?: string, options?: { bin?: string }): string | null;

export interface ToolCapabilities {
  supportsSlashCommands: boolean;
  supportsModels: boolean;
  models: ModelInfo[];
  supportsWebSearch: boolean;
  supportsThinking: boolean;
  /** Where its program is; null when it is nowhere. */
  cliPath: string | null;
  /** Whose word the models are: the agent's own, or our table's. */
  source: 'agent' | 'table';
}

/** What one agent can do; an agent that is here is started and asked for its models. */
export function getCapabilities(options: SharedOptions & { tool: string }): Promise<ToolCapabilities>;
/** What each agent can do, by its id. */
export function getCapabilities(options?: SharedOptions): Promise<Record<string, ToolCapabilities>>;
