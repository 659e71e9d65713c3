// `execute` of agent-cli-sdk: its options, callbacks and result.

import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { AgentlineError, RunError, UsageError, aborted } from './errors.js';
import { ALIASES, RUN_OPTIONS, refuse, unknownOptions, usageError } from './option-names.js';
import { withClient } from './shared.js';
import { extractTextContent, messageOfLine, sdkMessage } from './unified.js';

const DEFAULT_TOOL = 'gemini';

/**
 * @typedef {import('../types/index.js').ExecuteOptions} ExecuteOptions
 * @typedef {import('../types/index.js').ExecuteResult<any>} ExecuteResult
 * @typedef {import('../types/index.js').Agentline} Client
 * @typedef {import('../types/index.js').Outcome<any, import('../types/index.js').UnifiedMessage>} Outcome
 * @typedef {import('../types/index.js').RunEvent} RunEvent
 * @typedef {import('../types/index.js').SdkMessage} SdkMessage
 */

/** Every option of `execute`. */
export const EXECUTE_OPTIONS = [
  'prompt tool workingDir permissionMode model sessionId resume timeout verbose json warm signal options client bin',
  'continue dangerouslySkipPermissions streaming toolSettings images appendSystemPrompt systemPrompt mcpConfig',
  'onStart onEvent onStdout onStderr onError onClose',
].flatMap((names) => names.split(' '));
const TOOL_SETTINGS = ['allowedTools', 'disallowedTools'];
/** The agents that let the caller choose the id of a new session. */
const CHOOSE_IDS = ['gemini', 'claude'];
/** Settings that are options of `execute` themselves, under these names. @type {Record<string, string>} */
const OWN = { prompt: 'prompt', agent: 'tool', workingDir: 'workingDir', resume: 'resume', sessionId: 'sessionId' };

/**
 * @param {ExecuteOptions} options
 * @returns {Promise<ExecuteResult>}
 */
export async function execute(options) {
  const startedAt = Date.now();
  const callbacks = new Callbacks(options);
  /** @type {Outcome | null} */
  let outcome = null;
  let found;
  let error = '';
  try {
    const { signal } = options;
    // With a signal that is already aborted, nothing is started, not even agentline.
    if (signal?.aborted) throw aborted(signal, null);
    checkOptions(options);
    const run = {
      ...runOptions(options),
      messages: true,
      view: /** @type {const} */ ('unified'),
      signal: callbacks.signal,
      events: /** @type {import('../types/index.js').EventType[]} */ (['started', 'warning']),
      onEvent: (/** @type {RunEvent} */ event) => callbacks.event(event),
      onLine: callbacks.onLine,
    };
    [outcome, found] = await withClient(options, async (client) => {
      const outcome = await client.run(run);
      const json = options.json === true && outcome.output === null;
      return /** @type {const} */ ([outcome, json ? await jsonIn(client, [outcome.text, textOf(outcome)]) : {}]);
    });
  } catch (thrown) {
    if (callbacks.thrown) throw thrown;
    outcome = thrown instanceof AgentlineError ? /** @type {Outcome | null} */ (/** @type {unknown} */ (thrown.outcome)) : null;
    error = describe(thrown);
  }
  if (outcome?.verdict === 'not_installed') throw notInstalled(outcome);
  return outcome ? finished(callbacks, outcome, found) : notStarted(callbacks, error, Date.now() - startedAt);
}

/** Returns the message of an error with its hint, because a result has no field for the hint. @param {unknown} error */
function describe(error) {
  if (error instanceof AgentlineError && error.hint) return `${error.message}\n  hint: ${error.hint}`;
  return error instanceof Error ? error.message : String(error);
}

/** Refuses options that do not exist, by name. @param {ExecuteOptions} options */
function checkOptions(options) {
  refuse([
    ...unknownOptions(options, EXECUTE_OPTIONS),
    ...unknownOptions(options.toolSettings ?? {}, TOOL_SETTINGS, 'toolSettings'),
    ...unknownOptions(options.options ?? {}, [...RUN_OPTIONS, ...ALIASES], 'options'),
  ]);
  const twice = Object.keys(options.options ?? {}).find((name) => name in OWN);
  if (twice === undefined) return;
  throw usageError(`options.${twice}`, 'is an option of execute', { hint: `pass \`${OWN[twice]}\` to \`execute\` itself` });
}

