// The client of an agentline process.

import type { ModelInfo, RunEvent } from './events.js';
import type { ClaudeMessage, UnifiedMessage } from './messages.js';
import type { CostSource, Outcome, Surface, Tokens } from './outcome.js';
import type { ConnectOptions, ConversationOptions, Keys, PoolSettings, PromptOptions, RunOptions } from './options.js';

/** A run in progress: its events, and its outcome. Leaving the loop early stops the run. */
export interface RunStream<T = unknown> extends AsyncIterable<RunEvent> {
  /** The outcome of the run. It can be awaited without reading the events. */
  readonly outcome: Promise<Outcome<T>>;
  /** Stops the run and every process that it started. `outcome` then resolves with the verdict `cancelled`. */
  cancel(): void;
  [Symbol.asyncIterator](): AsyncIterator<RunEvent, void, undefined>;
}

/** A conversation: several prompts in one session of an agent. */
export interface Conversation extends AsyncDisposable {
  /** The agent's id for the session, for use with `resume`. */
  readonly sessionId: string;
  run<T = unknown>(prompt: string, options?: PromptOptions): Promise<Outcome<T>>;
  stream<T = unknown>(prompt: string, options?: PromptOptions): RunStream<T>;
  /** Ends the conversation and stops its agent. */
  close(): Promise<void>;
}

/** Token usage and cost. */
export interface LedgerRow extends Tokens {
  requests: number;
  /** US dollars; null if the price of a part is not known. */
  cost_usd: number | null;
  /** US dollars for the parts with a known price. */
  known_cost_usd: number;
  cost_source?: CostSource;
  cost_estimated?: boolean;
}

/** Where a session is stored. */
export type SessionPlace = string | { database: string; session: string };

/** The metadata of a session. */
export interface SessionInfo {
  agent: string;
  id: string;
  project: string | null;
  /** The agent's title. Without one, lists have the beginning of the first prompt. */
  title: string | null;
  /** Milliseconds since 1970. */
  started: number | null;
  updated: number | null;
  agent_version: string | null;
  model: string | null;
  /** The session that started this session of a sub-agent. */
  parent: string | null;
  /** US dollars; null if a price is not known. */
  cost_usd: number | null;
}

/** A saved session in a list. */
export interface SessionSummary extends SessionInfo, LedgerRow {
  cost_usd: number | null;
  prompts: number;
  answers: number;
  tool_calls: number;
  by_model: Record<string, LedgerRow>;
  places: SessionPlace[];
  /** Bytes. */
  size: number;
  /** The number of records that could not be read. */
  damage: number;
}

/** A part of a session that could not be read. */
export interface Damage {
  line: number | null;
  message: string;
}

/** A saved session with its messages. */
export interface LoadedSession<M = UnifiedMessage> {
  session: SessionInfo;
  messages: M[];
  damage: Damage[];
}

/** A matching line. */
export interface SearchHit {
  entry: number;
  entry_id: string;
  role: 'assistant' | 'user' | 'system';
  timestamp: number | null;
  place: 'text' | 'thinking' | 'tool_input' | 'tool_result';
  tool: string | null;
  line: number;
  text: string;
  /** The matches in the text, as byte offsets. */
  spans: { start: number; end: number }[];
  before: string[];
  after: string[];
}

/** A session that matches a search. */
export interface SearchResult extends SessionInfo {
  place: SessionPlace;
  hits: SearchHit[];
}

/** Selects saved sessions. */
export interface SessionsQuery {
  agent?: string;
  /** The directory that the session is about. */
  project?: string;
  /** A date, or milliseconds since 1970. */
  since?: Date | number;
  until?: Date | number;
  limit?: number;
}

/** A search in saved sessions. */
export interface SearchQuery extends SessionsQuery {
  /** A session must contain all of these. */
  words: string[];
  regex?: boolean;
  caseSensitive?: boolean;
  contextLines?: number;
}

/** Selects the session to load and the format of its messages. */
export interface LoadQuery {
  /** The id, a prefix of it, `latest`, or the path of a file. The default is the latest session of the project. */
  session?: string;
  agent?: string;
  /** The project for `latest`. The default is the current directory of agentline. */
  project?: string;
  view?: 'unified' | 'claude';
  /** `turn` keeps the original order of blocks in the unified view. */
  order?: 'grouped' | 'turn';
  /** Whether to include the context that the agent added for the model. */
  context?: boolean;
}

/** The sessions that agents saved. agentline only reads them. */
export interface Sessions {
  /** Newest first. */
  list(query?: SessionsQuery): Promise<SessionSummary[]>;
  load(query: LoadQuery & { view: 'claude' }): Promise<LoadedSession<ClaudeMessage>>;
  load(query?: LoadQuery): Promise<LoadedSession>;
  search(query: SearchQuery): Promise<SearchResult[]>;
}

