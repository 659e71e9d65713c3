// The form that starts a run or a conversation.

import { get, openConversation, pathOf, post, serverInfo } from './api.js';
import { Attachments } from './attachments.js';
import { pickDirectory } from './directory_picker.js';
import { fill, h, icon, option } from './dom.js';
import { tail } from './format.js';
import { GRACE_MS } from './held_runs.js';
import { ModeChoice, startButton } from './mode_choice.js';
import { refreshRuns, runs } from './runs.js';
import { keepSetting, setting } from './store.js';
import { plain } from './text.js';

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
    this.agent = h(
      'select',
      {},
      allowedAgents.map((agent) => option(agent, agent, agent === setting('agent'))),
    );
    this.startButton = startButton(
      'Start',
      { class: 'start', disabled: policy?.read_only },
      h('kbd', { 'aria-hidden': 'true' }, 'Ctrl ↵'),
    );
    this.mode = new ModeChoice(allowedModes, this.startButton);
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
    this.summary = h('summary');
    for (const control of [this.keeps, this.ends, this.budget])
      control.addEventListener('input', () => this.showOptions());
    this.showOptions();
    this.status = h('div.form-status', { role: 'alert' });
    this.attachments.acceptFrom(this.element);
    this.showDirectory();
    this.layout(policy, demo);
    this.suggestModels();
    this.unsubscribe = runs.subscribe(() => this.suggestModels());
    this.checkAgents();
  }

  destroy() {
    this.isDestroyed = true;
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
          this.startButton,
        ),
      ),
      h(
        'div.fields',
        {},
        field('Agent', this.agent),
        field('Model', this.model),
        field('Permissions', this.mode.select),
        this.models,
      ),
      this.mode.warning,
      h(
        'details.more-options',
        {},
        this.summary,
        h(
          'div.fields',
          {},
          h('label.check', {}, this.keeps, 'Keep a conversation open for further prompts'),
          h('label.check', {}, this.ends, 'End the run a minute after every tab with it is closed'),
          field('Cost limit in US dollars', this.budget),
        ),
      ),
      demo &&
        h(
          'p.note',
          {},
          'This is a demo: a scripted model answers this prompt. Nothing is charged; the costs that the page shows are simulated. The directory is removed when the server ends.',
        ),
      policy?.read_only && h('p.note', {}, 'Your token may only read: it cannot start runs.'),
      this.status,
    );
  }

  /** Names the options that are set, because they are hidden while the details are closed. */
  showOptions() {
    const set = [
      this.keeps.checked && 'keeps a conversation open',
      this.ends.checked && 'ends when closed',
      this.budget.value && `at most $${this.budget.value}`,
    ].filter(Boolean);
    fill(this.summary, 'More options', set.length > 0 && `: ${set.join(', ')}`);
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

  /** Disables the agents that are not installed. If the chosen one is among them, the first one that is not is chosen. */
  async checkAgents() {
    const choices = [...this.agent.options].sort((a, b) => Number(b.selected) - Number(a.selected));
    for (const choice of choices) {
      const found = await get(pathOf('agents', choice.value)).catch(() => null);
      if (this.isDestroyed) return;
      choice.disabled = found?.path === null;
      if (choice.disabled) choice.textContent = `${choice.value} – not installed`;
    }
    if (!this.agent.selectedOptions[0]?.disabled) return;
    const missing = this.agent.value;
    const installed = choices.find((choice) => !choice.disabled);
    if (installed) this.agent.value = installed.value;
    fill(
      this.status,
      h(
        'p.note',
        {},
        `${missing} is not installed on the server. Install it with `,
        h('code', {}, `agentline install ${missing}`),
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
    this.mode.keep();
    keepSetting('model', this.model.value.trim());
    keepSetting('directory', this.directory);
    keepSetting('keeps', this.keeps.checked ? 'yes' : '');
  }

  async start(prompt) {
    const attachments = await this.attachments.encode();
    const settings = {
      agent: this.agent.value || undefined,
      model: this.model.value.trim() || undefined,
      permission_mode: this.mode.mode || undefined,
      working_dir: this.directory || undefined,
      max_cost: this.budget.value ? Number(this.budget.value) : undefined,
      on_disconnect: this.ends.checked ? 'cancel' : 'continue',
      disconnect_grace_ms: this.ends.checked ? GRACE_MS : undefined,
    };
    if (attachments.length) settings.attachments = attachments;
    return this.keeps.checked ? openConversation(settings, prompt) : post('/v1/runs', { ...settings, prompt });
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
