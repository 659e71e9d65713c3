// Types of the provider, for a `promptfooconfig.ts` and for programs that use promptfoo as a library. They need no other package.

/** A duration: seconds, or a text such as `10m`. */
export type Duration = number | string;

/** How much an agent may do without asking. */
export type ApprovalMode = 'default' | 'auto_edit' | 'plan' | 'yolo' | 'suggest' | 'full_auto';

/** An MCP server: a program, or an address. */
export type McpServer =
  | { command: string; args?: string[]; env?: Record<string, string> }
  | { url: string; headers?: Record<string, string> };

/** A server in promptfoo's own format. */
export interface PromptfooMcpServer {
  name?: string;
  command?: string;
  args?: string[];
  path?: string;
  env?: Record<string, string>;
  url?: string;
  headers?: Record<string, string>;
}

/** A tool call that needs a decision. */
export interface PermissionRequest {
  /** The canonical name of the tool, such as `Write`. */
  tool: string;
  /** The agent's own name for the tool. */
  native_tool?: string;
  paths?: string[];
  command?: string | null;
  [field: string]: unknown;
}

/** An event of a run, such as `text` or `tool_use`. */
export interface RunEvent {
  type: string;
  seq: number;
  at_ms: number;
  text?: string;
  [field: string]: unknown;
}

/** A function that the agent can call. */
export interface HostedTool {
  name: string;
  description: string;
  input_schema: Record<string, unknown>;
  timeout_ms?: number;
  run(input: any): unknown;
}

/** Your own functions, which run in promptfoo's process. */
export interface Hooks {
  event?(event: RunEvent): unknown;
  permission?(request: PermissionRequest): boolean | 'allow' | 'deny' | object | Promise<boolean | 'allow' | 'deny' | object>;
  check?(answer: { text: string; [field: string]: unknown }): boolean | string | object | Promise<boolean | string | object>;
  tools?: HostedTool[];
}

/** The options that every agent has; `config` accepts all keys of agentline's configuration. */
export interface AgentlineOptions {
  agent?: 'gemini' | 'claude' | 'codex' | 'opencode' | (string & {});
  /** The key for the service; redacted everywhere. */
  apiKey?: string;
  model?: string;
  /** The workspace, relative to the configuration; an empty directory for each call if absent. */
  working_dir?: string;
  include_directories?: string[];
  approval_mode?: ApprovalMode;
  permission_mode?: ApprovalMode | 'accept-edits' | 'bypass' | 'acceptEdits' | 'bypassPermissions' | 'auto' | 'deny' | 'prompt';
  yolo?: boolean;
  /** Rules such as `Write(src/**)` or `Bash(npm test)`. */
  allow?: string[];
  deny?: string[];
  disable_tools?: string[];
  sandbox?: boolean | 'docker' | 'podman' | (string & {});
  mcp_servers?: Record<string, McpServer>;
  mcp?: { enabled?: boolean; server?: PromptfooMcpServer; servers?: PromptfooMcpServer[] };
  /** A settings file of the agent. */
  mcp_settings_path?: string;
  /** A JSON Schema, or the path or `file://` URL of one. */
  output_schema?: Record<string, unknown> | string;
  system_prompt?: string;
  /** A session id, or `latest`. */
  resume?: string;
  hooks?: Hooks | string;
  /** The timeout of a call in milliseconds; 120000 if absent. */
  timeout_ms?: number;
  timeout?: Duration;
  idle_timeout?: Duration;
  tool_timeout?: Duration;
  startup_timeout?: Duration;
  max_turns?: number;
  max_tool_calls?: number;
  max_tokens?: number;
  max_output_tokens?: number;
  max_cost?: number;
  /** Variables for the agent, in addition to the environment. */
  env?: Record<string, string | number | boolean | null>;
  /** `false`: pass only what the agent itself needs; otherwise the whole environment. */
  inherit_process_env?: boolean;
  /** Pass these variables of the environment, and what the agent itself needs. */
  pass_env?: string[];
  cache?: boolean;
  cache_mcp?: boolean;
  max_retries?: number;
  /** Retries after any failure that a retry can help, and models that are tried next. */
  retries?: number;
  fallback_models?: string[];
  retry_after_changes?: boolean;
  /** The program `agentline`, if it is not on the PATH. */
  agentline_bin?: string;
  host_env?: Record<string, string>;
  max_concurrent?: number;
  pool?: Record<string, unknown>;
  [key: string]: unknown;
}

/** The options of `google:gemini-cli`. */
export interface GeminiCLIOptions extends AgentlineOptions {
  googleCloudProject?: string;
  useVertexAI?: boolean;
}

/** A tool call in `metadata.toolCalls`. */
export interface ToolCall {
  id: string;
  /** The agent's own name for the tool. */
  name: string;
  canonicalName: string;
  input: unknown;
  output: unknown;
  is_error: boolean;
  parentToolUseId: string | null;
  status?: 'ok' | 'error' | 'cancelled' | 'denied';
  reason?: string;
}

/** What `metadata` of a response contains. */
export interface AgentMetadata {
  verdict: string;
  agent: string;
  agentVersion?: string | null;
  surface?: string | null;
  model?: string | null;
  cwd: string;
  numTurns: number;
  toolCallCount: number;
  toolCalls: ToolCall[];
  skillCalls: { name: string; input: unknown; source: 'tool'; is_error: boolean }[];
  files: { path: string; change: 'created' | 'modified' | 'deleted'; source: string; verified: boolean }[];
  permissionDenials: { tool: string; native_tool: string; tool_use_id: string; reason: string; rule?: string | null }[];
  modelUsage?: Record<string, unknown>;
  costSource?: unknown;
  durationMs: number;
  terminalReason: string;
  error?: { kind: string; message: string; hint?: string | null; retryable: boolean; agent_type?: string | null } | null;
  warnings: { code: string; message: string }[];
  structuredOutput?: unknown;
  [field: string]: unknown;
}

/** The response of a call, as promptfoo expects it. */
export interface AgentResponse {
  output?: any;
  error?: string;
  cached?: boolean;
  cost?: number;
  sessionId?: string;
  raw?: string;
  tokenUsage?: {
    total?: number;
    prompt?: number;
    completion?: number;
    cached?: number;
    numRequests?: number;
    completionDetails?: { reasoning?: number; cacheReadInputTokens?: number; cacheCreationInputTokens?: number };
  };
  metadata?: AgentMetadata;
}

/** The provider: `google:gemini-cli`, or the agent that the option `agent` selects. */
export declare class AgentlineProvider<Options extends AgentlineOptions = GeminiCLIOptions> {
  constructor(options?: { id?: string; label?: string; config?: Options; env?: Record<string, string | undefined> });
  config: Options;
  label?: string;
  id(): string;
  toString(): string;
  /** Never throws: failures are in `error` of the response. */
  callApi(prompt: string, context?: any, options?: { abortSignal?: AbortSignal }): Promise<AgentResponse>;
  /** Ends the warm agents, unless calls are pending. */
  cleanup(): Promise<void>;
}

export { AgentlineProvider as GeminiCLIProvider, AgentlineProvider as GeminiCli, AgentlineProvider as default };
