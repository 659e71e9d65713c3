// The client: runs, conversations, saved sessions and the pool of one agentline process.

import { createRequire } from 'node:module';
import { needBinary } from './binary.js';
import { AgentlineError, HostGoneError, StopRun, aborted, expectDone } from './errors.js';
import {
  ALIASES,
  CONNECT_OPTIONS,
  CONVERSATION_OPTIONS,
  KEYS,
  LOAD_QUERY,
  POOL_SETTINGS,
  PROMPT_OPTIONS,
  SEARCH_QUERY,
  SESSIONS_QUERY,
  refuse,
  refuseUnknown,
  unknownOptions,
} from './option-names.js';
import { checkedOptions, keys, query, runOptions, runParams, snakeKeys } from './options.js';
import { parsed } from './schema.js';
import { RunStream } from './stream.js';
import { callTool } from './tool-call.js';
import { Wire, noMethod, text } from './wire.js';

/** @type {{ version: string }} */
const { version } = createRequire(import.meta.url)('../package.json');
const CONNECT_MS = 30_000;

/**
 * @typedef {import('../types/index.js').Outcome<any>} Outcome
 * @typedef {import('../types/index.js').RunOptions<any>} RunOptions
 * @typedef {import('../types/index.js').PromptOptions} PromptOptions
 * @typedef {import('../types/index.js').Callbacks<any>} Callbacks
 * @typedef {import('../types/index.js').RunEvent} RunEvent
 * @typedef {Callbacks & {
 *   onEvent?: (event: RunEvent) => void,
 *   onLine?: (line: string) => void,
 *   onRetry?: (retry: import('../types/index.js').RunRetry) => void,
 *   fail?: (error: unknown) => void,
 *   stopped?: (error: unknown) => void,
 *   ended: AbortController,
 *   calls: Map<number, AbortController>,
 * }} Listener
 */

/** @param {import('../types/index.js').ConnectOptions} [options] */
export async function connect(options = {}) {
  const { defaults = {}, pool = {} } = options;
  refuse([
    ...unknownOptions(options, CONNECT_OPTIONS),
    ...unknownOptions(defaults, [...KEYS, ...ALIASES], 'defaults'),
    ...unknownOptions(pool, POOL_SETTINGS, 'pool'),
  ]);
  const bin = needBinary(options);
  return Agentline.open(bin, options);
}

export class Agentline {
  /** @type {Wire} */
  #wire;
  /** The callbacks of each run, by the name of the run in the protocol. @type {Map<string, Listener>} */
  #listeners = new Map();
  #lastRun = 0;
  /** @type {{ name: string, version: string }} */
  server = { name: 'agentline', version: '' };
  /** @type {readonly string[]} */
  agentIds = [];

  /** @type {import('../types/index.js').Sessions} */
  sessions = {
    list: async (filter = {}) => (await this.request('sessions/list', query(filter, SESSIONS_QUERY))).sessions,
    load: async (/** @type {any} */ filter = {}) => this.request('sessions/load', query(filter, LOAD_QUERY)),
    search: async (filter) => (await this.request('sessions/search', query(filter, SEARCH_QUERY))).results,
  };

  /** @type {import('../types/index.js').Pool} */
  pool = {
    status: () => this.request('pool/status'),
    configure: async (settings) => {
      refuseUnknown(settings, POOL_SETTINGS);
      await this.request('pool/configure', snakeKeys(settings));
    },
    prewarm: async (options = {}) => (await this.request('pool/prewarm', keys(checkedOptions(options, [...KEYS, 'runs'])))).ready,
  };

