// What the page shows when there is nothing, something is loading, or something went wrong.

import { connection } from './api.js';
import { button, h } from './dom.js';
import { hasSignedOut } from './store.js';

/** The command that prints a link, also named by the server's own hints. */
const LINK_COMMAND = 'agentline serve --link';

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
  const signedOut = hasSignedOut();
  return h(
    'div.empty.sign-in',
    { role: signedOut ? 'status' : 'alert' },
    h('h1', {}, signedOut ? 'You signed out' : 'You are not signed in'),
    h('p', {}, 'On the machine of the server, this command prints a new link while the server runs:'),
    h('pre.command', { tabindex: '0', role: 'group', 'aria-label': 'Command for a new link' }, LINK_COMMAND),
    h('p', {}, 'A link works once, for ten minutes. A sign-in lasts 30 days, or until the server restarts.'),
    h(
      'p.note',
      {},
      'If the server was started with ',
      h('code', {}, '--dir DIR'),
      ', add it. With ',
      h('code', {}, '--demo'),
      ', the terminal of the server shows the whole command.',
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

const BANNERS = {
  away: 'The server cannot be reached. The page connects again by itself.',
  signed_out: `You are not signed in. Open a link that ${LINK_COMMAND} prints.`,
};

/** A banner while the server is away or the sign-in is missing, unless the user signed out. */
export function connectionBanner() {
  const banner = h('div.banner', { role: 'status', hidden: true });
  const show = (state) => {
    banner.hidden = state === 'ok' || (state === 'signed_out' && hasSignedOut());
    banner.dataset.state = state;
    banner.textContent = BANNERS[state] ?? '';
  };
  connection.subscribe(show);
  show(connection.get());
  return banner;
}
