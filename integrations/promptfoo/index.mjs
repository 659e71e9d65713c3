// A promptfoo provider for coding agents: `google:gemini-cli`, or any other agent that the option `agent` selects.
import path from 'node:path';
import { setImmediate as nextTick } from 'node:timers/promises';
import { ToolCalls, requestError, responseOf, titleOf } from './lib/answer.mjs';
import { findBinary } from './lib/binary.mjs';
import { cacheOf } from './lib/cache.mjs';
import { connectHooks, loadHooks } from './lib/hooks.mjs';
import { endIdleHosts, hostFor } from './lib/host.mjs';
import { mergeConfig, promptOnly, runParams, writtenNames } from './lib/options.mjs';
import { emitSpans } from './lib/trace.mjs';

const RESERVED =
  'google:gemini-agent-sdk is reserved for an SDK that Google has not released. Use google:gemini-cli: it streams, cancels, resumes and gives structured output';
let runs = 0;
const reportedKeys = new Set();

export class AgentlineProvider {
  constructor(options = {}) {
    this.config = options.config ?? {};
    this.env = options.env ?? {};
    this.givenId = options.id;
    if (options.label) this.label = options.label;
  }

  /** Returns `google:gemini-cli`, `agentline:claude`, …, or the id that the user set. */
  id() {
    const isPath = !this.givenId || /^(file:|package:|\.|\/)/.test(this.givenId) || /\.[cm]?[jt]s$/.test(this.givenId);
    if (!isPath) return this.givenId;
    return this.agent() === 'gemini' ? 'google:gemini-cli' : `agentline:${this.agent()}`;
  }

  /** Returns the agent of the prompt or, without one, of the provider. */
  agent(context) {
    const agent = context?.prompt?.config?.agent ?? this.config.agent ?? /^agentline:(.+)/.exec(this.givenId ?? '')?.[1] ?? 'gemini';
    return ['google:gemini-cli', 'gemini-cli'].includes(agent) ? 'gemini' : agent;
  }

  toString() {
    return this.agent() === 'gemini' ? '[Google Gemini CLI Provider]' : `[agentline ${titleOf(this.agent())} Provider]`;
  }

  /** Never throws: failures are reported in `error` of the response. */
  async callApi(prompt, context, callOptions) {
    const title = titleOf(this.agent(context));
    try {
      return await this.call(title, prompt, context, callOptions?.abortSignal);
    } catch (error) {
      return { error: requestError(title, error, writtenNames(this.config, context)) };
    }
  }

  async call(title, prompt, context, signal) {
    const agent = this.agent(context);
    if (/(^|:)gemini-agent-sdk$/.test(agent) || this.givenId === 'google:gemini-agent-sdk') return { error: RESERVED };
    const aborted = { error: `${title} call aborted before it started` };
    if (signal?.aborted) return aborted;
    const config = { ...mergeConfig(this.config, context), agent };
    const basePath = path.resolve(this.config.basePath ?? '');
    const params = runParams(config, this.env, basePath, promptOnly(this.config, context));
    const tools = new ToolCalls();
    const host = this.host(config, basePath);
    const run = `promptfoo-${++runs}`;
    let failure;
    const onEvent = (event) => {
      // The time of the run starts with its first event; waiting for a slot does not count.
      if (tools.calls.size === 0) tools.startedAt = Date.now() - event.at_ms;
      tools.add(event);
    };
    const fail = (reason) => {
      failure ??= reason;
      host.cancel(run);
    };
    const hooks = connectHooks(await loadHooks(config.hooks, basePath), onEvent, fail);
    if ((await host.ready)?.methods?.includes('cache/stats')) params.cache = cacheOf(config, context);
    const callbacks = {
      ...hooks.callbacks,
      'run/retry': ({ attempt, wait_ms: wait, reason }) =>
        context?.logger?.debug?.(`[agentline] attempt ${attempt} in ${wait} ms: ${reason}`),
    };
    const result = await host.run(run, { ...params, ...hooks.params, prompt, messages: true }, callbacks, signal);
    if (!result) return aborted;
    const { messages, ...outcome } = result;
    tools.complete(messages);
    emitSpans(tools, outcome);
    const response = responseOf(outcome, tools, config, writtenNames(this.config, context));
    if (signal?.aborted && outcome.verdict === 'cancelled') response.error = `${title} call aborted`;
    warnAboutUnknownKeys(outcome.warnings, context?.logger);
    // Lets rejections of asynchronous hooks arrive.
    await nextTick();
    if (!failure) return response;
    const { output, ...rest } = response;
    return { ...rest, error: `${title} error: ${failure}` };
  }

  /** Returns the host of the evaluation. All providers with the same program and environment share it. */
  host(config, basePath) {
    const env = { ...process.env, ...config.host_env };
    const settings = { pool: config.pool, max_concurrent: config.max_concurrent };
    return hostFor(findBinary(config.agentline_bin, basePath, env), env, settings);
  }

  /** promptfoo calls this at the end of the evaluation. */
  async cleanup() {
    await endIdleHosts();
  }
}

/** Logs each key that agentline ignored once: of a configuration file, or of a test case that is meant for another provider. */
function warnAboutUnknownKeys(warnings = [], logger) {
  for (const { code, message } of warnings) {
    if (code !== 'unknown_key' || reportedKeys.has(message)) continue;
    reportedKeys.add(message);
    logger?.warn?.(`[agentline] ${message}`);
  }
}

// promptfoo looks up `package:agentline-promptfoo:GeminiCLIProvider` in the default export.
Object.assign(AgentlineProvider, { GeminiCLIProvider: AgentlineProvider, GeminiCli: AgentlineProvider });
export { AgentlineProvider as GeminiCLIProvider, AgentlineProvider as GeminiCli, AgentlineProvider as default };
