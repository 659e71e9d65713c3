// Converts the outcome of a run and its tool calls to promptfoo's ProviderResponse.
import { ALIASES } from './options.mjs';

const TITLES = { gemini: 'Gemini CLI', claude: 'Claude Code', codex: 'Codex', opencode: 'OpenCode' };
/** Verdicts of runs that agentline ended, so the error is not the agent's. */
const ENDED_BY_AGENTLINE = new Set(['timed_out', 'cancelled', 'limit_reached', 'invalid_output']);
/** A rejection for which a retry after a minute is useless. */
const DAILY = /\bdaily quota\b|\bper day\b|\bbilling\b/i;
const NOT_STARTED = new Set(['no_result', 'crashed', 'not_installed', 'spawn']);
/** How long promptfoo's scheduler waits if the service does not say, as for promptfoo's own providers. */
const DEFAULT_RATE_LIMIT_WAIT_MS = 60_000;
/** Flags of the command line that are not named like their option. */
const FLAG_OPTIONS = {
  attach: 'attachments', cwd: 'working_dir', 'fallback-model': 'fallback_models', 'include-dir': 'include_directories', mcp: 'mcp_servers',
  'quiet-period': 'quiet_period_ms', schema: 'output_schema', system: 'system_prompt',
};
/** Why a run ended, in the words of Claude's SDK; other runs end with the kind of their error. */
const TERMINAL_REASONS = { max_turns: 'max_turns', agent_turns: 'max_turns', cancelled: 'aborted_streaming', context_overflow: 'prompt_too_long' };

export const titleOf = (agent = 'gemini') => TITLES[agent] ?? agent;

/** Collects the tool calls of a run from its events. */
export class ToolCalls {
  constructor(startedAt = Date.now()) {
    this.startedAt = startedAt;
    this.calls = new Map();
  }

  add(event) {
    if (event.type === 'tool_use') {
      const { id, name, native_name: native, input, raw_input: raw } = event;
      const parentToolUseId = event.parent_tool_use_id ?? null;
      const call = { id, name: native || name, canonicalName: name, input: raw ?? input, output: undefined, is_error: false, parentToolUseId };
      this.calls.set(id, { ...call, started: event.at_ms });
    } else if (event.type === 'tool_result') {
      const call = this.calls.get(event.tool_use_id);
      if (!call) return;
      Object.assign(call, { output: event.content, is_error: event.is_error, status: event.status, ended: event.at_ms });
      if (event.reason) call.reason = event.reason;
    }
  }

  /** Adds arguments and results that no event contained from the messages of the run. */
  complete(messages = []) {
    for (const block of messages.flatMap(({ content }) => (Array.isArray(content) ? content : []))) {
      const call = this.calls.get(block.type === 'tool_use' ? block.id : block.tool_use_id);
      if (!call) continue;
      if (block.type === 'tool_use') call.input ??= block.input;
      if (block.type === 'tool_result') call.output ??= block.content;
    }
  }

  /** Returns the calls in the format of `metadata.toolCalls`. */
  list() {
    return [...this.calls.values()].map(({ started, ended, ...call }) => call);
  }

  /** Returns the skills in the format that the assertion `skill-used` reads. */
  skills() {
    const used = [...this.calls.values()].filter((call) => call.canonicalName === 'Skill');
    return used
      .map(({ input, is_error }) => ({ name: String(input?.name ?? input?.skill ?? '').trim(), input, source: 'tool', is_error }))
      .filter(({ name }) => name);
  }
}

/** Returns an answer or an error, with usage, cost and metadata. `config` is the configuration of the call, `written` has the
 * user's spelling of its options. */
export function responseOf(outcome, tools, config = {}, written = {}) {
  const usage = outcome.usage ?? {};
  const response = outcome.error && !isEmptyAnswer(outcome) ? { error: errorOf(outcome, written) } : { output: outcome.output ?? outcome.text };
  if (outcome.cache?.hit) response.cached = true;
  return {
    ...response,
    tokenUsage: tokenUsageOf(usage, outcome),
    cost: outcome.cost_usd ?? undefined,
    sessionId: outcome.session_id ?? undefined,
    raw: JSON.stringify(outcome),
    metadata: {
      ...metadataOf(outcome, usage, tools),
      ...(outcome.verdict === 'rate_limited' ? rateLimitOf(outcome, config.max_retries > 0 || config.retries > 0) : {}),
    },
  };
}

/** An answer without text is an answer, as for promptfoo's own providers. A blocked or interrupted answer is an error. */
const isEmptyAnswer = ({ verdict, error, text }) => verdict === 'empty' && error.kind === 'empty' && !text?.trim();

