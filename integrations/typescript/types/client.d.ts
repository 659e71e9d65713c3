// One long-lived agentline and what can be asked of it.

import type { ModelInfo, RunEvent } from './events.js';
import type { ClaudeMessage, UnifiedMessage } from './messages.js';
import type { CostSource, Outcome, Surface, Tokens } from './outcome.js';
import type { ConnectOptions, ConversationOptions, Keys, PoolSettings, PromptOptions, RunOptions } from './options.js';

/** A run that goes on: its events one by one, and its outcome. Leaving the loop early stops the run. */
export interface RunStream<T = unknown> extends AsyncIterable<RunEvent> {
  /** All that the run came to. It may be awaited without reading the events. */
  readonly outcome: Promise<Outcome<T>>;
  /** Stops the run with everything that it started; the outcome still comes. */
  cancel(): void;
  [Symbol.asyncIterator](): AsyncIterator<RunEvent, void, undefined>;
}

/** A conversation with one agent that remembers. */
export interface Conversation extends AsyncDisposable {
  /** The agent's own id, with which it can be resumed. */
  readonly sessionId: string;
  run<T = unknown>(prompt: string, options?: PromptOptions): Promise<Outcome<T>>;
  stream<T = unknown>(prompt: string, options?: PromptOptions): RunStream<T>;
  /** Ends the conversation and its agent. */
  close(): Promise<void>;
}

/** What was used, and what it cost. */
export interface LedgerRow extends Tokens {
  requests: number;
  /** US dollars; null where the price of a part is not known. */
  cost_usd: number | null;
  /** US dollars for those parts of which the price is known. */
  known_cost_usd: number;
  cost_source?: CostSource;
  cost_estimated?: boolean;
}

/** Where a session is kept. */
export type SessionPlace = string | { database: string; session: string };

/** Whose a session is and when it was. */
export interface SessionInfo {
  agent: string;
  id: string;
  project: string | null;
  /** The agent's title, else in a list the first prompt, shortened. */
  title: string | null;
  /** Milliseconds since 1970. */
  started: number | null;
  updated: number | null;
  agent_version: string | null;
  model: string | null;
  /** The session that started it, for one of a sub-agent. */
  parent: string | null;
  /** US dollars; null where a price is not known. */
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
  /** How many places of it could not be read. */
  damage: number;
}

/** A part of a session that could not be read. */
export interface Damage {
  line: number | null;
  message: string;
}

/** A saved session and what was said in it. */
export interface LoadedSession<M = UnifiedMessage> {
  session: SessionInfo;
  messages: M[];
  damage: Damage[];
}

/** A line with a hit. */
export interface SearchHit {
  entry: number;
  entry_id: string;
  role: 'assistant' | 'user' | 'system';
  timestamp: number | null;
  place: 'text' | 'thinking' | 'tool_input' | 'tool_result';
  tool: string | null;
  line: number;
  text: string;
  /** Where in the text, in bytes. */
  spans: { start: number; end: number }[];
  before: string[];
  after: string[];
}

/** A session in which something was found. */
export interface SearchResult extends SessionInfo {
  place: SessionPlace;
  hits: SearchHit[];
}

/** Which saved sessions are meant. */
export interface SessionsQuery {
  agent?: string;
  /** About this folder. */
  project?: string;
  /** A date, or milliseconds since 1970. */
  since?: Date | number;
  until?: Date | number;
  limit?: number;
}

/** What is searched for. */
export interface SearchQuery extends SessionsQuery {
  /** All of these. */
  words: string[];
  regex?: boolean;
  caseSensitive?: boolean;
  contextLines?: number;
}

/** Which session is loaded, and how it is told. */
export interface LoadQuery {
  /** Its id, a beginning of it, `latest`, or the path of a file; without it the latest of the project. */
  session?: string;
  agent?: string;
  /** The folder that `latest` is about; without it the current directory of agentline. */
  project?: string;
  view?: 'unified' | 'claude';
  /** `turn` for the true order of blocks in the unified view. */
  order?: 'grouped' | 'turn';
  /** With what the agent put there itself for the model to read. */
  context?: boolean;
}

/** What agents saved. Nothing writes there. */
export interface Sessions {
  /** Newest first. */
  list(query?: SessionsQuery): Promise<SessionSummary[]>;
  load(query: LoadQuery & { view: 'claude' }): Promise<LoadedSession<ClaudeMessage>>;
  load(query?: LoadQuery): Promise<LoadedSession>;
  search(query: SearchQuery): Promise<SearchResult[]>;
}

/** An agent that is kept. */
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

/** How the pool and the runs stand. */
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

/** The agents that are kept warm. */
export interface Pool {
  status(): Promise<PoolStatus>;
  /** For runs that begin later. */
  configure(settings: PoolSettings): Promise<void>;
  /** Makes ready for runs like this one; gives how many are. */
  prewarm(options?: Keys & { runs?: number }): Promise<number>;
}

/** What an agent can do over one surface. */
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

/** An agent that runs may name. */
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
    /** Files of instructions that it reads by itself. */
    instructions: string[];
  };
  surfaces: Partial<Record<Surface, Abilities>>;
}

/** What an agent can do. */
export interface AgentCapabilities {
  agent: string;
  supports_slash_commands: boolean;
  supports_models: boolean;
  models: ModelInfo[];
  supports_web_search: boolean;
  supports_thinking: boolean;
  /** Whose word the models are: the agent's own, or our table's. */
  source: 'agent' | 'table';
}

/** One long-lived agentline with warm agents behind it. */
export interface Agentline extends AsyncDisposable {
  /** The program and its version. */
  readonly server: { name: string; version: string };
  /** The agents that a run may name. */
  readonly agentIds: readonly string[];
  /** Whether it is gone; everything rejects then. */
  readonly closed: boolean;
  /** Runs one prompt to its outcome, whatever the verdict is. */
  run<T = unknown>(options: RunOptions<T>): Promise<Outcome<T>>;
  /** The same, event by event. */
  stream<T = unknown>(options: RunOptions<T>): RunStream<T>;
  /** Opens a conversation. */
  session(options?: ConversationOptions): Promise<Conversation>;
  readonly sessions: Sessions;
  readonly pool: Pool;
  /** What each agent can do over each surface. */
  agents(): Promise<AgentInfo[]>;
  /** Where the program of an agent is; null when it is nowhere. */
  detect(agent?: string): Promise<string | null>;
  /** What an agent can do, by its own word where it tells: it is started for that. */
  capabilities(agent?: string): Promise<AgentCapabilities>;
  /** Any method of docs/host-protocol.md. */
  request<R = unknown>(method: string, params?: object): Promise<R>;
  /** Stops what still goes on, and waits until nothing of it is left. */
  close(): Promise<void>;
}

/** Starts agentline. It ends with this process; an idle one keeps no process alive. */
export function connect(options?: ConnectOptions): Promise<Agentline>;

/** The program that `connect` would start; null when it is nowhere. */
export function findBinary(options?: Pick<ConnectOptions, 'bin' | 'env'>): string | null;
