// The errors of this package. Every error is an `AgentlineError` and has the same fields.

import type { Outcome, Phase, Verdict } from './outcome.js';

/** One problem with a request. */
export interface Problem {
  key: string;
  message: string;
  value?: string;
  /** What to write instead. */
  hint: string | null;
  /** Where the value was set. */
  source: string | null;
}

/** The additional fields of an error. */
export interface ErrorDetails {
  hint?: string | null;
  outcome?: Outcome | null;
  problems?: Problem[];
  cause?: unknown;
}

/** The base class of all errors of this package. */
export class AgentlineError extends Error {
  constructor(message: string, details?: ErrorDetails);
  /** The verdict of the run, if there was a run. */
  readonly verdict: Verdict | null;
  /** What to do next. */
  readonly hint: string | null;
  readonly phase: Phase | null;
  readonly outcome: Outcome | null;
  readonly problems: readonly Problem[];
}

/** The request is invalid and nothing was started. `problems` lists every problem. */
export class UsageError extends AgentlineError {}

/** A run did not succeed. `outcome` is its complete outcome. */
export class RunError extends AgentlineError {}

/** A run was aborted by its signal. `cause` is the reason. `outcome` has the results so far; null if nothing was started. */
export class AbortError extends AgentlineError {}

/** The saved session does not exist. */
export class NoSessionError extends AgentlineError {}

/** The program `agentline` was not found. */
export class BinaryNotFoundError extends AgentlineError {}

/** agentline was closed or killed, or it did not start. All its runs have ended. */
export class HostGoneError extends AgentlineError {}

/**
 * Ends the run: thrown by the handler of a tool, and rejects the run. Derive from it to carry data, for example the
 * sections of a prompt that the model asks for and was not shown yet. Not an `AgentlineError`.
 */
export class StopRun extends Error {}

/** Returns the outcome if its verdict is `done` or, unless `denials` is false, `done_with_denials`. Throws `RunError` otherwise. */
export function expectDone<T>(outcome: Outcome<T>, options?: { denials?: boolean }): Outcome<T>;
