// What promptfoo is told about a run: its outcome as a ProviderResponse, with the tool calls that were seen on the way.

const TITLES = { gemini: 'Gemini CLI', claude: 'Claude Code', codex: 'Codex', opencode: 'OpenCode' };
/** These ended because we ended them, so the error is ours and not the agent's. */
const ENDED_BY_US = new Set(['timed_out', 'cancelled', 'limit_reached', 'invalid_output']);
/** A refusal that waiting a minute does not help against. */
const DAILY = /\bdaily quota\b|\bper day\b|\bbilling\b/i;
const NOT_STARTED = new Set(['no_result', 'crashed', 'not_installed', 'spawn']);

export const titleOf = (agent = 'gemini') => TITLES[agent] ?? agent;

/** Collects the tool calls of a run from its events. */
export class ToolCalls {
  constructor(began = Date.now()) {
    this.began = began;
    this.calls = new Map();
  }

  take(event) {
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

  /** Arguments and results that the agent did not tell as it went, from the messages of the run. */
  complete(messages = []) {
    for (const block of messages.flatMap(({ content }) => (Array.isArray(content) ? content : []))) {
      const call = this.calls.get(block.type === 'tool_use' ? block.id : block.tool_use_id);
      if (!call) continue;
      if (block.type === 'tool_use') call.input ??= block.input;
      if (block.type === 'tool_result') call.output ??= block.content;
    }
  }

  /** As promptfoo's agent providers tell them under `metadata.toolCalls`. */
  list() {
    return [...this.calls.values()].map(({ started, ended, ...call }) => call);
  }

  /** As its assertion `skill-used` reads them. */
  skills() {
    const used = [...this.calls.values()].filter((call) => call.canonicalName === 'Skill');
    return used.map(({ input, is_error }) => ({ name: input?.name ?? input?.skill ?? '', source: 'tool', is_error }));
  }
}

/** An answer or an error, with everything that is known. */
export function responseOf(outcome, tools, triedAgain = false) {
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
      ...(outcome.verdict === 'rate_limited' ? rateLimitOf(outcome, triedAgain) : {}),
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

/** What promptfoo's scheduler reads to slow down and to try again. */
function rateLimitOf({ error, files }, triedAgain) {
  const wait = error?.retry_after_ms;
  // `quota` is promptfoo's word for a refusal that it must not try again: here because the limit will not lift today, because the
  // run has changed files and another would begin from another state, or because agentline has tried again already.
  const lifts = error?.retryable !== false && !DAILY.test(error?.message ?? '');
  const again = lifts && !files?.length && !triedAgain;
  return {
    rateLimitKind: again ? 'rate_limit' : 'quota',
    http: { status: 429, statusText: 'Too Many Requests', headers: wait ? { 'retry-after-ms': String(wait) } : {} },
  };
}

/** `<type>: <message>` for an error that the agent reported, `<agent> error: Exit code N: …` where only its exit code tells, and
 * `<agent> error: …` for what we ourselves ended. The same sentences as `agentline run --output promptfoo`. */
function errorOf(outcome) {
  const { error, agent_exit_code: code } = outcome;
  const title = titleOf(outcome.agent);
  if (['no_result', 'crashed'].includes(error.kind) && code !== undefined && code !== null) {
    const said = [outcome.stderr_tail, outcome.text, error.message].map((text) => text?.trim()).find(Boolean);
    return `${title} error: Exit code ${code}: ${said}`;
  }
  const ours = NOT_STARTED.has(error.kind) || ENDED_BY_US.has(outcome.verdict);
  return ours ? `${title} error: ${error.message}` : `${error.kind}: ${error.message}`;
}

/** A request that the host refused: every problem with its hint. */
export function refused(title, error) {
  const problems = error.rpc?.data?.problems ?? [];
  const told = problems.map(({ key, message, hint }) => `${key ? `${key}: ` : ''}${message}${hint ? ` (${hint})` : ''}`);
  return `${title} error: ${told.length ? told.join('; ') : error.message}`;
}
