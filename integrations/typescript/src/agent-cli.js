// Functions with the names of agent-cli-sdk: run an agent, load and parse its messages, find its program, and report its
// capabilities.

import { resolve } from 'node:path';
import { AgentlineError, NoSessionError } from './errors.js';
import { execute } from './execute.js';
import { LOAD_MESSAGES_OPTIONS, SHARED_OPTIONS, refuseUnknown } from './option-names.js';
import { withClient } from './shared.js';
import { requestSync } from './sync.js';
import { sdkMessage } from './unified.js';

const DEFAULT_TOOL = 'gemini';

/** The agent that agent-cli-sdk lists but does not support. */
const UNSUPPORTED = 'cursor';

/**
 * @typedef {import('../types/index.js').Agentline} Client
 * @typedef {import('../types/index.js').SdkMessage} SdkMessage
 */

export { execute };

/**
 * @param {import('../types/index.js').LoadMessagesOptions} [options]
 * @returns {Promise<SdkMessage[]>}
 */
export async function loadMessages(options = {}) {
  refuseUnknown(options, LOAD_MESSAGES_OPTIONS);
  const { tool = DEFAULT_TOOL, sessionId, sessionPath, missing = 'throw' } = options;
  const project = resolve(options.projectPath ?? process.cwd());
  return withClient(options, async (client) => {
    try {
      const session = sessionPath === undefined ? sessionId : resolve(sessionPath);
      const loaded = await client.sessions.load({ agent: tool, project, session });
      const [damage] = loaded.damage;
      if (loaded.messages.length === 0 && damage) {
        throw new AgentlineError(`cannot read the session: ${damage.message}`);
      }
      return loaded.messages.map(sdkMessage);
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
 * @param {string | object} record
 * @param {{ tool?: string, bin?: string }} [options]
 * @returns {SdkMessage | null}
 */
export function parse(record, options = {}) {
  refuseUnknown(options, ['bin', 'tool']);
  const { tool = DEFAULT_TOOL } = options;
  const { message } = requestSync(options, 'sessions/parse', { agent: tool, record });
  return message === null ? null : sdkMessage(message);
}

/**
 * @param {string} text
 * @param {{ bin?: string }} [options]
 * @returns {any}
 */
export function extractJSON(text, options = {}) {
  refuseUnknown(options, ['bin']);
  return requestSync(options, 'extract', { text }).value ?? null;
}

/**
 * @param {string} [tool]
 * @param {{ bin?: string }} [options]
 * @returns {string | null}
 */
export function detectCli(tool = DEFAULT_TOOL, options = {}) {
  refuseUnknown(options, ['bin']);
  return requestSync(options, 'detect', { agent: tool }).path;
}

/**
 * @param {string} [tool]
 * @param {{ bin?: string }} [options]
 * @returns {string[] | null}
 */
export function detectLauncher(tool = DEFAULT_TOOL, options = {}) {
  refuseUnknown(options, ['bin']);
  return requestSync(options, 'detect', { agent: tool }).launcher;
}

/** @param {{ bin?: string }} [options] */
export const detectGeminiCli = (options) => detectCli('gemini', options);
/** @param {{ bin?: string }} [options] */
export const detectClaudeCli = (options) => detectCli('claude', options);
/** @param {{ bin?: string }} [options] */
export const detectCodexCli = (options) => detectCli('codex', options);

/**
 * @param {string | (import('../types/index.js').SharedOptions & { tool?: string })} [agent]
 * @param {import('../types/index.js').SharedOptions} [shared]
 * @returns {Promise<any>}
 */
export async function getCapabilities(agent = {}, shared = {}) {
  const options = typeof agent === 'string' ? { ...shared, tool: agent } : agent;
  refuseUnknown(options, [...SHARED_OPTIONS, 'tool']);
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
  if (tool === UNSUPPORTED) {
    const none = { supportsSlashCommands: false, supportsModels: false, supportsWebSearch: false, supportsThinking: false };
    return { ...none, models: [], installed: false, source: 'table' };
  }
  const [capabilities, { path, launcher }] = await Promise.all([
    client.capabilities(tool),
    /** @type {Promise<{ path: string | null, launcher: string[] | null }>} */ (client.request('detect', { agent: tool })),
  ]);
  return {
    supportsSlashCommands: capabilities.supports_slash_commands,
    supportsModels: capabilities.supports_models,
    models: capabilities.models,
    supportsWebSearch: capabilities.supports_web_search,
    supportsThinking: capabilities.supports_thinking,
    installed: path !== null,
    ...(path === null ? {} : { cliPath: path }),
    ...(launcher === null ? {} : { launcher }),
    source: capabilities.source,
  };
}

/**
 * Returns the functions of one agent, as each module of agent-cli-sdk has them.
 * @param {string} tool
 * @returns {import('../types/index.js').AgentModule}
 */
export function agentModule(tool) {
  return {
    parse: (record, options) => parse(record, { ...options, tool }),
    loadSession: (options) => loadMessages({ missing: 'empty', ...options, tool }),
    execute: (options) => execute({ ...options, tool }),
    detectCli: (options) => detectCli(tool, options),
  };
}
