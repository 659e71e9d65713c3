// A program that uses every export of the package. It is compiled but never run.

import {
  AbortError,
  AgentlineError,
  BinaryNotFoundError,
  HostGoneError,
  NoSessionError,
  RunError,
  StopRun,
  UsageError,
  connect,
  detectClaudeCli,
  detectCli,
  detectCodexCli,
  detectGeminiCli,
  detectLauncher,
  execute,
  expectDone,
  extractJSON,
  extractSessionIdFromEvents,
  extractTextContent,
  findBinary,
  getCapabilities,
  isAskUserQuestionTool,
  isBashTool,
  isEditTool,
  isExitPlanModeTool,
  isGlobTool,
  isGrepTool,
  isMcpTool,
  isReadTool,
  isSlashCommand,
  isTodoWriteTool,
  isWebSearchTool,
  isWriteTool,
  loadMessages,
  parse,
} from 'agentline';
import * as claudeCode from 'agentline/claude';
import * as codex from 'agentline/codex';
import * as gemini from 'agentline/gemini';
import * as opencode from 'agentline/opencode';
import type * as T from 'agentline';

interface Review {
  summary: string;
  score: number;
}

export async function everything(signal: AbortSignal): Promise<number> {
  const bin: string | null = findBinary({ env: process.env });
  const settings: T.ConnectOptions = {
    bin: bin ?? 'agentline',
    cwd: '.',
    env: process.env,
    defaults: { agent: 'gemini', permissionMode: 'plan', timeout: '5m' },
    pool: { maxProcesses: 2, idleS: 60 } satisfies T.PoolSettings,
    maxConcurrent: 4,
    maxRetries: 1,
    client: { name: 'consumer', version: '1.0' },
    connectTimeoutMs: 1000,
  };
  await using agentline: T.Agentline = await connect(settings);
  const add: T.ToolDefinition<{ a: number; b: number }> = {
    name: 'add',
    description: 'Adds two numbers',
    inputSchema: { type: 'object' },
    timeoutMs: 1000,
    handler: async ({ a, b }, context: T.CallContext & { call: number }) => {
      if (a > b) throw new StopRun('not in this order');
      return context.signal.aborted ? null : a + b;
    },
    policy: ({ a }) => (a > 9 ? { decision: 'deny', reason: 'too large' } : undefined),
    after: async (_input, result: T.ToolReturn) => (result.isError ? 'try again' : null),
  };
  const options: T.RunOptions<Review> = {
    prompt: 'Review this.',
    attachments: ['a.png', { name: 'b.txt', text: 'b' }, { name: 'c', data: new Uint8Array(1) }] satisfies T.Attachment[],
    mcpServers: { docs: { url: 'https://docs.test' }, notes: 'npx notes' } satisfies Record<string, T.McpServer>,
    outputSchema: { type: 'object' },
    deadline: new Date(),
    idleTimeout: 10 satisfies T.Time,
    permissionMode: 'accept-edits' satisfies T.PermissionMode,
    config: { a_key_from_the_future: 1 },
    tools: [add],
    toolServer: 'mine',
    onPermission: async (ask: T.PermissionAsk): Promise<T.PermissionDecision> =>
      ask.command?.includes('sudo') ? { decision: 'deny', reason: 'no sudo here' } : ask.kind !== 'web',
    check: ({ output }: T.CheckQuestion<Review>): T.CheckAnswer => (output?.score === 0 ? 'the score is missing' : true),
    answerTimeoutMs: 5000,
    onEvent: (event: T.RunEvent) => event.seq,
    onRetry: (retry: T.RunRetry) => retry.wait_ms,
    events: ['text', 'tool_use'] satisfies T.EventType[],
    messages: true,
    warm: false,
    maxRetries: 0,
    throwOnFailure: true,
    signal,
  };
  const outcome: T.Outcome<Review> = expectDone(await agentline.run(options), { denials: false });
  let score: number = outcome.output?.score ?? 0;

  const stream: T.RunStream<Review> = agentline.stream<Review>({ prompt: 'Continue.', resume: 'latest' });
  for await (const event of stream) score += width(event);
  stream.cancel();
  score += (await stream.outcome).duration_ms;

  const conversationOptions: T.ConversationOptions = { agent: 'claude', tools: [add], signal };
  await using conversation: T.Conversation = await agentline.session(conversationOptions);
  const promptOptions: T.PromptOptions = { signal, messages: true, onEvent: () => {} };
  score += (await conversation.run<Review>('Hello', promptOptions)).output?.score ?? 0;
  for await (const event of conversation.stream('And?')) score += event.at_ms;
  await conversation.close();

  const query: T.SessionsQuery = { agent: 'gemini', since: new Date(0), limit: 3 };
  const listed: T.SessionSummary[] = await agentline.sessions.list(query);
  const loaded: T.LoadedSession = await agentline.sessions.load({ session: 'latest' } satisfies T.LoadQuery);
  const unified: T.UnifiedMessage[] = loaded.messages;
  const claude: T.ClaudeMessage[] = (await agentline.sessions.load({ view: 'claude' })).messages;
  const search: T.SearchQuery = { words: ['needle'], regex: true, contextLines: 1 };
  const results: T.SearchResult[] = await agentline.sessions.search(search);
  score += listed.length + results.length + unified.map(blocks).length + claude.map(blocks).length;

  const pool: T.PoolStatus = await agentline.pool.status();
  await agentline.pool.configure({ lanes: 2 });
  score += await agentline.pool.prewarm({ agent: 'gemini', runs: 2 });
  const agents: T.AgentInfo[] = await agentline.agents();
  const found: string | null = await agentline.detect('gemini');
  const capabilities: T.AgentCapabilities = await agentline.capabilities();
  const raw: { found: boolean } = await agentline.request<{ found: boolean }>('cancel', { run: 'none' });
  score += pool.runs.active + agents.length + capabilities.models.length + (raw.found || found ? 1 : 0);
  score += agentline.agentIds.length + agentline.server.version.length + (agentline.closed ? 1 : 0);
  await agentline.close();

  const executeOptions: T.ExecuteOptions = {
    prompt: 'Say hello',
    tool: 'gemini',
    workingDir: '.',
    permissionMode: 'acceptEdits',
    model: 'gemini-2.5-pro',
    sessionId: 'an-id',
    resume: true,
    timeout: 60_000,
    verbose: true,
    json: true,
    warm: true,
    signal,
    client: agentline,
    options: { maxTurns: 3 },
    continue: false,
    dangerouslySkipPermissions: false,
    toolSettings: { allowedTools: ['Read'], disallowedTools: ['Bash'] },
    systemPrompt: 'You review.',
    appendSystemPrompt: 'Be brief.',
    mcpConfig: ['servers.json'],
    images: [{ path: 'a.png' }],
    streaming: true,
    onStart: (process: T.ExecuteProcess) => process.killed || process.kill('SIGTERM') || process.started.run_id,
    onEvent: ({ raw, event, message }: T.OnEventData) => [raw.length, event.type, message?.role],
    onStdout: ({ raw, events, messages }: T.OnStdoutData) => raw.length + events.length + messages.length,
    onStderr: (text) => text.length,
    onError: (error) => error.message,
    onClose: (exitCode) => exitCode + 1,
  };
  const result: T.ExecuteResult<Review> = await execute<Review>(executeOptions);
  const text: string = (await execute({ prompt: 'Say hello' })).data;
  const load: T.LoadMessagesOptions = { tool: 'gemini', projectPath: '.', missing: 'empty' };
  const messages: T.SdkMessage[] = await loadMessages(load);
  const used: T.SdkUsage | undefined = messages[0]?.usage;
  const file: T.LoadSessionOptions = { sessionPath: 'session.jsonl' };
  const modules: T.AgentModule[] = [gemini, claudeCode, codex, opencode];
  for (const module of modules) score += (await module.loadSession(file)).length + (module.detectCli() ?? '').length;
  const record: T.SdkMessage | null = parse('{}', { tool: 'claude' }) ?? claudeCode.parse({});
  score += (record ? extractTextContent(record) : text).length + (used?.inputTokens ?? 0) + guards(messages);
  score += (await gemini.execute<Review>({ prompt: 'Review' })).data.score + (extractJSON<Review>('{}')?.score ?? 0);
  score += extractSessionIdFromEvents([{ sessionId: 'a' }]).length + (detectLauncher() ?? []).length;
  const path: string | null = detectCli('gemini') ?? detectGeminiCli() ?? detectClaudeCli() ?? detectCodexCli();
  const unifiedRun = await agentline.run({ prompt: 'Go', messages: true, view: 'unified', onLine: (line: string) => line.length });
  const unifiedMessages: T.UnifiedMessage[] = unifiedRun.messages ?? [];
  const number: T.StandardSchema<number> = { '~standard': { version: 1, vendor: 'mine', validate: (value) => ({ value }) } };
  const typed: number | null = (await agentline.run({ prompt: 'Count', outputSchema: number })).output;
  score += unifiedMessages.length + (typed ?? 0) + (await getCapabilities('gemini')).models.length;
  const one: T.ToolCapabilities = await getCapabilities({ tool: 'gemini', bin: 'agentline' } satisfies T.SharedOptions & { tool: string });
  const all: Record<string, T.ToolCapabilities> = await getCapabilities();
  score += messages.length + one.models.length + Object.keys(all).length + (path ? 1 : 0);
  return score + (result.data?.score ?? 0) + result.messages.length;
}

