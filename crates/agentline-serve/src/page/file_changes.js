// Merges the changes that the turns of a conversation made to the same file.

import { linesOf } from './diff.js';

/** Whether a tool wrote a file whose content is the same as before. */
export const isUnchanged = (file) =>
  file.unchanged ?? (file.verified === false && file.change === 'modified' && file.added === 0 && file.removed === 0);

/**
 * Returns one entry per file: the only change, or the sum of the changes with `parts`, one per turn.
 * @param {import('./run_log.js').RunLog[]} logs
 */
export function mergeChanges(logs) {
  const parts = new Map();
  logs.forEach((log, index) => {
    for (const [path, file] of log.files) {
      if (!parts.has(path)) parts.set(path, []);
      parts.get(path).push({ ...file, run: log.run, turn: index + 1 });
    }
  });
  return [...parts.values()].map(merge);
}

function merge(all) {
  const changes = all.filter((part) => !isUnchanged(part));
  const last = all.at(-1);
  if (!changes.length) return { ...last, unchanged: true };
  if (changes.length === 1) return { ...changes[0], run: last.run };
  const left = remaining(changes);
  const [first, final] = [changes[0].change, changes.at(-1).change];
  const isBack = !left.length || (first === 'created' && final === 'deleted');
  return {
    ...changes.at(-1),
    run: last.run,
    parts: changes,
    unchanged: isBack,
    change: netChange(first, final),
    verified: changes.every((part) => part.verified !== false),
    added: sum(left, 'added'),
    removed: sum(left, 'removed'),
  };
}

function netChange(first, final) {
  if (final === 'deleted') return 'deleted';
  if (first === 'created') return 'created';
  return first === 'deleted' ? 'modified' : final;
}

/** Leaves out changes that a later one takes back. */
function remaining(changes) {
  const left = [];
  for (const change of changes) {
    if (left.length && isInverse(left.at(-1), change)) left.pop();
    else left.push(change);
  }
  return left;
}

function isInverse(one, other) {
  const [before, after] = [linesOf(one), linesOf(other)];
  if (!before.length || before.length !== after.length) return false;
  return side(before, '-') === side(after, '+') && side(before, '+') === side(after, '-');
}

/** The lines of a diff before (`-`) or after (`+`) the change, with their numbers. */
function side(lines, sign) {
  const number = sign === '-' ? 'old' : 'now';
  return lines
    .filter((line) => line.sign === ' ' || line.sign === sign)
    .map((line) => `${line[number]} ${line.text}`)
    .join('\n');
}

function sum(changes, key) {
  const numbers = changes.map((change) => change[key]).filter((value) => typeof value === 'number');
  return numbers.length === changes.length ? numbers.reduce((a, b) => a + b, 0) : null;
}
