// Shows a run or a conversation: its timeline, permission requests, totals and the box for further prompts.

import { focusCard } from './answer_guard.js';
import { get, pathOf, post, remove } from './api.js';
import { Composer } from './composer.js';
import { announce, fill, h, iconButton } from './dom.js';
import { ago, tail, words } from './format.js';
import { permissionCard } from './permission_card.js';
import { openFileDialog, RunPanel } from './run_panel.js';
import { RunLog } from './run_log.js';
import { refreshRuns, runById, runs, runStatus } from './runs.js';
import { errorView, notice } from './states.js';
import { verdictClass } from './rows.js';
import { Follower } from './stream.js';
import { firstLine, shorten } from './text.js';
import { Timeline } from './timeline.js';

const STREAM_TEXT = {
  connecting: 'Reconnecting…',
  away: 'The server cannot be reached. Trying again…',
  polling: 'Live, by polling',
  signed_out: 'The sign-in is missing.',
};

/** A view of one run, or of the runs of a conversation in their order. */
export class ThreadView {
  /** @param {{run?: string, conversation?: string, from?: string}} what `from` names the saved session that it continues */
  constructor(what) {
    this.what = what;
    this.logs = [];
    this.infos = new Map();
    this.title = 'Run';
    this.timeline = new Timeline({ label: 'Events', actions: { openFile: (file) => this.openFile(file) } });
    this.timeline.list.stick = true;
    this.panel = new RunPanel((file) => this.openFile(file));
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

  get info() {
    return this.infos.get(this.logs.at(-1)?.run) ?? {};
  }

  async load() {
    if (this.what.conversation) {
      this.conversation = await get(pathOf('conversations', this.what.conversation));
      for (const run of this.conversation.runs) await this.addRun(run);
    } else {
      const info = await this.addRun(this.what.run);
      if (info.state === 'ended') this.timeline.list.stick = false;
    }
    this.follow();
    this.refresh();
  }

  async addRun(run) {
    if (this.infos.has(run)) return this.infos.get(run);
    const info = runById(run) ?? (await get(pathOf('runs', run)));
    this.infos.set(run, info);
    this.logs.push(new RunLog(run, info));
    return info;
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
    if (state !== 'ended') return;
    log.isRead = true;
    this.reload(log.run);
    this.follower = null;
    this.follow();
    this.refresh();
  }

  async reload(run) {
    const info = await get(pathOf('runs', run)).catch(() => null);
    if (info) this.infos.set(run, info);
    this.refresh();
  }

  listChanged() {
    for (const { run } of this.logs) {
      const info = runById(run);
      if (info) this.infos.set(run, info);
    }
    if (this.what.conversation) this.addNewRuns();
    this.refresh();
  }

  /** Adds prompts that another tab sent to this conversation. */
  async addNewRuns() {
    const found = (runs.get() ?? []).filter(
      (run) => run.conversation === this.what.conversation && !this.infos.has(run.run),
    );
    for (const run of found.reverse()) await this.addRun(run.run);
    if (found.length) this.follow();
    this.conversation = await get(pathOf('conversations', this.what.conversation)).catch(() => this.conversation);
    this.refresh();
  }

  refresh() {
    if (this.destroyed || !this.logs.length) return this.refreshComposer();
    this.timeline.update(this.logs.length === 1 ? this.logs[0].items : this.logs.flatMap((log) => log.items));
    this.refreshHead();
    this.refreshDock();
    this.refreshPanel();
    this.refreshComposer();
  }

  refreshHead() {
    const first = this.infos.get(this.logs[0].run);
    const status = this.status();
    const title = shorten(firstLine(first.name ?? first.prompt) || 'Run', 140);
    this.title = title;
    const key = JSON.stringify([title, status, this.info.state, this.conversation?.state]);
    if (key === this.headKey) return;
    this.headKey = key;
    const isRunning = this.info.state !== 'ended' && !this.logs.at(-1).outcome;
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
          this.what.from && [' · ', h('a', { href: `#/sessions/show?${this.what.from}` }, 'Earlier messages')],
        ),
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
      this.conversation?.state === 'open' &&
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
    const active = this.logs.find((log) => !log.outcome && this.infos.get(log.run)?.state !== 'ended');
    if (active) return this.infos.get(active.run)?.state ?? 'running';
    return this.logs.at(-1).outcome?.verdict ?? runStatus(this.info);
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
    fill(this.dock, first && [this.others, permissionCard(first.item, first.run)]);
    if (hadFocus) this.focusAfterAnswer();
  }

  /** Focuses the next request, or else the box for prompts. On a phone, that would open the keyboard. */
  focusAfterAnswer() {
    const card = this.dock.querySelector('.permission');
    const takesPrompt = !this.composer.element.hidden && !matchMedia('(pointer: coarse)').matches;
    this.hasAnswered = !card && !takesPrompt;
    (card ?? (takesPrompt ? this.composer.text : this.timeline.scroller)).focus();
  }

  refreshPanel() {
    const log = this.logs.at(-1);
    if (!log) return;
    const info = this.info;
    const elapsed =
      log.outcome?.duration_ms ?? (info.started_at_ms ? (info.ended_at_ms ?? Date.now()) - info.started_at_ms : null);
    this.panel.update({ info, logs: this.logs, elapsed });
  }

  refreshComposer() {
    const active = this.logs.findLast((log) => !log.outcome && this.infos.get(log.run)?.state !== 'ended');
    const session = this.logs.findLast((log) => log.outcome?.session_id)?.outcome.session_id ?? this.info.session_id;
    let mode = null;
    if (this.conversation?.state === 'open') mode = active ? 'steer' : 'prompt';
    else if (!active && session) mode = 'resume';
    this.composer.update({
      mode,
      conversation: this.what.conversation,
      active: active?.run,
      info: { ...this.info, session_id: session },
    });
  }

  async sent(run) {
    if (!run.conversation || run.conversation === this.what.conversation) {
      this.infos.delete(run.run);
      await this.addRun(run.run);
      this.timeline.list.scrollToEnd();
      this.follow();
      this.refresh();
    } else location.hash = `#/conversations/${encodeURIComponent(run.conversation)}`;
    refreshRuns().catch(() => {});
  }

  async cancel(control) {
    control.disabled = true;
    control.textContent = 'Cancelling…';
    const run = this.logs.find((log) => !log.outcome)?.run;
    await post(`${pathOf('runs', run)}/cancel`).catch((error) => {
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

  openFile(file) {
    const log = this.logs.findLast((candidate) => candidate.files.has(file.path)) ?? this.logs.at(-1);
    openFileDialog({ ...log.files.get(file.path), ...file }, log.run);
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

/** The class of a status: live, waiting, good, fair or bad. */
export function statusClass(status) {
  if (status === 'running' || status === 'queued') return 'live';
  return status === 'waiting' ? 'fair waiting' : verdictClass(status);
}
