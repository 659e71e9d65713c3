// Shows a run or a conversation: its timeline, permission requests, totals and the box for further prompts.

import { focusCard } from './answer_guard.js';
import { get, pathOf, post, remove } from './api.js';
import { Composer } from './composer.js';
import { announce, fill, h, iconButton } from './dom.js';
import { ago, tail, words } from './format.js';
import { holdRun } from './held_runs.js';
import { continuedAddress, originLine, originOf } from './origin.js';
import { permissionCard } from './permission_card.js';
import { openFileDialog, RunPanel } from './run_panel.js';
import { RunLog } from './run_log.js';
import { refreshRuns, runById, runs, runStatus } from './runs.js';
import { errorView, notice } from './states.js';
import { verdictOf } from './outcome_card.js';
import { Follower } from './stream.js';
import { firstLine, shorten } from './text.js';
import { workTimes } from './threads.js';
import { Timeline } from './timeline.js';
import { statusClass } from './verdicts.js';

const STREAM_TEXT = {
  connecting: 'Reconnecting…',
  away: 'The server cannot be reached. Trying again…',
  polling: 'Live, by polling',
  signed_out: 'The sign-in is missing.',
};

/** A view of one run, or of the runs of a conversation in their order. */
export class ThreadView {
  /** @param {{run?: string, conversation?: string}} what */
  constructor(what) {
    this.what = what;
    this.logs = [];
    this.infos = new Map();
    /** The runs that are added or being added, so that each is added once. */
    this.adding = new Map();
    this.title = 'Run';
    this.timeline = new Timeline({ label: 'Events', actions: { openFile: (file, run) => this.openFile(file, run) } });
    this.timeline.list.stick = true;
    this.panel = new RunPanel((file, run) => this.openFile(file, run));
    this.composer = new Composer({ onSent: (run) => this.sent(run) });
    this.dock = h('div.dock', { 'aria-live': 'polite' });
    this.others = h('p.note');
    this.panel.element.prepend(iconButton('close', 'Close', () => this.closePanel(), { class: 'panel-close' }));
    this.header = h('header.thread-head');
    this.stream = h('div.stream-state', { role: 'status', hidden: true });
    const main = h('div.thread-main', {}, this.timeline.element, this.stream, this.dock, this.composer.element);
    this.element = h('div.thread', {}, this.header, h('div.thread-body', {}, main, this.panel.element));
    this.unsubscribe = runs.subscribe(() => this.listChanged());
    this.ticker = setInterval(() => this.refreshPanel(), 1000);
    this.ready = this.load().catch((error) =>
      fill(
        this.element,
        errorView(error, () => location.reload(), 'h1'),
      ),
    );
  }

  destroy() {
    this.destroyed = true;
    this.follower?.close();
    this.unsubscribe();
    clearInterval(this.ticker);
    this.timeline.destroy();
  }

  /** The run that the head and the box are about: the one in progress, else the last one. */
  get current() {
    return this.logs.find((log) => this.isOpen(log)) ?? this.logs.at(-1);
  }

  get info() {
    return this.infos.get(this.current?.run) ?? {};
  }

  isOpen(log) {
    return !log.outcome && this.infos.get(log.run)?.state !== 'ended';
  }

  async load() {
    if (this.what.conversation) {
      this.conversation = await loadConversation(this.what.conversation);
      await Promise.all(this.conversation.runs.map((run) => this.addRun(run)));
    } else {
      const info = await this.addRun(this.what.run);
      if (info.state === 'ended') this.timeline.list.stick = false;
    }
    this.findOrigin();
    this.follow();
    this.refresh();
  }

  /** Adds a run once, also if its start, the list and the conversation report it at the same time. */
  addRun(run, info = runById(run)) {
    if (!this.adding.has(run)) {
      const adding = this.createLog(run, info);
      this.adding.set(run, adding);
      adding.catch(() => this.adding.delete(run));
    }
    return this.adding.get(run);
  }

  async createLog(run, known) {
    const info = known ?? (await get(pathOf('runs', run)));
    this.setInfo(info);
    this.logs.push(new RunLog(run, info));
    this.sortLogs();
    return info;
  }

  /** Runs are in the order of the conversation; those that it does not have yet are the newest. */
  sortLogs() {
    const order = new Map(this.conversation?.runs.map((run, index) => [run, index]));
    const place = ({ run }) => order.get(run) ?? Infinity;
    const start = ({ run }) => this.infos.get(run)?.started_at_ms ?? 0;
    this.logs.sort((a, b) => (place(a) === place(b) ? start(a) - start(b) : place(a) - place(b)));
  }

  /** Takes what is known about a run, unless it is older than what is known already. */
  setInfo(info) {
    if (this.infos.get(info.run)?.state !== 'ended' || info.state === 'ended') this.infos.set(info.run, info);
    holdRun(info);
  }

