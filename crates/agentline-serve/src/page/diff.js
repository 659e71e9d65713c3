// Shows changes to files: unified diffs, and the difference of two texts.

import { append, fill, h } from './dom.js';
import { count } from './format.js';

/** The lines that are in the document at once. */
const MOST_LINES = 300;
const NO_NEWLINE = '\\ No newline at end of file';
/** Larger texts are compared without looking for common lines in their middle. */
const LARGEST_TABLE = 1000000;

/**
 * @typedef {{sign: ' ' | '+' | '-' | '@', text: string, old?: number, now?: number, mark?: [number, number]}} Line
 */

/** @param {string} text a unified diff @returns {Line[]} */
export function parseUnified(text) {
  const lines = [];
  let old = 0;
  let now = 0;
  let inHunk = false;
  for (const line of text.replace(/\n$/, '').split('\n')) {
    const hunk = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@(.*)$/.exec(line);
    if (hunk) {
      [old, now, inHunk] = [Number(hunk[1]), Number(hunk[2]), true];
      if (lines.length || old > 1 || hunk[3].trim()) lines.push({ sign: '@', text: hunk[3].trim() });
    } else if (inHunk && line.startsWith('+')) lines.push({ sign: '+', text: line.slice(1), now: now++ });
    else if (inHunk && line.startsWith('-')) lines.push({ sign: '-', text: line.slice(1), old: old++ });
    else if (inHunk && line.startsWith('\\'))
      lines.push({ sign: '@', text: line === NO_NEWLINE ? line : line.slice(2) });
    else if (inHunk) lines.push({ sign: ' ', text: line.slice(1), old: old++, now: now++ });
  }
  return markWords(lines);
}

/**
 * Compares two texts by lines and returns the changes with three lines of context. The texts may be parts of a file, so
 * the newline at their end is mentioned only if nothing else differs.
 */
export function compare(before, after) {
  const a = splitLines(before);
  const b = splitLines(after);
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end])
    end += 1;
  const lines = [];
  const keep = (i, j) => lines.push({ sign: ' ', text: a[i], old: i + 1, now: j + 1 });
  for (let i = Math.max(0, start - 3); i < start; i += 1) keep(i, i);
  lines.push(...middle(a, b, start, end));
  for (let i = 0; i < Math.min(3, end); i += 1) keep(a.length - end + i, b.length - end + i);
  if (start === a.length && start === b.length && before !== after) lines.push({ sign: '@', text: endText(after) });
  return markWords(lines);
}

const splitLines = (text) => (text ? text.replace(/\n$/, '').split('\n') : []);

const endText = (after) => (after.endsWith('\n') ? 'A newline is added at the end' : 'The newline at the end is removed');

function middle(a, b, start, end) {
  const [rows, columns] = [a.length - start - end, b.length - start - end];
  const removed = (i) => ({ sign: '-', text: a[start + i], old: start + i + 1 });
  const added = (j) => ({ sign: '+', text: b[start + j], now: start + j + 1 });
  const lines = [];
  let [i, j] = [0, 0];
  if (rows * columns <= LARGEST_TABLE) {
    const table = commonLengths(a, b, start, rows, columns);
    while (i < rows && j < columns) {
      if (a[start + i] === b[start + j])
        lines.push({ sign: ' ', text: a[start + i], old: start + ++i, now: start + ++j });
      else if (table[(i + 1) * (columns + 1) + j] >= table[i * (columns + 1) + j + 1]) lines.push(removed(i++));
      else lines.push(added(j++));
    }
  }
  while (i < rows) lines.push(removed(i++));
  while (j < columns) lines.push(added(j++));
  return lines;
}

function commonLengths(a, b, start, rows, columns) {
  const width = columns + 1;
  const table = new Uint32Array((rows + 1) * width);
  for (let i = rows - 1; i >= 0; i -= 1) {
    for (let j = columns - 1; j >= 0; j -= 1) {
      table[i * width + j] =
        a[start + i] === b[start + j]
          ? table[(i + 1) * width + j + 1] + 1
          : Math.max(table[(i + 1) * width + j], table[i * width + j + 1]);
    }
  }
  return table;
}

