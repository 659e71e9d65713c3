// Renders the items of a timeline, one element per item.

import { h } from './dom.js';
import { copyButton, value } from './code.js';
import { changeCounts } from './diff.js';
import { duration, moment, money, plural, short, words } from './format.js';
import { markdown } from './markdown.js';
import { permissionLine } from './permission_card.js';
import { toolRow } from './tool_row.js';
import { firstLine, shorten } from './text.js';

/** Renders an item as an article of a feed. */
export function renderRow(item, index, total, actions) {
  const content = (RENDERERS[item.kind] ?? raw)(item, actions);
  return h(
    `article.row.row-${item.kind}`,
    {
      tabindex: '-1',
      'aria-posinset': index + 1,
      'aria-setsize': total,
      'aria-label': NAMES[item.kind] ?? 'Event',
      'data-key': item.key,
    },
    content,
  );
}

const NAMES = {
  prompt: 'Prompt',
  text: 'Answer',
  thinking: 'Thinking',
  tool: 'Tool call',
  files: 'Changed files',
  permission: 'Permission request',
  plan: 'Plan',
  note: 'Note',
  content: 'Content',
  outcome: 'Outcome',
};

const RENDERERS = {
  prompt(item) {
    return h(
      'div.bubble',
      { dir: 'auto' },
      h('div.bubble-text', {}, item.text),
      item.time && h('div.time', {}, moment(item.time)),
    );
  },
  text(item) {
    return h('div.answer', {}, markdown(item.text), copyButton(item.text));
  },
  thinking(item) {
    const body = h('div.thinking-body');
    const seconds = item.until > item.at ? ` for ${duration(item.until - item.at)}` : '';
    const details = h(
      'details.thinking',
      { open: item.open ?? false },
      h(
        'summary',
        {},
        `Thinking${seconds}`,
        h('span.teaser', {}, shorten(firstLine(item.text).replaceAll('*', ''), 120)),
      ),
      body,
    );
    const build = () => {
      if (details.open && !body.firstChild) body.append(markdown(item.text));
    };
    build();
    details.addEventListener('toggle', () => {
      item.open = details.open;
      build();
    });
    return details;
  },
  tool: toolRow,
  permission: permissionLine,
  files(item, actions) {
    return h(
      'div.files',
      {},
      h('div.label', {}, `${plural(item.files.length, 'file')} changed on disk`),
      fileList(item.files, actions),
    );
  },
  plan(item) {
    const mark = { completed: '☑', in_progress: '◐', pending: '☐' };
    return h(
      'div.plan',
      {},
      h('div.label', {}, 'Plan'),
      h(
        'ul',
        {},
        item.entries.map((entry) =>
          h(
            'li',
            { class: words(entry.status).toLowerCase().replace(' ', '-') },
            h('span', { role: 'img', 'aria-label': words(entry.status) || 'Open' }, mark[entry.status] ?? '☐'),
            ' ',
            entry.content ?? entry.title ?? JSON.stringify(entry),
          ),
        ),
      ),
    );
  },
  note(item) {
    return h(`div.notice.${item.level}`, {}, h('span.code', {}, item.code), ' ', item.text);
  },
  content(item) {
    const block = item.block;
    const source = block.source?.data ?? block.data;
    const type = block.source?.media_type ?? block.mimeType ?? block.media_type ?? '';
    if (/^image\/(png|jpeg|gif|webp)$/.test(type) && /^[A-Za-z0-9+/=\s]+$/.test(source ?? '')) {
      return h('img.picture', {
        src: `data:${type};base64,${source.replace(/\s/g, '')}`,
        alt: 'An image that the agent sent',
      });
    }
    return folded(`Content: ${block.type ?? 'unknown'}`, () => value(block), item);
  },
  outcome: outcomeCard,
};

function raw(item) {
  return folded(`${item.type}`, () => value(item.data), item);
}

function folded(title, build, item) {
  const body = h('div');
  const details = h('details.raw', { open: item.open ?? false }, h('summary', {}, title), body);
  const show = () => {
    if (details.open && !body.firstChild) body.append(build());
  };
  show();
  details.addEventListener('toggle', () => {
    item.open = details.open;
    show();
  });
  return details;
}

const CHANGES = { created: 'A', modified: 'M', deleted: 'D', renamed: 'R' };

/** The changed files. A file with a known diff opens it. */
export function fileList(files, actions) {
  return h(
    'ul.file-list',
    {},
    files.map((file) => {
      const known = [
        h(
          `span.change.${file.change}`,
          { role: 'img', 'aria-label': words(file.change), title: words(file.change) },
          CHANGES[file.change] ?? '?',
        ),
        h('span.file-path', {}, file.path),
        file.verified === false && h('span.tag', { title: 'The disk does not confirm this change' }, 'not verified'),
        file.source && file.source !== 'tool' && h('span.tag', { title: 'What made the change' }, file.source),
        changeCounts(file),
      ];
      if (!actions?.openFile) return h('li', {}, h('span.file', {}, known));
      return h('li', {}, h('button.file', { type: 'button', onclick: () => actions.openFile(file) }, known));
    }),
  );
}

const GOOD = new Set(['done']);
const FAIR = new Set(['done_with_denials', 'cancelled', 'limit_reached', 'empty', 'rate_limited', 'timed_out']);

/** The class of a verdict: good, fair or bad. */
export const verdictClass = (verdict) => (GOOD.has(verdict) ? 'good' : FAIR.has(verdict) ? 'fair' : 'bad');

function outcomeCard(item, actions) {
  const { outcome } = item;
  const { error } = outcome;
  const facts = [
    duration(outcome.duration_ms),
    plural(outcome.turns ?? 0, 'turn'),
    plural(outcome.tool_calls ?? 0, 'tool call'),
    `${short(outcome.usage?.total_tokens)} tokens`,
    outcome.cost_usd === null || outcome.cost_usd === undefined ? null : money(outcome.cost_usd),
  ];
  return h(
    `section.outcome.${verdictClass(outcome.verdict)}`,
    { 'aria-label': 'Outcome' },
    h(
      'header',
      {},
      h('strong.verdict', {}, words(outcome.verdict)),
      h('span.facts', {}, facts.filter(Boolean).join(' · ')),
    ),
    error &&
      h(
        'div.error',
        {},
        h('p', {}, error.message),
        error.hint && h('p.hint', {}, h('b', {}, 'Hint: '), error.hint),
        stderr(error),
      ),
    outcome.denied?.length > 0 &&
      h(
        'div',
        {},
        h('div.label', {}, 'Denied'),
        h(
          'ul',
          {},
          outcome.denied.map((denial) => h('li', {}, h('code', {}, denial.tool), ` ${denial.reason ?? ''}`)),
        ),
      ),
    outcome.files?.length > 0 && fileList(outcome.files, actions),
    outcome.warnings?.length > 0 &&
      h(
        'ul.warnings',
        {},
        outcome.warnings.map((warning) => h('li', {}, warning.message)),
      ),
  );
}

function stderr(error) {
  if (!error.stderr_tail) return null;
  return h(
    'details.raw',
    {},
    h('summary', {}, 'Standard error of the agent'),
    h('pre.output', { tabindex: '0', role: 'group', 'aria-label': 'Standard error' }, error.stderr_tail),
  );
}