/** The guards narrow blocks. */
function guards(messages: T.SdkMessage[]): number {
  const blocks: T.ContentBlock[] = messages.flatMap(({ content }) => (typeof content === 'string' ? [] : content));
  const calls = [isBashTool, isReadTool, isWriteTool, isEditTool, isGlobTool, isGrepTool, isTodoWriteTool, isWebSearchTool];
  const others = [isAskUserQuestionTool, isExitPlanModeTool, isMcpTool];
  const bash: T.CallOf<'Bash'>[] = blocks.filter(isBashTool);
  const commands: T.SlashCommandBlock[] = blocks.filter(isSlashCommand);
  const found = [...calls, ...others].filter((guard) => blocks.some((block) => guard(block)));
  return found.length + bash.length + commands.map(({ command, args }) => command + (args ?? '')).length;
}

/** The field `type` distinguishes all events. */
function width(event: T.RunEvent): number {
  switch (event.type) {
    case 'started':
      return (event satisfies T.StartedEvent).run_id.length;
    case 'text':
      return (event satisfies T.TextEvent).text.length;
    case 'thinking':
      return (event satisfies T.ThinkingEvent).text.length;
    case 'tool_use':
      return (event satisfies T.ToolUseEvent).name.length;
    case 'tool_output':
      return (event satisfies T.ToolOutputEvent).text.length;
    case 'tool_result':
      return (event satisfies T.ToolResultEvent).content?.length ?? 0;
    case 'file_change':
      return (event satisfies T.FileChangeEvent).path.length;
    case 'permission':
      return (event satisfies T.PermissionEvent).decision.length;
    case 'content':
      return typeof (event satisfies T.ContentEvent).block === 'string' ? 1 : 0;
    case 'plan':
      return Array.isArray((event satisfies T.PlanEvent).entries) ? 1 : 0;
    case 'commands':
      return Array.isArray((event satisfies T.CommandsEvent).commands) ? 1 : 0;
    case 'mode':
      return (event satisfies T.ModeEvent).mode.length;
    case 'config_option':
      return Array.isArray((event satisfies T.ConfigOptionEvent).options) ? 1 : 0;
    case 'session_info':
      return (event satisfies T.SessionInfoEvent).info ? 1 : 0;
    case 'usage':
      return (event satisfies T.UsageEvent).total_tokens ?? 0;
    case 'retry':
      return (event satisfies T.RetryEvent).wait_ms;
    case 'warning':
      return (event satisfies T.WarningEvent).message.length;
    case 'unreadable':
      return (event satisfies T.UnreadableEvent).length;
    case 'agent':
      return (event satisfies T.AgentEvent).raw ? 1 : 0;
    default:
      return event satisfies never;
  }
}

