// Makes control characters, terminal escapes and direction overrides in foreign text visible.

/** Terminal escape sequences, then single characters that are invisible or change how text is displayed. */
const HIDDEN =
  /\u001b\[[0-9;:?<=>]{0,40}[ -/]{0,4}[@-~]|\u001b\][^\u0007\u001b]{0,200}(?:\u0007|\u001b\\)|[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]/gu;

/** The names of the characters 0 to 31. */
const NAMES =
  'NUL SOH STX ETX EOT ENQ ACK BEL BS HT LF VT FF CR SO SI DLE DC1 DC2 DC3 DC4 NAK SYN ETB CAN EM SUB ESC FS GS RS US'.split(
    ' ',
  );

/** @param {string} found @returns {string} the visible form of a hidden character or sequence */
function shown(found) {
  return found.replace(/[^\u0020-\u007e]/gu, (character) => {
    const code = character.codePointAt(0);
    if (code < 0x20) return NAMES[code];
    if (code === 0x7f) return 'DEL';
    return `U+${code.toString(16).toUpperCase().padStart(4, '0')}`;
  });
}

/** @param {unknown} value @returns {string} text with Unix line ends */
const lines = (value) => String(value).replaceAll('\r\n', '\n');

/**
 * Returns a text for attributes, titles and options, with hidden characters in their visible form.
 * @param {unknown} value
 */
export function plain(value) {
  return lines(value).replace(HIDDEN, shown);
}

/**
 * Returns text nodes, with hidden characters as marked elements.
 * @param {unknown} value
 * @returns {Node[]}
 */
export function visibleNodes(value) {
  const text = lines(value);
  const nodes = [];
  let at = 0;
  for (const match of text.matchAll(HIDDEN)) {
    if (match.index > at) nodes.push(document.createTextNode(text.slice(at, match.index)));
    const mark = document.createElement('span');
    mark.className = 'ctl';
    mark.textContent = shown(match[0]);
    nodes.push(mark);
    at = match.index + match[0].length;
  }
  if (at < text.length) nodes.push(document.createTextNode(text.slice(at)));
  return nodes;
}

/** Shortens a text to a number of characters, without splitting a surrogate pair. */
export function shorten(value, length) {
  const text = String(value);
  if (text.length <= length) return text;
  return `${text.slice(0, length).replace(/[\ud800-\udbff]$/, '')}…`;
}

/** @param {unknown} value @returns {string} the first line that is not empty */
export function firstLine(value) {
  return (
    String(value ?? '')
      .split('\n')
      .find((line) => line.trim()) ?? ''
  ).trim();
}
