// Folds the events of a run into the items that a timeline shows, and into its totals.

import { plural } from './format.js';

/**
 * @typedef {object} Item
 * @property {string} key unique in its timeline
 * @property {string} kind
 * @property {number} version grows with each change
 * @property {number} [at] milliseconds since the start of the run
 */

/** Events whose item is shown only with all details. */
const DETAILS = new Set(['agent', 'commands', 'mode', 'config_option', 'session_info', 'started']);

/** The items and totals of one run. */
export class RunLog {
  /** @param {string} run @param {{prompt?: string, started_at_ms?: number}} [info] */
  constructor(run, info = {}) {
    this.run = run;
    /** @type {Item[]} */
    this.items = [];
    this.tools = new Map();
    this.permissions = new Map();
    this.files = new Map();
    this.usage = null;
    this.cost = null;
    this.started = null;
    this.outcome = null;
    this.events = 0;
    this.answeredBy = null;
    this.startedAt = info.started_at_ms ?? null;
    if (info.prompt) this.add({ kind: 'prompt', text: info.prompt, time: info.started_at_ms });
  }

  add(item) {
    const added = { key: `${this.run}/${this.items.length}`, version: 1, ...item };
    this.items.push(added);
    const open = this.pending;
    if (open.length) this.items = [...this.items.filter((other) => !open.includes(other)), ...open];
    return added;
  }

  /** Applies one event. Events that no item covers are kept as details. */
  apply({ event, data }) {
    this.events += 1;
    const handler = HANDLERS[event];
    if (handler) handler(this, data);
    else this.add({ kind: 'raw', type: event, data, at: data.at_ms, detail: DETAILS.has(event) });
  }

  /** Marks events that are no longer stored. */
  gap({ requested, first }) {
    const missing = first - 1 - requested;
    const text =
      missing > 0
        ? `${plural(missing, 'earlier event')} ${missing === 1 ? 'is' : 'are'} no longer stored.`
        : 'Earlier events are no longer stored.';
    this.add({ kind: 'note', level: 'warning', code: 'resync', text });
  }

  /** Returns the last item that is shown, without the requests that wait, which stay at the end. */
  lastVisible() {
    for (let i = this.items.length - 1; i >= 0; i -= 1) {
      const item = this.items[i];
      if (!item.detail && !(item.kind === 'permission' && !item.decision)) return item;
    }
    return null;
  }

  /** Marks the prompt while it waits for an earlier one. */
  setQueued(isQueued) {
    const prompt = this.items[0];
    if (prompt?.kind === 'prompt' && Boolean(prompt.queued) !== isQueued) change(prompt, { queued: isQueued });
  }

  /** Says at the outcome whether the box below continues this run. */
  setContinues(continues) {
    const last = this.outcome && this.items.findLast((item) => item.kind === 'outcome');
    if (last && Boolean(last.continues) !== continues) change(last, { continues });
  }

  get pending() {
    return [...this.permissions.values()].filter((item) => !item.decision);
  }
}

/** Adds a piece of text to the last item if that is of the same kind. */
function piece(kind) {
  return (log, data) => {
    const last = log.lastVisible();
    if (last?.kind === kind) change(last, { text: last.text + data.text, until: data.at_ms });
    else log.add({ kind, text: data.text, at: data.at_ms, until: data.at_ms });
  };
}

function change(item, fields) {
  Object.assign(item, fields);
  item.version += 1;
}

function tool(log, data) {
  const known = log.tools.get(data.id);
  const fields = {
    name: data.name,
    native: data.native_name,
    title: data.title ?? null,
    input: data.input ?? data.raw_input ?? null,
    diffs: data.diffs ?? [],
    locations: data.locations ?? [],
    parent: data.parent_tool_use_id ?? null,
  };
  if (known) return change(known, fields);
  const waits = isAsked(log, data.id);
  const item = log.add({ kind: 'tool', id: data.id, output: '', status: 'running', waits, at: data.at_ms, ...fields });
  log.tools.set(data.id, item);
}

function toolOutput(log, data) {
  const item = log.tools.get(data.tool_use_id);
  if (item) change(item, { output: item.output + data.text });
}

function toolResult(log, data) {
  let item = log.tools.get(data.tool_use_id);
  if (!item) {
    item = log.add({
      kind: 'tool',
      id: data.tool_use_id,
      name: 'Tool',
      native: '',
      input: null,
      output: '',
      diffs: [],
      locations: [],
      at: data.at_ms,
    });
    log.tools.set(data.tool_use_id, item);
  }
  change(item, {
    status: data.status ?? (data.is_error ? 'error' : 'ok'),
    isError: data.is_error,
    reason: data.reason ?? null,
    output: data.content ?? item.output,
    title: data.title ?? item.title,
    raw: data.raw_output ?? null,
    until: data.at_ms,
    diffs: data.diffs?.length ? data.diffs : item.diffs,
    waits: false,
  });
}

function fileChange(log, data) {
  log.files.set(data.path, data);
  const last = log.lastVisible();
  if (last?.kind === 'files')
    change(last, { files: [...last.files.filter((file) => file.path !== data.path), data] });
  else log.add({ kind: 'files', run: log.run, files: [data], at: data.at_ms });
}