/** A frontend for Claude's content blocks can show the messages of any agent, in either view. */
function blocks(message: T.UnifiedMessage | T.ClaudeMessage): string {
  if (typeof message.content === 'string') return message.content;
  const each = message.content.map((block: T.ContentBlock) => {
    switch (block.type) {
      case 'text':
        return block.text;
      case 'thinking':
        return block.thinking;
      case 'tool_use':
        return `${block.name} ${JSON.stringify(block.input)}`;
      case 'tool_result':
        return block.is_error ? 'failed' : (block.diff?.path ?? 'done');
      case 'slash_command':
        return `${block.command} ${block.args ?? ''}`;
      case 'image':
      case 'document':
        return block.source.type === 'url' ? block.source.url : block.source.media_type;
      default:
        return block satisfies never;
    }
  });
  return each.join('\n');
}

/** Errors differ by class and have the same fields. */
export function describe(error: unknown): string {
  if (!(error instanceof AgentlineError)) return String(error);
  const { verdict, hint, phase, outcome, problems } = error;
  const classes = [AbortError, BinaryNotFoundError, HostGoneError, NoSessionError, RunError, UsageError];
  const kind = classes.find((one) => error instanceof one)?.name ?? 'other';
  const details: T.ErrorDetails = { hint, outcome, problems: [...problems] satisfies T.Problem[], cause: error };
  const own: string = new RunError(error.message, details).message;
  return [kind, own, verdict satisfies T.Verdict | null, phase satisfies T.Phase | null].join(' ');
}

