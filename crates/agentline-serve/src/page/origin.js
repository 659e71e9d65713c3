// What a conversation continues: a run, another conversation or a saved session.

import { h } from './dom.js';
import { sessionAddress } from './sessions_view.js';
import { keepSetting, setting } from './store.js';
import { firstLine, shorten } from './text.js';
import { threadsOf } from './threads.js';

/** @typedef {{kind: 'run' | 'conversation' | 'session', id: string, agent?: string, title: string}} Origin */

/** The server does not know that a conversation continues a saved session, so the browser keeps it. */
const SETTING = 'continued';
/** How many conversations are kept. The oldest ones are forgotten first. */
const MOST = 200;
const LONGEST_TITLE = 140;

const ADDRESSES = {
  run: ({ id }) => `#/runs/${encodeURIComponent(id)}`,
  conversation: ({ id }) => `#/conversations/${encodeURIComponent(id)}`,
  session: sessionAddress,
};

/**
 * Keeps what a new conversation continues, and returns the address of the conversation.
 * @param {string} conversation
 * @param {Origin} origin
 */
export function continuedAddress(conversation, { kind, id, agent, title }) {
  const origin = { kind, id, agent, title: shorten(title, LONGEST_TITLE) };
  const others = kept().filter(([other]) => other !== conversation);
  keepSetting(SETTING, JSON.stringify([...others, [conversation, origin]].slice(-MOST)));
  return ADDRESSES.conversation({ id: conversation });
}

/**
 * Returns what a conversation continues, with the address of that; `null` if it is not known or there is nothing.
 * @param {string} conversation
 * @param {object[]} runs those that the server lists, newest first
 */
export function originOf(conversation, runs) {
  const origin = kept().find(([other]) => other === conversation)?.[1] ?? earlierThread(conversation, runs);
  const address = ADDRESSES[origin?.kind]?.(origin);
  return address ? { ...origin, address } : null;
}

/** Says what a conversation continues, with a link to it. */
export function originLine({ kind, title, address }) {
  return h('p.sub', {}, `This conversation continues the ${kind} `, h('a', { href: address }, title));
}

/** @returns {[string, Origin][]} oldest first */
function kept() {
  try {
    const list = JSON.parse(setting(SETTING, '[]'));
    return Array.isArray(list) ? list.filter(Array.isArray) : [];
  } catch {
    return [];
  }
}

/** Another browser may have continued it. The session of the agent is that of the earlier thread. */
function earlierThread(conversation, runs) {
  const threads = threadsOf(runs);
  const own = threads.find(({ first }) => first.conversation === conversation)?.first;
  if (!own?.session_id) return null;
  const isEarlier = ({ first, runs: all }) =>
    first.conversation !== conversation &&
    first.started_at_ms < own.started_at_ms &&
    all.some((run) => run.session_id === own.session_id && run.agent === own.agent);
  const first = threads.find(isEarlier)?.first;
  if (!first) return null;
  const [kind, id] = first.conversation ? ['conversation', first.conversation] : ['run', first.run];
  return { kind, id, title: shorten(firstLine(first.name ?? first.prompt) || 'Run', LONGEST_TITLE) };
}
