// The first view: the form for a new run, and the latest runs.

import { CardList } from './card_list.js';
import { button, fill, h, option } from './dom.js';
import { ago, count, duration, known, money, plural, tail, words } from './format.js';
import { NewRun } from './new_run.js';
import { hasOlderRuns, loadOlderRuns, runs, runStatus } from './runs.js';
import { emptyView, errorView, loadingView, notice } from './states.js';
import { firstLine, shorten } from './text.js';
import { threadsOf } from './threads.js';
import { statusClass } from './verdicts.js';

/** The address of a run or of its conversation. */
export function addressOf(run) {
  return run.conversation
    ? `#/conversations/${encodeURIComponent(run.conversation)}`
    : `#/runs/${encodeURIComponent(run.run)}`;
}

/** The first view. */
export class HomeView {
  constructor() {
    this.title = 'New run';
    this.form = new NewRun();
    this.cards = new CardList();
    this.list = h('div.run-list');
    this.older = h('div.older');
    this.words = h('input', {
      type: 'search',
      placeholder: 'Filter runs',
      'aria-label': 'Filter runs',
      autocomplete: 'off',
    });
    this.words.addEventListener('input', () => this.show());
    this.state = h(
      'select',
      { 'aria-label': 'State' },
      option('', 'All states'),
      option('running', 'In progress'),
      option('ended', 'Ended'),
    );
    this.state.addEventListener('change', () => this.show());
    this.element = h(
      'div.page.home',
      {},
      h('h1.hero', {}, 'What should be done?'),
      this.form.element,
      h(
        'section',
        { 'aria-labelledby': 'latest-runs' },
        h('div.section-head', {}, h('h2', { id: 'latest-runs' }, 'Runs'), this.words, this.state),
        this.list,
        this.older,
      ),
    );
    this.form.ready.catch((error) =>
      fill(
        this.form.element,
        errorView(error, () => location.reload()),
      ),
    );
    this.unsubscribe = runs.subscribe(() => this.show());
    this.show();
  }

  destroy() {
    this.unsubscribe();
    this.cards.destroy();
    this.form.destroy();
  }

  async focusMain() {
    await this.form.ready.catch(() => {});
    this.form.prompt?.focus();
  }

  focusSearch() {
    this.words.focus();
  }

  show() {
    const all = runs.get();
    if (!all) return fill(this.list, loadingView('Loading runs'));
    const text = this.words.value.trim().toLowerCase();
    const isInState = (thread) => !this.state.value || (this.state.value === 'ended') !== thread.isOpen;
    const found = threadsOf(all).filter(
      (thread) => isInState(thread) && thread.runs.some((run) => searchedText(run).includes(text)),
    );
    if (!all.length)
      return fill(
        this.list,
        emptyView(
          'No runs yet',
          'Write a prompt above and press Start. The run appears here and continues if you close the page.',
        ),
      );
    this.showOlder(all.length);
    if (!found.length) return fill(this.list, emptyView('Nothing matches', 'None of these runs has the words.'));
    this.cards.update(found.map((thread) => ({ key: addressOf(thread.first), card: () => threadCard(thread) })));
    // The list keeps the focus while it changes.
    if (this.cards.element.parentNode !== this.list) fill(this.list, this.cards.element);
    return this.list;
  }

  /** Says which runs are listed if there are older ones, and offers those. */
  showOlder(number) {
    const note = this.older.querySelector('.note');
    if (!hasOlderRuns.get()) {
      this.cards.takeFocusFrom(this.older);
      fill(this.older);
    } else if (!note) {
      fill(
        this.older,
        h('p.note', { role: 'status' }, newest(number)),
        button('Show older runs', (event) => this.loadOlder(event.currentTarget), { class: 'more-button' }),
      );
    } else if (note.textContent !== newest(number)) {
      // A status is announced each time it is written.
      note.textContent = newest(number);
    }
  }

  async loadOlder(control) {
    // A button that is disabled loses the focus.
    if (control.ariaDisabled) return;
    control.ariaDisabled = 'true';
    await loadOlderRuns().catch((error) => notice(error.message));
    control.ariaDisabled = null;
    this.show();
  }
}

const newest = (number) => `The newest ${count(number)} runs are listed.`;

const searchedText = (run) =>
  [run.prompt, run.name, run.agent, run.working_dir, run.model, run.verdict].join(' ').toLowerCase();

function threadCard({ runs: prompts, current, first, latest, queued, cost, time }) {
  const status = runStatus(current);
  const facts = [
    latest.agent ?? first.agent,
    latest.model ?? first.model,
    tail(first.working_dir),
    ago(latest.started_at_ms),
    known(time) ? duration(time) : null,
    known(cost) ? money(cost) : null,
  ].filter(Boolean);
  return h(
    'li',
    {},
    h(
      'a.card',
      { href: addressOf(first), 'data-run': current.run },
      h('span.status', { class: statusClass(status) }, h('i', { 'aria-hidden': 'true' }), words(status)),
      h('span.card-title', {}, shorten(firstLine(first.name ?? first.prompt) || 'Run', 200)),
      h(
        'span.card-facts',
        {},
        facts.join(' · '),
        first.conversation && h('span.tag', {}, plural(prompts.length, 'prompt')),
        queued > 0 && h('span.tag', {}, `${queued} queued`),
      ),
    ),
  );
}
