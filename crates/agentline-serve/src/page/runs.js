// The list of runs, kept up to date by long polling, and slowly while the tab is hidden.

import { connection, get, pathOf, pause } from './api.js';
import { createStore } from './store.js';
import { isWaiting } from './threads.js';

/** The number of runs in one answer. */
const LIMIT = 100;
/** How often a hidden tab requests the list, for its title. It keeps no connection open: browsers allow only six. */
const HIDDEN_MS = 15000;
/** How often the runs in progress that are older than those of one answer are requested. */
const OLDER_MS = 15000;

/** The runs that the server lists, newest first; `null` before the first answer. */
export const runs = createStore(null);
/** Whether the server has older runs than those of the list. */
export const hasOlderRuns = createStore(false);

let abort = null;
let keepsOlder = false;

/** Starts to follow the list. */
export function followRuns() {
  const restart = () => {
    abort?.abort();
    loop();
  };
  document.addEventListener('visibilitychange', restart);
  restart();
  followOlder();
}

/** Requests the list at once, for example after a start. */
export async function refreshRuns(params = {}, signal) {
  const list = await get('/v1/runs', { limit: LIMIT, ...params }, signal);
  if (!signal?.aborted) takeNewest(list.runs);
  return list.version;
}

/** Takes the newest runs. Those that are older stay if the user requested older ones. */
function takeNewest(newest) {
  const isFull = newest.length === LIMIT;
  const known = runs.get();
  keepsOlder &&= isFull && Boolean(known);
  if (!keepsOlder) hasOlderRuns.set(isFull);
  runs.set(keepsOlder ? [...newest, ...without(known, newest)] : newest);
}

function without(list, others) {
  const ids = new Set(others.map(({ run }) => run));
  return list.filter(({ run }) => !ids.has(run));
}

/** Adds the runs before the oldest one of the list. */
export async function loadOlderRuns() {
  keepsOlder = true;
  const { runs: older } = await get('/v1/runs', { limit: LIMIT, before: runs.get()?.at(-1)?.run });
  const known = runs.get() ?? [];
  hasOlderRuns.set(older.length === LIMIT);
  runs.set([...known, ...without(older, known)]);
}

/** Keeps the older runs up to date that have not ended. The answers to long polling do not contain them. */
async function followOlder() {
  for (;;) {
    await pause(OLDER_MS);
    const older = (runs.get() ?? []).slice(LIMIT).filter(({ state }) => state !== 'ended');
    for (const { run } of older) await refreshOlder(run).catch(() => {});
  }
}

async function refreshOlder(id) {
  const answer = await get(pathOf('runs', id), {}, AbortSignal.timeout(OLDER_MS)).catch((error) => {
    // The server has removed the run.
    if (error.status === 404) return null;
    throw error;
  });
  const known = runs.get();
  const index = known?.findIndex(({ run }) => run === id) ?? -1;
  if (index < LIMIT || JSON.stringify(known[index]) === JSON.stringify(answer)) return;
  runs.set(known.toSpliced(index, 1, ...(answer ? [answer] : [])));
}

async function loop() {
  const own = new AbortController();
  abort = own;
  let version;
  while (!own.signal.aborted) {
    try {
      const isFirst = version === undefined;
      if (document.hidden && !isFirst) await pause(HIDDEN_MS, own.signal);
      if (own.signal.aborted) return;
      const waits = !isFirst && !document.hidden;
      version = await refreshRuns(waits ? { changed_since: version, wait_ms: 25000 } : {}, own.signal);
    } catch {
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
