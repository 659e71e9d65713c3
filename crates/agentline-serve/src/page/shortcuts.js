// Keyboard shortcuts and the dialog that lists them.

import { h, iconButton } from './dom.js';

/** The shortcuts: the key, what it does, and where. */
const SHORTCUTS = [
  [
    'Anywhere',
    [
      ['n', 'New run'],
      ['r', 'Latest run in progress'],
      ['s', 'Saved sessions'],
      ['u', 'Usage'],
      ['x', 'Experiments'],
      ['/ or Ctrl F', 'Search this view'],
      ['t', 'Color scheme: light, dark or that of the system'],
      ['?', 'This list'],
    ],
  ],
  [
    'In a run or a session',
    [
      ['j and k', 'Next and previous event'],
      ['p', 'Go to the permission request; a letter then selects an answer'],
      ['i', 'Write a prompt'],
      ['e', 'Jump to the end and follow it'],
      ['Escape', 'Close the panel beside the run'],
      ['Enter, Shift Enter', 'Next and previous match, in the search'],
    ],
  ],
  [
    'On a permission request',
    [
      ['p, a, Enter', 'Allow'],
      ['p, w, Enter', 'Always allow, for this tool in this run or conversation'],
      ['p, d, Enter', 'Deny'],
      ['Enter', 'Deny, in the reason'],
    ],
  ],
  [
    'In a prompt',
    [
      ['Enter', 'Send (in a conversation)'],
      ['Ctrl Enter', 'Start the run, or interrupt and send'],
      ['Shift Enter', 'New line'],
    ],
  ],
];

/** Opens the list of shortcuts. */
export function showShortcuts() {
  if (document.querySelector('dialog[open]')) return;
  const dialog = h(
    'dialog.wide',
    { 'aria-labelledby': 'help-title' },
    h(
      'header',
      {},
      h('h2', { id: 'help-title' }, 'Keyboard shortcuts'),
      iconButton('close', 'Close', () => dialog.close()),
    ),
    h(
      'div.dialog-body.shortcuts',
      { tabindex: '0', role: 'region', 'aria-label': 'Keyboard shortcuts' },
      SHORTCUTS.map(([title, keys]) =>
        h(
          'section',
          {},
          h('h3', {}, title),
          h(
            'dl',
            {},
            keys.map(([key, text]) =>
              h(
                'div',
                {},
                h(
                  'dt',
                  {},
                  key
                    .split(/( and | or |, )/)
                    .map((part) => (/^( and | or |, )$/.test(part) ? part : h('kbd', {}, part))),
                ),
                h('dd', {}, text),
              ),
            ),
          ),
        ),
      ),
    ),
    h(
      'footer',
      {},
      h(
        'p.note',
        {},
        'Press Ctrl F twice to search with the browser: it finds only what is on the screen, while the search of this page covers all events.',
      ),
    ),
  );
  dialog.addEventListener('close', () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

const isTyping = (element) =>
  element instanceof HTMLTextAreaElement ||
  element instanceof HTMLSelectElement ||
  (element instanceof HTMLInputElement && !['checkbox', 'radio', 'button'].includes(element.type));

/**
 * Listens for shortcuts.
 * @param {{view: () => object, actions: Object<string, () => void>}} options
 */
export function listenForShortcuts({ view, actions }) {
  document.addEventListener('keydown', (event) => {
    if (document.querySelector('dialog[open]')) return;
    if ((event.ctrlKey || event.metaKey) && event.key === 'f') return searchInstead(event, view());
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === 'Escape' && isTyping(event.target)) return event.target.blur();
    if (isTyping(event.target)) return;
    if (event.key === '/') {
      event.preventDefault();
      return view()?.focusSearch?.();
    }
    if (view()?.onKey?.(event.key) || run(actions, event.key)) event.preventDefault();
  });
}

function run(actions, key) {
  const action = actions[key];
  action?.();
  return Boolean(action);
}

/** The first Ctrl F opens the search of the page, a second one that of the browser. */
function searchInstead(event, view) {
  if (!view?.focusSearch || event.target instanceof HTMLInputElement) return;
  event.preventDefault();
  view.focusSearch();
}
