// The outcome of a run, as `agentline run --output json` prints it. New versions add fields, but never rename or remove any.

import type { ClaudeMessage } from './messages.js';

/** The result of a run in one word. */
export type Verdict =
  | 'done'
  | 'done_with_denials'
  | 'empty'
  | 'failed'
  | 'not_installed'
  | 'not_authenticated'
  | 'limit_reached'
  | 'timed_out'
  | 'rate_limited'
  | 'invalid_output'
  | 'untrusted'
  | 'cancelled';

/** The kind of an error. The values are stable. */
export type ErrorKind =
  | 'no_result'
  | 'crashed'
  | 'api_error'
  | 'network'
  | 'settings'
  | 'input'
  | 'sandbox'
  | 'mcp'
  | 'tool'
  | 'context_overflow'
  | 'loop'
  | 'unknown_model'
  | 'policy'
  | 'session_not_found'
  | 'empty'
  | 'blocked'
  | 'agent_turns'
  | 'max_turns'
  | 'max_tool_calls'
  | 'max_tokens'
  | 'max_output_tokens'
  | 'max_cost'
  | 'max_rounds'
  | 'untrusted'
  | 'rate_limited'
  | 'not_authenticated'
  | 'not_installed'
  | 'spawn'
  | 'timeout_idle'
  | 'timeout_run'
  | 'timeout_startup'
  | 'cancelled'
  | 'invalid_output'
  | 'interrupted';

/** The phase of a run in which an error occurred. */
export type Phase = 'request' | 'response' | 'tool' | 'budget';

/** The protocol that is used with an agent. */
export type Surface = 'json' | 'stream-json' | 'acp' | 'app-server' | 'serve';

/** What happened to a file. */
export type Change = 'created' | 'modified' | 'deleted';

/** Who changed a file. */
export type ChangeSource = 'tool' | 'shell' | 'unknown';

/** How a tool call ended. */
export type ToolStatus = 'ok' | 'error' | 'cancelled' | 'denied';

/** The source of a token count. */
export type TokenSource = 'stream' | 'session-file' | 'derived';

/** The source of a cost: agentline's dated price table, the agent itself, or both in parts. */
export type CostSource = 'prices' | 'agent' | 'mixed';

/** Token counts. `input_tokens` includes cached tokens; `output_tokens` excludes thoughts. Null means unknown. */
export interface Tokens {
  input_tokens: number | null;
  output_tokens: number | null;
  cached_tokens: number | null;
  cache_write_tokens?: number;
  cache_write_long_tokens?: number;
  thought_tokens: number | null;
  tool_tokens?: number;
  total_tokens: number | null;
}

/** Tokens of one turn of the model. */
export interface TurnUsage extends Tokens {
  turn: number;
  model: string | null;
  source: TokenSource;
}

/** How full the model's context window is, in tokens. */
export interface ContextWindow {
  used: number;
  size: number | null;
}

/** Tokens of a run. */
export interface Usage extends Tokens {
  /** Requests to the model. */
  requests: number | null;
  by_model: Record<string, Tokens>;
  sources: TokenSource[];
  /** The source of each count. */
  origins?: Record<string, TokenSource>;
  turns?: TurnUsage[];
  /** How full the model's context window is, if the agent reports it. */
  context?: ContextWindow;
}

/** Why a run failed: `kind` and `phase` for programs, `message` and `hint` for people. */
export interface RunFailure {
  kind: ErrorKind;
  phase: Phase;
  message: string;
  /** What to do next. */
  hint: string | null;
  /** The last part of the agent's stderr. */
  stderr_tail: string;
  /** Whether a retry can succeed. */
  retryable: boolean;
  /** The time that the service asked to wait before a retry. */
  retry_after_ms?: number;
  /** The agent's own name for its error. */
  agent_type: string | null;
  /** The last lines of the agent's stdout that are not part of its protocol. */
  stdout_tail?: string;
}

/** A file that changed. */
export interface FileChange {
  /** Relative to the workspace if it is inside it. */
  path: string;
  change: Change;
  source: ChangeSource;
  /** The canonical name of the tool. */
  tool: string | null;
  tool_use_id: string | null;
  /** Whether the change was found on disk. */
  verified: boolean;
  /** Lines. */
  added: number | null;
  removed: number | null;
  /** The change as a unified diff, if `diffs` was set and the old content is known. */
  diff?: string;
}

/** A tool call that was denied, or a tool that was not offered. */
export interface Denial {
  tool: string;
  native_tool: string;
  tool_use_id: string;
  reason: string;
  rule: string | null;
}

/** A warning for the caller. */
export interface Notice {
  /** A stable identifier. */
  code: string;
  message: string;
}

/** How the cache was used for a run. */
export interface CacheMark {
  hit: boolean;
  /** Null if the run cannot be cached. */
  key: string | null;
  /** Seconds since 1970; null if the run was not stored. */
  stored_at: number | null;
  /** Why the run was neither found nor stored. */
  reason?: string;
}

/** The outcome of a run. */
export interface Outcome<T = unknown, M = ClaudeMessage> {
  schema: 'agentline.outcome/1';
  run_id: string;
  agent: string;
  agent_version: string | null;
  surface: Surface | null;
  model: string | null;
  /** The agent's session id, for `resume`. */
  session_id: string | null;
  /** The workspace. */
  cwd: string;
  /** The caller's name for this prompt. */
  name: string | null;
  verdict: Verdict;
  error: RunFailure | null;
  /** The text of the last turn that has any. */
  text: string;
  /** The structured value, if one was requested. */
  output: T | null;
  files: FileChange[];
  denied: Denial[];
  usage: Usage;
  /** US dollars; null if a price is not known. */
  cost_usd: number | null;
  cost_source?: CostSource;
  /** Turns of the model. */
  turns: number;
  tool_calls: number;
  stop_reason: string | null;
  duration_ms: number;
  first_event_ms: number | null;
  warnings: Notice[];
  unreadable_lines: number;
  /** Null if a signal ended the agent, or if the agent stays warm for the next run. */
  agent_exit_code: number | null;
  stderr_tail: string;
  /** The path of the tape. */
  tape: string | null;
  /** How the cache was used, if it was enabled. */
  cache?: CacheMark;
  /** The number of attempts, if there was more than one. */
  attempts?: number;
  /** The messages of the run in the view `claude`, or in the one that `view` names, if `messages` was set. */
  messages?: M[];
}
