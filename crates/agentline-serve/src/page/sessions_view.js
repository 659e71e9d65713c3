// The saved sessions of all agents: a list with filters, and the hits of a search.

import { get, post, serverInfo, withQuery } from './api.js';
import { fill, h, option, replaceAddress } from './dom.js';
import { ago, count, money, plural, short, tail } from './format.js';
import { emptyView, errorView, loadingView } from './states.js';
import { firstLine, shorten } from './text.js';

const DAY = 86400000;
const TIMES = [
  ['', 'Any time'],
  ['1', 'Last day'],
  ['7', 'Last 7 days'],
  ['30', 'Last 30 days'],
  ['365', 'Last year'],
];

/** The server compares so by default. */
const CASE_NOTE = 'Small letters also find capital ones. A search with a capital letter finds exactly these letters.';

/** The address of a saved session. `words` is searched in it. */
export function sessionAddress(session, words = '') {
  return withQuery('#/sessions/show', { session: session.id, agent: session.agent, q: words });
}

/** The list of saved sessions. */
export class SessionsView {
  /** @param {URLSearchParams} params */
  constructor(params) {
    this.title = 'Sessions';
    this.limit = 100;
    this.words = h('input.big-search', {
      type: 'search',
      placeholder: 'Search in all sessions',
      'aria-label': 'Search in all sessions',
      value: params.get('q') ?? '',
      autocomplete: 'off',
    });
    this.agent = h('select', { 'aria-label': 'Agent' }, option('', 'All agents'));
    this.since = h(
      'select',
      { 'aria-label': 'Time' },
      TIMES.map(([value, label]) => option(value, label, value === (params.get('days') ?? ''))),
    );
    this.regex = h('input', { type: 'checkbox', checked: params.has('regex') });
    this.result = h('div.results', { 'aria-live': 'polite' });
    this.words.setAttribute('aria-describedby', 'search-case');
    const form = h(
      'form.filters',
      { role: 'search' },
      this.words,
      this.agent,
      this.since,
      h('label.check', {}, this.regex, 'Regular expression'),
    );
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      this.load();
    });
    form.addEventListener('change', () => this.load());
    this.words.addEventListener('input', () => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.load(), 350);
    });
    this.element = h(
      'div.page',
      {},
      h('div.section-head', {}, h('h1', {}, 'Saved sessions'), h('a.button', { href: '#/usage' }, 'Usage')),
      form,
      h('p.note.search-case', { id: 'search-case' }, CASE_NOTE),
      this.result,
    );
    /** The agent in the address, until the names of the agents are known. */
    this.chosen = params.get('agent');
    this.load();
    this.nameAgents(this.chosen);
  }

  destroy() {
    this.isLeft = true;
    this.abort?.abort();
    clearTimeout(this.timer);
  }

  focusSearch() {
    this.words.focus();
    this.words.select();
  }

  async nameAgents(chosen) {
    const info = await serverInfo().catch(() => null);
    this.agent.append(...(info?.agents ?? []).map((agent) => option(agent, agent, agent === chosen)));
    this.chosen = null;
    if (chosen) this.load();
  }

  async load() {
    if (this.isLeft) return;
    this.abort?.abort();
    const abort = new AbortController();
    this.abort = abort;
    const text = this.words.value.trim();
    this.keepInAddress(text);
    const slow = setTimeout(() => fill(this.result, loadingView(text ? 'Searching' : 'Loading sessions')), 150);
    try {
      const content = text ? await this.search(text, abort.signal) : await this.list(abort.signal);
      clearTimeout(slow);
      if (!abort.signal.aborted) fill(this.result, content);
    } catch (error) {
      clearTimeout(slow);
      if (!abort.signal.aborted)
        fill(
          this.result,
          errorView(error, () => this.load()),
        );
    }
  }

  /** Keeps the search in the address, so that it is there again after a visit to a session. */
  keepInAddress(text) {
    const regex = this.regex.checked ? '1' : '';
    const agent = this.agent.value || this.chosen;
    replaceAddress(withQuery('#/sessions', { q: text, agent, days: this.since.value, regex }));
  }

  filter() {
    const days = Number(this.since.value);
    return { agent: this.agent.value || null, since: days ? Date.now() - days * DAY : null };
  }

  async list(signal) {
    const { sessions } = await get('/v1/sessions', { ...this.filter(), limit: this.limit + 1 }, signal);
    if (!sessions.length) return emptyView('No sessions', 'The agents have saved no session that matches.');
    const more =
      sessions.length > this.limit &&
      h(
        'button.button.more-button',
        {
          type: 'button',
          onclick: () => {
            this.limit += 200;
            this.load();
          },
        },
        'Show more',
      );
    return [h('ul.cards', {}, sessions.slice(0, this.limit).map(sessionCard)), more];
  }

  async search(text, signal) {
    const words = this.regex.checked ? [text] : wordsOf(text);
    const { results } = await post(
      '/v1/sessions/search',
      { words, regex: this.regex.checked, case_sensitive: false, context_lines: 1, ...this.filter(), limit: 50 },
      signal,
    );
    if (!results.length) return emptyView('Nothing found', 'No saved session contains all of these words.');
    const hits = results.reduce((sum, result) => sum + result.hits.length, 0);
    return [
      h(
        'p.note',
        {},
        `${plural(hits, 'match').replace('matchs', 'matches')} in ${plural(results.length, 'session')}`,
      ),
      h(
        'ul.cards',
        {},
        results.map((result) => resultCard(result, words[0])),
      ),
    ];
  }
}

