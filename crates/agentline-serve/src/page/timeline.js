// A timeline of items with search: used for runs, conversations and saved sessions.

import { announce, h, iconButton } from './dom.js';
import { count } from './format.js';
import { renderRow } from './rows.js';
import { searchText } from './run_log.js';
import { VirtualList } from './virtual_list.js';

/** A scrolling timeline. `element` contains the search bar and the list. */
export class Timeline {
  /** @param {{label: string, actions?: object}} options */
  constructor({ label, actions = {} }) {
    this.actions = actions;
    this.all = [];
    this.shown = [];
    this.showsDetails = false;
    this.hits = [];
    this.hit = -1;
    this.feed = h('div.feed', { role: 'feed', 'aria-label': label });
    this.scroller = h('div.scroller', { tabindex: '0', role: 'region', 'aria-label': label }, this.feed);
    this.jump = h(
      'button.jump',
      { type: 'button', hidden: true, onclick: () => this.list.scrollToEnd() },
      'Jump to the end ↓',
    );
    this.element = h('div.timeline', {}, this.searchBar(), this.scroller, this.jump);
    this.list = new VirtualList({
      scroller: this.scroller,
      feed: this.feed,
      render: (item, index) => renderRow(item, index, this.shown.length, this.actions),
    });
    this.list.onLayout = () => this.afterLayout();
  }

  destroy() {
    this.list.destroy();
    CSS.highlights?.clear();
  }

  searchBar() {
    this.input = h('input', {
      type: 'search',
      placeholder: 'Search all events',
      'aria-label': 'Search all events',
      autocomplete: 'off',
      spellcheck: 'false',
    });
    this.counter = h('output', { 'aria-live': 'polite' });
    this.input.addEventListener('input', () => this.search());
    this.input.addEventListener('keydown', (event) => this.onSearchKey(event));
    this.details = h('input', { type: 'checkbox' });
    this.details.addEventListener('change', () => this.showDetails(this.details.checked));
    this.bar = h(
      'div.search-bar',
      { role: 'search' },
      this.input,
      iconButton('up', 'Previous match', () => this.step(-1)),
      iconButton('down', 'Next match', () => this.step(1)),
      this.counter,
      h('label.check', { title: 'Also show messages of the agent that no other event covers' }, this.details, 'Details'),
    );
    return this.bar;
  }

  onSearchKey(event) {
    if (event.key === 'Enter') {
      event.preventDefault();
      this.step(event.shiftKey ? -1 : 1);
    } else if (event.key === 'Escape') {
      event.stopPropagation();
      this.input.value = '';
      this.search();
      this.scroller.focus();
    }
  }

  showDetails(shows) {
    this.showsDetails = shows;
    this.details.checked = shows;
    this.update(this.all);
  }

  /** Shows these items. */
  update(items) {
    this.all = items;
    this.shown = this.showsDetails ? items : items.filter((item) => !item.detail);
    this.list.update(this.shown);
    if (this.query) this.find(false);
  }

  focusSearch() {
    this.input.focus();
    this.input.select();
  }