function request(log, data) {
  if (log.permissions.has(data.id)) return;
  const item = log.add({
    kind: 'permission',
    id: data.id,
    ask: data.ask ?? {},
    expires: data.expires_at_ms,
    at: data.at_ms,
    decision: null,
  });
  log.permissions.set(data.id, item);
  setWaits(log, item);
}

function answered(log, data) {
  const item = log.permissions.get(data.id);
  log.answeredBy = data.by;
  if (!item) return;
  change(item, { decision: data.decision, by: data.by, reason: data.reason ?? null });
  setWaits(log, item);
}

/** Marks the tool call that a request is about while it waits for an answer. */
function setWaits(log, { ask }) {
  const call = log.tools.get(ask.tool_use_id);
  if (!call) return;
  const waits = isAsked(log, ask.tool_use_id);
  // The request shows the call, so the call is closed, also if it was open before.
  if (waits) call.open = undefined;
  change(call, { waits });
}

const isAsked = (log, call) => log.pending.some(({ ask }) => ask.tool_use_id === call);

/** The decision of a rule. Those that a person made are shown with their request. */
function decided(log, data) {
  const item = log.tools.get(data.tool_use_id);
  const by = data.by === 'callback' ? (log.answeredBy ?? 'callback') : data.by;
  const isAnswer = data.by === 'callback';
  const decision = { decision: data.decision, by, isAnswer, reason: data.reason, rule: data.rule };
  if (item) return change(item, { permission: decision });
  log.add({ kind: 'raw', type: 'permission', data, at: data.at_ms, detail: true });
}

function usage(log, data) {
  log.usage = data;
  if (typeof data.cost_usd === 'number') log.cost = data.cost_usd;
}

function plan(log, data) {
  if (log.plan) log.plan.detail = true;
  const entries = Array.isArray(data.entries) ? data.entries : [];
  const last = log.lastVisible();
  if (last?.kind === 'plan') return change(last, { entries });
  log.plan = log.add({ kind: 'plan', entries, at: data.at_ms });
}

function note(level, text) {
  return (log, data) =>
    log.add({ kind: 'note', level, code: data.code ?? data.type, text: text(data), at: data.at_ms });
}

function retry(data) {
  const model = data.model ? ` with ${data.model}` : '';
  return `Attempt ${data.attempt}${model} starts in ${(data.wait_ms / 1000).toFixed(1)} s: ${data.reason}`;
}

function outcome(log, data) {
  const result = data.outcome ?? data;
  log.outcome = result;
  log.usage = result.usage ?? log.usage;
  log.cost = result.cost_usd ?? log.cost;
  for (const file of result.files ?? []) log.files.set(file.path, { ...log.files.get(file.path), ...file });
  for (const item of log.tools.values()) {
    if (item.status === 'running') change(item, { status: 'cancelled' });
    if (item.waits) change(item, { waits: false });
  }
  for (const item of log.pending) change(item, { decision: 'deny', by: 'ended' });
  if (result.files?.length) for (const item of log.items) if (item.kind === 'files') change(item, { detail: true });
  log.add({ kind: 'outcome', outcome: result, run: log.run, at: data.at_ms, isFirstEvent: log.events === 1 });
}

const HANDLERS = {
  started(log, data) {
    log.started = data;
    log.add({ kind: 'raw', type: 'started', data, at: data.at_ms, detail: true });
  },
  text: piece('text'),
  thinking: piece('thinking'),
  tool_use: tool,
  tool_output: toolOutput,
  tool_result: toolResult,
  file_change: fileChange,
  permission_request: request,
  permission_answered: answered,
  permission: decided,
  usage,
  plan,
  content: (log, data) => log.add({ kind: 'content', block: data.block ?? {}, at: data.at_ms }),
  retry: note('warning', retry),
  warning: note('warning', (data) => data.message),
  unreadable: note('info', (data) => `A line of ${data.length} bytes could not be read: ${data.sample}`),
  outcome,
};

/** Returns the text of an item that a search looks through, in lower case. */
export function searchText(item) {
  if (item.searchedVersion === item.version) return item.searched;
  item.searched = [
    item.text,
    item.name,
    item.native,
    item.title,
    json(item.input),
    item.output,
    item.reason,
    json(item.ask),
    item.files?.map((file) => `${file.path} ${file.diff ?? ''}`).join(' '),
    json(item.entries),
    json(item.data),
    json(item.block),
    item.diffs?.map((diff) => `${diff.path} ${diff.old ?? ''} ${diff.new ?? ''} ${diff.unified ?? ''}`).join(' '),
    verdictText(item.outcome),
  ]
    .filter(Boolean)
    .join('\n')
    .toLowerCase();
  item.searchedVersion = item.version;
  return item.searched;
}

function verdictText(outcome) {
  if (!outcome) return '';
  return `${outcome.verdict} ${outcome.error?.message ?? ''} ${outcome.error?.hint ?? ''}`;
}

function json(value) {
  if (value === null || value === undefined) return '';
  if (typeof value === 'string') return value;
  return JSON.stringify(value).replaceAll('\\n', '\n').replaceAll('\\"', '"');
}
