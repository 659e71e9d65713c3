// From options in camel case to what stands on the wire.

import { resolve } from 'node:path';

/** What is no key of the contract: it is for this process, or has a place of its own on the wire. */
const OURS = new Set([
  'signal',
  'onEvent',
  'onRetry',
  'onPermission',
  'tools',
  'toolServer',
  'check',
  'throwOnFailure',
  'config',
  'attachments',
  'deadline',
  'workingDir',
]);

/** @param {string} name */
function snake(name) {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

/**
 * Every name in snake case; what is undefined is left out.
 * @param {object} options
 * @param {Set<string>} [without]
 */
export function snaked(options, without) {
  /** @type {Record<string, unknown>} */
  const wire = {};
  for (const [name, value] of Object.entries(options)) {
    if (value === undefined || without?.has(name)) continue;
    wire[snake(name)] = value instanceof Date ? value.getTime() : value;
  }
  return wire;
}

/**
 * The keys of a run.
 * @param {import('../types/index.js').Keys} options
 */
export function keys(options) {
  const wire = { ...options.config, ...snaked(options, OURS) };
  if (options.workingDir !== undefined) wire.working_dir = resolve(options.workingDir);
  if (options.deadline !== undefined) {
    wire.deadline = options.deadline instanceof Date ? options.deadline.toISOString() : options.deadline;
  }
  if (options.attachments !== undefined) wire.attachments = options.attachments.map(attachment);
  return wire;
}

/**
 * Which saved sessions are meant.
 * @param {{ project?: string }} asked
 */
export function query(asked) {
  const { project } = asked;
  return snaked(project === undefined ? asked : { ...asked, project: resolve(project) });
}

/** @param {import('../types/index.js').Attachment} one */
function attachment(one) {
  if (typeof one === 'string') return resolve(one);
  if (!('data' in one) || typeof one.data === 'string') return one;
  return { name: one.name, data: Buffer.from(one.data).toString('base64') };
}

/**
 * The parameters of a run or a conversation: its keys, and what is to be asked of us.
 * @param {import('../types/index.js').RunOptions<any>} options
 */
export function runParams(options) {
  const wire = keys(options);
  if (options.onPermission) wire.ask_permission = true;
  if (options.check) wire.check = true;
  if (options.toolServer !== undefined) wire.tool_server = options.toolServer;
  if (options.tools !== undefined) {
    wire.tools = options.tools.map(({ handler: _, ...tool }) => snaked(tool));
  }
  return wire;
}