/** The smaller types, by the fields that contain them. */
export interface Places {
  error: NonNullable<T.Outcome['error']> & T.RunFailure & { kind: T.ErrorKind };
  cache: NonNullable<T.Outcome['cache']> & T.CacheMark;
  file: T.Outcome['files'][number] & T.FileChange & { change: T.Change; source: T.ChangeSource };
  denial: T.Outcome['denied'][number] & T.Denial;
  usage: T.Outcome['usage'] & T.Usage & T.Tokens;
  turn: NonNullable<T.Usage['turns']>[number] & T.TurnUsage & { source: T.TokenSource };
  notice: T.Outcome['warnings'][number] & T.Notice;
  surface: T.Outcome['surface'] | T.Surface;
  cost: T.Outcome['cost_source'] | T.CostSource;
  result: T.ToolResultEvent['status'] | T.ToolStatus;
  call: [NonNullable<T.ToolUseEvent['locations']>[number] & T.ToolLocation, NonNullable<T.ToolUseEvent['diffs']>[number] & T.Diff];
  context: T.ContextWindow;
  place: T.EventPlace & { from: T.EventOrigin };
  model: T.AgentCapabilities['models'][number] & T.ModelInfo;
  keys: T.Keys & T.Callbacks;
  row: T.SessionSummary['by_model'][string] & T.LedgerRow & { place: T.SessionPlace };
  info: T.LoadedSession['session'] & T.SessionInfo;
  damage: T.LoadedSession['damage'][number] & T.Damage;
  hit: T.SearchResult['hits'][number] & T.SearchHit;
  process: T.PoolStatus['pool']['processes'][number] & T.ProcessStatus;
  abilities: NonNullable<T.AgentInfo['surfaces']['acp']> & T.Abilities;
  parts: [T.Sessions, T.Pool, T.MessageBase, T.OriginalLines, T.MediaSource, T.BlockDiff, T.UnifiedUsage, T.ClaudeUsage];
  blocks: [T.ThinkingBlock, T.TextBlock, T.ImageBlock, T.DocumentBlock, T.ToolUseBlock, T.ToolResultBlock, T.ClaudeTextBlock];
  unified: T.UnifiedAssistantMessage | T.UnifiedUserMessage | T.UnifiedSystemMessage;
  claude: T.ClaudeAssistantMessage | T.ClaudeUserMessage | T.ClaudeSystemMessage;
}