  /** Follows the first run that has not ended. The next one is followed after it. */
  follow() {
    if (this.destroyed || (this.follower && !this.follower.isOver)) return;
    const log = this.logs.find((candidate) => !candidate.outcome && !candidate.isRead);
    if (!log) return;
    this.follower = new Follower(log.run, {
      events: (batch) => {
        for (const event of batch) log.apply(event);
        this.heard(batch);
      },
      resync: (gap) => {
        log.gap(gap);
        this.reload(log.run);
      },
      state: (state) => this.streamState(state, log),
    });
  }

  heard(batch) {
    const requested = batch.filter((event) => event.event === 'permission_request').length;
    if (requested && !document.hidden) announce('The agent asks for permission. Press P to answer.');
    if (batch.some((event) => event.event === 'outcome')) announce('The run has ended.');
    this.refresh();
  }

  streamState(state, log) {
    const text = STREAM_TEXT[state];
    this.stream.hidden = !text || state === 'polling';
    this.stream.textContent = text ?? '';
    this.element.dataset.stream = state;
    // Whether the requests of this run are known depends on the stream, which may open after the last event.
    if (state !== 'ended') {
      this.onChange?.();
      return;
    }
    log.isRead = true;
    this.reload(log.run);
    this.follower = null;
    this.follow();
    this.refresh();
  }

  async reload(run) {
    const info = await get(pathOf('runs', run)).catch(() => null);
    if (info) this.setInfo(info);
    this.refresh();
  }

  listChanged() {
    for (const { run } of this.logs) {
      const info = runById(run);
      if (info) this.setInfo(info);
    }
    if (this.what.conversation) this.addNewRuns();
    this.findOrigin();
    this.refresh();
  }

  findOrigin() {
    if (this.what.conversation) this.origin ??= originOf(this.what.conversation, runs.get() ?? []);
  }

  /** Adds prompts that another tab sent to this conversation. */
  async addNewRuns() {
    const found = (runs.get() ?? []).filter(
      (run) => run.conversation === this.what.conversation && !this.adding.has(run.run),
    );
    await Promise.all(found.map((run) => this.addRun(run.run, run)));
    await this.reloadConversation();
    if (found.length) this.follow();
    this.refresh();
  }

  async reloadConversation() {
    if (!this.conversation) return;
    const answer = get(pathOf('conversations', this.what.conversation));
    this.conversation = await answer.catch((error) =>
      error.status === 404 ? { ...this.conversation, state: 'closed' } : this.conversation,
    );
    this.sortLogs();
  }

  refresh() {
    if (this.destroyed || !this.logs.length) return this.refreshComposer();
    this.refreshStates();
    this.timeline.update(this.logs.length === 1 ? this.logs[0].items : this.logs.flatMap((log) => log.items));
    this.refreshHead();
    this.refreshDock();
    this.refreshPanel();
    this.refreshComposer();
    this.onChange?.();
  }

  /** The numbers of requests that wait, by run, of the runs whose latest events are known here. */
  pending() {
    const { follower } = this;
    return this.logs.filter(({ run }) => follower?.isCurrent && follower.run === run).map((log) => [log.run, log.pending.length]);
  }

  /** Marks the prompts that wait, and the outcome that the box below continues. */
  refreshStates() {
    const mode = this.composerMode();
    for (const log of this.logs) {
      log.setQueued(!log.events && this.infos.get(log.run)?.state === 'queued');
      log.setContinues(log === this.logs.at(-1) && (mode === 'prompt' || mode === 'resume'));
    }
  }

  refreshHead() {
    const first = this.infos.get(this.logs[0].run);
    const status = this.status();
    const title = shorten(firstLine(first.name ?? first.prompt) || 'Run', 140);
    this.title = title;
    const { run, state } = this.info;
    const key = JSON.stringify([title, status, run, state, this.conversation?.state, this.origin]);
    if (key === this.headKey) return;
    this.headKey = key;
    const isRunning = this.isOpen(this.current);
    fill(
      this.header,
      h(
        'div.thread-title',
        {},
        h('h1', {}, title),
        h(
          'p.sub',
          {},
          [this.info.agent, tail(this.info.working_dir), ago(first.started_at_ms)].filter(Boolean).join(' · '),
        ),
        this.origin && originLine(this.origin),
      ),
      h(
        'span.status',
        { class: statusClass(status), 'data-status': status },
        h('i', { 'aria-hidden': 'true' }),
        words(status),
      ),
      isRunning &&
        h(
          'button.button.danger',
          { type: 'button', 'data-action': 'cancel', onclick: (event) => this.cancel(event.currentTarget) },
          'Cancel',
        ),
      this.isOpenConversation() &&
        !isRunning &&
        h(
          'button.button',
          { type: 'button', 'data-action': 'close', onclick: () => this.closeConversation() },
          'End conversation',
        ),
      iconButton('chart', 'Cost, tokens and files', () => this.element.classList.toggle('shows-panel'), {
        class: 'panel-button',
      }),
    );
  }

  status() {
    if (this.logs.some((log) => log.pending.length)) return 'waiting';
    if (this.isOpen(this.current)) return this.info.state ?? 'running';
    return this.current.outcome ? verdictOf(this.current.outcome) : runStatus(this.info);
  }

