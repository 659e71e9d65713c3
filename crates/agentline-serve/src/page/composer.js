// The box for a further prompt: in an open conversation, or to continue a session that has ended.

import { openConversation, pathOf, post } from './api.js';
import { h, icon } from './dom.js';

/**
 * Creates a box for prompts. `mode` is `prompt` (nothing runs), `steer` (a prompt is active) or `resume`.
 * @param {{onSent: (run: object) => void}} options
 */
export class Composer {
  constructor({ onSent }) {
    this.onSent = onSent;
    this.text = h('textarea', { rows: '1', 'aria-label': 'Prompt', 'aria-describedby': 'composer-status' });
    this.send = h('button.send', { type: 'submit', 'aria-label': 'Send', title: 'Send (Enter)' }, icon('send'));
    this.now = h('button.button.plain', { type: 'button', onclick: () => this.submit('now') }, 'Interrupt and send');
    this.status = h('p.composer-status', { id: 'composer-status', role: 'status' });
    this.element = h('form.composer', {}, h('div.composer-box', {}, this.text, this.now, this.send), this.status);
    this.element.addEventListener('submit', (event) => {
      event.preventDefault();
      this.submit('after');
    });
    this.text.addEventListener('input', () => this.grow());
    this.text.addEventListener('keydown', (event) => this.onKey(event));
  }

  onKey(event) {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    this.submit(event.ctrlKey || event.metaKey ? 'now' : 'after');
  }

  grow() {
    this.text.style.height = 'auto';
    this.text.style.height = `${Math.min(this.text.scrollHeight, 240)}px`;
  }

  /** Shows the box for a state of the thread. */
  update({ mode, conversation, active, info }) {
    Object.assign(this, { mode, conversation, active, info });
    const placeholders = {
      prompt: 'Next prompt…',
      steer: 'Next prompt, queued…',
      resume: 'Continue this session…',
    };
    this.text.placeholder = placeholders[mode] ?? '';
    this.now.hidden = mode !== 'steer';
    this.element.hidden = !mode;
  }

  async submit(when) {
    const sent = this.text.value;
    const text = sent.trim();
    if (!text || this.isBusy) return;
    this.isBusy = true;
    this.show(this.mode === 'resume' ? 'Starting…' : '');
    try {
      const run = await this.deliver(text, this.mode === 'steer' ? when : 'after');
      // What was typed meanwhile is the next prompt.
      if (this.text.value.startsWith(sent)) this.text.value = this.text.value.slice(sent.length);
      this.grow();
      this.show('');
      this.onSent(run);
    } catch (error) {
      this.show([error.message, error.hint].filter(Boolean).join(' '), true);
    }
    this.isBusy = false;
  }

  show(text, isProblem = false) {
    this.status.classList.toggle('failed', isProblem);
    this.status.textContent = text;
  }

  async deliver(text, when) {
    if (this.mode === 'resume') return resume(this.info, text);
    if (this.active && when === 'now') return post(`${pathOf('runs', this.active)}/steer`, { text, when });
    return post(`${pathOf('conversations', this.conversation)}/prompts`, { prompt: text });
  }
}

/** Opens a conversation that resumes a session, and sends the prompt. */
export function resume(info, text) {
  const { agent, model, working_dir: dir, permission_mode: mode, session_id: session } = info;
  const body = Object.fromEntries(
    Object.entries({ agent, model, working_dir: dir, permission_mode: mode, resume: session }).filter(
      ([, value]) => value,
    ),
  );
  return openConversation(body, text);
}
