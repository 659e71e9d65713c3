// The tokens and costs of saved sessions, as a chart and a table.

import { get, serverInfo } from './api.js';
import { barChart } from './charts.js';
import { fill, h, option } from './dom.js';
import { count, known, money, short } from './format.js';
import { emptyView, errorView, loadingView } from './states.js';
import { sessionAddress } from './sessions_view.js';

const DAY = 86400000;
const BY = [
  ['day', 'By day'],
  ['week', 'By week'],
  ['month', 'By month'],
  ['model', 'By model'],
  ['agent', 'By agent'],
  ['project', 'By project'],
  ['session', 'By session'],
];
/** The rows of the table. */
const MOST_ROWS = 500;
/** Groups in the order of time. */
const TIMES = new Set(['day', 'week', 'month']);
const SERIES = [
  { key: 'input', name: 'New input' },
  { key: 'cached', name: 'Cached input' },
  { key: 'output', name: 'Output' },
  { key: 'thought', name: 'Thinking' },
];

/** The usage of saved sessions. */
export class UsageView {
  /** @param {URLSearchParams} params */
  constructor(params) {
    this.title = 'Usage';
    const select = (label, options, chosen) =>
      h(
        'select',
        { 'aria-label': label },
        options.map(([value, name]) => option(value, name, value === chosen)),
      );
    this.by = select('Group by', BY, params.get('by') ?? 'day');
    this.since = select(
      'Time',
      [
        ['7', 'Last 7 days'],
        ['30', 'Last 30 days'],
        ['90', 'Last 90 days'],
        ['', 'All time'],
      ],
      '30',
    );
    this.metric = select(
      'Measure',
      [
        ['tokens', 'Tokens'],
        ['cost', 'Cost'],
      ],
      'tokens',
    );
    this.agent = h('select', { 'aria-label': 'Agent' }, option('', 'All agents'));
    this.result = h('div', { 'aria-live': 'polite' });
    const form = h('form.filters', {}, this.by, this.metric, this.since, this.agent);
    form.addEventListener('change', (event) => (event.target === this.metric ? this.show() : this.load()));
    this.element = h('div.page.wide', {}, h('h1', {}, 'Usage'), form, this.result);
    serverInfo()
      .then((info) => this.agent.append(...info.agents.map((agent) => option(agent, agent))))
      .catch(() => {});
    this.load();
  }

  destroy() {}

  async load() {
    fill(this.result, loadingView('Counting'));
    // A later choice may be answered before this one.
    const request = {};
    this.latest = request;
    this.rows = null;
    const days = Number(this.since.value);
    try {
      const asked = { by: this.by.value, agent: this.agent.value, since: days ? Date.now() - days * DAY : null };
      const answer = await get('/v1/sessions/usage', asked);
      if (this.latest !== request) return;
      this.rows = answer.rows;
      this.show();
    } catch (error) {
      if (this.latest !== request) return;
      fill(
        this.result,
        errorView(error, () => this.load()),
      );
    }
  }

  show() {
    if (!this.rows) return;
    if (!this.rows.length)
      return fill(this.result, emptyView('Nothing to count', 'No saved session has tokens in this time.'));
    const isTime = TIMES.has(this.by.value);
    const rows = isTime ? this.rows : [...this.rows].sort((a, b) => this.measure(b) - this.measure(a));
    const isCost = this.metric.value === 'cost';
    const shown = rows.slice(isTime ? -92 : 0, isTime ? undefined : 16);
    const chart = barChart({
      rows: shown.map((row) => ({
        name: nameOf(row),
        values: isCost ? { output: row.cost_usd ?? row.known_cost_usd ?? 0 } : tokensOf(row),
      })),
      series: isCost ? [{ key: 'output', name: 'Cost' }] : SERIES,
      format: isCost ? money : short,
      label: isCost ? 'Cost in US dollars' : 'Tokens',
    });
    const some = isTime ? rows.slice(-MOST_ROWS) : rows.slice(0, MOST_ROWS);
    const cut =
      rows.length > MOST_ROWS &&
      h('p.note', {}, `The ${isTime ? 'last' : 'first'} ${MOST_ROWS} of ${count(rows.length)} rows. The totals have all.`);
    fill(this.result, this.totals(), chart, this.table(some), cut);
  }

  measure(row) {
    return this.metric.value === 'cost' ? (row.cost_usd ?? row.known_cost_usd ?? 0) : (row.total_tokens ?? 0);
  }

  totals() {
    const sum = (read) => this.rows.reduce((total, row) => total + (read(row) ?? 0), 0);
    const partly = this.rows.some((row) => !known(row.cost_usd) && row.total_tokens);
    const box = (name, text) => h('div.number', {}, h('span.label', {}, name), h('strong', {}, text));
    return h(
      'div.numbers.totals',
      {},
      box('Cost', `${partly ? 'at least ' : ''}${money(sum((row) => row.cost_usd ?? row.known_cost_usd))}`),
      box('Tokens', count(sum((row) => row.total_tokens))),
      box('Turns', count(sum((row) => row.answers))),
      box('Sessions', count(sum((row) => row.sessions))),
    );
  }

  table(rows) {
    const heads = [
      [BY.find(([value]) => value === this.by.value)[1].replace('By ', ''), ''],
      ['Cost', 'n'],
      ['Total', 'n'],
      ['Sessions', 'n'],
      ['Turns', 'n'],
      ...SERIES.map(({ name }) => [name, 'n']),
    ];
    const body = rows.map((row) =>
      h(
        'tr',
        {},
        h('th', { scope: 'row', class: TIMES.has(this.by.value) ? 'date' : '' }, this.rowName(row)),
        h(
          'td.n',
          {},
          known(row.cost_usd) ? money(row.cost_usd) : row.known_cost_usd ? `> ${money(row.known_cost_usd)}` : '–',
        ),
        [row.total_tokens, row.sessions, row.answers, ...SERIES.map(({ key }) => tokensOf(row)[key])].map((value) =>
          h('td.n', {}, count(value)),
        ),
      ),
    );
    if (TIMES.has(this.by.value)) body.reverse();
    return h(
      'div.table',
      { tabindex: '0', role: 'group', 'aria-label': 'Usage table' },
      h(
        'table',
        {},
        h('caption.visually-hidden', {}, 'Tokens and cost'),
        h(
          'thead',
          {},
          h(
            'tr',
            {},
            heads.map(([name, kind]) =>
              h('th', { scope: 'col', class: kind }, name.charAt(0).toUpperCase() + name.slice(1)),
            ),
          ),
        ),
        h('tbody', {}, body),
      ),
    );
  }

  rowName(row) {
    if (this.by.value !== 'session') return nameOf(row);
    return h('a', { href: sessionAddress({ id: row.name }) }, nameOf(row));
  }
}

const nameOf = (row) => row.title || row.name || 'unknown';

function tokensOf(row) {
  const cached = row.cached_tokens ?? 0;
  return {
    input: Math.max(0, (row.input_tokens ?? 0) - cached),
    cached,
    output: row.output_tokens ?? 0,
    thought: row.thought_tokens ?? 0,
  };
}