  /**
   * @param {string} bin
   * @param {import('../types/index.js').ConnectOptions} options
   */
  constructor(bin, options) {
    this.#wire = new Wire(bin, options, {
      request: (method, params) => this.#onRequest(method, params),
      notify: (method, params) => this.#onNotification(method, params),
    });
  }

  /**
   * @param {string} bin
   * @param {import('../types/index.js').ConnectOptions} options
   */
  static async open(bin, options) {
    const agentline = new Agentline(bin, options);
    const limit = options.connectTimeoutMs ?? CONNECT_MS;
    let timedOut = false;
    const timer = setTimeout(() => {
      timedOut = true;
      agentline.#wire.kill();
    }, limit);
    try {
      const initialized = await agentline.request('initialize', {
        protocol: 1,
        client: options.client ?? { name: 'agentline-node', version },
        defaults: keys(options.defaults ?? {}),
        pool: snakeKeys(options.pool ?? {}),
        ...snakeKeys({ maxConcurrent: options.maxConcurrent, maxRetries: options.maxRetries }),
      });
      agentline.server = initialized.server;
      agentline.agentIds = initialized.agents;
      return agentline;
    } catch (error) {
      agentline.#wire.kill();
      const hint = `check that the program is a current agentline: \`${bin} --version\``;
      if (timedOut) throw new HostGoneError(`\`${bin}\` did not answer within ${limit} ms`, { cause: error, hint });
      if (error instanceof HostGoneError) throw new HostGoneError(error.message, { cause: error, hint });
      throw error;
    } finally {
      clearTimeout(timer);
    }
  }

  get closed() {
    return this.#wire.gone;
  }

  /**
   * @param {string} method
   * @param {object} [params]
   * @returns {Promise<any>}
   */
  request(method, params) {
    return this.#wire.request(method, params);
  }

  /**
   * @param {string | RunOptions} prompt the prompt, or all options
   * @param {RunOptions} [more]
   * @returns {Promise<any>}
   */
  async run(prompt, more) {
    const options = runOptions(prompt, more);
    const params = { ...runParams(options), events: options.events ?? options.onEvent !== undefined };
    return this.#startRun('run', params, options, options).outcome;
  }

  /**
   * @param {string | RunOptions} prompt the prompt, or all options
   * @param {RunOptions} [more]
   */
  stream(prompt, more) {
    const options = runOptions(prompt, more);
    return this.#startStream('run', runParams(options), options, options);
  }

  /** @param {import('../types/index.js').ConversationOptions} [options] */
  async session(options = {}) {
    const { signal } = checkedOptions(options, CONVERSATION_OPTIONS);
    if (signal?.aborted) throw aborted(signal, null);
    const name = this.#name();
    const listener = this.#listen(name, options);
    try {
      const opened = await this.request('session/open', { ...runParams(options), run: name });
      const conversation = new Conversation(this, opened, listener, options.outputSchema);
      if (!signal?.aborted) return conversation;
      await conversation.close();
      throw aborted(signal, null);
    } catch (error) {
      this.removeListener(name);
      throw error;
    }
  }

  agents() {
    return this.request('agents');
  }

  /**
   * @param {string} [agent]
   * @returns {Promise<string | null>}
   */
  async detect(agent) {
    return (await this.request('detect', snakeKeys({ agent }))).path;
  }

  /** @param {string} [agent] */
  capabilities(agent) {
    return this.request('capabilities', snakeKeys({ agent }));
  }

  close() {
    return this.#wire.close();
  }

  [Symbol.asyncDispose]() {
    return this.close();
  }

  /**
   * Runs one prompt of a conversation. Used by `Conversation`.
   * @param {string} session
   * @param {string} prompt
   * @param {PromptOptions} options
   * @param {string} name
   */
  prompt(session, prompt, options, name) {
    const { messages = false } = options;
    const params = { session, prompt, messages, events: options.events ?? options.onEvent !== undefined };
    return this.#startRun('session/prompt', params, options, options, name).outcome;
  }

  /**
   * Runs one prompt of a conversation and streams its events. Used by `Conversation`.
   * @param {string} session
   * @param {string} prompt
   * @param {PromptOptions} options
   * @param {string} name
   */
  promptStream(session, prompt, options, name) {
    const { messages = false } = options;
    return this.#startStream('session/prompt', { session, prompt, messages }, options, options, name);
  }

  /** Removes the callbacks of a run and aborts its signals. Also used by `Conversation`. @param {string} name */
  removeListener(name) {
    const listener = this.#listeners.get(name);
    this.#listeners.delete(name);
    listener?.ended.abort();
    for (const call of listener?.calls.values() ?? []) call.abort();
  }

  #name() {
    this.#lastRun += 1;
    return `run-${this.#lastRun}`;
  }

  /**
   * @param {string} name
   * @param {Callbacks & Partial<Listener>} callbacks
   */
  #listen(name, callbacks) {
    const { onPermission, tools, check, onEvent, onLine, onRetry, fail, stopped } = callbacks;
    /** @type {Listener} */
    const listener = { ended: new AbortController(), calls: new Map() };
    Object.assign(listener, { onPermission, tools, check, onEvent, onLine, onRetry, fail, stopped });
    this.#listeners.set(name, listener);
    return name;
  }

  /**
   * @param {string} method
   * @param {Record<string, unknown>} params
   * @param {Callbacks & Partial<Listener>} callbacks
   * @param {PromptOptions} options
   * @param {string} [conversation]
   */
  #startStream(method, params, callbacks, options, conversation) {
    const stream = new RunStream();
    const onEvent = (/** @type {RunEvent} */ event) => {
      const result = options.onEvent?.(event);
      stream.push(event);
      return result;
    };
    const request = { ...params, events: options.events ?? true };
    stream.follow(this.#startRun(method, request, { ...callbacks, onEvent }, options, conversation));
    return stream;
  }

  /**
   * Starts a run. Returns the promise of its outcome and a function that cancels it.
   * @param {string} method
   * @param {Record<string, unknown>} params
   * @param {Callbacks & Partial<Listener>} callbacks
   * @param {PromptOptions & { outputSchema?: unknown }} options
   * @param {string} [conversation] the listener of the conversation that the prompt belongs to
   */
  #startRun(method, params, callbacks, options, conversation) {
    const { signal } = options;
    const name = this.#name();
    // A host that has exited has already stopped the run.
    const stop = () => void this.request('cancel', { run: name }).catch(() => {});
    /** @type {{ error: unknown } | null} */
    let thrown = null;
    // The run ends by itself, because the response to `tool/call` says so.
    const stopped = (/** @type {unknown} */ error) => void (thrown ??= { error });
    let isFailing = false;
    const fail = (/** @type {unknown} */ error) => {
      isFailing = true;
      stopped(error);
      stop();
    };
    // A callback that throws or rejects stops the run, and no callback follows.
    const guarded = (/** @type {((value: any) => unknown) | undefined} */ callback) => {
      if (!callback) return undefined;
      return (/** @type {any} */ value) => {
        try {
          const result = isFailing ? undefined : callback(value);
          if (result instanceof Promise) result.catch(fail);
        } catch (error) {
          fail(error);
        }
      };
    };
    const start = async () => {
      // With a signal that is already aborted, nothing is started.
      if (signal?.aborted) throw aborted(signal, null);
      const { onEvent, onLine, onRetry } = callbacks;
      const guards = { onEvent: guarded(onEvent), onLine: guarded(onLine), onRetry: guarded(onRetry) };
      this.#listen(name, { ...callbacks, ...guards, fail, stopped });
      // In a conversation, the check and the tools belong to the conversation and not to the prompt.
      const session = conversation === undefined ? undefined : this.#listeners.get(conversation);
      if (session) Object.assign(session, { fail, stopped });
      signal?.addEventListener('abort', stop, { once: true });
      try {
        /** @type {Outcome} */
        const outcome = await this.request(method, { ...params, run: name });
        const failed = /** @type {{ error: unknown } | null} */ (thrown);
        if (failed) throw failed.error;
        // A run that finished before the abort arrived keeps its outcome.
        if (signal?.aborted && outcome.verdict === 'cancelled') throw aborted(signal, outcome);
        if (outcome.output !== null) outcome.output = await parsed(options.outputSchema, outcome.output, outcome);
        return options.throwOnFailure ? expectDone(outcome) : outcome;
      } finally {
        signal?.removeEventListener('abort', stop);
        this.removeListener(name);
      }
    };
    return { outcome: start(), cancel: stop };
  }

  /**
   * Handles a notification about a run.
   * @param {string} method
   * @param {any} params
   */
  #onNotification(method, params) {
    const listener = this.#listeners.get(params.run);
    if (!listener) return;
    if (method === 'run/event') {
      const event = params.joined === undefined ? params.event : { ...params.event, joined: params.joined };
      listener.onEvent?.(event);
    } else if (method === 'run/line') {
      listener.onLine?.(params.line);
    } else if (method === 'run/retry') {
      const { attempt, wait_ms, reason, model } = params;
      listener.onRetry?.({ attempt, wait_ms, reason, ...(model ? { model } : {}) });
    } else if (method === 'tool/cancel') {
      listener.calls.get(params.call)?.abort();
    }
  }

  /**
   * Handles a request about a run.
   * @param {string} method
   * @param {any} params
   */
  async #onRequest(method, params) {
    const { run } = params;
    const listener = this.#listeners.get(run);
    const missing = () => new AgentlineError(`the run \`${run}\` has no handler for \`${method}\``);
    const context = { run, signal: listener?.ended.signal ?? AbortSignal.abort() };
    switch (method) {
      case 'permission/ask': {
        if (!listener?.onPermission) throw missing();
        const decided = await listener.onPermission(params.ask, context);
        if (typeof decided === 'object' && decided !== null) return decided;
        return { decision: decided === true || decided === 'allow' ? 'allow' : 'deny' };
      }
      case 'check': {
        if (!listener?.check) throw missing();
        const { text, output, working_dir } = params;
        let checked;
        try {
          checked = await listener.check({ text, output, working_dir }, context);
        } catch (error) {
          // The check cannot decide any more, and another round would only cost money, so the run stops.
          listener.fail?.(error);
          throw error;
        }
        if (typeof checked === 'string') return { done: false, message: checked };
        return typeof checked === 'boolean' ? { done: checked } : checked;
      }
      case 'tool/call': {
        const tool = listener?.tools?.find((one) => one.name === params.tool);
        if (!listener || !tool) throw missing();
        const controller = new AbortController();
        listener.calls.set(params.call, controller);
        try {
          const { call } = params;
          const input = await parsed(tool.inputSchema, params.input);
          return await callTool(tool, input, { run, call, signal: controller.signal });
        } catch (error) {
          if (!(error instanceof StopRun)) throw error;
          listener.stopped?.(error);
          return { output: text(error), stop: true };
        } finally {
          listener.calls.delete(params.call);
        }
      }
      default:
        throw noMethod(`unknown method \`${method}\``);
    }
  }
}

