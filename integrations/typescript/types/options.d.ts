// What a run may be asked for. Names are those of docs/configuration.md in camel case.

import type { EventType, RunEvent, RunRetry } from './events.js';

/** Seconds, or a time such as `"10m"`. */
export type Time = number | string;

/** What the agent may do without asking. */
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

/** A file that goes with the prompt: a path, bytes (or base64), or text. */
export type Attachment = string | { name: string; data: string | Uint8Array } | { name: string; text: string };

/** An MCP server: by its address, by its command, or either in one text. */
export type McpServer =
  | string
  | { url: string; headers?: Record<string, string> }
  | { command: string; args?: string[]; env?: Record<string, string> };

/** The keys of the contract. All are optional; docs/configuration.md tells what each means. */
export interface Keys {
  agent?: string;
  surface?: 'auto' | 'json' | 'stream-json' | 'acp';
  model?: string;
  modelValidation?: 'warn' | 'strict';
  promptFile?: string;
  attachments?: Attachment[];
  systemPrompt?: string;
  systemMode?: 'append' | 'replace';
  /** Your name for this prompt, echoed in events, errors and outcome. */
  name?: string;
  /** The workspace; without it the current directory. */
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
  /** A JSON Schema, or the path of one: the answer must be a value of it. */
  outputSchema?: object | string;
  repairTurns?: number;
  extractJson?: boolean;
  until?: string;
  maxRounds?: number;
  /** A session to go on with: its id, or `latest`. */
  resume?: string;
  /** The id that a new session shall have. */
  sessionId?: string;
  timeout?: Time;
  timeoutMs?: number;
  idleTimeout?: Time;
  idleTimeoutMs?: number;
  toolTimeout?: Time;
  toolTimeoutMs?: number;
  startupTimeout?: Time;
  startupTimeoutMs?: number;
  /** The moment at which the run must be over: a date, RFC 3339, or seconds since 1970. */
  deadline?: Date | string | number;
  retryPatience?: Time;
  retryPatienceMs?: number;
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
  useVertexAi?: boolean;
  record?: string;
  /** A run that was made before is told again from the cache. */
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
  /** Keys as the wire has them, for those that stand in no list here. */
  config?: Record<string, unknown>;
}

/** What is to be judged. */
export interface PermissionAsk {
  tool_use_id: string;
  /** The canonical name: `Write`, `Bash`, … */
  tool: string;
  native_tool: string;
  title: string;
  kind: 'write' | 'edit' | 'shell' | 'read' | 'search' | 'web' | 'agent' | 'mcp' | 'other';
  input: unknown;
  /** The command of a shell. */
  command: string | null;
  paths: string[];
  diffs: { path: string; old: string | null; new: string }[];
  /** The MCP server that it belongs to. */
  server: string | null;
}

/** What was decided: `true` and `allow` permit, all else refuses. */
export type PermissionDecision = boolean | 'allow' | 'deny' | { decision: 'allow' | 'deny'; reason?: string };

/** What a callback is told besides its question. */
export interface CallContext {
  /** The name of the run on the wire. */
  run: string;
  /** Aborted when nobody wants the answer any more. */
  signal: AbortSignal;
}

/** A function that the agent may call. */
export interface ToolDefinition<Input = any> {
  /** Letters, digits, `-` and `_`. */
  name: string;
  /** What it does, for the model. */
  description: string;
  /** A JSON Schema of type `object` for its input; without it anything goes. */
  inputSchema?: object;
  /** How long it may take; a minute when nothing is said. */
  timeoutMs?: number;
  /** Text is told to the agent as it stands, all else as JSON. What is thrown is told as a failure of the tool. */
  handler: (input: Input, context: CallContext & { call: number }) => unknown;
}

/** An answer of the agent that is to be checked. */
export interface CheckQuestion<T = unknown> {
  text: string;
  /** The value, where a schema was given; it fits. */
  output: T | null;
  /** Where the agent worked. */
  working_dir: string;
}

/** Whether the task is complete; a text says what is missing and is read by the agent. */
export type CheckAnswer = boolean | string | { done: boolean; message?: string };

/** Who is asked and told while runs go on. */
export interface Callbacks<T = unknown> {
  /** Is asked about what no rule decides. What is thrown refuses. */
  onPermission?: (ask: PermissionAsk, context: CallContext) => PermissionDecision | Promise<PermissionDecision>;
  /** Functions that the agent may call. */
  tools?: ToolDefinition[];
  /** What the agent is told that the server of those functions is called. */
  toolServer?: string;
  /** Is asked after each answer whether the task is complete; see `maxRounds`. */
  check?: (answer: CheckQuestion<T>, context: CallContext) => CheckAnswer | Promise<CheckAnswer>;
  /** How long a callback may take before it has refused; two minutes when nothing is said. */
  answerTimeoutMs?: number;
}

/** What one prompt of a run or a conversation may say. */
export interface PromptOptions {
  /** Aborted before the start nothing is started; later the run ends with all that it started. */
  signal?: AbortSignal;
  /** Is told what happens. What it throws stops the run and rejects it. */
  onEvent?: (event: RunEvent) => void;
  /** Which events are wanted; all where somebody listens. */
  events?: boolean | EventType[];
  /** The outcome holds the messages of the run. */
  messages?: boolean;
  /** Reject with `RunError` unless the verdict is `done` or `done_with_denials`. */
  throwOnFailure?: boolean;
}

/** One prompt. */
export interface RunOptions<T = unknown> extends Keys, Callbacks<T>, PromptOptions {
  prompt?: string;
  /** Use a warm agent where that is possible; that is the default. */
  warm?: boolean;
  /** How often it is tried again when the service refused for load or quota. */
  maxRetries?: number;
  onRetry?: (retry: RunRetry) => void;
}

/** A conversation. */
export interface ConversationOptions extends Keys, Callbacks {
  signal?: AbortSignal;
}

/** How agents are kept warm. */
export interface PoolSettings {
  /** How many agents are alive at once, at most. */
  maxProcesses?: number;
  /** How many sessions are on one process at once, where runs can share one. */
  lanes?: number;
  /** How many runs may wait for a place, at most. */
  maxQueue?: number;
  /** A process is replaced when it has had this many sessions … */
  maxSessions?: number;
  /** … or takes more memory than this … */
  maxMemoryMb?: number;
  /** … or is older than this, in seconds. */
  maxAgeS?: number;
  /** A process that nobody used for this long is let go, in seconds. */
  idleS?: number;
}

/** How agentline itself is started. */
export interface ConnectOptions {
  /** The program `agentline`; without it what `AGENTLINE_BIN` names, else what PATH has. */
  bin?: string;
  /** Its current directory. */
  cwd?: string;
  /** Its environment instead of this process's. */
  env?: Record<string, string | undefined>;
  /** Keys that hold for every run unless it says otherwise. */
  defaults?: Keys;
  pool?: PoolSettings;
  /** How many runs go on at once, at most; without it as many as the pool has places. */
  maxConcurrent?: number;
  /** How often a run that was refused for load or quota is tried again. */
  maxRetries?: number;
  /** Who you are. */
  client?: { name: string; version: string };
  /** How long it may take to answer first; 30 seconds when nothing is said. */
  connectTimeoutMs?: number;
}
