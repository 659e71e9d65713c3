// The options of runs, conversations and the client. Settings have the names of docs/configuration.md in camel case.

import type { EventType, RunEvent, RunRetry } from './events.js';

/** A number of seconds, or a duration such as `"10m"`. */
export type Time = number | string;

/** What the agent may do without a permission request. */
export type PermissionMode =
  | 'default'
  | 'accept-edits'
  | 'acceptEdits'
  | 'auto_edit'
  | 'bypass'
  | 'bypassPermissions'
  | 'yolo'
  | 'plan'
  | 'suggest'
  | 'full_auto'
  | 'auto'
  | 'deny'
  | 'prompt';

/** A file that is sent with the prompt: a path, bytes or base64, or text. */
export type Attachment = string | { name: string; data: string | Uint8Array } | { name: string; text: string };

/** An MCP server: its URL, its command, or either as one string. */
export type McpServer =
  | string
  | { url: string; headers?: Record<string, string> }
  | { command: string; args?: string[]; env?: Record<string, string> };

/** A schema of a library that implements https://standardschema.dev, such as Zod 4.2 or newer. */
export interface StandardSchema<Output = unknown> {
  readonly '~standard': {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown, ...rest: any[]) => unknown;
    readonly types?: { readonly input: unknown; readonly output: Output } | undefined;
  };
}

/** The settings of a run. docs/configuration.md describes them. */
export interface Keys {
  agent?: string;
  surface?: 'auto' | 'json' | 'stream-json' | 'acp' | 'app-server' | 'serve';
  model?: string;
  modelValidation?: 'warn' | 'strict';
  promptFile?: string;
  attachments?: Attachment[];
  systemPrompt?: string;
  systemMode?: 'append' | 'replace';
  /** A name for this prompt, which events, errors and the outcome repeat. */
  name?: string;
  /** The workspace. The default is the current directory. */
  workingDir?: string;
  includeDirectories?: string[];
  permissionMode?: PermissionMode;
  allow?: string[];
  deny?: string[];
  ask?: string[];
  trust?: 'run' | 'full' | 'no';
  sandbox?: boolean | string;
  sandboxProfile?: string;
  mcpServers?: Record<string, McpServer>;
  mcpSettingsPath?: string;
  /** A JSON Schema or the path of one, or a schema of a library such as Zod. The answer must be a value that matches it. */
  outputSchema?: object | string;
  repairTurns?: number;
  extractJson?: boolean;
  until?: string;
  maxRounds?: number;
  /** The session to continue: its id, or `latest`. */
  resume?: string;
  /** The id of the new session. */
  sessionId?: string;
  timeout?: Time;
  timeoutMs?: number;
  idleTimeout?: Time;
  idleTimeoutMs?: number;
  toolTimeout?: Time;
  toolTimeoutMs?: number;
  startupTimeout?: Time;
  startupTimeoutMs?: number;
  /** The time by which the run must finish: a date, RFC 3339, or seconds since 1970. */
  deadline?: Date | string | number;
  retryPatience?: Time;
  retryPatienceMs?: number;
  retries?: number;
  fallbackModels?: string[];
  retryAfterChanges?: boolean;
  quietPeriodMs?: number;
  maxTurns?: number;
  maxToolCalls?: number;
  maxTokens?: number;
  maxOutputTokens?: number;
  maxCost?: number;
  env?: Record<string, string>;
  passEnv?: string[];
  fileReferences?: boolean;
  extensions?: string[];
  apiKey?: string;
  googleCloudProject?: string;
  /** How much the model reasons, as far as the model supports it. */
  effort?: string;
  useVertexAi?: boolean;
  /** Whether the changed files of the outcome have unified diffs. */
  diffs?: boolean;
  record?: string;
  /** Whether to reuse the result of an identical earlier run. */
  cache?: boolean | { dir?: string; max_age_s?: number; impure?: boolean; max_mb?: number };
  cacheImpure?: boolean;
  cacheMaxAge?: Time;
  cachePath?: string;
  cacheMaxMb?: number;
  maxLineBytes?: number;
  agents?: Record<string, Record<string, unknown>>;
  prices?: Record<string, unknown>;
  pricesFile?: string;
  supervisor?: string;
  isolation?: "auto" | "namespace" | "none";
  agentBin?: string;
  agentArgs?: string[];
  modeId?: string;
  emitThoughts?: boolean;
  allowFileReads?: boolean;
  allowFileWrites?: boolean;
  authenticate?: string;
  /** Settings that this type does not list, with their names in the protocol. */
  config?: Record<string, unknown>;
}

/** A tool call that needs a decision. */
export interface PermissionAsk {
  tool_use_id: string;
  /** The canonical name: `Write`, `Bash`, … */
  tool: string;
  native_tool: string;
  title: string;
  kind: 'write' | 'edit' | 'shell' | 'read' | 'search' | 'web' | 'agent' | 'mcp' | 'other';
  input: unknown;
  /** The shell command, if the tool is a shell. */
  command: string | null;
  paths: string[];
  diffs: { path: string; old: string | null; new: string }[];
  /** The MCP server that the tool belongs to. */
  server: string | null;
}

/** A decision: `true` and `allow` permit the call, everything else denies it. */
export type PermissionDecision = boolean | 'allow' | 'deny' | { decision: 'allow' | 'deny'; reason?: string };

/** The context of a callback. */
export interface CallContext {
  /** The name of the run in the protocol. */
  run: string;
  /** Aborted when the result is no longer needed. */
  signal: AbortSignal;
}

