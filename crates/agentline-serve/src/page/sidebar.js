// The navigation: the views, the latest runs with their state, and the state of the connection.

import { connection } from './api.js';
import { fill, h, icon, iconButton } from './dom.js';
import { ago, words } from './format.js';
import { addressOf } from './home_view.js';
import { runs, runStatus } from './runs.js';
import { showShortcuts } from './shortcuts.js';
import { signOut } from './sign_out.js';
import { firstLine, shorten } from './text.js';
import { toggleTheme } from './theme.js';
import { threadsOf } from './threads.js';
import { statusClass } from './verdicts.js';

const LINKS = [
  ['#/', 'New run', 'plus'],
  ['#/sessions', 'Sessions', 'history'],
  ['#/usage', 'Usage', 'chart'],
  ['#/experiments', 'Experiments', 'flask'],
];
const MOST_RUNS = 30;

/** The side bar. On a phone it is a drawer. */
export class Sidebar {
  constructor() {
    this.links = LINKS.map(([href, label, name]) => h('a.nav-link', { href }, icon(name), h('span', {}, label)));
    this.list = h('ul.nav-runs');
    this.state = h('span.connection', { role: 'status' });
    this.signOut = h('button.text-button', { type: 'button', onclick: signOut }, 'Sign out');
    this.element = h(
      'nav.sidebar',
      { id: 'sidebar', 'aria-label': 'Main' },
      h(
        'div.brand-row',
        {},
        h('a.brand', { href: '#/' }, 'agentline'),
        iconButton('theme', 'Color scheme: light, dark or that of the system', toggleTheme),
        iconButton('help', 'Keyboard shortcuts', showShortcuts),
      ),
      h('div.nav-links', {}, this.links),
      h('h2.nav-title', {}, 'Runs'),
      this.list,
      h('div.nav-foot', {}, this.state, this.signOut),
    );
    this.element.addEventListener('click', (event) => {
      if (event.target.closest('a')) this.close();
    });
    runs.subscribe(() => this.showRuns());
    connection.subscribe(() => this.showState());
    this.showState();
  }

  open() {
    document.body.classList.add('shows-sidebar');
    this.element.querySelector('a')?.focus();
  }

  close() {
    document.body.classList.remove('shows-sidebar');
  }

  /** Marks the current view. */
  markCurrent() {
    const here = location.hash || '#/';
    const section = `#/${here.slice(2).split(/[/?]/)[0]}`;
    for (const link of this.links) setCurrent(link, link.getAttribute('href') === section);
    const thread = here.split('?')[0];
    for (const link of this.list.querySelectorAll('a')) setCurrent(link, link.getAttribute('href') === thread);
  }

  showRuns() {
    const threads = threadsOf(runs.get() ?? []);
    const focused = this.list.contains(document.activeElement) ? document.activeElement.getAttribute('href') : null;
    fill(this.list, threads.slice(0, MOST_RUNS).map(threadLink));
    if (focused) this.list.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
    this.markCurrent();
  }

  showState() {
    const state = connection.get();
    const text = { ok: 'Connected', away: 'Server away', signed_out: 'Not signed in' }[state];
    this.state.dataset.state = state;
    this.signOut.hidden = state === 'signed_out';
    fill(this.state, h('i', { 'aria-hidden': 'true' }), text);
  }
}

function setCurrent(link, isCurrent) {
  if (isCurrent) link.setAttribute('aria-current', 'page');
  else link.removeAttribute('aria-current');
}

function threadLink({ current: run, first, latest, isOpen }) {
  const status = runStatus(run);
  const kind = statusClass(status);
  return h(
    'li',
    {},
    h(
      'a.nav-run',
      { href: addressOf(run), title: `${words(status)} · ${run.agent ?? ''}` },
      h(`i.dot`, { class: kind, 'aria-hidden': 'true' }),
      h('span.nav-run-title', {}, shorten(firstLine(first.name ?? first.prompt) || 'Run', 80)),
      h('span.visually-hidden', {}, words(status)),
      status === 'waiting'
        ? h('span.badge', {}, 'asks you')
        : h('span.when', {}, isOpen ? '' : ago(latest.started_at_ms).replace(' ago', '')),
    ),
  );
}
