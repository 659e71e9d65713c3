// Experiments: the list with live progress, and the report of one.

import { get, pause, withQuery } from './api.js';
import { intervalLine, shareBar } from './charts.js';
import { fill, h } from './dom.js';
import { ago, count, duration, money, plural, tail } from './format.js';
import { emptyView, errorView, loadingView } from './states.js';

/** How often the progress of an experiment is requested while it changes, and at most how rarely. */
const FAST_MS = 2000;
const SLOW_MS = 10000;
/** The rows of the table of cases. The full report has all. */
const MOST_CASES = 300;

const CLASSES = [
  ['passed', 'Passed'],
  ['failed', 'Failed'],
  ['infrastructure', 'Infrastructure'],
];

/** The list of experiments. */
export class ExperimentsView {
  constructor() {
    this.title = 'Experiments';
    this.list = h('div', {}, loadingView('Looking for experiments'));
    this.element = h('div.page', {}, h('h1', {}, 'Experiments'), this.list);
    this.abort = new AbortController();
    this.load();
  }

  destroy() {
    this.abort.abort();
  }

  async load() {
    try {
      const { experiments } = await get('/v1/experiments', {}, this.abort.signal);
      if (!experiments.length)
        return fill(
          this.list,
          emptyView('No experiments', [
            'An experiment runs many prompts, each several times, and compares the results. This command makes one from a suite of cases, in a directory of this server: ',
            h('code', {}, 'agentline batch SUITE'),
          ]),
        );
      fill(
        this.list,
        h(
          'ul.cards',
          {},
          experiments.map((experiment) => this.card(experiment)),
        ),
      );
    } catch (error) {
      if (!this.abort.signal.aborted)
        fill(
          this.list,
          errorView(error, () => this.load()),
        );
    }
  }

  card(experiment) {
    const progress = h('div.progress');
    follow(experiment.dir, this.abort.signal, {
      show: (status) => fill(progress, progressView(status)),
      // An experiment may be removed while it is listed.
      fail: (error) => fill(progress, h('p.note.failed', {}, error.message)),
    });
    return h(
      'li',
      {},
      h(
        'a.card',
        { href: withQuery('#/experiments/show', { dir: experiment.dir }) },
        h('span.card-title', {}, experiment.name || tail(experiment.dir)),
        progress,
        h('span.card-facts', {}, [tail(experiment.dir), ago(experiment.modified_at_ms)].filter(Boolean).join(' · ')),
      ),
    );
  }
}

/**
 * Requests the status until the experiment is finished or the view is left, less and less often while nothing changes.
 * Hidden tabs request nothing.
 */
async function follow(dir, signal, { show, fail }) {
  let before = '';
  for (let wait = FAST_MS; !signal.aborted; await pause(wait, signal)) {
    if (document.hidden) continue;
    wait = Math.min(wait * 1.5, SLOW_MS);
    try {
      const status = await get('/v1/experiments/status', { dir }, signal);
      const now = JSON.stringify(status);
      if (now === before) continue;
      before = now;
      wait = FAST_MS;
      show(status);
      if (status.finished >= status.planned) return;
    } catch (error) {
      if (signal.aborted) return;
      // While the server is away, what is known stays.
      if (before && !error.status) continue;
      before = '';
      wait = SLOW_MS;
      fail(error);
    }
  }
}

function progressView(status) {
  const open = Math.max(0, status.planned - status.finished);
  const parts = [...CLASSES.map(([key]) => ({ key, value: status.classes[key] ?? 0 })), { key: 'open', value: open }];
  const text = `${count(status.finished)} of ${plural(status.planned, 'run')} finished`;
  return [
    h(
      'div.progress-head',
      {},
      h('span', {}, text),
      status.cost_usd !== null && h('span', {}, money(status.cost_usd)),
    ),
    shareBar(parts, text),
    h(
      'ul.legend',
      {},
      CLASSES.map(([key, name]) =>
        h(
          'li',
          {},
          h(`i.part.${key}`, { 'aria-hidden': 'true' }),
          `${name} `,
          h('b', {}, count(status.classes[key] ?? 0)),
        ),
      ),
    ),
  ];
}

/** One experiment with its progress and its report. */
export class ExperimentView {
  /** @param {URLSearchParams} params */
  constructor(params) {
    this.dir = params.get('dir') ?? '';
    this.title = 'Experiment';
    this.abort = new AbortController();
    this.heading = h('h1', {}, tail(this.dir));
    this.progress = h('div.progress.panel-box', {}, loadingView('Loading the progress'));
    this.report = h('div', { 'aria-live': 'polite' });
    const full = withQuery('/v1/experiments/report', { dir: this.dir, format: 'html' });
    this.element = h(
      'div.page.wide',
      {},
      h(
        'div.section-head',
        {},
        this.heading,
        h('a.button', { href: full, target: '_blank', rel: 'noopener' }, 'Open the full report'),
      ),
      h('p.note', {}, this.dir),
      this.progress,
      this.report,
    );
    follow(this.dir, this.abort.signal, {
      show: (status) => this.show(status),
      fail: (error) => fill(this.progress, errorView(error)),
    });
  }

