// What the page shows when there is nothing, something is loading, or something went wrong.

import { connection } from './api.js';
import { button, h } from './dom.js';

/** An error with its hint and problems, and a button to try again. `heading` is `h1` if the view has no other heading. */
export function errorView(error, retry, heading = 'h2') {
  if (error.status === 401) return signInView();
  const problems =
    error.problems?.length > 0 &&
    h(
      'ul',
      {},
      error.problems.map((problem) =>
        h(
          'li',
          {},
          h('code', {}, problem.key),
          ` ${problem.message} `,
          problem.hint && h('span.note', {}, problem.hint),
        ),
      ),
    );
  return h(
    'div.empty.error-state',
    { role: 'alert' },
    h(heading, {}, error.status === 404 ? 'Not found' : 'That did not work'),
    h('p', {}, error.message),
    error.hint && h('p.note', {}, error.hint),
    problems,
    retry && button('Try again', retry),
  );
}

/** What to do without a sign-in. */
export function signInView() {
  return h(
    'div.empty.sign-in',
    { role: 'alert' },
    h('h1', {}, 'You are not signed in'),
    h('p', {}, 'On the machine of the server, this command prints a link:'),
    h('pre.command', { tabindex: '0', role: 'group', 'aria-label': 'Command for a new link' }, 'agentline serve --link'),
    h('p', {}, 'A link works once, for ten minutes. A sign-in lasts 30 days, or until the server restarts.'),
    h(
      'p.note',
      {},
      'If the server was started with ',
      h('code', {}, '--dir'),
      ' or ',
      h('code', {}, '--demo'),
      ', its terminal shows the command with the directory.',
    ),
    button('Try again', () => location.reload()),
  );
}

/** A text for an empty list. */
export function emptyView(title, text, ...more) {
  return h('div.empty', {}, h('h2', {}, title), h('p', {}, text), more);
}

/** Placeholders while something loads. */
export function loadingView(label = 'Loading…') {
  return h(
    'div.loading',
    { role: 'status' },
    h('span.visually-hidden', {}, label),
    h('span.bone'),
    h('span.bone'),
    h('span.bone'),
  );
}

/** Shows a message for a few seconds. */
export function notice(text) {
  const region = document.querySelector('#notices');
  const message = h('div.toast', {}, text);
  region.append(message);
  setTimeout(() => message.remove(), 6000);
}

/** A banner while the server is away or the sign-in is missing. */
export function connectionBanner() {
  const banner = h('div.banner', { role: 'status', hidden: true });
  const show = (state) => {
    banner.hidden = state === 'ok';
    banner.dataset.state = state;
    banner.textContent =
      state === 'away'
        ? 'The server cannot be reached. The page connects again by itself.'
        : state === 'signed_out'
          ? 'You are not signed in. Open a link that agentline serve --link prints.'
          : '';
  };
  connection.subscribe(show);
  show(connection.get());
  return banner;
}
