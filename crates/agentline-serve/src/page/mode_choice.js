// The choice of a permission mode. The one that never asks is marked and must be chosen anew each time.

import { h, option } from './dom.js';
import { words } from './format.js';
import { keepSetting, setting } from './store.js';

const NEVER_ASKS = 'bypass';

const HINTS = {
  default: 'asks before changes',
  'accept-edits': 'edits files without asking',
  [NEVER_ASKS]: 'never asks',
  plan: 'only reads and plans',
  auto: 'the agent decides',
  deny: 'denies what no rule allows',
};

/** A select of permission modes, and a warning that is shown for the one that never asks. */
export class ModeChoice {
  /**
   * @param {string[]} modes
   * @param {HTMLElement} start the button that starts the run
   */
  constructor(modes, start) {
    const kept = setting('mode', 'default');
    const isChosen = (mode) => mode === kept && mode !== NEVER_ASKS;
    this.start = start;
    this.select = h(
      'select',
      {},
      modes.map((mode) => option(mode, HINTS[mode] ? `${words(mode)} – ${HINTS[mode]}` : words(mode), isChosen(mode))),
    );
    this.warning = h('p.mode-warning', { role: 'status' });
    this.select.addEventListener('change', () => this.show());
    this.show();
  }

  get mode() {
    return this.select.value;
  }

  show() {
    const neverAsks = this.mode === NEVER_ASKS;
    this.warning.textContent = neverAsks ? 'The agent runs commands and changes files without asking you.' : '';
    this.select.classList.toggle('warns', neverAsks);
    this.start.classList.toggle('warns', neverAsks);
    this.start.firstElementChild.textContent = neverAsks ? 'Start without questions' : this.start.dataset.label;
  }

  /** Keeps the mode in this browser, unless it is the one that never asks. */
  keep() {
    keepSetting('mode', this.mode === NEVER_ASKS ? '' : this.mode);
  }
}

/** A button that submits a form. A `ModeChoice` changes its text. */
export function startButton(label, props, ...more) {
  return h('button.button.primary', { type: 'submit', 'data-label': label, ...props }, h('span', {}, label), more);
}