  /** Shows the oldest request that waits for an answer. */
  refreshDock() {
    const waiting = this.logs.flatMap((log) => log.pending.map((item) => ({ item, run: log.run })));
    const [first] = waiting;
    this.others.textContent = waiting.length > 1 ? `Further requests that wait: ${waiting.length - 1}` : '';
    const key = first ? `${first.run}/${first.item.id}` : '';
    if (key === this.dockKey) return;
    const focused = document.activeElement;
    const hadFocus = this.dock.contains(focused) || (this.hasAnswered && focused === this.timeline.scroller);
    this.dockKey = key;
    const isConversation = Boolean(first && this.infos.get(first.run)?.conversation);
    fill(this.dock, first && [this.others, permissionCard(first.item, first.run, isConversation)]);
    if (hadFocus) this.focusAfterAnswer();
  }

  /** Focuses the next request, or else the timeline, where the next one takes the focus. */
  focusAfterAnswer() {
    const card = this.dock.querySelector('.permission');
    this.hasAnswered = !card;
    (card ?? this.timeline.scroller).focus();
  }

  refreshPanel() {
    if (!this.logs.length) return;
    const times = workTimes(this.logs.map((log) => this.infos.get(log.run)));
    const elapsed = this.logs.reduce((sum, log, index) => sum + (log.outcome?.duration_ms ?? times[index]), 0);
    this.panel.update({ info: this.info, logs: this.logs, elapsed, isRunning: this.isOpen(this.current) });
  }

  refreshComposer() {
    this.composer.update({
      mode: this.composerMode(),
      conversation: this.what.conversation,
      active: this.current && this.isOpen(this.current) ? this.current.run : undefined,
      info: { ...this.info, session_id: this.session() },
    });
  }

  /** What a further prompt does: it is sent now (`prompt`) or later (`steer`), or resumes the session (`resume`). */
  composerMode() {
    const isActive = Boolean(this.current) && this.isOpen(this.current);
    if (this.isOpenConversation()) return isActive ? 'steer' : 'prompt';
    return !isActive && this.session() ? 'resume' : null;
  }

  session() {
    return this.logs.findLast((log) => log.outcome?.session_id)?.outcome.session_id ?? this.info.session_id;
  }

  /** A conversation ends with the server. */
  isOpenConversation() {
    const last = this.logs.at(-1)?.outcome;
    return this.conversation?.state === 'open' && !(last && verdictOf(last) === 'interrupted');
  }

  async sent(run) {
    if (!run.conversation || run.conversation === this.what.conversation) {
      await this.addRun(run.run, run);
      this.timeline.list.scrollToEnd();
      this.follow();
      this.refresh();
    } else location.hash = continuedAddress(run.conversation, this.asOrigin());
    refreshRuns().catch(() => {});
  }

  /** What a conversation continues that resumes the session of this thread. */
  asOrigin() {
    const { run, conversation } = this.what;
    return { kind: conversation ? 'conversation' : 'run', id: conversation ?? run, title: this.title };
  }

  async cancel(control) {
    control.disabled = true;
    control.textContent = 'Cancelling…';
    await post(`${pathOf('runs', this.current.run)}/cancel`).catch((error) => {
      control.disabled = false;
      notice(error.message);
    });
  }

  async closeConversation() {
    await remove(pathOf('conversations', this.what.conversation)).catch((error) => notice(error.message));
    this.conversation = await get(pathOf('conversations', this.what.conversation)).catch(() => ({
      ...this.conversation,
      state: 'closed',
    }));
    this.refresh();
  }

  openFile(file, run) {
    const log = this.logs.find((candidate) => candidate.run === run) ?? this.logs.at(-1);
    openFileDialog(file.parts ? file : { ...log.files.get(file.path), ...file }, log.run);
  }

  /** The keys of this view. */
  onKey(key) {
    if (key === 'Escape') return this.closePanel();
    if (key === 'p') return Boolean(this.focusPermission());
    if (key === 'i') return this.composer.element.hidden ? false : (this.composer.text.focus(), true);
    if (key === 'e') return (this.timeline.list.scrollToEnd(), true);
    if (key === 'j' || key === 'k') return (this.timeline.moveFocus(key === 'j' ? 1 : -1), true);
    return false;
  }

  closePanel() {
    const isOpen = this.element.classList.contains('shows-panel');
    this.element.classList.remove('shows-panel');
    if (isOpen) this.header.querySelector('.panel-button')?.focus();
    return isOpen;
  }

  focusPermission() {
    const card = this.dock.querySelector('.permission');
    if (card) focusCard(card);
    return card;
  }

  focusSearch() {
    this.timeline.focusSearch();
  }
}

/** Returns a conversation. One of an earlier server is closed and has the runs that are stored. */
async function loadConversation(id) {
  try {
    return await get(pathOf('conversations', id));
  } catch (error) {
    if (error.status !== 404) throw error;
    const stored = await get('/v1/runs', { conversation: id, limit: 500 });
    if (!stored.runs.length) throw error;
    return { conversation: id, state: 'closed', runs: stored.runs.map((run) => run.run).reverse() };
  }
}
