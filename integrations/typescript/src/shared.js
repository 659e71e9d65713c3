// The agentline process that the functions of agent-cli-sdk share.

import { needBinary } from './binary.js';
import { connect } from './client.js';

/**
 * @typedef {import('../types/index.js').SharedOptions} SharedOptions
 * @typedef {import('../types/index.js').Agentline} Client
 */

/**
 * The agentline process that all calls share, with the number of calls that use it.
 * @typedef {{ key: string, client: Promise<Client>, opened: Client | null, failed: boolean, users: number }} Shared
 */

/** @type {Shared | null} */
let shared = null;

/**
 * Returns what an agentline process depends on: it reads its environment when it starts, so a different environment needs
 * a new process.
 * @param {string} bin
 */
export function processKey(bin) {
  return JSON.stringify([bin, process.cwd(), process.env]);
}

/** @param {string} bin */
function sharedClient(bin) {
  const key = processKey(bin);
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
export async function withClient(options, use) {
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
