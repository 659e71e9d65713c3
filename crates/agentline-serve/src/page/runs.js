// The list of runs, kept up to date by long polling while the page is visible.

import { connection, get, pause } from './api.js';
import { createStore } from './store.js';
import { isWaiting } from './threads.js';

/** The newest runs, as the server lists them; `null` before the first answer. */
export const runs = createStore(null);

let abort = null;

/** Starts to follow the list, and pauses while the tab is hidden. */
export function followRuns() {
  const toggle = () => {
    abort?.abort();
    abort = null;
    if (!document.hidden) loop();
  };
  document.addEventListener('visibilitychange', toggle);
  toggle();
}

/** Requests the list at once, for example after a start. */
export async function refreshRuns() {
  const list = await get('/v1/runs', { limit: 100 });
  runs.set(list.runs);
  return list.version;
}

async function loop() {
  const own = new AbortController();
  abort = own;
  let version;
  while (!own.signal.aborted) {
    try {
      if (version === undefined) version = await refreshRuns();
      const list = await get('/v1/runs', { limit: 100, changed_since: version, wait_ms: 25000 }, own.signal);
      if (own.signal.aborted) return;
      version = list.version;
      runs.set(list.runs);
    } catch (error) {
      if (own.signal.aborted) return;
      version = undefined;
      await pause(connection.get() === 'signed_out' ? 10000 : 2000, own.signal);
    }
  }
}

/** Returns a run of the list. */
export const runById = (id) => runs.get()?.find((run) => run.run === id) ?? null;

/** The state of a run in one word, with what it needs. */
export function runStatus(run) {
  if (isWaiting(run)) return 'waiting';
  return run.state === 'ended' ? (run.verdict ?? 'ended') : run.state;
}
