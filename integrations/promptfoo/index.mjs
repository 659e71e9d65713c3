// A promptfoo provider for coding agents: `google:gemini-cli`, or any other agent that agentline drives, by the option `agent`.
import path from 'node:path';
import { setImmediate as settled } from 'node:timers/promises';
import { ToolCalls, refused, responseOf, titleOf } from './lib/answer.mjs';
import { findBinary } from './lib/binary.mjs';
import { cacheOf } from './lib/cache.mjs';
import { loadHooks, wire } from './lib/hooks.mjs';
import { endIdleHosts, hostFor } from './lib/host.mjs';
import { runParams, settle } from './lib/options.mjs';
import { emitSpans } from './lib/trace.mjs';

const RESERVED =
  'google:gemini-agent-sdk is reserved for an SDK that Google has not released. Use google:gemini-cli: it streams, cancels, resumes and gives structured output';
let runs = 0;
const toldKeys = new Set();

export class AgentlineProvider {
  constructor(options = {}) {
    this.config = options.config ?? {};
    this.env = options.env ?? {};
    this.givenId = options.id;
    if (options.label) this.label = options.label;
  }

  /** `google:gemini-cli`, `agentline:claude`, …; an id of the user's own stands. */
  id() {
    const isPlace = !this.givenId || /^(file:|package:|\.|\/)/.test(this.givenId) || /\.[cm]?[jt]s$/.test(this.givenId);
    if (!isPlace) return this.givenId;
    return this.agent() === 'gemini' ? 'google:gemini-cli' : `agentline:${this.agent()}`;
  }

  /** Which agent: that of the prompt, else that of the provider. */
  agent(context) {
    const agent = context?.prompt?.config?.agent ?? this.config.agent ?? 'gemini';
    return ['google:gemini-cli', 'gemini-cli'].includes(agent) ? 'gemini' : agent;
  }

  toString() {
    return this.agent() === 'gemini' ? '[Google Gemini CLI Provider]' : `[agentline ${titleOf(this.agent())} Provider]`;
  }

  /** Never throws: what goes wrong is `error` of the response. */
  async callApi(prompt, context, callOptions) {
    const title = titleOf(this.agent(context));
    try {
      return await this.call(title, prompt, context, callOptions?.abortSignal);
    } catch (error) {
      return { error: refused(title, error) };
    }
  }

  async call(title, prompt, context, signal) {
    const agent = this.agent(context);
    if (/(^|:)gemini-agent-sdk$/.test(agent) || this.givenId === 'google:gemini-agent-sdk') return { error: RESERVED };
    const aborted = { error: `${title} call aborted before it started` };
    if (signal?.aborted) return aborted;
    const config = { ...settle(this.config, context), agent };
    const basePath = path.resolve(this.config.basePath ?? '');
    const params = runParams(config, this.env, basePath);
    const tools = new ToolCalls();
    const host = this.host(config, basePath);
    const run = `promptfoo-${++runs}`;
    let failure;
    const take = (event) => {
      // The clock of the run begins with its first event, not where it waited for a place.
      if (tools.calls.size === 0) tools.began = Date.now() - event.at_ms;
      tools.take(event);
    };
    const fail = (why) => {
      failure ??= why;
      host.cancel(run);
    };
    const hooks = wire(await loadHooks(config.hooks, basePath), take, fail);
    if ((await host.ready)?.methods?.includes('cache/stats')) params.cache = cacheOf(config, context);
    const callbacks = {
      ...hooks.callbacks,
      'run/retry': ({ attempt, wait_ms: wait, reason }) =>
        context?.logger?.debug?.(`[agentline] attempt ${attempt} in ${wait} ms: ${reason}`),
    };
    const told = await host.run(run, { ...params, ...hooks.params, prompt, messages: true }, callbacks, signal);
    if (!told) return aborted;
    const { messages, ...outcome } = told;
    tools.complete(messages);
    emitSpans(tools, outcome);
    const response = responseOf(outcome, tools, params.max_retries > 0);
    if (signal?.aborted && outcome.verdict === 'cancelled') response.error = `${title} call aborted`;
    tellUnknownKeys(outcome.warnings, context?.logger);
    // Functions that have failed by now are heard.
    await settled();
    if (!failure) return response;
    const { output, ...rest } = response;
    return { ...rest, error: `${title} error: ${failure}` };
  }

  /** The one host of the evaluation: shared by all providers with the same program and environment. */
  host(config, basePath) {
    const env = { ...process.env, ...config.host_env };
    const settings = { pool: config.pool, max_concurrent: config.max_concurrent };
    return hostFor(findBinary(config.agentline_bin, basePath, env), env, settings);
  }

  /** promptfoo calls it when the evaluation is over. */
  async cleanup() {
    await endIdleHosts();
  }
}

/** A misspelt option would otherwise be seen by nobody who does not look into the metadata. Each is told once. */
function tellUnknownKeys(warnings = [], logger) {
  for (const { code, message } of warnings) {
    if (code !== 'unknown_key' || toldKeys.has(message)) continue;
    toldKeys.add(message);
    logger?.warn?.(`[agentline] ${message}`);
  }
}

// promptfoo looks for `package:agentline-promptfoo:GeminiCli` in the default export where there is one.
AgentlineProvider.GeminiCli = AgentlineProvider;
export const GeminiCli = AgentlineProvider;
export default AgentlineProvider;
