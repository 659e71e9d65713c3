// Builds DOM nodes. Foreign content enters the document only through this file, always as text.

import { plain, visibleNodes } from './text.js';

const SVG = 'http://www.w3.org/2000/svg';

/**
 * Creates an element: `h('button.primary', {type: 'button', onclick: save}, 'Save')`.
 * @param {string} spec the tag and its classes
 * @param {Object<string, unknown>} [props] attributes; functions are listeners, `undefined`, `null` and `false` are left out
 * @param {...unknown} children nodes, texts and lists of them
 * @returns {HTMLElement}
 */
export function h(spec, props, ...children) {
  const [tag, ...classes] = spec.split('.');
  const element = document.createElement(tag);
  if (classes.length) element.className = classes.join(' ');
  setProps(element, props);
  append(element, children);
  return element;
}

/** Creates an SVG element from attributes and children. */
export function svg(tag, props, ...children) {
  const element = document.createElementNS(SVG, tag);
  setProps(element, props);
  append(element, children);
  return element;
}

function setProps(element, props) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === 'function') element.addEventListener(name.slice(2), value);
    else if (name === 'class') element.classList.add(...String(value).split(' ').filter(Boolean));
    else if (name === 'value') element.value = value;
    else element.setAttribute(name, value === true ? '' : plain(value));
  }
}

/** Appends nodes and texts. */
export function append(element, children) {
  for (const child of children) {
    if (Array.isArray(child)) append(element, child);
    else if (child instanceof Node) element.append(child);
    else if (child !== undefined && child !== null && child !== false) element.append(...visibleNodes(child));
  }
  return element;
}

/** Replaces the children of an element. */
export function fill(element, ...children) {
  element.replaceChildren();
  return append(element, children);
}

/** The icons: paths in a box of 24 units, drawn as lines. */
const ICONS = {
  plus: 'M12 5v14M5 12h14',
  runs: 'M4 6h16M4 12h16M4 18h10',
  chat: 'M4 5h16v11H9l-5 4z',
  history: 'M12 8v4l3 2M3.5 12a8.5 8.5 0 1 0 2.6-6.1L3.5 8.4M3.5 4v4.4h4.4',
  chart: 'M4 20V10M10 20V4M16 20v-7M21 20H3',
  flask: 'M9 3h6M10 3v6l-5.5 9.5A1.7 1.7 0 0 0 6 21h12a1.7 1.7 0 0 0 1.5-2.5L14 9V3M7.5 15h9',
  help: 'M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM9.5 9.5a2.5 2.5 0 1 1 3.6 2.2c-.7.4-1.1.9-1.1 1.8M12 17v.01',
  theme: 'M12 3a9 9 0 1 0 0 18zM12 3a9 9 0 0 1 0 18',
  stop: 'M7 7h10v10H7z',
  search: 'M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM20 20l-4-4',
  folder: 'M3 6h6l2 2h10v11H3z',
  clip: 'M20 11.5l-8.2 8a5 5 0 0 1-7-7l8.6-8.4a3.3 3.3 0 0 1 4.7 4.7l-8.5 8.3a1.7 1.7 0 0 1-2.4-2.3l7.8-7.6',
  up: 'M6 15l6-6 6 6',
  down: 'M6 9l6 6 6-6',
  left: 'M15 6l-6 6 6 6',
  close: 'M6 6l12 12M18 6L6 18',
  send: 'M12 19V5M6 11l6-6 6 6',
  copy: 'M9 9h11v11H9zM5 15H4V4h11v1',
  shield: 'M12 3l7 3v5c0 5-3 8.5-7 10-4-1.5-7-5-7-10V6z',
  menu: 'M4 7h16M4 12h16M4 17h16',
};

/** Creates a decorative icon. */
export function icon(name) {
  const path = svg('path', { d: ICONS[name] });
  return svg('svg', { viewBox: '0 0 24 24', class: 'icon', 'aria-hidden': 'true', focusable: 'false' }, path);
}

/** Creates a button with an icon and a name for assistive technology. */
export function iconButton(name, label, onclick, props = {}) {
  return h(
    'button.icon-button',
    { type: 'button', 'aria-label': label, title: label, onclick, ...props },
    icon(name),
  );
}

/** Creates a button. */
export function button(label, onclick, props = {}) {
  return h('button.button', { type: 'button', onclick, ...props }, label);
}

/** Creates an option of a select. */
export function option(value, label, selected = false) {
  const element = h('option', { value }, plain(label));
  element.value = value;
  element.selected = selected;
  return element;
}

/** Announces a message to assistive technology. */
export function announce(message) {
  const region = document.querySelector('#announcer');
  if (region) region.textContent = plain(message);
}

/** Changes the address without a new view and without a step in the history. */
export function replaceAddress(hash) {
  history.replaceState(null, '', hash);
  dispatchEvent(new Event('addressreplaced'));
}

/** Copies a text and reports the result on the button. */
export async function copyText(text, control) {
  const copied = await navigator.clipboard?.writeText(text).then(
    () => true,
    () => false,
  );
  announce(copied ? 'Copied' : 'The browser did not allow copying');
  control?.classList.add(copied ? 'done' : 'failed');
  setTimeout(() => control?.classList.remove('done', 'failed'), 1200);
}
