// Shows code and output: shortened if long, with a button to copy it, and code with simple highlighting.

import { copyText, h, iconButton } from './dom.js';
import { count } from './format.js';

/** More is shown only on request. */
const MOST_CHARS = 20000;
const MOST_LINES = 400;
/** Longer code is not highlighted. */
const HIGHLIGHTED = 20000;

const KEYWORDS = new Set(
  (
    'abstract as async await bool boolean break case catch char class const continue crate def default del delete do dyn elif else ' +
    'end enum except export extends extern false fi final finally float fn for from func function global go if impl implements import in int ' +
    'interface is lambda let loop match mod move mut namespace new nil none None not null or and package pass private protected pub public raise ref ' +
    'return self Self static str string struct super switch then this throw trait true True False try type typeof undefined unsafe use using var void ' +
    'where while with yield'
  ).split(' '),
);
const HASH = new Set([
  'py',
  'python',
  'sh',
  'bash',
  'shell',
  'zsh',
  'rb',
  'ruby',
  'yaml',
  'yml',
  'toml',
  'makefile',
  'dockerfile',
  'r',
  'perl',
  'console',
]);
const PLAIN = new Set(['', 'text', 'txt', 'plain', 'output', 'log', 'md', 'markdown', 'diff']);

/** Code with the name of its language and a button to copy it. */
export function codeBlock(text, language = '') {
  const code = h('code', {}, PLAIN.has(language.toLowerCase()) ? text : highlight(text, language.toLowerCase()));
  const block = h('pre.code', { tabindex: '0' }, code);
  return h('div.copyable', {}, language && h('span.language', {}, language), copyButton(text), block);
}

/** A button that copies a text. */
export function copyButton(text) {
  const control = iconButton('copy', 'Copy', () => copyText(text, control), { class: 'copy' });
  return control;
}

/** Output of a tool. A long one is cut, with a button that shows the rest. */
export function output(text, { fromEnd = false, label = 'Output' } = {}) {
  const { part, hidden } = cut(text, fromEnd);
  const block = h('pre.output', { tabindex: '0', role: 'group', 'aria-label': label }, part);
  if (!hidden) return h('div.copyable', {}, copyButton(text), block);
  const more = h('button.more', { type: 'button' }, `Show all ${count(text.split('\n').length)} lines`);
  const showAll = () => {
    block.replaceChildren(...h('span', {}, text).childNodes);
    more.remove();
  };
  more.addEventListener('click', () => {
    showAll();
    block.focus();
  });
  const all = h('div.copyable', { 'data-cut': '' }, copyButton(text), fromEnd && more, block, !fromEnd && more);
  all.addEventListener('reveal', showAll);
  return all;
}

/** Returns the shown part of a text, and whether something is hidden. */
function cut(text, fromEnd) {
  const lines = text.split('\n');
  if (lines.length <= MOST_LINES && text.length <= MOST_CHARS) return { part: text, hidden: false };
  const some = (fromEnd ? lines.slice(-MOST_LINES) : lines.slice(0, MOST_LINES)).join('\n');
  return { part: fromEnd ? some.slice(-MOST_CHARS) : some.slice(0, MOST_CHARS), hidden: true };
}

/** A value as indented JSON; a text as it is. */
export function value(data, label = 'Input') {
  if (typeof data === 'string') return output(data, { label });
  return output(JSON.stringify(data, null, 2) ?? '', { label });
}

function pattern(language) {
  const comment = HASH.has(language) ? '#[^\\n]*' : '//[^\\n]*|/\\*[^]{0,4000}?\\*/|--[^\\n]*(?=\\n|$)';
  const skip = HASH.has(language) || language === 'sql' ? comment : comment.replace('|--[^\\n]*(?=\\n|$)', '');
  return new RegExp(
    `(?<comment>${skip})|(?<string>"(?:[^"\\\\\\n]|\\\\.){0,1000}"|'(?:[^'\\\\\\n]|\\\\.){0,1000}'|\`(?:[^\`\\\\]|\\\\.){0,1000}\`)|(?<number>\\b\\d[\\w.]*)|(?<word>[A-Za-z_]\\w*)`,
    'g',
  );
}

/** Marks keywords, texts, numbers and comments. */
export function highlight(text, language) {
  if (text.length > HIGHLIGHTED) return [text];
  const nodes = [];
  let at = 0;
  for (const match of text.matchAll(pattern(language))) {
    const { comment, string, number, word } = match.groups;
    if (word !== undefined && !KEYWORDS.has(word)) continue;
    if (match.index > at) nodes.push(text.slice(at, match.index));
    const kind = comment !== undefined ? 'c' : string !== undefined ? 's' : number !== undefined ? 'n' : 'k';
    nodes.push(h(`span.${kind}`, {}, match[0]));
    at = match.index + match[0].length;
  }
  nodes.push(text.slice(at));
  return nodes;
}

/** A text of agentline in which backticks mark code. */
export function codeSpans(text) {
  const parts = String(text ?? '').split(/`([^`\n]+)`/);
  return parts.map((part, index) => (index % 2 ? h('code', {}, part) : part));
}
