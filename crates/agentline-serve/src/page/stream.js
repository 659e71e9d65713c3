// Follows the events of a run without loss or repetition, over server-sent events or long polling.

import { connection, get, pathOf, pause, withQuery } from './api.js';

/** The event types that a stream is expected to contain. A gap in the numbers reveals any other type. */
const TYPES = [
  'started',
  'text',
  'thinking',
  'tool_use',
  'tool_output',
  'tool_result',
  'file_change',
  'permission',
  'content',
  'plan',
  'commands',
  'mode',
  'config_option',
  'session_info',
  'usage',
  'retry',
  'warning',
  'unreadable',
  'agent',
  'permission_request',
  'permission_answered',
  'outcome',
];
/** Without an event for this long, a poll checks whether something holds the stream back. */
const QUIET_MS = 10000;
/** The number of events in one answer of a poll. */
const BATCH = 2000;
/** The number of failed attempts to open a stream before polling is used instead. */
const ATTEMPTS = 3;

/**
 * @typedef {{id: number, event: string, data: object}} NumberedEvent
 * @typedef {{events: (batch: NumberedEvent[]) => void, resync: (gap: object) => void, state: (state: string) => void}} Listener
 */

/** A run that is followed. Its state is `connecting`, `live`, `polling`, `away`, `signed_out` or `ended`. */
export class Follower {
  /**
   * @param {string} run
   * @param {Listener} listener
   */
  constructor(run, listener) {
    this.run = run;
    this.listener = listener;
    this.last = 0;
    this.state = 'connecting';
    this.waiting = [];
    this.failures = 0;
    this.abort = new AbortController();
    this.onVisibility = () => (document.hidden ? this.rest() : this.resume());
    document.addEventListener('visibilitychange', this.onVisibility);
    this.catchUp();
  }

  /** Requests the events so far in large pieces, which is faster than a stream, and then opens the stream. */
  async catchUp() {
    try {
      let answer;
      do {
        answer = this.takeBatch(await this.poll(0));
        await this.deliver();
      } while (!this.isOver && answer.events.length && this.last < answer.last);
      if (answer.ended && !this.isOver) return this.finish();
    } catch (error) {
      if (this.isOver) return;
      this.noteError(error);
      await pause(1000, this.abort.signal);
    }
    this.open();
  }

  /** Ends the connection. */
  close() {
    this.abort.abort();
    this.closeSource();
    clearTimeout(this.restTimer);
    document.removeEventListener('visibilitychange', this.onVisibility);
  }

  get isOver() {
    return this.abort.signal.aborted || this.state === 'ended';
  }

  setState(state) {
    if (state === this.state || this.abort.signal.aborted) return;
    this.state = state;
    if (state === 'live' || state === 'polling') connection.set('ok');
    this.listener.state(state);
  }

  /** A hidden tab gives its connection back after a while: browsers allow only six to one server. */
  rest() {
    clearTimeout(this.restTimer);
    this.restTimer = setTimeout(() => this.closeSource(), 20000);
  }

  resume() {
    clearTimeout(this.restTimer);
    if (this.isOver || this.state === 'polling') return;
    // A hidden tab does not check whether something holds the stream back.
    if (this.source) this.watchSilence();
    else this.open();
  }

  /** Whether the events so far are known. A tab that gave its connection back does not know the latest ones. */
  get isCurrent() {
    return this.state === 'polling' || (this.state === 'live' && Boolean(this.source));
  }

  closeSource() {
    clearTimeout(this.quietTimer);
    this.source?.close();
    this.source = null;
  }

  open() {
    this.closeSource();
    if (this.isOver) return;
    const source = new EventSource(
      withQuery(`${pathOf('runs', this.run)}/events`, { after: this.last || undefined }),
    );
    this.source = source;
    source.onopen = () => {
      this.failures = 0;
      this.setState('live');
      this.watchSilence();
    };
    source.onerror = () => this.failed(source);
    for (const type of TYPES) source.addEventListener(type, (message) => this.take(message, type));
    source.addEventListener('resync', (message) => this.resync(JSON.parse(message.data)));
  }

  take(message, type) {
    this.queue({ id: Number(message.lastEventId), event: type, data: JSON.parse(message.data) });
    this.watchSilence();
  }

