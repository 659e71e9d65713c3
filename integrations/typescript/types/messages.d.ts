// Messages of all agents in Claude's format: the view `unified` of saved sessions, and the view `claude` of runs.

/** The source of an image or a document. */
export type MediaSource = { type: 'base64'; media_type: string; data: string } | { type: 'url'; url: string };

export interface ThinkingBlock {
  type: 'thinking';
  thinking: string;
  /** Empty if the provider sent none. */
  signature: string;
}

export interface TextBlock {
  type: 'text';
  text: string;
}

export interface ImageBlock {
  type: 'image';
  source: MediaSource;
}

export interface DocumentBlock {
  type: 'document';
  source: MediaSource;
}

export interface ToolUseBlock {
  type: 'tool_use';
  id: string;
  /** The canonical name: `Write`, `Edit`, `Bash`, `mcp__server__tool`. */
  name: string;
  input: Record<string, unknown>;
  /** The agent's own name for the tool, if it differs. */
  native_name?: string;
  /** The agent's original arguments, if they were converted. */
  raw_input?: unknown;
}

/** A slash command that the user typed, in the view `unified`. */
export interface SlashCommandBlock {
  type: 'slash_command';
  /** The command with its slash. */
  command: string;
  /** The agent's description of the command. */
  message?: string;
  args?: string;
}

/** The change to a file, if the agent saved it. */
export interface BlockDiff {
  path: string;
  old?: string;
  new?: string;
  unified?: string;
}

export interface ToolResultBlock {
  type: 'tool_result';
  tool_use_id: string;
  content: string | ContentBlock[];
  is_error: boolean;
  /** Present if the call was cancelled or denied. */
  status?: 'cancelled' | 'denied';
  diff?: BlockDiff;
}

/** One complete block of a message. */
export type ContentBlock =
  | ThinkingBlock
  | TextBlock
  | ImageBlock
  | DocumentBlock
  | SlashCommandBlock
  | ToolUseBlock
  | ToolResultBlock;

/** The value of `_original` for a message that was built from a stream: lines of its tape. */
export interface OriginalLines {
  from: string;
  first_line: number;
  last_line: number;
}

/** The fields of every message. */
export interface MessageBase {
  id?: string;
  /** Milliseconds since 1970. */
  timestamp?: number;
  /** The agent: `gemini`, `claude`, `codex`, `opencode`, or an agent that you configured. */
  tool: string;
  /** Set for the work of a sub-agent in the same session. */
  isSidechain?: true;
  /** The agent's own record, a list of records, or `OriginalLines`. */
  _original?: unknown;
}

/** The tokens of a message. Input includes cached tokens; output excludes reasoning. Unknown values are absent. */
export interface UnifiedUsage {
  input_tokens?: number;
  output_tokens?: number;
  total_tokens: number;
  cache_read_input_tokens?: number;
  cache_creation_input_tokens?: number;
  reasoning_tokens?: number;
  tool_tokens?: number;
}

interface UnifiedBase extends MessageBase {
  model?: string;
  /** Thinking, tool calls with their results, then text; a string if there are no blocks. */
  content: string | ContentBlock[];
  stop_reason?: string;
  usage?: UnifiedUsage;
}

export interface UnifiedAssistantMessage extends UnifiedBase {
  type: 'message';
  role: 'assistant';
}

export interface UnifiedUserMessage extends UnifiedBase {
  role: 'user';
}

/** An informational message, warning or error of the agent. */
export interface UnifiedSystemMessage extends UnifiedBase {
  role: 'system';
}

/** One record of an agent. Each tool call is next to its result. */
export type UnifiedMessage = UnifiedAssistantMessage | UnifiedUserMessage | UnifiedSystemMessage;

/** Tokens as Claude counts them. Unknown values are 0. */
export interface ClaudeUsage {
  input_tokens: number;
  cache_creation_input_tokens: number;
  cache_read_input_tokens: number;
  output_tokens: number;
  output_tokens_details: { thinking_tokens: number };
  server_tool_use: { web_search_requests: number; web_fetch_requests: number };
  service_tier: 'standard';
  cache_creation: { ephemeral_1h_input_tokens: number; ephemeral_5m_input_tokens: number };
  inference_geo: string;
  iterations: never[];
  speed: 'standard';
  fallback_credit: null;
}

/** Text of the model, with the fields that Claude's types require. */
export interface ClaudeTextBlock extends TextBlock {
  citations: null;
}

/** A message of the model in the format of Claude's API. */
export interface ClaudeAssistantMessage extends MessageBase {
  id: string;
  type: 'message';
  role: 'assistant';
  /** `unknown` if the agent did not report it. */
  model: string;
  content: (Exclude<ContentBlock, TextBlock> | ClaudeTextBlock)[];
  stop_reason: string | null;
  stop_sequence: null;
  stop_details: null;
  container: null;
  context_management: null;
  diagnostics: null;
  usage: ClaudeUsage;
}

/** A prompt, or the results of tools. */
export interface ClaudeUserMessage extends UnifiedBase {
  role: 'user';
}

/** An informational message, warning or error of the agent. */
export interface ClaudeSystemMessage extends UnifiedBase {
  role: 'system';
}

/** A message of a run, or of a saved session in the view `claude`. */
export type ClaudeMessage = ClaudeAssistantMessage | ClaudeUserMessage | ClaudeSystemMessage;