/** A function that the agent may call. */
export interface ToolDefinition<Input = any> {
  /** Letters, digits, `-` and `_`. */
  name: string;
  /** What the tool does, for the model. */
  description: string;
  /** A schema of type `object` for the input: a JSON Schema, or one of a library such as Zod. Without it, any input is accepted. */
  inputSchema?: object | StandardSchema<Input>;
  /** The timeout of a call. The default is one minute. */
  timeoutMs?: number;
  /**
   * The agent receives a string unchanged and any other value as JSON. An exception is a failure of the tool, except a
   * `StopRun`, which ends the run.
   */
  handler: (input: Input, context: CallContext & { call: number }) => unknown;
  /**
   * Decides on each call before the handler runs, as `onPermission` does; no value allows it. An exception denies the
   * call. It counts towards the timeout.
   */
  policy?: (input: Input, context: CallContext & { call: number }) => PermissionDecision | void | Promise<PermissionDecision | void>;
  /** Runs after each call. A text that it returns is added to the result. */
  after?: (
    input: Input,
    result: ToolReturn,
    context: CallContext & { call: number },
  ) => string | null | void | Promise<string | null | void>;
}

/** The result of a call: the value that the handler returned, or the text of its error. */
export interface ToolReturn {
  output: unknown;
  isError: boolean;
}

/** The agent's answer, for `check`. */
export interface CheckQuestion<T = unknown> {
  text: string;
  /** The value if there is a schema. It matches the schema. */
  output: T | null;
  /** The workspace of the run. */
  working_dir: string;
}

/** Whether the task is complete. A string says what is missing, and the agent receives it. */
export type CheckAnswer = boolean | string | { done: boolean; message?: string };

/** The callbacks of a run. */
export interface Callbacks<T = unknown> {
  /** Decides tool calls that no rule decides. An exception denies the call. */
  onPermission?: (ask: PermissionAsk, context: CallContext) => PermissionDecision | Promise<PermissionDecision>;
  /** Functions that the agent may call. */
  tools?: ToolDefinition[];
  /** The name of the MCP server that offers these functions. */
  toolServer?: string;
  /** Decides after each answer whether the task is complete; see `maxRounds`. An exception stops the run and rejects it. */
  check?: (answer: CheckQuestion<T>, context: CallContext) => CheckAnswer | Promise<CheckAnswer>;
  /** The timeout of `onPermission`, which then denies, and of `check`, which then fails the run. The default is two minutes. */
  answerTimeoutMs?: number;
}

/** The options of one prompt of a run or a conversation. */
export interface PromptOptions {
  /** Cancels the run and ends every process that it started. If it is already aborted, nothing starts. */
  signal?: AbortSignal;
  /** Receives the events. An exception stops the run and rejects it. */
  onEvent?: (event: RunEvent) => void;
  /** Which events to send. The default is all of them if there is a listener. */
  events?: boolean | EventType[];
  /** Whether the outcome contains the messages of the run. */
  messages?: boolean;
  /** Whether to reject with `RunError` unless the verdict is `done` or `done_with_denials`. */
  throwOnFailure?: boolean;
}

/** The options of a run. */
export interface RunOptions<T = unknown> extends Keys, Callbacks<T>, PromptOptions {
  prompt?: string;
  /** A JSON Schema, its path, or a schema of a library such as Zod, which also gives `output` its type. */
  outputSchema?: object | string | StandardSchema<T>;
  /** The view of `messages`: `claude` (the default), or `unified` as in `sessions.load`. */
  view?: 'claude' | 'unified';
  /** Receives each line that Claude Code would print, as JSON text. An exception stops the run and rejects it. */
  onLine?: (line: string) => void;
  /** Whether to use a warm agent where possible. The default is `true`. */
  warm?: boolean;
  /** How many times a run that the service rejected for load or quota is retried; `retries` covers every failure that a retry can help. */
  maxRetries?: number;
  onRetry?: (retry: RunRetry) => void;
}

/** The options of a conversation. */
export interface ConversationOptions extends Keys, Callbacks {
  signal?: AbortSignal;
}

/** How agents are kept warm. */
export interface PoolSettings {
  /** The maximum number of agent processes. */
  maxProcesses?: number;
  /** The maximum number of concurrent sessions in one process, if runs can share it. */
  lanes?: number;
  /** The maximum number of runs that wait for a slot. */
  maxQueue?: number;
  /** A process is replaced after this many sessions … */
  maxSessions?: number;
  /** … or if it uses more memory than this … */
  maxMemoryMb?: number;
  /** … or if it is older than this, in seconds. */
  maxAgeS?: number;
  /** A process that has been idle for this long is stopped, in seconds. */
  idleS?: number;
}

/** How agentline is started. */
export interface ConnectOptions {
  /** The program `agentline`. The default is `AGENTLINE_BIN`, then PATH. */
  bin?: string;
  /** The working directory of agentline. */
  cwd?: string;
  /** The complete environment of agentline. The default is the environment of this process. */
  env?: Record<string, string | undefined>;
  /** Settings for every run. The options of a run override them. */
  defaults?: Keys;
  pool?: PoolSettings;
  /** The maximum number of concurrent runs. The default is the capacity of the pool. */
  maxConcurrent?: number;
  /** How many times a run that was rejected for load or quota is retried. */
  maxRetries?: number;
  /** The name and version of your program. */
  client?: { name: string; version: string };
  /** The timeout for the first response. The default is 30 seconds. */
  connectTimeoutMs?: number;
}
