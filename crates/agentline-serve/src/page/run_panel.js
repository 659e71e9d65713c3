// The facts of a run beside its timeline: cost and tokens as they grow, and the changed files.

import { get, pathOf, withQuery } from './api.js';
import { copyButton } from './code.js';
import { diffView, linesOf } from './diff.js';
import { fill, h, iconButton } from './dom.js';
import { isUnchanged, mergeChanges } from './file_changes.js';
import { fileList } from './file_list.js';
import { count, duration, known, money, plural, words } from './format.js';

const AT_THE_END = 'Known at the end of the run';

/** A panel that shows the totals of a thread. Call `update` with each change. */
export class RunPanel {
  constructor(openFile) {
    this.openFile = openFile;
    this.numbers = h('div.numbers');
    this.facts = h('dl.facts-list');
    this.files = h('div.panel-files');
    this.element = h(
      'aside.panel',
      { 'aria-label': 'Cost, tokens and files' },
      this.numbers,
      this.files,
      h('h2', {}, 'Details'),
      this.facts,
    );
  }

  /**
   * @param {{info: object, logs: import('./run_log.js').RunLog[], elapsed: number | null, isRunning: boolean}} state
   */
  update({ info, logs, elapsed, isRunning }) {
    const usage = addUsage(logs);
    const missing = isRunning ? 'Not known yet' : 'Not known';
    fill(
      this.numbers,
      number('Cost', costText(info, logs), missing),
      number('Tokens', logs.some((log) => log.usage) ? count(usage.total) : null, missing),
      number('Time', known(elapsed) ? duration(elapsed) : null, missing),
      bars(usage),
      context(logs.findLast((log) => log.usage?.context)),
    );
    const isKnown = logs.every(({ outcome }) => outcome && outcome.error?.kind !== 'interrupted');
    this.updateFiles(mergeChanges(logs), isKnown ? 'No files changed' : isRunning ? AT_THE_END : missing);
    this.updateFacts(info, logs, missing);
  }

  /** @param {string} none what is said if there are no files */
  updateFiles(files, none) {
    const key = JSON.stringify([
      none,
      files.map((file) => [file.run, file.path, file.change, file.added, file.removed, Boolean(file.diff)]),
    ]);
    if (key === this.filesKey) return;
    this.filesKey = key;
    const open = (file, run) => this.openFile(file, run);
    const changed = files.filter((file) => !isUnchanged(file)).length;
    fill(
      this.files,
      h('h2', {}, files.length > 0 ? plural(changed, 'changed file') : 'Changed files'),
      files.length > 0
        ? fileList(files, { openFile: open })
        : h('p.note', {}, none),
    );
  }

  updateFacts(info, logs, missing) {
    const started = logs.findLast((log) => log.started)?.started;
    const result = logs.findLast((log) => log.outcome)?.outcome;
    const session = result?.session_id ?? started?.session_id ?? info.session_id;
    const rows = [
      [
        'Agent',
        [started?.agent ?? info.agent, result?.agent_version ?? started?.agent_version].filter(Boolean).join(' '),
      ],
      ['Model', result?.model ?? started?.model ?? info.model ?? missing],
      ['Mode', info.permission_mode && words(info.permission_mode)],
      ['Directory', started?.cwd ?? info.working_dir],
      ['Connected by', SURFACES[started?.surface] ?? started?.surface],
      ['Prompts', logs.length > 1 ? count(logs.length) : null],
      ['Turns', turnsOf(logs) ?? missing],
      ['Events', count(logs.reduce((sum, log) => sum + log.events, 0))],
      ['Session', session ?? missing, Boolean(session)],
      ['Started by', info.started_by],
      [
        'If the tab closes',
        !result && info.on_disconnect && (info.on_disconnect === 'cancel' ? 'The run ends after a minute' : 'The run continues'),
      ],
    ].filter(([, text]) => text);
    const key = JSON.stringify(rows);
    if (key === this.factsKey) return;
    this.factsKey = key;
    fill(
      this.facts,
      rows.map(([name, text, copies]) =>
        h('div', {}, h('dt', {}, name), h('dd', {}, h('span', {}, text), copies && copyButton(String(text)))),
      ),
    );
  }
}

/** How agentline talks to the agent. */
const SURFACES = {
  json: 'One answer at the end (JSON)',
  'stream-json': 'A stream of events (JSON lines)',
  acp: 'Agent Client Protocol',
  'app-server': 'JSON-RPC of the agent',
  serve: 'HTTP server of the agent',
};