/** A conversation: several prompts in one session of an agent. */
class Conversation {
  #agentline;
  #session;
  #listener;
  #outputSchema;
  /** @type {Promise<void> | undefined} */
  #closing;
  /** @type {string} */
  sessionId;

  /**
   * @param {Agentline} agentline
   * @param {{ session: string, session_id: string }} opened
   * @param {string} listener
   * @param {unknown} outputSchema
   */
  constructor(agentline, opened, listener, outputSchema) {
    this.#agentline = agentline;
    this.#session = opened.session;
    this.#listener = listener;
    this.#outputSchema = outputSchema;
    this.sessionId = opened.session_id;
  }

  /**
   * @param {string} prompt
   * @param {PromptOptions} [options]
   */
  async run(prompt, options = {}) {
    return this.#agentline.prompt(this.#session, prompt, this.#options(options), this.#listener);
  }

  /**
   * @param {string} prompt
   * @param {PromptOptions} [options]
   */
  stream(prompt, options = {}) {
    return this.#agentline.promptStream(this.#session, prompt, this.#options(options), this.#listener);
  }

  /** @param {PromptOptions} options */
  #options(options) {
    return { ...checkedOptions(options, PROMPT_OPTIONS), outputSchema: this.#outputSchema };
  }

  close() {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close() {
    try {
      if (!this.#agentline.closed) await this.#agentline.request('session/close', { session: this.#session });
    } finally {
      this.#agentline.removeListener(this.#listener);
    }
  }

  [Symbol.asyncDispose]() {
    return this.close();
  }
}
