// The events of a run, as `agentline run --output events` prints them. The outcome is not an event here: `run` returns it.

import type { Change, ChangeSource, Surface, ToolStatus, Usage } from './outcome.js';

/** The source of an event. */
export type EventOrigin = 'stdout' | 'stderr' | 'session-file' | 'disk' | 'agentline';

/** The position of an event in its run. */
export interface EventPlace {
  /** The number of the event in its run, from 1. */
  seq: number;
  /** Milliseconds since the start of the run. */
  at_ms: number;
  from: EventOrigin;
  /** The line of that source, from 1. */
  line?: number;
  /** How many events of the same type were merged into this one because the reader was slow. */
  joined?: number;
}

/** A model that an agent offers. */
export interface ModelInfo {
  id: string;
  name: string;
}

/** The first event of each attempt. If the agent did not start, only what is known without it is set. */
export interface StartedEvent extends EventPlace {
  type: 'started';
  /** The version of the format of events. */
  schema: 'agentline.events/1';
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

/** A part of the answer. */
export interface TextEvent extends EventPlace {
  type: 'text';
  text: string;
}

/** A part of the model's reasoning. */
export interface ThinkingEvent extends EventPlace {
  type: 'thinking';
  text: string;
}

/** A file that a tool call works on. */
export interface ToolLocation {
  path: string;
  /** From 1. */
  line?: number;
}

/** A change to a file: its content, or the part of it that changes. */
export interface Diff {
  path: string;
  /** Null for a new file. */
  old: string | null;
  new: string;
}

/** The model requested a tool call, which may still be denied. */
export interface ToolUseEvent extends EventPlace {
  type: 'tool_use';
  id: string;
  /** The canonical name: `Write`, `Bash`, `mcp__server__tool`. */
  name: string;
  native_name: string;
  input: unknown;
  raw_input: unknown;
  /** The id of the call that started the sub-agent which makes this one, if the agent says so. */
  parent_tool_use_id?: string;
  /** The agent's title for the call. */
  title?: string;
  locations?: ToolLocation[];
  /** The changes that the call proposes. */
  diffs?: Diff[];
}

/** A piece of the output of a running tool, where the agent sends it. The result has the complete output. */
export interface ToolOutputEvent extends EventPlace {
  type: 'tool_output';
  tool_use_id: string;
  text: string;
}

/** A tool call ended. Each `tool_use` has exactly one result. */
export interface ToolResultEvent extends EventPlace {
  type: 'tool_result';
  tool_use_id: string;
  status: ToolStatus;
  content: string | null;
  is_error: boolean;
  /** Why the call was denied. */
  reason?: string;
  /** The title and the files, if they differ from those of the `tool_use`. */
  title?: string;
  locations?: ToolLocation[];
  /** The output as the agent sent it, where it is more than text. */
  raw_output?: unknown;
  /** The changes that the tool reports. */
  diffs?: Diff[];
}

/** A file on disk changed. These events arrive at the end of the run. */
export interface FileChangeEvent extends EventPlace {
  type: 'file_change';
  path: string;
  change: Change;
  source: ChangeSource;
  tool_use_id: string | null;
  verified: boolean;
  /** The change as a unified diff, if `diffs` was set and the old content is known. */
  diff?: string;
}

/** A permission request and its decision. */
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

/** A part of the answer that is not text, such as an image, unchanged from the agent. */
export interface ContentEvent extends EventPlace {
  type: 'content';
  block: unknown;
}

/** The agent's plan. Each event has the complete plan. */
export interface PlanEvent extends EventPlace {
  type: 'plan';
  entries: unknown;
}

/** The commands that the agent offers. */
export interface CommandsEvent extends EventPlace {
  type: 'commands';
  commands: unknown;
}

/** The new mode of the session. */
export interface ModeEvent extends EventPlace {
  type: 'mode';
  mode: string;
}

/** The options of the session changed. */
export interface ConfigOptionEvent extends EventPlace {
  type: 'config_option';
  options: unknown;
}

/** The agent reported information about the session, such as its title. */
export interface SessionInfoEvent extends EventPlace {
  type: 'session_info';
  info: unknown;
}

/** The token counts so far, and how full the context window is. */
export interface UsageEvent extends EventPlace, Usage {
  type: 'usage';
}

/** A warning for the caller. */
export interface WarningEvent extends EventPlace {
  type: 'warning';
  code: string;
  message: string;
}

/** A line of the agent's output that could not be parsed. The run continues. */
export interface UnreadableEvent extends EventPlace {
  type: 'unreadable';
  sample: string;
  length: number;
}

/** A message from the agent that has no event type of its own, unchanged. */
export interface AgentEvent extends EventPlace {
  type: 'agent';
  raw: unknown;
}

/** An attempt failed, and the run is tried again. */
export interface RetryEvent extends EventPlace {
  type: 'retry';
  /** The number of the next attempt, from 2. */
  attempt: number;
  wait_ms: number;
  reason: string;
  /** The model of the next attempt; null if it is the same. */
  model: string | null;
}

/** An event of a run. */
export type RunEvent =
  | StartedEvent
  | TextEvent
  | ThinkingEvent
  | ToolUseEvent
  | ToolOutputEvent
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
  | RetryEvent
  | WarningEvent
  | UnreadableEvent
  | AgentEvent;

/** The value of `type`. */
export type EventType = RunEvent['type'];

/** An attempt failed, and the run is tried again. */
export interface RunRetry {
  /** The number of the next attempt, from 2. */
  attempt: number;
  wait_ms: number;
  reason: string;
  /** The model of the next attempt, if it is another one. */
  model?: string;
}
