// A dialog that selects a directory below the roots of the server.

import { get } from './api.js';
import { button, fill, h, icon, iconButton } from './dom.js';
import { count } from './format.js';

/** The directories that are shown at once. */
const MOST_NAMES = 500;

/**
 * Opens the dialog. Resolves to the selected path, or `null` if the dialog was closed.
 * @param {string[]} roots
 * @param {string} start
 * @returns {Promise<string | null>}
 */
export function pickDirectory(roots, start) {
  return new Promise((resolve) => {
    const picker = new Picker(roots, resolve);
    picker.open(roots.some((root) => isBelow(start, root)) ? start : roots.length === 1 ? roots[0] : null);
  });
}

const isBelow = (path, root) => path === root || path.startsWith(root.endsWith('/') ? root : `${root}/`);

class Picker {
  constructor(roots, resolve) {
    this.roots = roots;
    this.path = null;
    this.list = h('ul.directories', { 'aria-label': 'Directories' });
    this.where = h('p.where', { 'aria-live': 'polite' });
    this.filter = h('input', {
      type: 'search',
      placeholder: 'Filter',
      'aria-label': 'Filter directories',
      autocomplete: 'off',
    });
    this.filter.addEventListener('input', () => this.show());
    this.filter.addEventListener('keydown', (event) => this.onKey(event));
    this.choose = button('Use this directory', () => this.dialog.close('chosen'), { class: 'primary' });
    this.dialog = h(
      'dialog',
      { 'aria-labelledby': 'picker-title' },
      h(
        'header',
        {},
        h('h2', { id: 'picker-title' }, 'Choose a directory'),
        iconButton('close', 'Close', () => this.dialog.close()),
      ),
      h('div.dialog-body', {}, this.where, this.filter, this.list),
      h('footer', {}, this.choose),
    );
    this.dialog.addEventListener('close', () => {
      this.dialog.remove();
      resolve(this.dialog.returnValue === 'chosen' ? this.path : null);
    });
  }

  async open(path) {
    document.body.append(this.dialog);
    this.dialog.showModal();
    await this.go(path);
    this.filter.focus();
  }

  onKey(event) {
    if (event.key !== 'Enter') return;
    event.preventDefault();
    const first = this.list.querySelector('button:not(.up)');
    if (this.filter.value && first) first.click();
    else if (this.path) this.dialog.close('chosen');
  }

  /** Shows a directory; `null` shows the roots. */
  async go(path) {
    this.filter.value = '';
    if (path === null) [this.path, this.names] = [null, this.roots];
    else {
      try {
        const answer = await get('/v1/directories', { path });
        [this.path, this.names] = [answer.path, answer.directories];
      } catch (error) {
        this.where.textContent = `${error.message} ${error.hint ?? ''}`;
        if (this.path === null) this.names = this.roots;
        return this.show();
      }
    }
    fill(this.where, this.path ?? 'Directories that the server may use');
    this.choose.disabled = this.path === null;
    this.show();
    if (this.dialog.open) this.filter.focus();
  }

  show() {
    const words = this.filter.value.toLowerCase();
    const names = (this.names ?? []).filter((name) => name.toLowerCase().includes(words));
    const entry = (name, path, isUp) =>
      h(
        'li',
        {},
        h(
          'button',
          { type: 'button', class: isUp ? 'up' : '', onclick: () => this.go(path) },
          icon(isUp ? 'up' : 'folder'),
          h('span', {}, name),
        ),
      );
    const up =
      this.path !== null &&
      entry(this.roots.includes(this.path) ? 'All directories' : 'Parent directory', this.parent(), true);
    fill(
      this.list,
      up,
      names
        .slice(0, MOST_NAMES)
        .map((name) => entry(name, this.path === null ? name : `${this.path.replace(/\/$/, '')}/${name}`, false)),
      names.length > MOST_NAMES &&
        h('li.note', {}, `The first ${MOST_NAMES} of ${count(names.length)}. The filter finds the others.`),
      !names.length && h('li.note', {}, words ? 'Nothing matches.' : 'No subdirectories.'),
    );
  }

  parent() {
    if (this.roots.includes(this.path)) return null;
    return this.path.slice(0, this.path.lastIndexOf('/')) || '/';
  }
}
