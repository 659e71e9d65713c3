// Converts options in camel case to the parameters of the protocol.

import { resolve } from 'node:path';
import { ALIASES, RUN_OPTIONS, TOOL_DEFINITION, kindOf, refuseUnknown, usageError } from './option-names.js';
import { jsonSchema } from './schema.js';

/** Options that are not configuration keys, or that need a conversion of their own. */
const SPECIAL_OPTIONS = new Set([
  'signal',
  'onEvent',
  'onLine',
  'onRetry',
  'onPermission',
  'tools',
  'toolServer',
  'check',
  'throwOnFailure',
  'config',
  'attachments',
  'outputSchema',
  'deadline',
  'workingDir',
]);

/** Options that must be functions. */
const FUNCTIONS = /** @type {const} */ (['onPermission', 'check', 'onEvent', 'onLine', 'onRetry']);

/** @param {string} name */
function snakeCase(name) {
  return name.replace(/AI$/, 'Ai').replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

/**
 * Converts all names to snake case and omits undefined values.
 * @param {object} options
 * @param {Set<string>} [without]
 */
export function snakeKeys(options, without) {
  /** @type {Record<string, unknown>} */
  const wire = {};
  for (const [name, value] of Object.entries(options)) {
    if (value === undefined || without?.has(name)) continue;
    wire[snakeCase(name)] = value instanceof Date ? value.getTime() : value;
  }
  return wire;
}

/**
 * Returns the options of a run, which may be given as the prompt alone or with further options.
 * @param {unknown} first
 * @param {unknown} [more]
 * @returns {import('../types/index.js').RunOptions<any>}
 */
export function runOptions(first, more) {
  if (typeof first === 'string') return { ...(more === undefined ? {} : checkedOptions(more, RUN_OPTIONS)), prompt: first };
  if (more !== undefined) throw usageError('options', 'must be the only argument, unless the first one is the prompt');
  return checkedOptions(first, RUN_OPTIONS);
}

/**
 * Checks every name and every function of the options, and returns them.
 * @param {unknown} given
 * @param {readonly string[]} known
 * @returns {any}
 */
export function checkedOptions(given, known) {
  refuseUnknown(given, known.includes('agent') ? [...known, ...ALIASES] : known);
  const options = /** @type {import('../types/index.js').RunOptions<any>} */ (given);
  for (const name of FUNCTIONS) {
    const value = options[name];
    if (value !== undefined && typeof value !== 'function') throw usageError(name, `must be a function, got ${kindOf(value)}`);
  }
  if (options.tools !== undefined) checkTools(options.tools);
  return options;
}

/** @param {unknown} tools */
function checkTools(tools) {
  if (!Array.isArray(tools)) throw usageError('tools', `must be an array of tools, got ${kindOf(tools)}`);
  tools.forEach((tool, i) => {
    const key = `tools.${tool?.name ?? i}`;
    refuseUnknown(tool, TOOL_DEFINITION, key);
    if (typeof tool.name !== 'string') throw usageError(`${key}.name`, `must be a string, got ${kindOf(tool.name)}`);
    for (const name of ['handler', 'policy', 'after']) {
      if (typeof tool[name] === 'function' || (name !== 'handler' && tool[name] === undefined)) continue;
      throw usageError(`${key}.${name}`, `must be a function, got ${kindOf(tool[name])}`);
    }
  });
}

/**
 * Converts the settings of a run.
 * @param {import('../types/index.js').Keys} options
 */
export function keys(options) {
  const wire = { ...options.config, ...snakeKeys(options, SPECIAL_OPTIONS) };
  if (options.workingDir !== undefined) wire.working_dir = resolve(options.workingDir);
  if (options.deadline !== undefined) {
    wire.deadline = options.deadline instanceof Date ? options.deadline.toISOString() : options.deadline;
  }
  if (options.outputSchema !== undefined) wire.output_schema = jsonSchema(options.outputSchema, 'outputSchema');
  if (options.attachments !== undefined) wire.attachments = options.attachments.map(attachment);
  return wire;
}

/**
 * Converts a query for saved sessions.
 * @param {{ project?: string }} filter
 * @param {readonly string[]} known
 */
export function query(filter, known) {
  refuseUnknown(filter, known);
  const { project } = filter;
  return snakeKeys(project === undefined ? filter : { ...filter, project: resolve(project) });
}

/** @param {import('../types/index.js').Attachment} file */
function attachment(file) {
  if (typeof file === 'string') return resolve(file);
  if (!('data' in file) || typeof file.data === 'string') return file;
  return { name: file.name, data: Buffer.from(file.data).toString('base64') };
}

/**
 * Returns the parameters of a run or a conversation: its settings, tools and callbacks.
 * @param {import('../types/index.js').RunOptions<any>} options
 */
export function runParams(options) {
  const wire = keys(options);
  if (options.onPermission) wire.ask_permission = true;
  if (options.check) wire.check = true;
  if (options.onLine) wire.lines = true;
  if (options.toolServer !== undefined) wire.tool_server = options.toolServer;
  if (options.tools !== undefined) {
    wire.tools = options.tools.map(({ handler: _, policy: __, after: ___, ...tool }) =>
      snakeKeys({ ...tool, inputSchema: jsonSchema(tool.inputSchema, `tools.${tool.name}.inputSchema`) }),
    );
  }
  return wire;
}