/** Marks what differs between a removed line and the added line that replaces it. */
function markWords(lines) {
  let at = 0;
  while (at < lines.length) {
    let removed = 0;
    while (lines[at + removed]?.sign === '-') removed += 1;
    let added = 0;
    while (removed && lines[at + removed + added]?.sign === '+') added += 1;
    if (removed === added) for (let i = 0; i < removed; i += 1) markPair(lines[at + i], lines[at + removed + i]);
    at += Math.max(1, removed + added);
  }
  return lines;
}

function markPair(before, after) {
  const [a, b] = [before.text, after.text];
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < Math.min(a.length, b.length) - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end += 1;
  if (start + end < Math.max(a.length, b.length) / 4) return;
  before.mark = [start, a.length - end];
  after.mark = [start, b.length - end];
}

/** Counts added and removed lines. */
export function countChanges(lines) {
  const number = (sign) => lines.filter((line) => line.sign === sign).length;
  return { added: number('+'), removed: number('-') };
}

const NAMES = { '+': 'add', '-': 'del', ' ': 'same', '@': 'hunk' };

function lineRow(line) {
  if (line.sign === '@')
    return h('div.line.hunk', {}, h('span.no'), h('span.no'), h('span.sign'), h('span.src', {}, line.text || '⋯'));
  const text = line.mark
    ? [line.text.slice(0, line.mark[0]), h('mark', {}, line.text.slice(...line.mark)), line.text.slice(line.mark[1])]
    : [line.text || ' '];
  return h(
    `div.line.${NAMES[line.sign]}`,
    {},
    h('span.no', {}, line.old ?? ''),
    h('span.no', {}, line.now ?? ''),
    h('span.sign', {}, line.sign),
    h('span.src', {}, text),
  );
}

/** Shows the lines of a diff; a long one in parts, with buttons that show the next and the previous part. */
export function diffView(lines, label = 'Changes') {
  const body = h('div.diff-lines');
  const view = h('div.diff', { tabindex: '0', role: 'group', 'aria-label': label }, body);
  if (lines.length > MOST_LINES) return pagedView(lines, view, body);
  append(body, lines.map(lineRow));
  return view;
}

function pagedView(lines, view, body) {
  const where = h('span.note', { role: 'status' });
  let start = 0;
  const show = (from) => {
    start = from;
    const end = Math.min(start + MOST_LINES, lines.length);
    fill(body, lines.slice(start, end).map(lineRow));
    fill(where, `Lines ${count(start + 1)} to ${count(end)} of ${count(lines.length)}`);
    const focused = document.activeElement;
    previous.disabled = start === 0;
    next.disabled = end === lines.length;
    // A button that has no effect any more does not keep the focus.
    if ([previous, next].includes(focused) && focused.disabled) view.focus();
    view.scrollTop = 0;
  };
  const turn = (label, by) => h('button.more', { type: 'button', onclick: () => show(start + by) }, label);
  const previous = turn('Previous lines', -MOST_LINES);
  const next = turn('Next lines', MOST_LINES);
  const part = h('div', { 'data-cut': '' }, view, h('div.pages', {}, previous, next, where));
  part.addEventListener('reveal', ({ detail: words }) => {
    const found = lines.findIndex((line) => line.text.toLowerCase().includes(words));
    if (found >= 0) show(found - (found % MOST_LINES));
  });
  show(0);
  return part;
}

/** The lines of a change as the server reports it: a unified diff, or an old and a new text. */
export function linesOf(change) {
  const unified = change.unified ?? (typeof change.diff === 'string' ? change.diff : null);
  if (unified) return parseUnified(unified);
  if (typeof change.new === 'string' || typeof change.old === 'string')
    return compare(change.old ?? '', change.new ?? '');
  return [];
}

/** "+8 −1" */
export function changeCounts({ added, removed }) {
  const has = (value) => value !== null && value !== undefined;
  if (!has(added) && !has(removed)) return null;
  return h(
    'span.counts',
    {},
    h('span.plus', {}, `+${count(added ?? 0)}`),
    ' ',
    h('span.minus', {}, `−${count(removed ?? 0)}`),
  );
}
