// The events of a run one by one, kept until they are read.

/**
 * @typedef {import('../types/index.js').RunEvent} RunEvent
 * @typedef {import('../types/index.js').Outcome<any>} Outcome
 */

export class RunStream {
  /** @type {RunEvent[]} */
  #kept = [];
  #over = false;
  /** @type {{ error: unknown } | null} */
  #failed = null;
  /** Who waits for the next event; each is given to one of them. @type {(() => void)[]} */
  #waiting = [];
  #cancel = () => {};
  /** @type {Promise<Outcome>} */
  outcome = Promise.reject(new Error('the run has not begun'));

  constructor() {
    this.outcome.catch(() => {});
  }

  /** @param {{ outcome: Promise<Outcome>, cancel: () => void }} run */
  follow(run) {
    this.outcome = run.outcome;
    this.#cancel = run.cancel;
    const end = (/** @type {{ error: unknown } | null} */ failed) => {
      this.#over = true;
      this.#failed = failed;
      this.#wake();
    };
    // Who only reads the events is told of a failure there; it is no rejection that nobody handles.
    run.outcome.then(
      () => end(null),
      (error) => end({ error }),
    );
  }

  /** @param {RunEvent} event */
  push(event) {
    this.#kept.push(event);
    this.#wake();
  }

  #wake() {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resolve of waiting) resolve();
  }

  cancel() {
    if (!this.#over) this.#cancel();
  }

  /** @returns {AsyncGenerator<RunEvent, void, undefined>} */
  [Symbol.asyncIterator]() {
    const events = this.#events();
    const leave = events.return.bind(events);
    // A generator that was left before its first event does not come to its own end.
    events.return = (value) => {
      this.cancel();
      return leave(value);
    };
    return events;
  }

  /** @returns {AsyncGenerator<RunEvent, void, undefined>} */
  async *#events() {
    try {
      for (;;) {
        const kept = this.#kept;
        this.#kept = [];
        for (let i = 0; i < kept.length; i += 1) {
          yield /** @type {RunEvent} */ (kept[i]);
        }
        if (this.#kept.length > 0) continue;
        if (this.#over) break;
        await new Promise((/** @type {(value: void) => void} */ resolve) => this.#waiting.push(resolve));
      }
    } finally {
      this.cancel();
    }
    if (this.#failed) throw this.#failed.error;
  }
}
