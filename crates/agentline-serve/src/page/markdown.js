// Renders Markdown as DOM nodes. Markup in the text stays text, images are never loaded, and only web links are links.

import { h } from './dom.js';
import { codeBlock } from './code.js';

/** Longer texts and paragraphs are shown without formatting. */
const LONGEST = 200000;
const LONGEST_PARAGRAPH = 20000;

const FENCE = /^( {0,3})(`{3,}|~{3,})\s*([^\s`]*)/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(.*)$/;
const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const QUOTE = /^ {0,3}>\s?(.*)$/;
const TABLE_LINE = /^ {0,3}\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

/** The expression takes quadratic time, and no table that a person reads is wider. */
function isTableLine(line) {
  return line.length < 1000 && line.includes('-') && TABLE_LINE.test(line);
}

/** @param {string} text @returns {HTMLElement} */
export function markdown(text) {
  if (text.length > LONGEST) return h('div.prose', {}, h('p', {}, text));
  const prose = h('div.prose', {}, blocks(text.replaceAll('\r\n', '\n').split('\n'), 0));
  // Before, the browser would look for the direction of the whole text after each block.
  prose.dir = 'auto';
  return prose;
}

function blocks(lines, depth) {
  const nodes = [];
  let at = 0;
  while (at < lines.length) {
    if (!lines[at].trim()) {
      at += 1;
      continue;
    }
    const [node, next] = block(lines, at, depth);
    nodes.push(node);
    at = next;
  }
  return nodes;
}

