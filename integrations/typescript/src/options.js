// Converts options in camel case to the parameters of the protocol.

import { resolve } from 'node:path';
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

/** @param {string} name */
function snakeCase(name) {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
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
 */
export function query(filter) {
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
    wire.tools = options.tools.map(({ handler: _, ...tool }) =>
      snakeKeys({ ...tool, inputSchema: jsonSchema(tool.inputSchema, `tools.${tool.name}.inputSchema`) }),
    );
  }
  return wire;
}
