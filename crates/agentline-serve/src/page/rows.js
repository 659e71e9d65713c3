// Renders the items of a timeline, one element per item.

import { h } from './dom.js';
import { copyButton, value } from './code.js';
import { fileList } from './file_list.js';
import { duration, moment, plural, words } from './format.js';
import { markdown } from './markdown.js';
import { outcomeCard } from './outcome_card.js';
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
      (item.queued || item.time) &&
        h('div.time', {}, item.queued && h('span.tag', {}, 'queued'), item.time && ` ${moment(item.time)}`),
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
      fileList(item.files, actions, item.run),
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