/** Words and "quoted phrases". */
function wordsOf(text) {
  return [...text.matchAll(/"([^"]+)"|(\S+)/g)].map((match) => match[1] ?? match[2]);
}

function sessionCard(session) {
  const title = session.title || 'Untitled session';
  const used = session.used ?? session;
  const facts = [
    session.agent,
    session.model,
    tail(session.project),
    ago(session.updated ?? session.started),
    plural(session.answers ?? 0, 'turn'),
    plural(session.tool_calls ?? 0, 'tool call'),
    `${short(used.total_tokens)} tokens`,
    used.cost_usd === null || used.cost_usd === undefined ? null : money(used.cost_usd),
  ];
  return h(
    'li',
    {},
    h(
      'a.card',
      { href: sessionAddress(session) },
      h('span.agent-mark', { 'data-agent': session.agent }, session.agent),
      h('span.card-title', {}, shorten(firstLine(title), 200)),
      h(
        'span.card-facts',
        {},
        facts.slice(1).filter(Boolean).join(' · '),
        session.damage > 0 && h('span.tag', {}, `${count(session.damage)} unreadable`),
      ),
    ),
  );
}

function resultCard(result, word) {
  return h(
    'li',
    {},
    h(
      'div.card.result',
      {},
      h(
        'a.card-title',
        { href: sessionAddress(result, word) },
        shorten(firstLine(result.title ?? '') || 'Untitled session', 200),
      ),
      h('span.card-facts', {}, [result.agent, tail(result.project), ago(result.updated)].filter(Boolean).join(' · ')),
      h(
        'ul.hits',
        {},
        result.hits.slice(0, 5).map(hitLine),
        result.hits.length > 5 && h('li.note', {}, `and ${count(result.hits.length - 5)} more`),
      ),
    ),
  );
}

const PLACES = { tool_result: 'result of', tool_input: 'input of', thinking: 'thinking', text: '' };

function hitLine(hit) {
  const where = [hit.role, PLACES[hit.place] ?? hit.place, hit.tool].filter(Boolean).join(' ');
  return h('li', {}, h('span.where', {}, where), h('span.hit-text', {}, marked(hit.text, hit.spans ?? [])));
}

/** Marks the matches. Their ranges are in bytes of UTF-8. */
function marked(text, spans) {
  const bytes = new TextEncoder().encode(text);
  const decoder = new TextDecoder();
  const parts = [];
  let at = 0;
  for (const { start, end } of spans) {
    if (start < at) continue;
    parts.push(decoder.decode(bytes.slice(at, start)), h('mark', {}, decoder.decode(bytes.slice(start, end))));
    at = end;
  }
  const from = Math.max(0, (spans[0]?.start ?? 0) - 120);
  parts.push(decoder.decode(bytes.slice(at)));
  if (from > 0) parts[0] = `…${parts[0].slice(-100)}`;
  parts[parts.length - 1] = shorten(parts.at(-1), 200);
  return parts;
}
