// The transcript of a saved session.

import { get } from './api.js';
import { askToContinue } from './continue_dialog.js';
import { button, fill, h } from './dom.js';
import { known, moment, money, short, tail } from './format.js';
import { errorView, loadingView } from './states.js';
import { firstLine, shorten } from './text.js';
import { Timeline } from './timeline.js';

/** A saved session with its messages. */
export class TranscriptView {
  /** @param {URLSearchParams} params */
  constructor(params) {
    this.title = 'Session';
    this.params = params;
    this.timeline = new Timeline({ label: 'Messages' });
    this.header = h('header.thread-head');
    this.element = h(
      'div.thread',
      {},
      this.header,
      h('div.thread-body', {}, h('div.thread-main', {}, loadingView('Loading the session'))),
    );
    this.ready = this.load();
  }

  destroy() {
    this.timeline.destroy();
  }

  async load() {
    const main = this.element.querySelector('.thread-main');
    try {
      const answer = await get('/v1/sessions/show', {
        session: this.params.get('session'),
        agent: this.params.get('agent'),
        project: this.params.get('project'),
        order: 'turn',
      });
      fill(main, this.timeline.element);
      this.showHead(answer);
      this.showUsage(answer.session);
      this.timeline.update(itemsOf(answer.messages));
      if (this.params.get('q')) this.searchFor(this.params.get('q'));
    } catch (error) {
      fill(
        main,
        errorView(error, () => location.reload(), 'h1'),
      );
    }
  }

  searchFor(words) {
    this.timeline.input.value = words;
    this.timeline.search();
  }

  showHead({ session, messages, damage }) {
    const first = messages.find((message) => message.role === 'user');
    this.title = shorten(firstLine(session.title ?? promptText(first)) || 'Session', 140);
    const facts = [
      session.agent,
      session.model,
      tail(session.project),
      moment(session.updated ?? session.started),
    ];
    this.used = h('span');
    const damaged = Array.isArray(damage) ? damage.length : damage;
    fill(
      this.header,
      h('div.thread-title', {}, h('h1', {}, this.title), h('p.sub', {}, facts.filter(Boolean).join(' · '), this.used)),
      damaged > 0 && h('span.status.fair', {}, 'Partly unreadable'),
      button('Continue…', () => askToContinue(session, this.title)),
    );
  }

  /** Shows the tokens and the cost with those of sub-agents, as the list of sessions does. */
  async showUsage({ id, agent, project }) {
    const asked = { by: 'session', agent, project };
    // Not every token may read the usage.
    const { rows } = await get('/v1/sessions/usage', asked).catch(() => ({ rows: [] }));
    const row = rows.find(({ name }) => name === id);
    if (!row) return;
    const cost = known(row.cost_usd) ? money(row.cost_usd) : row.known_cost_usd && `> ${money(row.known_cost_usd)}`;
    const facts = [`${short(row.total_tokens)} tokens`, cost];
    this.used.textContent = ` · ${facts.filter(Boolean).join(' · ')}`;
  }

  onKey(key) {
    if (key === 'j' || key === 'k') return (this.timeline.moveFocus(key === 'j' ? 1 : -1), true);
    if (key === 'e') return (this.timeline.list.scrollToEnd(), true);
    return false;
  }

  focusSearch() {
    this.timeline.focusSearch();
  }
}

function promptText(message) {
  if (!message) return '';
  if (typeof message.content === 'string') return message.content;
  return message.content.find((block) => block.type === 'text')?.text ?? '';
}

/** Converts messages to the items of a timeline. */
export function itemsOf(messages) {
  const items = [];
  const tools = new Map();
  const add = (item) => {
    items.push({ key: `m/${items.length}`, version: 1, ...item });
    return items.at(-1);
  };
  for (const message of messages) {
    const blocks =
      typeof message.content === 'string' ? [{ type: 'text', text: message.content }] : (message.content ?? []);
    for (const block of blocks) takeBlock(block, message, tools, add);
  }
  return items;
}

function takeBlock(block, message, tools, add) {
  switch (block.type) {
    case 'text':
      if (message.role === 'assistant') add({ kind: 'text', text: block.text });
      else if (message.role === 'user') add({ kind: 'prompt', text: block.text, time: message.timestamp });
      else add({ kind: 'note', level: 'info', code: message.role, text: block.text });
      break;
    case 'thinking':
      if (block.thinking) add({ kind: 'thinking', text: block.thinking });
      break;
    case 'tool_use':
      tools.set(
        block.id,
        add({
          kind: 'tool',
          id: block.id,
          name: block.name,
          native: block.native_name ?? block.name,
          input: block.input ?? block.raw_input,
          output: '',
          status: 'ok',
          diffs: [],
        }),
      );
      break;
    case 'tool_result':
      takeResult(block, tools, add);
      break;
    case 'slash_command':
      add({
        kind: 'prompt',
        text: `/${String(block.command ?? '').replace(/^\//, '')} ${block.args ?? ''}`,
        time: message.timestamp,
      });
      break;
    default:
      add({ kind: 'content', block });
  }
}

function takeResult(block, tools, add) {
  const item =
    tools.get(block.tool_use_id) ??
    add({ kind: 'tool', id: block.tool_use_id, name: 'Tool', native: '', input: null, output: '', diffs: [] });
  item.output = resultText(block.content);
  item.isError = block.is_error;
  item.status = block.status ?? (block.is_error ? 'error' : 'ok');
  if (block.diff) item.diffs = [block.diff];
}

function resultText(content) {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return content ? JSON.stringify(content, null, 2) : '';
  return content.map((part) => (part.type === 'text' ? part.text : `[${part.type}]`)).join('\n');
}
