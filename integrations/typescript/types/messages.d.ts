// Messages in Claude's format, whichever agent spoke: the view `unified` of what was saved, and the view `claude` of runs.

/** Where an image or a document is. */
export type MediaSource = { type: 'base64'; media_type: string; data: string } | { type: 'url'; url: string };

export interface ThinkingBlock {
  type: 'thinking';
  thinking: string;
  /** Empty where the maker gave none. */
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
  /** The agent's own name, where that is another. */
  native_name?: string;
  /** The arguments as the agent gave them, where they were changed. */
  raw_input?: unknown;
}

/** The change of a file, where the agent kept it. */
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
  /** Where the call was stopped or refused. */
  status?: 'cancelled' | 'denied';
  diff?: BlockDiff;
}

/** One finished piece of a message. */
export type ContentBlock =
  | ThinkingBlock
  | TextBlock
  | ImageBlock
  | DocumentBlock
  | ToolUseBlock
  | ToolResultBlock;

/** What stands under `_original` when a message was made from a stream: lines of its tape. */
export interface OriginalLines {
  from: string;
  first_line: number;
  last_line: number;
}

/** What every message has. */
export interface MessageBase {
  id?: string;
  /** Milliseconds since 1970. */
  timestamp?: number;
  /** The agent that spoke: `gemini`, `claude`, `codex`, `opencode`, or one of your own. */
  tool: string;
  /** Work of a sub-agent that is told in the same session. */
  isSidechain?: true;
  /** The agent's own record, or several in a list, or `OriginalLines`. */
  _original?: unknown;
}

/** Tokens of a message; cached ones are part of the input, thoughts stand apart. What is not known is absent. */
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
  /** Thinking, calls with their results, text; the raw string where there are no blocks. */
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

/** A notice, warning or error of the agent itself. */
export interface UnifiedSystemMessage extends UnifiedBase {
  role: 'system';
}

/** One record of an agent, with each tool beside its result. */
export type UnifiedMessage = UnifiedAssistantMessage | UnifiedUserMessage | UnifiedSystemMessage;

/** Tokens as Claude counts them; what is not known is 0. */
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

/** Text of the model, with the field that Claude's types want. */
export interface ClaudeTextBlock extends TextBlock {
  citations: null;
}

/** A message of the model as Claude's API has it. */
export interface ClaudeAssistantMessage extends MessageBase {
  id: string;
  type: 'message';
  role: 'assistant';
  /** `unknown` where nobody said it. */
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

/** A notice, warning or error of the agent itself. */
export interface ClaudeSystemMessage extends UnifiedBase {
  role: 'system';
}

/** A message of a run, or of a saved session in the view `claude`. */
export type ClaudeMessage = ClaudeAssistantMessage | ClaudeUserMessage | ClaudeSystemMessage;