/**
 * Converts the options of `execute` to those of a run.
 * @param {ExecuteOptions} options
 * @returns {import('../types/index.js').RunOptions}
 */
function runOptions(options) {
  const { tool = DEFAULT_TOOL, toolSettings = {}, sessionId, resume, images = [] } = options;
  const workingDir = resolve(options.workingDir ?? process.cwd());
  const skips = options.dangerouslySkipPermissions ? 'bypassPermissions' : undefined;
  const continued = resume === true ? (sessionId ?? 'latest') : resume || (options.continue ? 'latest' : undefined);
  // As in agent-cli-sdk, an id is that of a new session if the agent lets the caller choose it.
  const resumed = continued ?? (CHOOSE_IDS.includes(tool) ? undefined : sessionId);
  const own = options.options ?? {};
  /** @type {import('../types/index.js').RunOptions} */
  const run = {
    ...own,
    prompt: options.prompt,
    agent: tool,
    permissionMode: options.permissionMode ?? skips ?? own.permissionMode ?? 'default',
    workingDir,
    resume: resumed,
    sessionId: resumed === undefined ? sessionId : undefined,
    warm: options.warm,
  };
  if (options.model !== undefined) run.model = options.model;
  // `timeout` and `timeoutMs` set the same key; the option of `execute` takes precedence.
  if (options.timeout !== undefined) Object.assign(run, { timeout: undefined, timeoutMs: options.timeout });
  const { allowedTools = [], disallowedTools = [] } = toolSettings;
  if (allowedTools.length > 0) run.allow = [...(own.allow ?? []), ...allowedTools.flatMap(rules)];
  if (disallowedTools.length > 0) run.deny = [...(own.deny ?? []), ...disallowedTools.flatMap(rules)];
  if (images.length > 0) {
    run.attachments = [...(own.attachments ?? []), ...images.map(({ path }) => resolve(workingDir, path))];
  }
  const { systemPrompt, appendSystemPrompt } = options;
  if (systemPrompt !== undefined || appendSystemPrompt !== undefined) {
    run.systemPrompt = [systemPrompt, appendSystemPrompt].filter((text) => text !== undefined).join('\n\n');
    run.systemMode = systemPrompt === undefined ? 'append' : 'replace';
  }
  if (options.mcpConfig !== undefined) run.mcpServers = { ...own.mcpServers, ...mcpServers(options.mcpConfig, workingDir) };
  return run;
}

/**
 * Converts a rule of Claude Code, in which `Bash(git:*)` means `git` with any arguments.
 * @param {string} rule
 */
function rules(rule) {
  const prefix = /^(\w+)\((.*):\*\)$/s.exec(rule);
  return prefix ? [`${prefix[1]}(${prefix[2]})`, `${prefix[1]}(${prefix[2]} *)`] : [rule];
}

/**
 * Reads the servers of Claude Code's `--mcp-config`: JSON texts, or paths of JSON files.
 * @param {string[]} configs
 * @param {string} folder
 */
function mcpServers(configs, folder) {
  const servers = configs.map((config) => {
    try {
      const text = config.trimStart().startsWith('{') ? config : readFileSync(resolve(folder, config), 'utf8');
      return JSON.parse(text).mcpServers ?? {};
    } catch (error) {
      throw new UsageError(`mcpConfig: cannot read \`${config}\`: ${/** @type {Error} */ (error).message}`, { cause: error });
    }
  });
  return Object.assign({}, ...servers);
}

/** The callbacks of one call, with everything that they have received so far. */
class Callbacks {
  /** Whether a callback has thrown. */
  thrown = false;
  #options;
  #stop = new AbortController();
  #raw = '';
  /** @type {any[]} */
  #events = [];
  /** @type {SdkMessage[]} */
  #messages = [];

  /** @param {ExecuteOptions} options */
  constructor(options) {
    this.#options = options;
  }

  get options() {
    return this.#options;
  }

