// Shows a tool call: what it does in one line, and its input, output and changes when it is opened.

import { h } from './dom.js';
import { output, value } from './code.js';
import { changeCounts, countChanges, diffView, linesOf } from './diff.js';
import { duration, words } from './format.js';
import { firstLine, shorten } from './text.js';

const STATUS = {
  running: ['running', '●'],
  ok: ['ok', '✓'],
  completed: ['ok', '✓'],
  error: ['failed', '✕'],
  failed: ['failed', '✕'],
  denied: ['denied', '⊘'],
  cancelled: ['cancelled', '◌'],
};

const WAITING = ['waiting', '!'];

/** The part of the input that says what the call is about. */
export function subject(item) {
  const input = item.input && typeof item.input === 'object' ? item.input : {};
  const main =
    input.command ??
    input.file_path ??
    input.path ??
    input.notebook_path ??
    input.pattern ??
    input.query ??
    input.url ??
    input.description ??
    input.prompt ??
    item.title ??
    '';
  return shorten(firstLine(typeof main === 'string' ? main : JSON.stringify(main)), 300);
}

/** The changes to files that a call proposes or made. */
export function changesOf(item) {
  if (item.diffs?.length) return item.diffs;
  const input = item.input && typeof item.input === 'object' ? item.input : {};
  const path = input.file_path ?? input.path;
  if (!path || item.isError) return [];
  if (typeof input.old_string === 'string' && typeof input.new_string === 'string')
    return [{ path, old: input.old_string, new: input.new_string }];
  if (Array.isArray(input.edits))
    return input.edits.map((edit) => ({ path, old: edit.old_string ?? '', new: edit.new_string ?? '' }));
  if (item.name === 'Write' && typeof input.content === 'string') return [{ path, old: '', new: input.content }];
  return [];
}

/** Whether a call is open before the reader has opened or closed it. The request shows what waits for an answer. */
function startsOpen(item) {
  if (item.waits) return false;
  if (item.status === 'running') return Boolean(item.output) || changesOf(item).length > 0;
  return Boolean(item.isError) || changesOf(item).length > 0;
}

/** @param {import('./run_log.js').Item} item */
export function toolRow(item) {
  const [status, mark] = item.waits ? WAITING : (STATUS[item.status] ?? [item.status, '·']);
  const changes = changesOf(item);
  const summary = h(
    'summary',
    {},
    h(`span.tool-mark.${status}`, { role: 'img', 'aria-label': words(status) }, mark),
    h(
      'span.tool-name',
      { title: item.native && item.native !== item.name ? `The agent calls it ${item.native}` : undefined },
      item.name,
    ),
    h('span.tool-subject', {}, subject(item)),
    changes.length > 0 && changeCounts(total(changes)),
    h('span.tool-time', {}, timeText(item, status)),
  );
  const body = h('div.tool-body');
  const details = h('details.tool', { class: status, open: item.open ?? startsOpen(item) }, summary, body);
  const build = () => {
    if (details.open && !body.firstChild) body.append(...toolBody(item, changes));
  };
  build();
  details.addEventListener('toggle', () => {
    item.open = details.open;
    build();
  });
  return details;
}

function total(changes) {
  const sums = { added: 0, removed: 0 };
  for (const change of changes) {
    change.lines ??= linesOf(change);
    const { added, removed } = countChanges(change.lines);
    sums.added += added;
    sums.removed += removed;
  }
  return sums;
}

function timeText(item, status) {
  if (item.waits) return 'waits for your answer';
  if (status === 'running') return 'running';
  const time = item.until !== undefined && item.at !== undefined ? duration(item.until - item.at) : '';
  return status === 'ok' ? time : [words(status), time].filter(Boolean).join(' · ');
}

function toolBody(item, changes) {
  const parts = [];
  const input = item.input && typeof item.input === 'object' ? item.input : (item.input ?? {});
  if (item.permission) parts.push(decision(item.permission));
  if (item.reason) parts.push(h('p.reason', {}, item.reason));
  if (item.name === 'Bash' && typeof input.command === 'string') {
    parts.push(
      h(
        'pre.command',
        { tabindex: '0', role: 'group', 'aria-label': 'Command' },
        h('span.prompt-sign', { 'aria-hidden': 'true' }, '$ '),
        input.command,
      ),
    );
  } else if (!changes.length && Object.keys(input).length) parts.push(section('Input', value(input)));
  for (const change of changes) parts.push(changeView(change));
  if (item.output && !isRepetition(item, changes)) parts.push(outputOf(item));
  if (item.status === 'running' && !item.output) parts.push(h('p.note', {}, 'No output yet.'));
  return parts.length ? parts : [h('p.note', {}, 'The agent reported neither input nor output.')];
}

/** A short confirmation below a diff says nothing new. */
const isRepetition = (item, changes) => changes.length > 0 && !item.isError && item.output.length < 400;

function outputOf(item) {
  const running = item.status === 'running';
  return section(running ? 'Output so far' : 'Output', output(item.output, { fromEnd: running }));
}

const NOT_BY_A_CLICK = {
  always: 'by your earlier “always” answer',
  timeout: 'because no answer came in time',
  ended: 'because the run ended',
};
const DECIDED_BY = { mode: 'by the permission mode', rule: 'by a rule', clock: 'because no answer came in time' };

function decision({ decision: word, by, isAnswer, reason, rule }) {
  const allowed = word === 'allow';
  const done = allowed ? 'allowed' : 'denied';
  const how = isAnswer ? NOT_BY_A_CLICK[by] : (DECIDED_BY[by] ?? `by ${words(by).toLowerCase()}`);
  const who = how ? `${words(done)} ${how}` : `You ${done} this`;
  const why = isAnswer && (how || reason === 'denied by the host') ? '' : reason;
  return h(`p.decision.${allowed ? 'allow' : 'deny'}`, {}, `${who}${rule ? ` (${rule})` : ''}${why ? `: ${why}` : ''}`);
}

function section(title, content) {
  return h('div.section', {}, h('div.label', {}, title), content);
}

/** A change to one file. */
export function changeView(change) {
  change.lines ??= linesOf(change);
  const path = change.path ?? 'file';
  if (!change.lines.length) return h('p.note', {}, `No diff of ${path} is known.`);
  return h('div.section', {}, h('div.label.path', {}, path), diffView(change.lines, `Changes to ${path}`));
}