  /** Collects events and delivers them together, once per frame. */
  queue(event) {
    this.waiting.push(event);
    if (this.waiting.length > 1 || this.filling) return;
    const later = document.hidden ? (call) => setTimeout(call, 60) : requestAnimationFrame;
    later(() => this.deliver());
  }

  async deliver() {
    if (this.filling || this.abort.signal.aborted) return;
    this.waiting.sort((a, b) => a.id - b.id);
    const batch = [];
    let taken = 0;
    for (; taken < this.waiting.length && this.waiting[taken].id <= this.last + 1; taken += 1) {
      const event = this.waiting[taken];
      if (event.id <= this.last) continue;
      this.last = event.id;
      batch.push(event);
    }
    this.waiting.splice(0, taken);
    if (batch.length) this.listener.events(batch);
    if (batch.some((event) => event.event === 'outcome')) return this.finish();
    if (this.waiting.length) await this.fillGap();
  }

  /** Requests events that the stream left out: those of a type that this page does not know. */
  async fillGap() {
    this.filling = true;
    try {
      this.takeBatch(await this.poll(0));
    } catch {
      await pause(1000, this.abort.signal);
    }
    this.filling = false;
    await this.deliver();
  }

  /** The stream continues after a gap. Events before the gap come first. */
  resync(gap) {
    this.waiting = this.waiting.filter((event) => event.id >= gap.first);
    if (gap.first - 1 <= this.last) return;
    this.last = gap.first - 1;
    this.listener.resync(gap);
  }

  noteError({ status }) {
    // Nothing follows of a run that was removed.
    if (status === 404) this.finish();
    else this.setState(status === 401 ? 'signed_out' : 'away');
  }

  finish() {
    this.setState('ended');
    this.close();
  }

  /** The browser reconnects by itself, unless it closed the source. Finds out what is wrong. */
  async failed(source) {
    if (this.source !== source || this.isOver) return;
    // The server ends the stream after the outcome, which is about to be delivered.
    if (this.waiting.some((event) => event.event === 'outcome')) return this.closeSource();
    this.setState('connecting');
    this.failures += 1;
    const isClosed = source.readyState === EventSource.CLOSED;
    if (!isClosed && this.failures < ATTEMPTS) return;
    this.closeSource();
    const isUp = await this.probe();
    if (this.isOver) return;
    if (isUp && this.failures >= ATTEMPTS) return this.pollLoop();
    await pause(isUp ? 300 : Math.min(1000 * this.failures, 5000), this.abort.signal);
    this.open();
  }

  /** Returns whether the server answers, and sets the state if it does not. */
  async probe() {
    try {
      const run = await get(pathOf('runs', this.run), {}, this.abort.signal);
      if (run.state === 'ended' && run.last_event === this.last) this.finish();
      return true;
    } catch (error) {
      this.noteError(error);
      return false;
    }
  }

  poll(wait) {
    return get(
      `${pathOf('runs', this.run)}/poll`,
      { after: this.last, wait_ms: wait, limit: BATCH },
      this.abort.signal,
    );
  }

  takeBatch(answer) {
    if (answer.resync) this.resync(answer.resync);
    this.waiting.push(...answer.events);
    return answer;
  }

  async pollLoop() {
    while (!this.isOver) {
      try {
        const answer = this.takeBatch(await this.poll(25000));
        this.setState('polling');
        await this.deliver();
        if (answer.ended && !answer.events.length) this.finish();
      } catch (error) {
        if (this.isOver) return;
        this.noteError(error);
        await pause(2000, this.abort.signal);
      }
    }
  }

  /** A proxy can hold a stream back without an error. After a silence, a poll shows whether events exist. */
  watchSilence() {
    clearTimeout(this.quietTimer);
    this.quietTimer = setTimeout(() => this.checkSilence(), QUIET_MS);
  }

  async checkSilence() {
    if (this.isOver || document.hidden) return;
    const before = this.last;
    try {
      const answer = await this.poll(0);
      await pause(500, this.abort.signal);
      if (this.isOver) return;
      if (answer.events.length && this.last === before) {
        this.closeSource();
        this.takeBatch(answer);
        await this.deliver();
        return this.pollLoop();
      }
    } catch {
      // The source reports its own errors.
    }
    this.watchSilence();
  }
}
