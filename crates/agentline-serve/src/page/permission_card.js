// Asks whether a tool may be used: what the agent wants, and buttons to allow, deny or decide for the whole run.

import { holdBack, listenForLetters, setBlocked } from './answer_guard.js';
import { ApiError, pathOf, post, serverInfo, serverNow } from './api.js';
import { announce, h } from './dom.js';
import { changeView, subject } from './tool_row.js';
import { value } from './code.js';
import { clock, words } from './format.js';
import { shorten } from './text.js';

const REASON = 'Reason for denying (optional)';

/**
 * @param {object} item the request
 * @param {string} run
 * @param {boolean} isConversation whether the run is a prompt of a conversation
 * @returns {HTMLElement}
 */
export function permissionCard(item, run, isConversation) {
  const status = h('p.card-status', { role: 'status' });
  const reason = h('input', {
    type: 'text',
    placeholder: REASON,
    'aria-label': REASON,
    maxlength: '1000',
    value: item.draft ?? '',
  });
  const buttons = [];
  let isSent = false;
  const answer = async (decision, always) => {
    if (isSent || !isRead()) return;
    isSent = true;
    setBlocked(buttons, true);
    const why = decision === 'deny' ? reason.value.trim() || null : null;
    const problem = await send(run, item.id, { decision, always, reason: why });
    if (!problem) return;
    status.textContent = problem.message;
    if (problem.status === 409) return;
    isSent = false;
    setBlocked(buttons, false);
  };
  const control = (label, kind, key, decision, always, title) => {
    const press = () => {
      // Not every browser moves the focus with a click; it decides where the focus goes after the answer.
      element.focus();
      answer(decision, always);
    };
    const element = h(
      `button.button.${kind}`,
      { type: 'button', title, onclick: press, 'data-answer': label },
      label,
      h('kbd', { 'aria-hidden': 'true' }, key),
    );
    buttons.push(element);
    return element;
  };
  reason.addEventListener('input', () => {
    item.draft = reason.value;
  });
  reason.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || event.isComposing) return;
    event.preventDefault();
    answer('deny', false);
  });
  const always = `Always allow ${shorten(item.ask.tool ?? 'this tool', 40)}`;
  const covered = alwaysText(item.ask, isConversation);
  const actions = [
    h(
      'div.card-actions',
      {},
      control('Allow', 'allow', 'A', 'allow', false),
      control(always, 'always', 'W', 'allow', true, covered),
      h('span.deny-group', {}, reason, control('Deny', 'danger', 'D', 'deny', false)),
    ),
    h('p.note', {}, covered),
  ];
  const enters = h('span.key-hint.enters', { 'aria-hidden': 'true' });
  const card = frame(item, enters, actions, status);
  const isRead = holdBack(card, buttons);
  listenForLetters(card, buttons);
  showEnter(card, enters);
  return card;
}

/**
 * What an answer covers that holds always. The server keeps it by tool, MCP server and the agent's own name for the
 * tool. Some agents name no tool; a description of the call is in the place of the name then.
 */
function alwaysText({ tool, native_tool: native, server }, isConversation) {
  const name = `${shorten(tool ?? 'this tool', 40)}${server ? ` of the MCP server ${shorten(server, 40)}` : ''}`;
  const scope = isConversation ? 'in this conversation' : 'in this run';
  if (native && !/^[\w.:-]+$/.test(native))
    return `Always: further uses of ${name} that the agent calls “${shorten(native, 80)}” ${scope}, with any input. Others still ask.`;
  return `Always: every further use of ${name} ${scope}, with any input. Other tools still ask.`;
}

/** Says which answer Enter gives while a button or the reason has the focus. */
function showEnter(card, hint) {
  const show = (element) => {
    const answer = element instanceof HTMLInputElement ? 'Deny' : element?.dataset.answer;
    hint.textContent = answer ? `Enter: ${answer}` : '';
  };
  card.addEventListener('focusin', (event) => show(event.target));
  card.addEventListener('focusout', () => show(null));
}

