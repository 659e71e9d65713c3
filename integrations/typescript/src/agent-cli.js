// Four functions with the names of agent-cli-sdk: run an agent, load its saved messages, find its program, and report its
// capabilities.

import { spawnSync } from 'node:child_process';
import { resolve } from 'node:path';
import { needBinary } from './binary.js';
import { connect } from './client.js';
import { AgentlineError, HostGoneError, NoSessionError, aborted, errorFromResponse } from './errors.js';
import { text } from './wire.js';

const DEFAULT_TOOL = 'gemini';
const DETECT_MS = 30_000;

/**
 * @typedef {import('../types/index.js').ExecuteOptions} ExecuteOptions
 * @typedef {import('../types/index.js').SharedOptions} SharedOptions
 * @typedef {import('../types/index.js').Agentline} Client
 * @typedef {import('../types/index.js').RunEvent} RunEvent
 */

/**
 * The agentline process that all calls share, with the number of calls that use it.
 * @typedef {{ key: string, client: Promise<Client>, opened: Client | null, failed: boolean, users: number }} Shared
 */

/** @type {Shared | null} */
let shared = null;

/** @param {string} bin */
function sharedClient(bin) {
  // agentline reads its environment when it starts, so a different environment needs a new process.
  const key = JSON.stringify([bin, process.cwd(), process.env]);
  const previous = shared;
  if (previous && previous.key === key && !previous.failed && !previous.opened?.closed) return previous;
  /** @type {Shared} */
  const current = { key, client: connect({ bin }), opened: null, failed: false, users: 0 };
  current.client.then(
    (client) => (current.opened = client),
    () => (current.failed = true),
  );
  shared = current;
  if (previous) closeIfUnused(previous);
  return current;
}

/** Closes a client that has been replaced, once no call uses it. @param {Shared} entry */
function closeIfUnused(entry) {
  if (entry !== shared && entry.users === 0) entry.client.then((client) => client.close()).catch(() => {});
}

/**
 * @template T
 * @param {SharedOptions} options
 * @param {(client: Client) => Promise<T>} use
 */
async function withClient(options, use) {
  if (options.client) return use(options.client);
  const entry = sharedClient(needBinary(options));
  entry.users += 1;
  try {
    return await use(await entry.client);
  } finally {
    entry.users -= 1;
    closeIfUnused(entry);
  }
}

/**
 * @param {ExecuteOptions} options
 * @returns {Promise<import('../types/index.js').ExecuteResult<any>>}
 */
export async function execute(options) {
  const startedAt = Date.now();
  const { signal } = options;
  /** @type {import('../types/index.js').Outcome<any> | null} */
  let outcome = null;
  let error = '';
  /** @type {{ error: unknown } | null} */
  let callbackError = null;
  const onEvent = (/** @type {RunEvent} */ event) => {
    try {
      emit(options, event);
    } catch (thrown) {
      callbackError = { error: thrown };
      throw thrown;
    }
  };
  try {
    // With a signal that is already aborted, nothing is started, not even agentline.
    if (signal?.aborted) throw aborted(signal, null);
    const run = { ...runOptions(options), messages: true, signal, onEvent };
    outcome = await withClient(options, (client) => client.run(run));
  } catch (thrown) {
    if (callbackError) throw thrown;
    outcome = thrown instanceof AgentlineError ? thrown.outcome : null;
    error = text(thrown);
  }
  return outcome ? finished(options, outcome) : notStarted(options, error, Date.now() - startedAt);
}

/**
 * Converts the options of `execute` to those of a run.
 * @param {ExecuteOptions} options
 * @returns {import('../types/index.js').RunOptions}
 */
function runOptions(options) {
  const { prompt, tool = DEFAULT_TOOL, permissionMode = 'default', sessionId, resume } = options;
  const resumed = resume === true ? (sessionId ?? 'latest') : resume || undefined;
  return {
    ...options.options,
    prompt,
    agent: tool,
    permissionMode,
    workingDir: options.workingDir ?? process.cwd(),
    model: options.model ?? options.options?.model,
    // `timeout` and `timeoutMs` set the same key; the option of `execute` takes precedence.
    ...(options.timeout === undefined ? {} : { timeout: undefined, timeoutMs: options.timeout }),
    resume: resumed,
    sessionId: resumed === undefined ? sessionId : undefined,
    extractJson: options.json ?? options.options?.extractJson,
    warm: options.warm,
  };
}

/**
 * @param {ExecuteOptions} options
 * @param {RunEvent} event
 */
