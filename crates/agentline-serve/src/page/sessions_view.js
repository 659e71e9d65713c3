// The saved sessions of all agents: a list with filters, and the hits of a search.

import { get, post, serverInfo, withQuery } from './api.js';
import { CardList } from './card_list.js';
import { announce, button, fill, h, option, replaceAddress } from './dom.js';
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

/** How many are requested at first, and how many more with the button. */
const FIRST_SESSIONS = 100;
const FIRST_RESULTS = 50;
const STEP = 200;

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
    this.note = h('p.note', { role: 'status' });
    this.cards = new CardList();
    this.result = h('div.results');
    this.more = button('Show more', () => this.loadMore(), { class: 'more-button' });
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
      this.note,
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
    this.cards.destroy();
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

  /** Loads the list or the results: the first ones, or more than before. */
  async load({ more = false } = {}) {
    if (this.isLeft) return;
    this.abort?.abort();
    const abort = new AbortController();
    this.abort = abort;
    const text = this.words.value.trim();
    this.limit = more ? this.limit + STEP : text ? FIRST_RESULTS : FIRST_SESSIONS;
    this.keepInAddress(text);
    const slow = setTimeout(() => this.showLoading(more, text ? 'Searching' : 'Loading sessions'), 150);
    try {
      const found = text ? await this.search(text, abort.signal) : await this.list(abort.signal);
      clearTimeout(slow);
      if (!abort.signal.aborted) this.show(found);
    } catch (error) {
      clearTimeout(slow);
      if (abort.signal.aborted) return;
      fill(this.note);
      fill(
        this.result,
        errorView(error, () => this.load()),
      );
    }
  }

  /** More results keep the place of the reader. */
  showLoading(more, label) {
    if (more) return announce(label);
    fill(this.note);
    return fill(this.result, loadingView(label));
  }

  /** @param {{cards: object[], note: string, more: boolean, none: string[]}} found */
  show({ cards, note, more, none }) {
    fill(this.note, cards.length > 0 && note);
    if (!cards.length) {
      announce(none[0]);
      return fill(this.result, emptyView(...none));
    }
    this.cards.update(cards);
    // The list and the button keep their place and the focus while the list grows.
    if (this.cards.element.parentNode !== this.result) return fill(this.result, this.cards.element, more && this.more);
    if (!more) this.cards.takeFocusFrom(this.more);
    if (!more) this.more.remove();
    else if (!this.more.isConnected) this.result.append(this.more);
    return this.result;
  }

  async loadMore() {
    // A button that is disabled loses the focus.
    if (this.more.ariaDisabled) return;
    this.more.ariaDisabled = 'true';
    await this.load({ more: true });
    this.more.ariaDisabled = null;
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
    const { shown, more } = this.cut(sessions);
    return {
      cards: shown.map((session) => ({ key: keyOf(session), card: () => sessionCard(session) })),
      more,
      note: more ? `The latest ${count(shown.length)} sessions` : plural(shown.length, 'session'),
      none: ['No sessions', 'The agents have saved no session that matches.'],
    };
  }

  async search(text, signal) {
    const words = this.regex.checked ? [text] : wordsOf(text);
    const query = { words, regex: this.regex.checked, case_sensitive: false, context_lines: 1, ...this.filter() };
    const { results } = await post('/v1/sessions/search', { ...query, limit: this.limit + 1 }, signal);
    const { shown, more } = this.cut(results);
    const hits = shown.reduce((sum, result) => sum + result.hits.length, 0);
    const where = more ? `the first ${count(shown.length)} sessions; there are more` : plural(shown.length, 'session');
    return {
      cards: shown.map((result) => ({ key: keyOf(result), card: () => resultCard(result, words[0]) })),
      more,
      note: `${plural(hits, 'match').replace('matchs', 'matches')} in ${where}`,
      none: ['Nothing found', 'No saved session contains all of these words.'],
    };
  }

  /** One more than the limit is requested, to know whether there are more. */
  cut(found) {
    return { shown: found.slice(0, this.limit), more: found.length > this.limit };
  }
}

const keyOf = ({ agent, id }) => `${agent}/${id}`;

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