  destroy() {
    this.abort.abort();
  }

  show(status) {
    this.title = status.name;
    fill(this.heading, status.name || tail(this.dir));
    fill(
      this.progress,
      progressView(status),
      h(
        'p.note',
        {},
        `${count(status.cases)} cases × ${count(status.variants)} variants × ${count(status.repeat)} attempts`,
      ),
    );
    this.loadReport();
  }

  async loadReport() {
    try {
      const report = await get('/v1/experiments/report', { dir: this.dir, format: 'json' }, this.abort.signal);
      fill(this.report, variantsTable(report), comparisons(report), casesTable(report), warnings(report));
    } catch (error) {
      if (!this.abort.signal.aborted && !this.report.firstChild) fill(this.report, errorView(error));
    }
  }
}

const percent = (value) => (typeof value === 'number' ? `${Math.round(value * 100)}%` : '–');

function variantsTable(report) {
  const rows = Object.entries(report.variants).map(([id, variant]) =>
    h(
      'tr',
      {},
      h('th', { scope: 'row' }, id),
      h('td.n', {}, percent(variant.pass_rate)),
      h(
        'td.interval-cell',
        {},
        intervalLine(
          variant.pass_rate,
          variant.interval,
          variant.interval
            ? `between ${percent(variant.interval[0])} and ${percent(variant.interval[1])}`
            : 'no interval',
        ),
      ),
      h('td.n', {}, `${count(variant.passed)}/${count(variant.passed + variant.failed)}`),
      h('td.n', {}, money(variant.cost_usd)),
      h('td.n', {}, count(variant.tokens?.p50)),
      h('td.n', {}, duration(variant.duration_ms?.p50)),
    ),
  );
  return section(
    'Variants',
    ['Variant', 'Pass rate', '95% interval', 'Passed', 'Cost', 'Tokens, median', 'Time, median'],
    rows,
  );
}

function section(title, heads, rows, kind = 'n') {
  return h(
    'section',
    {},
    h('h2', {}, title),
    h(
      'div.table',
      { tabindex: '0', role: 'group', 'aria-label': title },
      h(
        'table',
        {},
        h(
          'thead',
          {},
          h(
            'tr',
            {},
            heads.map((head, i) => h('th', { scope: 'col', class: i ? kind : '' }, head)),
          ),
        ),
        h('tbody', {}, rows),
      ),
    ),
  );
}

function comparisons(report) {
  if (!report.comparisons?.length) return null;
  return h(
    'section',
    {},
    h('h2', {}, 'Comparisons'),
    h(
      'ul.plain-list',
      {},
      report.comparisons.map((row) => h('li', {}, sentence(row))),
    ),
  );
}

function sentence(row) {
  const better = row.decision?.better;
  const points = typeof row.difference === 'number' ? `${(row.difference * 100).toFixed(1)} points` : 'unknown';
  if (!better)
    return [
      h('b', {}, row.first),
      ' and ',
      h('b', {}, row.second),
      `: undecided (difference ${points}${row.decision?.further_cases ? `, about ${count(row.decision.further_cases)} further cases needed` : ''})`,
    ];
  const [winner, loser] = better === 'first' ? [row.first, row.second] : [row.second, row.first];
  return [
    h('b', {}, winner),
    ' is better than ',
    h('b', {}, loser),
    ` (difference ${points}, p = ${Number(row.p_value).toFixed(3)})`,
  ];
}

const MARKS = { passed: '✓', failed: '✕', infrastructure: '!' };

function casesTable(report) {
  const variants = Object.keys(report.variants);
  if (!report.cases?.length) return null;
  const cells = (runs, id) =>
    runs
      .filter((run) => run.variant === id)
      .map((run) =>
        h(
          'span.cell',
          {
            class: MARKS[run.class] ? run.class : '',
            role: 'img',
            'aria-label': run.class,
            title: [run.class, run.message].filter(Boolean).join(': '),
          },
          MARKS[run.class] ?? '·',
        ),
      );
  const rows = report.cases.slice(0, MOST_CASES).map((entry) =>
    h(
      'tr',
      {},
      h('th', { scope: 'row' }, entry.id),
      variants.map((id) => h('td', {}, h('span.cells', {}, cells(entry.runs, id)))),
    ),
  );
  const table = section('Cases', ['Case', ...variants], rows, '');
  const all = report.cases.length;
  if (all > MOST_CASES)
    table.append(h('p.note', {}, `The first ${MOST_CASES} of ${count(all)} cases. The full report has all.`));
  return table;
}

function warnings(report) {
  return (
    report.warnings?.length > 0 &&
    h(
      'section',
      {},
      h('h2', {}, 'Warnings'),
      h(
        'ul.plain-list',
        {},
        report.warnings.map((warning) =>
          h('li', {}, typeof warning === 'string' ? warning : (warning.message ?? JSON.stringify(warning))),
        ),
      ),
    )
  );
}