function emit(options, event) {
  if (event.type === 'started') options.onStart?.(event);
  if (event.type === 'warning' && (options.verbose || event.from === 'stderr')) {
    options.onStderr?.(event.message);
  } else {
    options.onStdout?.(event);
  }
}

/**
 * @param {ExecuteOptions} options
 * @param {import('../types/index.js').Outcome<any>} outcome
 */
function finished(options, outcome) {
  if (options.verbose) outcome.warnings.forEach((warning) => options.onStderr?.(warning.message));
  if (outcome.stderr_tail) options.onStderr?.(outcome.stderr_tail);
  const success = outcome.verdict === 'done' || outcome.verdict === 'done_with_denials';
  const error = outcome.error?.message ?? null;
  if (error !== null) options.onError?.(error);
  const exitCode = outcome.agent_exit_code ?? (success ? 0 : null);
  options.onClose?.(exitCode);
  return {
    success,
    exitCode,
    sessionId: outcome.session_id,
    duration: outcome.duration_ms,
    messages: outcome.messages ?? [],
    data: outcome.output,
    error,
    quotaExceeded: outcome.verdict === 'rate_limited',
    outcome,
  };
}

/**
 * @param {ExecuteOptions} options
 * @param {string} error
 * @param {number} duration
 */
function notStarted(options, error, duration) {
  options.onError?.(error);
  options.onClose?.(null);
  const empty = { exitCode: null, sessionId: null, messages: [], data: null, outcome: null };
  return { ...empty, success: false, duration, error, quotaExceeded: false };
}

/** @param {import('../types/index.js').LoadMessagesOptions} [options] */
export async function loadMessages(options = {}) {
  const { tool = DEFAULT_TOOL, sessionId, missing = 'throw' } = options;
  const project = resolve(options.projectPath ?? process.cwd());
  return withClient(options, async (client) => {
    try {
      const loaded = await client.sessions.load({ agent: tool, project, session: sessionId });
      const [damage] = loaded.damage;
      if (loaded.messages.length === 0 && damage) {
        throw new AgentlineError(`cannot read the session: ${damage.message}`);
      }
      return loaded.messages;
    } catch (error) {
      if (!(error instanceof NoSessionError)) throw error;
      if (missing === 'empty') return [];
      const name = await titleOf(client, tool);
      const { hint } = error;
      throw new NoSessionError(`No ${name} session found for project: ${project}`, { cause: error, hint });
    }
  });
}

/**
 * Returns the display name of an agent.
 * @param {Client} client
 * @param {string} tool
 */
async function titleOf(client, tool) {
  const agents = await client.agents();
  const found = agents.find(({ card }) => card.id === tool || card.aliases.includes(tool));
  return found?.card.title.replace(/ CLI$/, '') ?? tool;
}

/**
 * @param {string} [tool]
 * @param {{ bin?: string }} [options]
 * @returns {string | null}
 */
export function detectCli(tool = DEFAULT_TOOL, options = {}) {
  const request = { jsonrpc: '2.0', id: 1, method: 'detect', params: { agent: tool } };
  const done = spawnSync(needBinary(options), ['host', '--drain'], {
    input: `${JSON.stringify(request)}\n`,
    encoding: 'utf8',
    timeout: DETECT_MS,
    windowsHide: true,
  });
  if (done.error || done.status !== 0) {
    throw new HostGoneError(`agentline host failed: ${done.error?.message ?? done.stderr.trim()}`);
  }
  const answer = JSON.parse(done.stdout);
  if (answer.error) throw errorFromResponse(answer.error);
  return answer.result.path;
}

/**
 * @param {SharedOptions & { tool?: string }} [options]
 * @returns {Promise<any>}
 */
export async function getCapabilities(options = {}) {
  const { tool } = options;
  return withClient(options, async (client) => {
    if (tool !== undefined) return capabilitiesOf(client, tool);
    const each = client.agentIds.map(async (id) => [id, await capabilitiesOf(client, id)]);
    return Object.fromEntries(await Promise.all(each));
  });
}

/**
 * @param {Client} client
 * @param {string} tool
 * @returns {Promise<import('../types/index.js').ToolCapabilities>}
 */
async function capabilitiesOf(client, tool) {
  const [capabilities, cliPath] = await Promise.all([client.capabilities(tool), client.detect(tool)]);
  return {
    supportsSlashCommands: capabilities.supports_slash_commands,
    supportsModels: capabilities.supports_models,
    models: capabilities.models,
    supportsWebSearch: capabilities.supports_web_search,
    supportsThinking: capabilities.supports_thinking,
    cliPath,
    source: capabilities.source,
  };
}