function turnsOf(logs) {
  const turns = logs.map((log) => log.outcome?.turns).filter(known);
  return turns.length ? count(turns.reduce((a, b) => a + b, 0)) : null;
}

/** A number, or why it is missing. */
function number(name, text, missing) {
  const value = known(text) ? h('strong', {}, text) : h('strong.missing', {}, missing);
  return h('div.number', {}, h('span.label', {}, name), value);
}

function costText(info, logs) {
  const costs = logs.map((log) => log.cost).filter(known);
  if (costs.length) return money(costs.reduce((a, b) => a + b, 0));
  return known(info.cost_usd) ? money(info.cost_usd) : null;
}

function addUsage(logs) {
  const sum = { total: 0, input: 0, cached: 0, output: 0, thought: 0 };
  for (const { usage } of logs) {
    if (!usage) continue;
    sum.total +=
      usage.total_tokens ?? (usage.input_tokens ?? 0) + (usage.output_tokens ?? 0) + (usage.thought_tokens ?? 0);
    sum.cached += usage.cached_tokens ?? 0;
    sum.input += Math.max(0, (usage.input_tokens ?? 0) - (usage.cached_tokens ?? 0));
    sum.output += usage.output_tokens ?? 0;
    sum.thought += usage.thought_tokens ?? 0;
  }
  return sum;
}

const PARTS = [
  ['input', 'New input'],
  ['cached', 'Cached input'],
  ['output', 'Output'],
  ['thought', 'Thinking'],
];

function bars(usage) {
  const all = PARTS.reduce((sum, [key]) => sum + usage[key], 0);
  if (!all) return null;
  const segments = PARTS.filter(([key]) => usage[key] > 0).map(([key]) => {
    const part = h(`span.part.${key}`);
    part.style.flexGrow = String(usage[key] / all);
    return part;
  });
  return h(
    'div.usage',
    {},
    h('div.stack', { 'aria-hidden': 'true' }, segments),
    h(
      'ul.legend',
      {},
      PARTS.filter(([key]) => usage[key] > 0).map(([key, name]) =>
        h('li', {}, h(`i.part.${key}`, { 'aria-hidden': 'true' }), `${name} `, h('b', {}, count(usage[key]))),
      ),
    ),
  );
}

function context(log) {
  const window = log?.usage?.context;
  if (!window?.size) return null;
  const share = Math.min(1, window.used / window.size);
  const fillBar = h('span.part.input');
  fillBar.style.flexGrow = String(share);
  const rest = h('span');
  rest.style.flexGrow = String(1 - share);
  return h(
    'div.usage',
    {},
    h('div.label', {}, `Context window: ${Math.round(share * 100)}% of ${count(window.size)}`),
    h('div.stack', { 'aria-hidden': 'true' }, fillBar, rest),
  );
}

/** Opens a dialog with the diff of a file and a link to its current content. */
export async function openFileDialog(file, run) {
  const body = h('div.dialog-body', { tabindex: '0', role: 'region', 'aria-label': 'Changes' }, h('p.note', {}, 'Loading…'));
  const close = () => dialog.close();
  const dialog = h(
    'dialog.wide',
    { 'aria-labelledby': 'file-title' },
    h(
      'header',
      {},
      h('h2', { id: 'file-title' }, file.path),
      h(
        'a.button',
        { href: withQuery(`${pathOf('runs', run)}/file`, { path: file.path }), download: '' },
        'Download',
      ),
      iconButton('close', 'Close', close),
    ),
    body,
  );
  dialog.addEventListener('close', () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  if (file.parts) fill(body, await Promise.all(file.parts.map(partView)));
  else fill(body, await changeOf(file, run));
}

/** The change of one turn of a conversation. */
async function partView(part) {
  return h('section', {}, h('h3', {}, `Prompt ${part.turn}`), await changeOf(part, part.run));
}

async function changeOf(file, run) {
  if (isUnchanged(file)) return h('p.note', {}, 'The file was written, and its content is the same as before.');
  const lines = await linesOfFile(file, run);
  return lines.length
    ? diffView(lines, `Changes to ${file.path}`)
    : h('p.note', {}, 'No diff of this file is known: the old content was not readable, or the file is not text.');
}

async function linesOfFile(file, run) {
  const own = linesOf(file);
  if (own.length) return own;
  const answer = await get(`${pathOf('runs', run)}/files`).catch(() => ({ files: [] }));
  const found = answer.files.find((other) => other.path === file.path);
  return found ? linesOf(found) : [];
}
