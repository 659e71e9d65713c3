// What is thrown. Every error of ours is an `AgentlineError` and has the same fields.

import type { Outcome, Phase, Verdict } from './outcome.js';

/** What is wrong with what was asked for. */
export interface Problem {
  key: string;
  message: string;
  value?: string;
  /** What to write instead. */
  hint: string | null;
  /** Where it stands. */
  source: string | null;
}

/** What an error tells besides its message. */
export interface ErrorDetails {
  hint?: string | null;
  outcome?: Outcome | null;
  problems?: Problem[];
  cause?: unknown;
}

/** Any error of ours. */
export class AgentlineError extends Error {
  constructor(message: string, details?: ErrorDetails);
  /** The verdict of the run, where there was one. */
  readonly verdict: Verdict | null;
  /** What to do next. */
  readonly hint: string | null;
  readonly phase: Phase | null;
  readonly outcome: Outcome | null;
  readonly problems: readonly Problem[];
}

/** What was asked for is wrong; nothing was started. `problems` has every key. */
export class UsageError extends AgentlineError {}

/** A run did not come to what was wanted; `outcome` has all of it. */
export class RunError extends AgentlineError {}

/** A run was aborted by its signal. `cause` is the reason, `outcome` what it had come to; null where nothing was started. */
export class AbortError extends AgentlineError {}

/** There is no such saved session. */
export class NoSessionError extends AgentlineError {}

/** The program `agentline` is nowhere. */
export class BinaryNotFoundError extends AgentlineError {}

/** agentline is gone: closed, killed, or it never came up. Nothing of its runs is left. */
export class HostGoneError extends AgentlineError {}

/** The same outcome, or `RunError` unless its verdict is `done` or, where they are fine, `done_with_denials`. */
export function expectDone<T>(outcome: Outcome<T>, options?: { denials?: boolean }): Outcome<T>;
