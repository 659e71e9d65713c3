// Groups runs into threads: a conversation with all of its prompts, or a run of its own.

import { serverNow } from './api.js';

/** Whether a run has a question that waits for an answer. */
export const isWaiting = (run) => run.pending_permissions > 0 && run.state !== 'ended';

/**
 * Groups a list of runs, newest first. The thread with the newest run comes first.
 * @param {object[]} runs
 */
export function threadsOf(runs) {
  const threads = new Map();
  for (const run of runs) {
    const key = run.conversation ?? run.run;
    if (!threads.has(key)) threads.set(key, []);
    threads.get(key).unshift(run);
  }
  return [...threads.values()].map(threadOf);
}

/** @param {object[]} runs the runs of a thread, oldest first */
function threadOf(runs) {
  const open = runs.filter((run) => run.state !== 'ended');
  const current = open.find(isWaiting) ?? open.find((run) => run.state === 'running') ?? open[0] ?? runs.at(-1);
  const costs = runs.map((run) => run.cost_usd).filter((cost) => typeof cost === 'number');
  return {
    runs,
    current,
    first: runs[0],
    latest: runs.at(-1),
    isOpen: open.length > 0,
    queued: open.filter((run) => run.state === 'queued' && run !== current).length,
    cost: costs.length ? costs.reduce((a, b) => a + b, 0) : null,
    time: open.length ? null : workTimes(runs).reduce((a, b) => a + b, 0),
  };
}

/**
 * Returns how long each run of a thread worked, in milliseconds, without the time in the queue.
 * @param {object[]} runs oldest first
 */
export function workTimes(runs, now = serverNow()) {
  let free = 0;
  return runs.map((run) => {
    const begin = Math.max(run.started_at_ms ?? now, free);
    const end = run.state === 'queued' ? begin : (run.ended_at_ms ?? now);
    free = Math.max(free, end);
    return Math.max(0, end - begin);
  });
}
