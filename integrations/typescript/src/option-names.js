// The names of all options, so that a misspelled one is refused. A test compares them with the types.

import { UsageError } from './errors.js';

/** @param {string[]} lines */
const names = (...lines) => lines.flatMap((line) => line.split(' '));

export const KEYS = names(
  'agent surface model modelValidation promptFile attachments systemPrompt systemMode name workingDir includeDirectories',
  'permissionMode allow deny ask trust sandbox sandboxProfile mcpServers mcpSettingsPath outputSchema repairTurns',
  'extractJson until maxRounds resume sessionId timeout timeoutMs idleTimeout idleTimeoutMs toolTimeout toolTimeoutMs',
  'startupTimeout startupTimeoutMs deadline retryPatience retryPatienceMs retries fallbackModels retryAfterChanges',
  'quietPeriodMs maxTurns maxToolCalls maxTokens maxOutputTokens maxCost env passEnv fileReferences extensions apiKey',
  'googleCloudProject effort useVertexAi diffs record cache cacheImpure cacheMaxAge cachePath cacheMaxMb maxLineBytes agents',
  'prices pricesFile supervisor isolation agentBin agentArgs modeId emitThoughts allowFileReads allowFileWrites',
  'authenticate config',
);
/** Other names of these settings, which the host accepts. */
export const ALIASES = names(
  'modelId cwd approvalMode yolo allowedTools disableTools askTools startupTimeoutS maxBudgetUsd emitThoughtChunks useVertexAI',
);
export const CALLBACKS = names('onPermission tools toolServer check answerTimeoutMs');
export const PROMPT_OPTIONS = names('signal onEvent events messages throwOnFailure');
export const RUN_OPTIONS = [...KEYS, ...CALLBACKS, ...PROMPT_OPTIONS, ...names('prompt view onLine warm maxRetries onRetry')];
export const CONVERSATION_OPTIONS = [...KEYS, ...CALLBACKS, 'signal'];
export const TOOL_DEFINITION = names('name description inputSchema timeoutMs handler policy after');
export const CONNECT_OPTIONS = names('bin cwd env defaults pool maxConcurrent maxRetries client connectTimeoutMs');
export const POOL_SETTINGS = names('maxProcesses lanes maxQueue maxSessions maxMemoryMb maxAgeS idleS');
export const SESSIONS_QUERY = names('agent project since until limit');
export const SEARCH_QUERY = [...SESSIONS_QUERY, ...names('words regex caseSensitive contextLines')];
export const LOAD_QUERY = names('session agent project view order context');
export const SHARED_OPTIONS = names('client bin');
export const LOAD_MESSAGES_OPTIONS = [...SHARED_OPTIONS, ...names('tool projectPath sessionId sessionPath missing')];

/**
 * Returns a problem for each option that does not exist, with the most similar name.
 * @param {unknown} options
 * @param {readonly string[]} known
 * @param {string} [where] what the options belong to, if they are not those of the call: `defaults`, `tools.add`
 * @returns {import('../types/index.js').Problem[]}
 */
export function unknownOptions(options, known, where = '') {
  if (typeof options !== 'object' || options === null || Array.isArray(options)) {
    return [{ key: where || 'options', message: `must be an object, got ${kindOf(options)}`, hint: null, source: null }];
  }
  const path = where && `${where}.`;
  const unknown = Object.keys(options).filter((name) => !known.includes(name));
  return unknown.map((name) => {
    const similar = nearest(name, known);
    const hint = similar ? `did you mean \`${path}${similar}\`?` : otherHint(known);
    return { key: path + name, message: 'is not a known option', hint, source: null };
  });
}

/** Says where an option may belong that resembles no other. @param {readonly string[]} known */
function otherHint(known) {
  if (known.includes('config')) return 'put a setting that the types do not list into `config`';
  return known.includes('options') ? 'put settings of docs/configuration.md into `options`' : `use ${known.join(', ')}`;
}

/** Throws one error for all problems, if there are any. @param {import('../types/index.js').Problem[]} problems */
export function refuse(problems) {
  if (problems.length === 0) return;
  throw new UsageError(problems.map(({ key, message }) => `\`${key}\`: ${message}`).join('\n'), { problems });
}

/**
 * Refuses options that do not exist.
 * @param {unknown} options
 * @param {readonly string[]} known
 * @param {string} [where]
 */
export function refuseUnknown(options, known, where) {
  refuse(unknownOptions(options, known, where));
}

/**
 * Returns the error for one option.
 * @param {string} key
 * @param {string} message
 * @param {{ hint?: string, cause?: unknown }} [details]
 */
export function usageError(key, message, details = {}) {
  const { hint, ...rest } = details;
  const problems = [{ key, message, hint: hint ?? null, source: null }];
  return new UsageError(`\`${key}\`: ${message}`, { ...rest, problems });
}

/** Describes a value in an error. @param {unknown} value */
export function kindOf(value) {
  if (value === null) return 'null';
  return Array.isArray(value) ? 'an array' : `a value of type ${typeof value}`;
}

/**
 * Returns the most similar name, if it is similar enough to be a likely correction.
 * @param {string} word
 * @param {readonly string[]} known
 */
function nearest(word, known) {
  // `max_turns` and `maxturns` are spellings of `maxTurns`.
  const plain = (/** @type {string} */ name) => name.replace(/[_-]/g, '').toLowerCase();
  const most = Math.min(3, Math.max(1, Math.floor(word.length / 3)));
  const [best] = known.map((name) => ({ name, distance: distance(plain(word), plain(name)) })).sort((a, b) => a.distance - b.distance);
  return best && best.distance <= most ? best.name : null;
}

/**
 * Returns the number of letters to insert, delete or replace, or of neighbors to exchange.
 * @param {string} one
 * @param {string} two
 */
function distance(one, two) {
  const rows = [Array.from({ length: two.length + 1 }, (_, i) => i)];
  const at = (/** @type {number} */ i, /** @type {number} */ j) => rows[i]?.[j] ?? Infinity;
  for (let i = 1; i <= one.length; i += 1) {
    rows.push([i]);
    for (let j = 1; j <= two.length; j += 1) {
      const replaced = at(i - 1, j - 1) + (one[i - 1] === two[j - 1] ? 0 : 1);
      const exchanged = one[i - 1] === two[j - 2] && one[i - 2] === two[j - 1] ? at(i - 2, j - 2) + 1 : Infinity;
      rows[i]?.push(Math.min(replaced, exchanged, at(i - 1, j) + 1, at(i, j - 1) + 1));
    }
  }
  return at(one.length, two.length);
}
