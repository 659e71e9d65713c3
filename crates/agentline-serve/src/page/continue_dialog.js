// The dialog that continues a saved session with a further prompt.

import { serverInfo } from './api.js';
import { resume } from './composer.js';
import { h } from './dom.js';
import { tail } from './format.js';
import { ModeChoice, startButton } from './mode_choice.js';
import { continuedAddress } from './origin.js';
import { notice } from './states.js';

/**
 * Asks for a prompt and a permission mode, resumes the session and shows the new conversation.
 * @param {object} session
 * @param {string} title the name of the session
 */
export async function askToContinue(session, title) {
  const info = await serverInfo().catch((error) => notice(error.message));
  if (!info || document.querySelector('dialog[open]')) return;
  const text = h('textarea', { rows: '4', required: true, 'aria-label': 'Prompt', placeholder: 'What next?' });
  const start = startButton('Continue the session', {});
  const choice = new ModeChoice(info.policy?.permission_modes ?? info.permission_modes, start);
  const status = h('div.form-status', { role: 'alert' });
  const form = h(
    'form',
    { method: 'dialog' },
    h('p.note', {}, ['Agent:', session.agent, 'in', tail(session.project)].filter(Boolean).join(' ')),
    text,
    h('label.field', {}, h('span', {}, 'Permissions'), choice.select),
    choice.warning,
    status,
    h('footer', {}, h('button.button', { type: 'button', onclick: () => dialog.close() }, 'Cancel'), start),
  );
  const dialog = h(
    'dialog',
    { 'aria-labelledby': 'continue-title' },
    h('header', {}, h('h2', { id: 'continue-title' }, 'Continue this session')),
    h('div.dialog-body', {}, form),
  );
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    submit({ session, title, text: text.value.trim(), choice, start, status, dialog });
  });
  text.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    form.requestSubmit();
  });
  dialog.addEventListener('close', () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  text.focus();
}

async function submit({ session, title, text, choice, start, status, dialog }) {
  if (!text || start.disabled) return;
  start.disabled = true;
  start.firstElementChild.textContent = 'Starting…';
  status.textContent = '';
  try {
    const { agent, project: working_dir, id: session_id } = session;
    const run = await resume({ agent, working_dir, session_id, permission_mode: choice.mode }, text);
    choice.keep();
    dialog.close();
    location.hash = continuedAddress(run.conversation, { kind: 'session', id: session_id, agent, title });
  } catch (error) {
    status.textContent = [error.message, error.hint].filter(Boolean).join(' ');
    start.disabled = false;
    choice.show();
  }
}