function frame(item, enters, actions, status) {
  return h(
    'section.permission',
    {
      tabindex: '-1',
      'aria-label': `Permission request: ${item.ask.tool ?? 'tool'}`,
      'aria-keyshortcuts': 'P',
      'data-permission': item.id,
    },
    h(
      'header',
      {},
      h('span.shield', { 'aria-hidden': 'true' }, '!'),
      h('strong', {}, `May the agent use ${shorten(item.ask.tool ?? 'a tool', 80)}?`),
      h('span.key-hint', { 'aria-hidden': 'true' }, h('kbd', {}, 'P'), ' to answer by keyboard'),
      h('span.key-hint.when-armed', { 'aria-hidden': 'true' }, 'A letter selects, Enter answers'),
      enters,
      expiry(item),
    ),
    request(item.ask),
    actions,
    status,
  );
}

async function send(run, id, body) {
  try {
    await post(pathOf('runs', run, 'permissions', id), body);
    announce(body.decision === 'allow' ? 'Allowed' : 'Denied');
    return null;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if (error.status === 409) return { status: 409, message: 'This request was already answered or has expired.' };
    return error;
  }
}

function request(ask) {
  const parts = [];
  if (ask.title && ask.title !== ask.command) parts.push(h('p', {}, ask.title));
  if (ask.command)
    parts.push(
      h(
        'pre.command',
        { tabindex: '0', role: 'group', 'aria-label': 'Command' },
        h('span.prompt-sign', { 'aria-hidden': 'true' }, '$ '),
        ask.command,
      ),
    );
  if (ask.server) parts.push(h('p.note', {}, `MCP server: ${ask.server}`));
  for (const diff of ask.diffs ?? []) parts.push(changeView({ ...diff }));
  const hasMore = ask.command || ask.diffs?.length;
  if (!hasMore && ask.paths?.length)
    parts.push(
      h(
        'ul.paths',
        {},
        ask.paths.map((path) => h('li', {}, h('code', {}, path))),
      ),
    );
  if (!hasMore && ask.input && Object.keys(ask.input).length) parts.push(value(ask.input));
  return h('div.permission-body', {}, parts);
}

/** The time that is left, counted down while the card is shown. It is not announced each second. */
function expiry(item) {
  const label = h('span.expiry', { 'aria-live': 'off' });
  if (!item.expires) return label;
  const update = () => {
    const left = item.expires - serverNow();
    label.textContent = left > 0 ? `denied automatically in ${clock(left)}` : 'expired';
    if (left > 0 && (label.isConnected || !label.dataset.shown)) {
      label.dataset.shown = 'yes';
      setTimeout(update, 1000);
    }
  };
  // The clock of the browser may differ from that of the server.
  serverInfo()
    .catch(() => {})
    .finally(update);
  return label;
}

/** The row of a request in the timeline: that it waits, or its answer. */
export function permissionLine(item) {
  if (item.decision) return answeredLine(item);
  return h(
    'div.answered.waiting',
    {},
    h('span', { 'aria-hidden': 'true' }, '! '),
    h('strong', {}, `${item.ask.tool ?? 'Tool'} waits for your answer `),
    h('code', {}, aboutOf(item)),
  );
}

const BY = {
  timeout: 'because no answer came in time',
  always: 'by an earlier “always” answer',
  ended: 'because the run ended',
};

const aboutOf = (item) =>
  item.ask.command ?? item.ask.paths?.[0] ?? subject({ input: item.ask.input, title: item.ask.title });

function answeredLine(item) {
  const allowed = item.decision === 'allow';
  const by = BY[item.by] ?? (item.by ? `by ${words(item.by).toLowerCase()}` : '');
  const about = aboutOf(item);
  return h(
    `div.answered.${allowed ? 'allow' : 'deny'}`,
    { 'data-answered': item.id },
    h('span', { 'aria-hidden': 'true' }, allowed ? '✓ ' : '⊘ '),
    h('strong', {}, `${item.ask.tool ?? 'Tool'} ${allowed ? 'allowed' : 'denied'}`),
    ` ${by} `,
    about && h('code', {}, about),
    item.reason && item.by !== 'ended' && h('span.reason', {}, ` “${item.reason}”`),
  );
}
