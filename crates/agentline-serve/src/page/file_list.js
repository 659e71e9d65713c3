// Lists changed files.

import { changeCounts } from './diff.js';
import { h } from './dom.js';
import { isUnchanged } from './file_changes.js';
import { words } from './format.js';

const CHANGES = { created: 'A', modified: 'M', deleted: 'D', renamed: 'R' };

/** The changed files. A file with a known diff opens it; `run` made the changes. */
export function fileList(files, actions, run) {
  return h(
    'ul.file-list',
    {},
    files.map((file) => {
      const known = isUnchanged(file) ? unchangedFile(file) : changedFile(file);
      if (!actions?.openFile) return h('li', {}, h('span.file', {}, known));
      return h('li', {}, h('button.file', { type: 'button', onclick: () => actions.openFile(file, file.run ?? run) }, known));
    }),
  );
}

function changedFile(file) {
  return [
    h(
      `span.change.${file.change}`,
      { role: 'img', 'aria-label': words(file.change), title: words(file.change) },
      CHANGES[file.change] ?? '?',
    ),
    h('span.file-path', {}, file.path),
    file.verified === false && h('span.tag', { title: 'The disk does not confirm this change' }, 'not verified'),
    file.source && file.source !== 'tool' && h('span.tag', { title: 'What made the change' }, file.source),
    changeCounts(file),
  ];
}

function unchangedFile(file) {
  return [
    h('span.change.unchanged', { 'aria-hidden': 'true' }, '='),
    h('span.file-path', {}, file.path),
    h('span.tag', { title: 'The file was written, and its content is the same as before' }, 'ended unchanged'),
  ];
}