function tokenUsageOf(usage, outcome) {
  const { input_tokens: prompt, output_tokens: completion, cached_tokens: cached, thought_tokens: reasoning, total_tokens: total } = usage;
  if (total === undefined || total === null) return {};
  const details = { reasoning, cacheReadInputTokens: cached, cacheCreationInputTokens: usage.cache_write_tokens };
  return {
    total,
    prompt: prompt ?? 0,
    completion: completion ?? 0,
    cached: cached ?? 0,
    numRequests: usage.requests ?? outcome.turns ?? 1,
    completionDetails: Object.fromEntries(Object.entries(details).filter(([, value]) => value !== undefined && value !== null)),
  };
}

function metadataOf(outcome, usage, tools) {
  return {
    verdict: outcome.verdict,
    agent: outcome.agent,
    agentVersion: outcome.agent_version,
    surface: outcome.surface,
    model: outcome.model,
    cwd: outcome.cwd,
    numTurns: outcome.turns,
    toolCallCount: outcome.tool_calls,
    toolCalls: tools.list(),
    skillCalls: tools.skills(),
    files: outcome.files,
    permissionDenials: outcome.denied,
    modelUsage: usage.by_model,
    costSource: outcome.cost_source,
    durationMs: outcome.duration_ms,
    terminalReason: outcome.error ? (TERMINAL_REASONS[outcome.error.kind] ?? outcome.error.kind) : 'completed',
    error: outcome.error,
    warnings: outcome.warnings,
    ...(outcome.attempts ? { attempts: outcome.attempts } : {}),
    ...(outcome.output === undefined || outcome.output === null ? {} : { structuredOutput: outcome.output }),
  };
}

/** Returns the metadata that promptfoo's scheduler reads to slow down and to retry. */
function rateLimitOf({ error, files }, retried) {
  // promptfoo does not retry a response of the kind `quota`. That applies if the limit lasts for the day, if the run has
  // changed files, so that a retry would start from a different state, or if agentline has already retried.
  const isTemporary = error?.retryable !== false && !DAILY.test(error?.message ?? '');
  const canRetry = isTemporary && !files?.length && !retried;
  const headers = canRetry ? { 'retry-after-ms': String(error?.retry_after_ms ?? DEFAULT_RATE_LIMIT_WAIT_MS) } : {};
  return { rateLimitKind: canRetry ? 'rate_limit' : 'quota', http: { status: 429, statusText: 'Too Many Requests', headers } };
}

/** Returns `<type>: <message>` for an error that the agent reported, `<agent> error: Exit code N: …` if only the exit code is
 * known, and `<agent> error: …` for a run that agentline ended; each with its hint. The type is the agent's own, if it has one. */
function errorOf(outcome, written) {
  const { error, agent_exit_code: code } = outcome;
  const title = titleOf(outcome.agent);
  const hint = hintFor(error.hint, written);
  if (['no_result', 'crashed'].includes(error.kind) && code !== undefined && code !== null) {
    const texts = [outcome.stderr_tail, error.stdout_tail, outcome.text, error.message];
    const detail = texts.map((text) => text?.trim()).find(Boolean);
    return `${title} error: Exit code ${code}: ${detail}${hint}`;
  }
  const fromAgentline = NOT_STARTED.has(error.kind) || ENDED_BY_AGENTLINE.has(outcome.verdict);
  return `${fromAgentline ? `${title} error` : typeOf(error)}: ${error.message}${hint}`;
}

/** Returns the agent's own name for its error, or the kind of the error if that says more. */
function typeOf({ agent_type: type, kind }) {
  return type && !['Error', 'unknown'].includes(type) ? type : kind;
}

/** Returns the message for a request that failed, with every problem and its hint. */
export function requestError(title, error, written = {}) {
  const problems = error.rpc?.data?.problems ?? [];
  const asWritten = (key) => key.replace(/^[^.]+/, (name) => written[name] ?? name);
  const messages = problems.map(({ key, message, hint }) => `${key ? `${asWritten(key)}: ` : ''}${message}${hintFor(hint, written)}`);
  return `${title} error: ${messages.length ? messages.join('; ') : error.message}`;
}

/** Returns a hint in parentheses. A flag of the command line becomes the option as the user wrote it. */
function hintFor(hint, written) {
  if (!hint) return '';
  const text = hint.replace(/`--([a-z][a-z-]*)(?: ([^`]+))?`/g, (_, flag, value) => {
    const name = FLAG_OPTIONS[flag] ?? flag.replaceAll('-', '_');
    const set = (ALIASES.find((group) => group.includes(name)) ?? [name]).find((alias) => alias in written);
    const key = set ? written[set] : name === 'timeout' ? 'timeout_ms' : name;
    return value ? `\`${key}: ${value}\`` : `\`${key}\``;
  });
  return ` (${text})`;
}
