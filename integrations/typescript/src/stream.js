// The events of a run as an async iterable. Events are buffered until they are read.

/**
 * @typedef {import('../types/index.js').RunEvent} RunEvent
 * @typedef {import('../types/index.js').Outcome<any>} Outcome
 */

export class RunStream {
  /** @type {RunEvent[]} */
  #buffer = [];
  #done = false;
  /** @type {{ error: unknown } | null} */
  #failed = null;
  /** Wakes the readers that wait for the next event. Each event goes to one reader. @type {(() => void)[]} */
  #waiting = [];
  #cancel = () => {};
  /** @type {Promise<Outcome>} */
  outcome = Promise.reject(new Error('the run has not started'));

  constructor() {
    this.outcome.catch(() => {});
  }

  /** @param {{ outcome: Promise<Outcome>, cancel: () => void }} run */
  follow(run) {
    this.outcome = run.outcome;
    this.#cancel = run.cancel;
    const end = (/** @type {{ error: unknown } | null} */ failed) => {
      this.#done = true;
      this.#failed = failed;
      this.#wake();
    };
    // A reader of the events receives the error there, so this handler prevents an unhandled rejection.
    run.outcome.then(
      () => end(null),
      (error) => end({ error }),
    );
  }

  /** @param {RunEvent} event */
  push(event) {
    this.#buffer.push(event);
    this.#wake();
  }

  #wake() {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resolve of waiting) resolve();
  }

  cancel() {
    if (!this.#done) this.#cancel();
  }

  /** @returns {AsyncGenerator<RunEvent, void, undefined>} */
  [Symbol.asyncIterator]() {
    const events = this.#events();
    const originalReturn = events.return.bind(events);
    // A generator that is closed before its first event does not run its `finally` block.
    events.return = (value) => {
      this.cancel();
      return originalReturn(value);
    };
    return events;
  }

  /** @returns {AsyncGenerator<RunEvent, void, undefined>} */
  async *#events() {
    try {
      for (;;) {
        const buffer = this.#buffer;
        this.#buffer = [];
        for (let i = 0; i < buffer.length; i += 1) {
          yield /** @type {RunEvent} */ (buffer[i]);
        }
        if (this.#buffer.length > 0) continue;
        if (this.#done) break;
        await new Promise((/** @type {(value: void) => void} */ resolve) => this.#waiting.push(resolve));
      }
    } finally {
      this.cancel();
    }
    if (this.#failed) throw this.#failed.error;
  }
}