function block(lines, at, depth) {
  const line = lines[at];
  if (FENCE.test(line)) return fence(lines, at);
  const heading = HEADING.exec(line);
  if (heading) return [h(`h${Math.min(6, heading[1].length + 2)}`, {}, inline(heading[2].trim().replace(/ #+$/, ''))), at + 1];
  if (RULE.test(line)) return [h('hr'), at + 1];
  if (QUOTE.test(line) && depth < 6) return quote(lines, at, depth);
  if (ITEM.test(line) && depth < 6) return list(lines, at, depth);
  if (line.includes('|') && isTableLine(lines[at + 1] ?? ''))
    return table(lines, at);
  return paragraph(lines, at);
}

function fence(lines, at) {
  const [, , mark, language] = FENCE.exec(lines[at]);
  const closes = (line) => line.startsWith(mark) && !line.slice(mark.length).trim();
  let end = at + 1;
  while (end < lines.length && !closes(lines[end].trim())) end += 1;
  return [codeBlock(lines.slice(at + 1, end).join('\n'), language), end + 1];
}

function quote(lines, at, depth) {
  let end = at;
  while (end < lines.length && QUOTE.test(lines[end])) end += 1;
  const inner = lines.slice(at, end).map((line) => QUOTE.exec(line)[1]);
  return [h('blockquote', {}, blocks(inner, depth + 1)), end];
}

function list(lines, at, depth) {
  const [, indent, mark] = ITEM.exec(lines[at]);
  const ordered = /\d/.test(mark);
  const items = [];
  let end = at;
  while (end < lines.length) {
    const item = ITEM.exec(lines[end]);
    const inside = /^\s+\S/.test(lines[end]) && lines[end].search(/\S/) > indent.length;
    if (item && item[1].length <= indent.length) {
      if (/\d/.test(item[2]) !== ordered || item[1].length < indent.length) break;
      items.push([item[3]]);
    } else if (inside) items.at(-1).push(lines[end].slice(indent.length).replace(/^ {1,4}|^\t/, ''));
    else if (!lines[end].trim() && /^\s*([-*+]|\d{1,9}[.)])\s|^\s{2,}\S/.test(lines[end + 1] ?? ''))
      items.at(-1).push('');
    else break;
    end += 1;
  }
  const start = ordered && Number.parseInt(mark, 10) !== 1 ? Number.parseInt(mark, 10) : undefined;
  return [
    h(
      ordered ? 'ol' : 'ul',
      { start },
      items.map((item) => listItem(item, depth)),
    ),
    end,
  ];
}

function listItem(lines, depth) {
  const task = /^\[([ xX])\]\s+(.*)$/.exec(lines[0]);
  const first = task ? task[2] : lines[0];
  const box =
    task &&
    h('span.task', { role: 'img', 'aria-label': task[1] === ' ' ? 'open' : 'done' }, task[1] === ' ' ? '☐ ' : '☑ ');
  return h('li', { class: task ? 'task-item' : '' }, box, inline(first), blocks(lines.slice(1), depth + 1));
}

function cells(line) {
  const trimmed = line.trim().replace(/^\||\|$/g, '');
  return trimmed.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll('\\|', '|'));
}

function table(lines, at) {
  const head = cells(lines[at]);
  let end = at + 2;
  while (end < lines.length && lines[end].includes('|') && lines[end].trim()) end += 1;
  const rows = lines.slice(at + 2, end).map((line) => cells(line));
  const row = (values, tag) =>
    h(
      'tr',
      {},
      head.map((_, i) => h(tag, tag === 'th' ? { scope: 'col' } : {}, inline(values[i] ?? ''))),
    );
  return [
    h(
      'div.table',
      { tabindex: '0', role: 'group', 'aria-label': 'Table' },
      h(
        'table',
        {},
        h('thead', {}, row(head, 'th')),
        h(
          'tbody',
          {},
          rows.map((values) => row(values, 'td')),
        ),
      ),
    ),
    end,
  ];
}

function paragraph(lines, at) {
  let end = at + 1;
  while (end < lines.length && lines[end].trim() && !startsBlock(lines[end])) end += 1;
  return [h('p', {}, inline(lines.slice(at, end).join('\n'))), end];
}

function startsBlock(line) {
  return FENCE.test(line) || HEADING.test(line) || QUOTE.test(line) || ITEM.test(line) || RULE.test(line);
}

/** Code, strong, emphasized and struck text, images, links and plain addresses. The lengths bound the time. */
const INLINE = new RegExp(
  [
    '(?<ticks>`{1,4})(?<code>(?:(?!\\k<ticks>)[^]){1,2000}?)\\k<ticks>',
    '(?:\\*\\*|__)(?<strong>\\S(?:[^]{0,1000}?\\S)??)(?:\\*\\*|__)',
    '~~(?<struck>\\S[^]{0,1000}?)~~',
    '(?<![\\w*])[*_](?<em>[^\\s*_](?:[^*_]{0,1000}?[^\\s*_])?)[*_](?![\\w*])',
    '(?<image>!?)\\[(?<label>[^\\]\\n]{0,500})\\]\\((?<url>[^()\\s]{0,2000}(?:\\([^()\\s]{0,200}\\)[^()\\s]{0,200})?)(?:\\s+"[^"]{0,200}")?\\)',
    '(?<bare>https?://[^\\s<>()\\[\\]"\'`]{1,2000}[^\\s<>()\\[\\]"\'`.,;:!?])',
  ].join('|'),
  'g',
);

/** Renders the formatting within a paragraph. */
export function inline(text, depth = 0) {
  if (text.length > LONGEST_PARAGRAPH || depth > 4) return [text];
  const nodes = [];
  let at = 0;
  for (const match of text.matchAll(INLINE)) {
    if (match.index > at) nodes.push(text.slice(at, match.index));
    nodes.push(inlineNode(match[0], match.groups, depth));
    at = match.index + match[0].length;
  }
  if (at < text.length) nodes.push(text.slice(at));
  return nodes;
}

function inlineNode(whole, groups, depth) {
  if (groups.code !== undefined) return h('code', {}, groups.code);
  if (groups.strong !== undefined) return h('strong', {}, inline(groups.strong, depth + 1));
  if (groups.struck !== undefined) return h('del', {}, inline(groups.struck, depth + 1));
  if (groups.em !== undefined) return h('em', {}, inline(groups.em, depth + 1));
  if (groups.bare !== undefined) return link(groups.bare, [groups.bare], false);
  if (groups.image === '!') return h('span.link', {}, `image: ${groups.label} `, h('span.url', {}, groups.url));
  return link(groups.url, inline(groups.label, depth + 1), groups.label !== groups.url);
}

/** A link to the web shows its host beside a different text. Any other address is text. */
function link(address, label, showsHost) {
  const url = URL.canParse(address) ? new URL(address) : null;
  if (url?.protocol !== 'https:' && url?.protocol !== 'http:')
    return h('span.link', {}, label, ' ', h('span.url', {}, address));
  const anchor = h('a', { href: url.href, target: '_blank', rel: 'noopener noreferrer', title: url.href }, label);
  return showsHost ? h('span', {}, anchor, ' ', h('span.url', {}, url.host)) : anchor;
}
