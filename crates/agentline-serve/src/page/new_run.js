// The form that starts a run or a conversation.

import { get, pathOf, post, serverInfo } from './api.js';
import { Attachments } from './attachments.js';
import { pickDirectory } from './directory_picker.js';
import { fill, h, icon, option } from './dom.js';
import { tail, words } from './format.js';
import { refreshRuns, runs } from './runs.js';
import { keepSetting, setting } from './store.js';
import { plain } from './text.js';

const MODE_HINTS = {
  default: 'asks before changes',
  'accept-edits': 'edits files without asking',
  bypass: 'never asks',
  plan: 'only reads and plans',
  auto: 'the agent decides',
  deny: 'denies what no rule allows',
};

/** The form. `element` is empty until the server's settings are known. */
export class NewRun {
  constructor() {
    this.attachments = new Attachments();
    this.element = h('form.new-run', { 'aria-label': 'Start a run' });
    this.element.addEventListener('submit', (event) => {
      event.preventDefault();
      this.submit();
    });
    this.ready = this.build();
  }

  async build() {
    this.info = await serverInfo();
    const { agents, permission_modes: modes, policy, roots, demo_prompt: demo } = this.info;
    const allowedAgents = policy?.agents ?? agents;
    const allowedModes = policy?.permission_modes ?? modes;
    this.directory = this.startDirectory(roots);
    this.prompt = h('textarea', {
      rows: '3',
      placeholder: 'Describe the task…',
      'aria-label': 'Prompt',
      required: true,
      value: demo ?? '',
    });
    this.prompt.addEventListener('keydown', (event) => {
      if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        this.submit();
      }
    });
    this.prompt.addEventListener('input', () => {
      this.prompt.style.height = 'auto';
      this.prompt.style.height = `${Math.min(360, this.prompt.scrollHeight)}px`;
    });
    this.agent = this.choice('Agent', allowedAgents, setting('agent'));
    this.mode = this.choice(
      'Permissions',
      allowedModes,
      setting('mode', 'default'),
      (mode) => `${words(mode)}${MODE_HINTS[mode] ? ` – ${MODE_HINTS[mode]}` : ''}`,
    );
    this.model = h('input', {
      type: 'text',
      list: 'known-models',
      placeholder: 'default model',
      value: setting('model'),
      autocomplete: 'off',
      spellcheck: 'false',
    });
    this.models = h('datalist', { id: 'known-models' });
    this.browse = h('button.chip-button', { type: 'button', onclick: () => this.chooseDirectory() });
    this.keeps = h('input', { type: 'checkbox' });
    this.keeps.checked = setting('keeps') === 'yes';
    this.ends = h('input', { type: 'checkbox' });
    this.budget = h('input', {
      type: 'number',
      min: '0',
      step: '0.01',
      placeholder: policy?.max_cost_usd ? `up to ${policy.max_cost_usd}` : 'none',
      inputmode: 'decimal',
    });
    this.status = h('div.form-status', { role: 'alert' });
    this.attachments.acceptFrom(this.element);
    this.showDirectory();
    this.layout(policy, demo);
    this.suggestModels();
    this.unsubscribe = runs.subscribe(() => this.suggestModels());
    this.agent.addEventListener('change', () => this.checkAgent());
    this.checkAgent();
  }

  destroy() {
    this.unsubscribe?.();
  }

  layout(policy, demo) {
    const field = (label, control) => h('label.field', {}, h('span', {}, label), control);
    fill(
      this.element,
      h(
        'div.prompt-box',
        {},
        this.prompt,
        this.attachments.list,
        h(
          'div.prompt-actions',
          {},
          this.attachments.button,
          this.attachments.chooser,
          this.browse,
          h('span.spacer'),
          h(
            'button.button.primary.start',
            { type: 'submit', disabled: policy?.read_only },
            'Start',
            h('kbd', { 'aria-hidden': 'true' }, 'Ctrl ↵'),
          ),
        ),
      ),
      h(
        'div.fields',
        {},
        field('Agent', this.agent),
        field('Model', this.model),
        field('Permissions', this.mode),
        this.models,
      ),
      h(
        'details.more-options',
        {},
        h('summary', {}, 'More options'),
        h(
          'div.fields',
          {},
          h('label.check', {}, this.keeps, 'Keep a conversation open for further prompts'),
          h('label.check', {}, this.ends, 'End the run when every tab with it is closed'),
          field('Cost limit in US dollars', this.budget),
        ),
      ),
      demo &&
        h(
          'p.note',
          {},
          'This is a demo: a scripted model answers this prompt, at no cost, and the directory is removed when the server ends.',
        ),
      policy?.read_only && h('p.note', {}, 'Your token may only read: it cannot start runs.'),
      this.status,
    );
  }

  choice(name, values, kept, label = (value) => value) {
    return h(
      'select',
      {},
      values.map((value) => option(value, label(value), value === kept)),
    );
  }

  startDirectory(roots) {
    const kept = setting('directory');
    return roots.some((root) => kept === root || kept.startsWith(`${root}/`)) ? kept : (roots[0] ?? '');
  }

  showDirectory() {
    fill(this.browse, icon('folder'), h('span', {}, tail(this.directory) || 'Choose a directory'));
    this.browse.title = plain(this.directory);
    this.browse.setAttribute('aria-label', `Directory: ${plain(this.directory)}. Change`);
  }

  async chooseDirectory() {
    const chosen = await pickDirectory(this.info.roots, this.directory);
    if (chosen) this.directory = chosen;
    this.showDirectory();
    this.browse.focus();
  }

  suggestModels() {
    const models = new Set((runs.get() ?? []).map((run) => run.model).filter(Boolean));
    fill(
      this.models,
      [...models].slice(0, 30).map((model) => option(model, model)),
    );
  }

  /** Says at once if the agent is not installed. */
  async checkAgent() {
    const agent = this.agent.value;
    if (!agent) return;
    const found = await get(pathOf('agents', agent)).catch(() => null);
    if (this.agent.value !== agent) return;
    fill(
      this.status,
      found &&
        found.path === null &&
        h(
          'p.note',
          {},
          `${agent} is not installed on the server. Install it with `,
          h('code', {}, `agentline install ${agent}`),
          '.',
        ),
    );
  }

  async submit() {
    const prompt = this.prompt.value.trim();
    if (!prompt) return this.prompt.focus();
    if (this.isBusy) return;
    this.isBusy = true;
    this.element.classList.add('busy');
    fill(this.status);
    try {
      this.keepChoices();
      const run = await this.start(prompt);
      this.prompt.value = '';
      this.attachments.clear();
      refreshRuns().catch(() => {});
      location.hash = run.conversation
        ? `#/conversations/${encodeURIComponent(run.conversation)}`
        : `#/runs/${encodeURIComponent(run.run)}`;
    } catch (error) {
      this.showError(error);
    }
    this.isBusy = false;
    this.element.classList.remove('busy');
  }

  keepChoices() {
    keepSetting('agent', this.agent.value);
    keepSetting('mode', this.mode.value);
    keepSetting('model', this.model.value.trim());
    keepSetting('directory', this.directory);
    keepSetting('keeps', this.keeps.checked ? 'yes' : '');
  }

  async start(prompt) {
    const attachments = await this.attachments.encode();
    const settings = {
      agent: this.agent.value || undefined,
      model: this.model.value.trim() || undefined,
      permission_mode: this.mode.value || undefined,
      working_dir: this.directory || undefined,
      max_cost: this.budget.value ? Number(this.budget.value) : undefined,
      on_disconnect: this.ends.checked ? 'cancel' : 'continue',
    };
    if (attachments.length) settings.attachments = attachments;
    if (!this.keeps.checked) return post('/v1/runs', { ...settings, prompt });
    const opened = await post('/v1/conversations', settings);
    return post(`${pathOf('conversations', opened.conversation)}/prompts`, { prompt });
  }

  showError(error) {
    const problems = error.problems ?? [];
    fill(
      this.status,
      h(
        'div.error',
        {},
        h('p', {}, error.message),
        error.hint && h('p.hint', {}, error.hint),
        problems.length > 0 &&
          h(
            'ul',
            {},
            problems.map((problem) =>
              h(
                'li',
                {},
                h('code', {}, problem.key),
                ` ${problem.message}`,
                problem.hint && h('div.note', {}, problem.hint),
              ),
            ),
          ),
      ),
    );
  }
}
