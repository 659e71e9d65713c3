// Keeps runs alive that end without a tab, also while this tab shows another view or is in the background.

import { get, pathOf, pause } from './api.js';
import { keepRunsOfTab, runsOfTab } from './store.js';

/** How long such a run lives without a tab. A reload or a locked phone must not end it. */
export const GRACE_MS = 60000;
/** How often the server hears from this tab, well within that time. */
const EVERY_MS = 15000;
/** How much longer than its wait such a request may take. One without an answer must not hold up the others. */
const LATE_MS = 10000;

/** The runs that this tab has started or shown, also before it was loaded again. */
const held = new Set(runsOfTab());
let isHolding = false;

/** Holds a run until its end, if it ends without a tab. */
export function holdRun({ run, state, on_disconnect: policy }) {
  if (policy !== 'cancel' || state === 'ended' || held.has(run)) return;
  held.add(run);
  keepRunsOfTab([...held]);
  holdAll();
}

/** Holds the runs one after another, so that they take one connection. */
export async function holdAll() {
  if (isHolding) return;
  isHolding = true;
  while (held.size) {
    for (const run of [...held]) await hold(run);
    // The timers of a hidden tab are slow. Its requests are not, so they wait instead.
    if (!document.hidden) await pause(EVERY_MS);
  }
  isHolding = false;
}

/** A request for the outcome counts as a client while it waits. */
async function hold(run) {
  const wait = Math.round(Math.min(document.hidden ? EVERY_MS : 1000, EVERY_MS / held.size));
  const signal = AbortSignal.timeout(wait + LATE_MS);
  try {
    const { outcome } = await get(`${pathOf('runs', run)}/outcome`, { wait_ms: wait }, signal);
    if (outcome) release(run);
  } catch (error) {
    if (error.status === 404) release(run);
    else await pause(2000);
  }
}

function release(run) {
  held.delete(run);
  keepRunsOfTab([...held]);
}