  search() {
    this.query = this.input.value.trim().toLowerCase();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.find(true), 80);
  }

  find(moves) {
    const before = this.hits[this.hit]?.key;
    this.hits = this.query ? this.all.filter((item) => searchText(item).includes(this.query)) : [];
    this.hit = moves ? this.firstHit() : this.hits.findIndex((item) => item.key === before);
    if (moves && this.hits.length) this.showHit();
    this.report();
    this.list.schedule();
  }

  /** The first match that is shown, or else the first one of the details; -1 if there is none. */
  firstHit() {
    const shown = this.hits.findIndex((item) => this.showsDetails || !item.detail);
    return shown < 0 ? Math.min(0, this.hits.length - 1) : shown;
  }

  step(by) {
    if (!this.hits.length) return;
    this.hit = (this.hit + by + this.hits.length) % this.hits.length;
    this.showHit();
    this.report();
  }

  report() {
    this.counter.textContent = !this.query
      ? ''
      : this.hits.length
        ? `${count(this.hit + 1)} of ${count(this.hits.length)}`
        : 'No match';
  }

  /** Opens the item with the current match and scrolls to it. */
  showHit() {
    const item = this.hits[this.hit];
    if (item.detail && !this.showsDetails) this.showDetails(true);
    if (item.open === false || item.open === undefined) {
      item.open = true;
      item.version += 1;
    }
    this.list.scrollToIndex(this.shown.indexOf(item));
    const range = this.revealed(this.list.elementOf(item.key));
    // Diffs and outputs scroll, too.
    range?.startContainer.parentElement.scrollIntoView({ block: 'nearest', inline: 'nearest', behavior: 'instant' });
    const box = range?.getBoundingClientRect();
    const pane = this.scroller.getBoundingClientRect();
    if (box && (box.top < pane.top + 60 || box.bottom > pane.bottom - 60))
      this.scroller.scrollTop += box.top - pane.top - pane.height / 3;
  }

  /** Returns the first match in an element, also in what is cut there. */
  revealed(element) {
    const [range] = this.rangesIn(element);
    if (range || !element) return range;
    for (const part of element.querySelectorAll('[data-cut]'))
      part.dispatchEvent(new CustomEvent('reveal', { detail: this.query }));
    this.list.schedule();
    return this.rangesIn(element)[0];
  }

  /** Returns the matches in an element. */
  rangesIn(element) {
    if (!element || !this.query) return [];
    const ranges = [];
    const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
    while (walker.nextNode() && ranges.length < 200) {
      const text = walker.currentNode.data.toLowerCase();
      for (
        let at = text.indexOf(this.query);
        at >= 0 && ranges.length < 200;
        at = text.indexOf(this.query, at + this.query.length)
      ) {
        const range = new Range();
        range.setStart(walker.currentNode, at);
        range.setEnd(walker.currentNode, Math.min(at + this.query.length, walker.currentNode.length));
        ranges.push(range);
      }
    }
    return ranges;
  }

  afterLayout() {
    this.numberRows();
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    this.jump.hidden = this.list.stick || scrollHeight - scrollTop - clientHeight < 400;
    if (!CSS.highlights) return;
    const current = this.hits[this.hit]?.key;
    CSS.highlights.set('hit', new Highlight(...this.rangesIn(this.query ? this.feed : null)));
    CSS.highlights.set('hit-now', new Highlight(...this.rangesIn(current ? this.list.elementOf(current) : null)));
  }

  /** Rows stay in the document while others are added before or after them. */
  numberRows() {
    const total = this.shown.length;
    [...this.feed.children].forEach((row, index) => {
      setNumber(row, 'aria-posinset', this.list.first + index + 1);
      setNumber(row, 'aria-setsize', total);
    });
  }

  /** Moves the focus to the next or the previous row. */
  moveFocus(by) {
    const row = document.activeElement?.closest?.('.row');
    const index = row
      ? this.shown.findIndex((item) => item.key === row.dataset.key) + by
      : this.list.indexAt(this.scroller.scrollTop);
    if (index < 0 || index >= this.shown.length) return;
    const item = this.shown[index];
    const element = this.list.elementOf(item.key);
    const pane = this.scroller.getBoundingClientRect();
    const box = element?.getBoundingClientRect();
    if (!box || box.top < pane.top || box.bottom > pane.bottom) this.list.scrollToIndex(index);
    this.list.elementOf(item.key)?.focus({ preventScroll: true });
  }

  /** Moves the focus to an item. */
  focusItem(item) {
    const index = this.shown.indexOf(item);
    if (index < 0) return;
    this.list.scrollToIndex(index);
    const row = this.list.elementOf(item.key);
    (row?.querySelector('.permission') ?? row)?.focus({ preventScroll: true });
    announce('');
  }
}

function setNumber(element, name, value) {
  if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}
