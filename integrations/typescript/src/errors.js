// The errors of this package. All of them have the same fields, except `StopRun`, which only programs throw.

/**
 * @typedef {import('../types/index.js').Outcome} Outcome
 * @typedef {import('../types/index.js').Problem} Problem
 * @typedef {import('../types/index.js').Phase} Phase
 * @typedef {import('../types/index.js').Verdict} Verdict
 * @typedef {{ hint?: string | null, outcome?: Outcome | null, problems?: Problem[], cause?: unknown }} Details
 */

export class AgentlineError extends Error {
  /**
   * @param {string} message
   * @param {Details} [details]
   */
  constructor(message, details = {}) {
    super(message, 'cause' in details ? { cause: details.cause } : undefined);
    this.name = new.target.name;
    const { outcome = null, problems = [] } = details;
    /** @type {Outcome | null} */
    this.outcome = outcome;
    /** @type {readonly Problem[]} */
    this.problems = problems;
    /** @type {Verdict | null} */
    this.verdict = outcome?.verdict ?? null;
    /** @type {Phase | null} */
    this.phase = outcome?.error?.phase ?? (problems.length > 0 ? 'request' : null);
    /** @type {string | null} */
    this.hint = details.hint ?? outcome?.error?.hint ?? joinHints(problems);
  }
}

export class UsageError extends AgentlineError {}

export class RunError extends AgentlineError {}

export class AbortError extends AgentlineError {}

export class NoSessionError extends AgentlineError {}

export class BinaryNotFoundError extends AgentlineError {}

export class HostGoneError extends AgentlineError {}

/** Thrown by a tool of the program to end the run; not an error of this package. */
export class StopRun extends Error {}

/** Returns the hints of all problems, each once. @param {readonly Problem[]} problems */
function joinHints(problems) {
  return [...new Set(problems.flatMap(({ hint }) => hint || []))].join('; ') || null;
}

/**
 * Converts a JSON-RPC error of the host to an exception. The host's message repeats the hints, which `hint` has.
 * @param {{ code?: number, message?: string, data?: any }} error
 */
export function errorFromResponse(error) {
  const { outcome = null, problems = [], kind } = error.data ?? {};
  const hints = /** @type {Problem[]} */ (problems).flatMap(({ hint }) => (hint ? `\n  hint: ${hint}` : []));
  const text = error.message || 'agentline rejected the request';
  const message = hints.reduce((message, hint) => message.replace(hint, () => ''), text);
  if (kind === 'no_session') return new NoSessionError(message, { problems });
  if (outcome) return new RunError(message, { outcome, problems });
  if (error.code === -32602 || problems.length > 0) return new UsageError(message, { problems });
  return new AgentlineError(message);
}

/**
 * @template T
 * @param {import('../types/index.js').Outcome<T>} outcome
 * @param {{ denials?: boolean }} [options]
 */
export function expectDone(outcome, options = {}) {
  const { denials = true } = options;
  if (outcome.verdict === 'done' || (denials && outcome.verdict === 'done_with_denials')) return outcome;
  const message = outcome.error?.message ?? `the run ended with the verdict ${outcome.verdict}`;
  throw new RunError(message, { outcome });
}

/**
 * @param {AbortSignal} signal
 * @param {Outcome | null} outcome
 */
export function aborted(signal, outcome) {
  return new AbortError('the run was aborted', { outcome, cause: signal.reason });
}
