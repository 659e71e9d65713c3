// What happens in a run, as `agentline run --output events` prints it. The outcome is no event here: it is what `run` gives.

import type { Change, ChangeSource, Surface, ToolStatus, Usage } from './outcome.js';

/** Where an event came from. */
export type EventOrigin = 'stdout' | 'stderr' | 'session-file' | 'disk' | 'agentline';

/** The place of an event in its run. */
export interface EventPlace {
  /** Counts the events of a run, from 1. */
  seq: number;
  /** Milliseconds since the run began. */
  at_ms: number;
  from: EventOrigin;
  /** Which line of that stream, from 1. */
  line?: number;
  /** How many events of the same kind were joined into this one because they were read slowly. */
  joined?: number;
}

/** A model that an agent offers. */
export interface ModelInfo {
  id: string;
  name: string;
}

/** The agent is up; the first event of each attempt. */
export interface StartedEvent extends EventPlace {
  type: 'started';
  run_id: string;
  agent: string;
  agent_version: string | null;
  surface: Surface | null;
  model: string | null;
  session_id: string | null;
  cwd: string;
  name: string | null;
  models?: ModelInfo[];
}

/** A piece of the answer. */
export interface TextEvent extends EventPlace {
  type: 'text';
  text: string;
}

/** A piece of reasoning. */
export interface ThinkingEvent extends EventPlace {
  type: 'thinking';
  text: string;
}

/** The model wants a tool. It may still be refused. */
export interface ToolUseEvent extends EventPlace {
  type: 'tool_use';
  id: string;
  /** The canonical name: `Write`, `Bash`, `mcp__server__tool`. */
  name: string;
  native_name: string;
  input: unknown;
  raw_input: unknown;
}

/** A call of a tool ended; each `tool_use` has exactly one. */
export interface ToolResultEvent extends EventPlace {
  type: 'tool_result';
  tool_use_id: string;
  status: ToolStatus;
  content: string | null;
  is_error: boolean;
  /** Why it was refused. */
  reason?: string;
}

/** A file changed, as the disk shows it; these come when the run is over. */
export interface FileChangeEvent extends EventPlace {
  type: 'file_change';
  path: string;
  change: Change;
  source: ChangeSource;
  tool_use_id: string | null;
  verified: boolean;
}

/** A question of permission and what was decided. */
export interface PermissionEvent extends EventPlace {
  type: 'permission';
  tool_use_id: string;
  tool: string;
  request: unknown;
  decision: 'allow' | 'deny';
  by: string;
  reason: string | null;
  rule?: string;
}

/** A piece of the answer that is not text, such as an image, as the agent gave it. */
export interface ContentEvent extends EventPlace {
  type: 'content';
  block: unknown;
}

/** The agent's plan, whole each time. */
export interface PlanEvent extends EventPlace {
  type: 'plan';
  entries: unknown;
}

/** The commands that the agent offers. */
export interface CommandsEvent extends EventPlace {
  type: 'commands';
  commands: unknown;
}

/** The session is in this mode now. */
export interface ModeEvent extends EventPlace {
  type: 'mode';
  mode: string;
}

/** The options of the session changed. */
export interface ConfigOptionEvent extends EventPlace {
  type: 'config_option';
  options: unknown;
}

/** The agent said something about the session, such as its title. */
export interface SessionInfoEvent extends EventPlace {
  type: 'session_info';
  info: unknown;
}

/** The counts so far. */
export interface UsageEvent extends EventPlace, Usage {
  type: 'usage';
}

/** Something that the caller should know. */
export interface WarningEvent extends EventPlace {
  type: 'warning';
  code: string;
  message: string;
}

/** A line that could not be read; the run went on. */
export interface UnreadableEvent extends EventPlace {
  type: 'unreadable';
  sample: string;
  length: number;
}

/** Something the agent said that has no place in this list, as it came. */
export interface AgentEvent extends EventPlace {
  type: 'agent';
  raw: unknown;
}

/** One thing that happened in a run. */
export type RunEvent =
  | StartedEvent
  | TextEvent
  | ThinkingEvent
  | ToolUseEvent
  | ToolResultEvent
  | FileChangeEvent
  | PermissionEvent
  | ContentEvent
  | PlanEvent
  | CommandsEvent
  | ModeEvent
  | ConfigOptionEvent
  | SessionInfoEvent
  | UsageEvent
  | WarningEvent
  | UnreadableEvent
  | AgentEvent;

/** The word under `type`. */
export type EventType = RunEvent['type'];

/** A run was refused for load or quota and will be tried again. */
export interface RunRetry {
  /** Which attempt comes next, from 2. */
  attempt: number;
  wait_ms: number;
  reason: string;
}
