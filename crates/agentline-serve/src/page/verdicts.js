// The colors of states and verdicts.

const GOOD = new Set(['done']);
const NEUTRAL = new Set(['cancelled', 'interrupted']);
const FAIR = new Set(['done_with_denials', 'limit_reached', 'empty', 'rate_limited', 'timed_out']);

/** The class of a verdict: good, neutral, fair or bad. */
export function verdictClass(verdict) {
  if (GOOD.has(verdict)) return 'good';
  if (NEUTRAL.has(verdict)) return 'neutral';
  return FAIR.has(verdict) ? 'fair' : 'bad';
}

/** The class of a status: live, waiting, good, neutral, fair or bad. */
export function statusClass(status) {
  if (status === 'running' || status === 'queued') return 'live';
  return status === 'waiting' ? 'fair waiting' : verdictClass(status);
}
