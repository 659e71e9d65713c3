// Starts the page: the frame, the views by address, the title and the shortcuts.

import { connection } from './api.js';
import { fill, h, iconButton } from './dom.js';
import { ExperimentsView, ExperimentView } from './experiments_view.js';
import { holdAll } from './held_runs.js';
import { addressOf, HomeView } from './home_view.js';
import { followRuns, runs, runStatus } from './runs.js';
import { SessionsView } from './sessions_view.js';
import { listenForShortcuts, showShortcuts } from './shortcuts.js';
import { Sidebar } from './sidebar.js';
import { followSignOut } from './sign_out.js';
import { connectionBanner, errorView, signInView } from './states.js';
import { plain } from './text.js';
import { applyTheme, toggleTheme } from './theme.js';
import { ThreadView } from './thread_view.js';
import { TranscriptView } from './transcript_view.js';
import { UsageView } from './usage_view.js';

const sidebar = new Sidebar();
const main = h('main', { id: 'main', tabindex: '-1' });
const menu = iconButton(
  'menu',
  'Menu',
  () => (document.body.classList.contains('shows-sidebar') ? sidebar.close() : sidebar.open()),
  { class: 'menu-button', 'aria-controls': 'sidebar' },
);
let view = null;
let address = null;

/** Creates the view of an address such as `#/runs/ID` or `#/sessions?q=words`. */
function viewOf(hash) {
  const [path, query] = (hash.replace(/^#\/?/, '') || '').split('?');
  const params = new URLSearchParams(query ?? '');
  const [section, id] = path.split('/').map(decode);
  if (!section) return new HomeView();
  if (section === 'runs' && id) return new ThreadView({ run: id });
  if (section === 'conversations' && id) return new ThreadView({ conversation: id });
  if (section === 'sessions') return id === 'show' ? new TranscriptView(params) : new SessionsView(params);
  if (section === 'usage') return new UsageView(params);
  if (section === 'experiments') return id === 'show' ? new ExperimentView(params) : new ExperimentsView();
  return {
    title: 'Not found',
    element: errorView({ status: 404, message: 'This page has no such view.' }, null, 'h1'),
    destroy() {},
  };
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return '';
  }
}

function show() {
  // Without a sign-in, the page that says so stays.
  if (connection.get() === 'signed_out') return;
  const next = location.hash || '#/';
  if (next === address) return;
  const isFirst = address === null;
  address = next;
  view?.destroy();
  view = viewOf(next);
  view.onChange = showTitle;
  fill(main, view.element);
  main.classList.toggle('fixed', view.element.classList.contains('thread'));
  main.scrollTop = 0;
  sidebar.markCurrent();
  showTitle();
  if (view.focusMain) view.focusMain();
  else if (!isFirst) main.focus({ preventScroll: true });
  view.ready?.then(showTitle, () => {});
}

/** The title of the document says how many requests wait for an answer, and the menu whether one waits elsewhere. */
function showTitle() {
  const waiting = waitingRequests();
  const here = location.hash.split('?')[0];
  const waitsElsewhere = (runs.get() ?? []).some((run) => runStatus(run) === 'waiting' && addressOf(run) !== here);
  menu.classList.toggle('waits', waitsElsewhere);
  menu.setAttribute('aria-label', waitsElsewhere ? 'Menu. A request waits for your answer.' : 'Menu');
  const name = view ? `${view.title} – agentline` : 'agentline';
  const title = plain(`${waiting ? `(${waiting}) ` : ''}${name}`);
  if (title !== document.title) document.title = title;
}

/** Counts the requests that wait, in the list of runs and in the view, which knows its own runs first. */
function waitingRequests() {
  const listed = (runs.get() ?? []).map((run) => [run.run, run.state === 'ended' ? 0 : run.pending_permissions]);
  const counts = new Map([...listed, ...(view?.pending?.() ?? [])]);
  return [...counts.values()].reduce((sum, number) => sum + number, 0);
}

function go(hash) {
  location.hash = hash;
}

function goToActiveRun() {
  const run = (runs.get() ?? []).find((candidate) => candidate.state !== 'ended') ?? runs.get()?.[0];
  if (run) go(addressOf(run));
}

/** Removes what the page shows of runs and sessions while the sign-in is missing, and shows it again afterwards. */
function showConnection(state) {
  // Without a sign-in, no link of the navigation leads anywhere.
  if (state === 'ok') document.body.classList.remove('signed-out');
  if (state === 'signed_out') {
    document.body.classList.add('signed-out');
    view?.destroy();
    view = null;
    runs.set(null);
    fill(main, signInView());
    showTitle();
  } else if (state === 'ok' && main.querySelector('.sign-in')) {
    address = null;
    show();
  }
}

function start() {
  applyTheme();
  const top = h(
    'header.top-bar',
    {},
    menu,
    h('a.brand', { href: '#/' }, 'agentline'),
    iconButton('plus', 'New run', () => go('#/')),
  );
  const shade = h('div.shade', { onclick: () => sidebar.close() });
  document.querySelector('#app').append(top, sidebar.element, shade, h('div.content', {}, connectionBanner(), main));
  document.querySelector('.skip').addEventListener('click', (event) => {
    event.preventDefault();
    main.focus();
  });
  document.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') sidebar.close();
  });
  window.addEventListener('hashchange', show);
  window.addEventListener('addressreplaced', () => {
    address = location.hash;
  });
  connection.subscribe(showConnection);
  runs.subscribe(showTitle);
  listenForShortcuts({
    view: () => view,
    actions: {
      n: () => go('#/'),
      r: goToActiveRun,
      s: () => go('#/sessions'),
      u: () => go('#/usage'),
      x: () => go('#/experiments'),
      t: toggleTheme,
      '?': showShortcuts,
    },
  });
  followSignOut();
  show();
  followRuns();
  holdAll();
}

start();
