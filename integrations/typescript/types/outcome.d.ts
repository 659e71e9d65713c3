// All that a run came to, as `agentline run --output json` prints it. Fields are added over time, none is renamed or removed.

import type { ClaudeMessage } from './messages.js';

/** Whether it worked. */
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

/** What went wrong, in one stable word. */
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
  | 'invalid_output';

/** In which part of a run something went wrong. */
export type Phase = 'request' | 'response' | 'tool' | 'budget';

/** The way to talk to an agent. */
export type Surface = 'json' | 'stream-json' | 'acp';

/** What happened to a file. */
export type Change = 'created' | 'modified' | 'deleted';

/** Who changed a file. */
export type ChangeSource = 'tool' | 'shell' | 'unknown';

/** How a call of a tool ended. */
export type ToolStatus = 'ok' | 'error' | 'cancelled' | 'denied';

/** Where a number is known from. */
export type TokenSource = 'stream' | 'session-file' | 'derived';

/** Whose word a cost is: the dated price table's, the agent's own, or parts of both. */
export type CostSource = 'prices' | 'agent' | 'mixed';

/** Tokens. `input_tokens` has the cached ones in it, `output_tokens` has no thoughts in it; null is not known. */
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

/** Tokens of a run. */
export interface Usage extends Tokens {
  /** Requests to the model. */
  requests: number | null;
  by_model: Record<string, Tokens>;
  sources: TokenSource[];
  /** Where each number is known from. */
  origins?: Record<string, TokenSource>;
  turns?: TurnUsage[];
}

/** What went wrong, for programs (`kind`, `phase`) and for people (`message`, `hint`). */
export interface RunFailure {
  kind: ErrorKind;
  phase: Phase;
  message: string;
  /** What to do next. */
  hint: string | null;
  /** The end of the agent's standard error. */
  stderr_tail: string;
  /** Whether trying again can help. */
  retryable: boolean;
  /** How long the service asked to be left in peace. */
  retry_after_ms?: number;
}

/** A file that really changed. */
export interface FileChange {
  /** Relative to the workspace when inside it. */
  path: string;
  change: Change;
  source: ChangeSource;
  /** The canonical name of the tool. */
  tool: string | null;
  tool_use_id: string | null;
  /** Whether the disk agrees. */
  verified: boolean;
  /** Lines. */
  added: number | null;
  removed: number | null;
}

/** A tool that was refused or not offered. */
export interface Denial {
  tool: string;
  native_tool: string;
  tool_use_id: string;
  reason: string;
  rule: string | null;
}

/** What the caller should know. */
export interface Notice {
  /** A stable word. */
  code: string;
  message: string;
}

/** Whether a run was made now or told again from the cache. */
export interface CacheMark {
  hit: boolean;
  /** Null where a run could have none. */
  key: string | null;
  /** Seconds since 1970; null where it is not kept. */
  stored_at: number | null;
  /** Why it was neither found nor kept. */
  reason?: string;
}

/** All that a run came to. */
export interface Outcome<T = unknown> {
  schema: 'agentline.outcome/1';
  run_id: string;
  agent: string;
  agent_version: string | null;
  surface: Surface | null;
  model: string | null;
  /** The agent's own session, with which it can be resumed. */
  session_id: string | null;
  /** The workspace. */
  cwd: string;
  /** The caller's name for this prompt. */
  name: string | null;
  verdict: Verdict;
  error: RunFailure | null;
  /** The text of the last turn that has any. */
  text: string;
  /** The structured value, where one was asked for. */
  output: T | null;
  files: FileChange[];
  denied: Denial[];
  usage: Usage;
  /** US dollars; null where a price is not known. */
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
  /** Null where a signal ended the agent, or where it is kept warm for the next run. */
  agent_exit_code: number | null;
  stderr_tail: string;
  /** Where the tape was written. */
  tape: string | null;
  /** What the cache had to do with it, where it was asked for. */
  cache?: CacheMark;
  /** How often it was tried, where more than once. */
  attempts?: number;
  /** What came of the prompt, in the view `claude`, where `messages` was asked for. */
  messages?: ClaudeMessage[];
}