  get signal() {
    const { signal } = this.#options;
    return signal ? AbortSignal.any([signal, this.#stop.signal]) : this.#stop.signal;
  }

  get onLine() {
    const { onEvent, onStdout, streaming } = this.#options;
    if ((!onEvent && !onStdout) || streaming === false) return undefined;
    return (/** @type {string} */ raw) => this.#call(() => this.#line(raw));
  }

  /** @param {RunEvent} event */
  event(event) {
    const { onStart, onStderr, verbose } = this.#options;
    if (event.type === 'started') this.#call(() => onStart?.(this.#process(event)));
    if (event.type === 'warning' && (verbose || event.from === 'stderr')) this.#call(() => onStderr?.(event.message));
  }

  /** @param {import('../types/index.js').StartedEvent} started */
  #process(started) {
    const stop = this.#stop;
    return {
      pid: undefined,
      started,
      get killed() {
        return stop.signal.aborted;
      },
      kill() {
        stop.abort();
        return true;
      },
    };
  }

  /** @param {string} raw */
  #line(raw) {
    const { onEvent, onStdout, tool = DEFAULT_TOOL } = this.#options;
    const event = JSON.parse(raw);
    const message = messageOfLine(event, tool);
    this.#raw += `${raw}\n`;
    this.#events.push(event);
    if (message) this.#messages.push(message);
    onEvent?.({ raw, event, message });
    onStdout?.({ raw: this.#raw, events: this.#events, messages: this.#messages });
  }

  /** @param {() => void} callback */
  #call(callback) {
    try {
      callback();
    } catch (error) {
      this.thrown = true;
      throw error;
    }
  }
}

/**
 * @param {Callbacks} callbacks
 * @param {Outcome} outcome
 * @param {any} found the JSON value in the answer, if one was requested
 * @returns {ExecuteResult}
 */
function finished({ options }, outcome, found) {
  if (options.verbose) outcome.warnings.forEach((warning) => options.onStderr?.(warning.message));
  if (outcome.stderr_tail) options.onStderr?.(outcome.stderr_tail);
  const answered = ['done', 'done_with_denials'].includes(outcome.verdict);
  // An agent that has nothing to say succeeded, unless its answer was blocked.
  const success = answered || (outcome.verdict === 'empty' && outcome.stop_reason === 'end_turn');
  const error = success ? undefined : reason(outcome);
  if (error !== undefined) options.onError?.(new RunError(error, { outcome: plain(outcome) }));
  const exitCode = outcome.agent_exit_code ?? (success ? 0 : -1);
  options.onClose?.(exitCode);
  return {
    success,
    exitCode,
    sessionId: outcome.session_id ?? 'unknown',
    duration: outcome.duration_ms,
    messages: (outcome.messages ?? []).map(sdkMessage),
    data: outcome.output ?? found?.value ?? textOf(outcome),
    error,
    quotaExceeded: outcome.verdict === 'rate_limited',
    outcome,
  };
}

/** Returns the text of all answers. @param {Outcome} outcome */
function textOf(outcome) {
  const answers = (outcome.messages ?? []).filter(({ role }) => role === 'assistant');
  return answers.map(extractTextContent).filter((text) => text !== '').join('\n');
}

/**
 * Returns the JSON value in the first text that has one.
 * @param {Client} client
 * @param {string[]} texts
 * @returns {Promise<{ value?: unknown }>}
 */
async function jsonIn(client, texts) {
  for (const text of texts) {
    const found = /** @type {{ value?: unknown }} */ (await client.request('extract', { text }));
    if ('value' in found) return found;
  }
  return {};
}

/** Returns the agent's own words if it exited without a result, otherwise why the run failed. @param {Outcome} outcome */
function reason(outcome) {
  const { error, stderr_tail: stderr, agent_exit_code: code } = outcome;
  const exited = code !== null && code !== 0 && ['crashed', 'no_result'].includes(error?.kind ?? '');
  return (exited && stderr.trim()) || error?.message || `the run ended with the verdict ${outcome.verdict}`;
}

/** Returns the outcome with the type that errors have. @param {Outcome} outcome */
function plain(outcome) {
  return /** @type {import('../types/index.js').Outcome} */ (/** @type {unknown} */ (outcome));
}

/** @param {Outcome} outcome */
function notInstalled(outcome) {
  const { error, agent } = outcome;
  const name = agent.charAt(0).toUpperCase() + agent.slice(1);
  return new RunError(`${name} CLI not found. ${error?.message ?? ''}`, { outcome: plain(outcome), hint: error?.hint ?? null });
}

/**
 * @param {Callbacks} callbacks
 * @param {string} error
 * @param {number} duration
 * @returns {ExecuteResult}
 */
function notStarted({ options }, error, duration) {
  options.onError?.(new AgentlineError(error));
  options.onClose?.(-1);
  const nothing = { exitCode: -1, sessionId: 'unknown', messages: [], data: '', outcome: null };
  return { ...nothing, success: false, duration, error, quotaExceeded: false };
}