/** An agent process in the pool. */
export interface ProcessStatus {
  agent: string;
  version: string | null;
  pid: number | null;
  ready: boolean;
  active: number;
  sessions: number;
  age_ms: number;
  /** Bytes. */
  memory: number | null;
}

/** The state of the pool and of the runs. */
export interface PoolStatus {
  pool: {
    processes: ProcessStatus[];
    queued: number;
    runs: number;
    started: number;
    retried: number;
    recycled: number;
  };
  runs: { active: number; waiting: number; allowed: number };
}

/** The pool of warm agents. */
export interface Pool {
  status(): Promise<PoolStatus>;
  /** Changes the settings for runs that start later. */
  configure(settings: PoolSettings): Promise<void>;
  /** Starts agents for runs with these settings in advance. Resolves with the number of ready agents. */
  prewarm(options?: Keys & { runs?: number }): Promise<number>;
}

/** The features of an agent on one surface. */
export interface Abilities {
  works: boolean;
  streams_text: boolean;
  thinking: boolean;
  tool_events: boolean;
  asks_permission: boolean;
  cancels_in_band: boolean;
  resumes: boolean;
  mcp: boolean;
  attachments: boolean;
  multi_turn: boolean;
  stop_reason: boolean;
  live_usage: boolean;
  hosted_tools: boolean;
  schema: boolean;
  warm: boolean;
}

/** A supported agent. */
export interface AgentInfo {
  card: {
    id: string;
    aliases: string[];
    title: string;
    program: string;
    path_variable: string;
    package: string;
    pinned: string;
    min_node: number;
    sign_in_hint: string;
    variables: string[];
    surfaces: Surface[];
    max_prompt_bytes: number | null;
    provider: string;
    home_page: string;
    install_script: boolean;
    /** The instruction files that the agent reads by itself. */
    instructions: string[];
    /** The program that speaks ACP for the agent, if its own CLI does not. */
    adapter: {
      program: string;
      path_variable: string;
      package: string;
      pinned: string;
      min_node: number;
      home_page: string;
    } | null;
  };
  surfaces: Partial<Record<Surface, Abilities>>;
}

/** The capabilities of an agent. */
export interface AgentCapabilities {
  agent: string;
  supports_slash_commands: boolean;
  supports_models: boolean;
  models: ModelInfo[];
  supports_web_search: boolean;
  supports_thinking: boolean;
  /** Where the models come from: the agent itself, or agentline's table. */
  source: 'agent' | 'table';
}

/** A client of an agentline process with its pool of warm agents. */
export interface Agentline extends AsyncDisposable {
  /** The program and its version. */
  readonly server: { name: string; version: string };
  /** The ids of the supported agents. */
  readonly agentIds: readonly string[];
  /** Whether the process has been closed or has exited. All calls reject then. */
  readonly closed: boolean;
  /** Runs one prompt. Resolves with the outcome, whatever the verdict is. */
  run<T = unknown>(options: RunOptions<T> & { view: 'unified' }): Promise<Outcome<T, UnifiedMessage>>;
  run<T = unknown>(options: RunOptions<T>): Promise<Outcome<T>>;
  run<T = unknown>(prompt: string, options?: RunOptions<T>): Promise<Outcome<T>>;
  /** Runs one prompt and streams its events. */
  stream<T = unknown>(options: RunOptions<T>): RunStream<T>;
  stream<T = unknown>(prompt: string, options?: RunOptions<T>): RunStream<T>;
  /** Opens a conversation. */
  session(options?: ConversationOptions): Promise<Conversation>;
  readonly sessions: Sessions;
  readonly pool: Pool;
  /** Returns the supported agents with the features of each surface. */
  agents(): Promise<AgentInfo[]>;
  /** Returns the path of an agent's CLI; null if it is not installed. */
  detect(agent?: string): Promise<string | null>;
  /** Returns the capabilities of an agent. An installed agent is started to report them itself. */
  capabilities(agent?: string): Promise<AgentCapabilities>;
  /** Calls any method of docs/host-protocol.md. */
  request<R = unknown>(method: string, params?: object): Promise<R>;
  /** Stops all runs and the process, and waits until every process has ended. */
  close(): Promise<void>;
}

/** Starts agentline. It ends with this process. An idle agentline does not keep this process alive. */
export function connect(options?: ConnectOptions): Promise<Agentline>;

/** Returns the program that `connect` would start; null if it is not found. */
export function findBinary(options?: Pick<ConnectOptions, 'bin' | 'env'>): string | null;
