// Converts the outcome of a run and its tool calls to promptfoo's ProviderResponse.

const TITLES = { gemini: 'Gemini CLI', claude: 'Claude Code', codex: 'Codex', opencode: 'OpenCode' };
/** Verdicts of runs that agentline ended, so the error is not the agent's. */
const ENDED_BY_AGENTLINE = new Set(['timed_out', 'cancelled', 'limit_reached', 'invalid_output']);
/** A rejection for which a retry after a minute is useless. */
const DAILY = /\bdaily quota\b|\bper day\b|\bbilling\b/i;
const NOT_STARTED = new Set(['no_result', 'crashed', 'not_installed', 'spawn']);

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
      this.calls.set(id, { id, name: native || name, canonicalName: name, input: raw ?? input, output: undefined, is_error: false, started: event.at_ms });
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
    return used.map(({ input, is_error }) => ({ name: input?.name ?? input?.skill ?? '', source: 'tool', is_error }));
  }
}

/** Returns an answer or an error, with usage, cost and metadata. */
export function responseOf(outcome, tools, retried = false) {
  const usage = outcome.usage ?? {};
  const response = outcome.error ? { error: errorOf(outcome) } : { output: outcome.output ?? outcome.text };
  if (outcome.cache?.hit) response.cached = true;
  return {
    ...response,
    tokenUsage: tokenUsageOf(usage, outcome),
    cost: outcome.cost_usd ?? undefined,
    sessionId: outcome.session_id ?? undefined,
    raw: JSON.stringify(outcome),
    metadata: {
      ...metadataOf(outcome, usage, tools),
      ...(outcome.verdict === 'rate_limited' ? rateLimitOf(outcome, retried) : {}),
    },
  };
}

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
    error: outcome.error,
    warnings: outcome.warnings,
    ...(outcome.attempts ? { attempts: outcome.attempts } : {}),
    ...(outcome.output === undefined || outcome.output === null ? {} : { structuredOutput: outcome.output }),
  };
}

/** Returns the metadata that promptfoo's scheduler reads to slow down and to retry. */
function rateLimitOf({ error, files }, retried) {
  const wait = error?.retry_after_ms;
  // promptfoo does not retry a response of the kind `quota`. That applies if the limit lasts for the day, if the run has
  // changed files, so that a retry would start from a different state, or if agentline has already retried.
  const isTemporary = error?.retryable !== false && !DAILY.test(error?.message ?? '');
  const canRetry = isTemporary && !files?.length && !retried;
  return {
    rateLimitKind: canRetry ? 'rate_limit' : 'quota',
    http: { status: 429, statusText: 'Too Many Requests', headers: wait ? { 'retry-after-ms': String(wait) } : {} },
  };
}

/** Returns `<type>: <message>` for an error that the agent reported, `<agent> error: Exit code N: …` if only the exit code is
 * known, and `<agent> error: …` for a run that agentline ended. `agentline run --output promptfoo` uses the same messages. */
function errorOf(outcome) {
  const { error, agent_exit_code: code } = outcome;
  const title = titleOf(outcome.agent);
  if (['no_result', 'crashed'].includes(error.kind) && code !== undefined && code !== null) {
    const detail = [outcome.stderr_tail, outcome.text, error.message].map((text) => text?.trim()).find(Boolean);
    return `${title} error: Exit code ${code}: ${detail}`;
  }
  const fromAgentline = NOT_STARTED.has(error.kind) || ENDED_BY_AGENTLINE.has(outcome.verdict);
  return fromAgentline ? `${title} error: ${error.message}` : `${error.kind}: ${error.message}`;
}

/** Returns the message for a request that failed, with every problem and its hint. */
export function requestError(title, error) {
  const problems = error.rpc?.data?.problems ?? [];
  const messages = problems.map(({ key, message, hint }) => `${key ? `${key}: ` : ''}${message}${hint ? ` (${hint})` : ''}`);
  return `${title} error: ${messages.length ? messages.join('; ') : error.message}`;
}
