// Shows a long list with rows of any height, with only the rows near the window in the document.

const OVERSCAN = 500;
const MOST_ROWS = 160;
const GUESS = 64;
/** A list this close to its end follows new rows. */
const NEAR_END = 60;

/**
 * A list in a scrolling element. It keeps the first visible row in place while heights become known, and follows the
 * end if the reader is there, unless `follows` is false.
 */
export class VirtualList {
  /** @param {{scroller: HTMLElement, feed: HTMLElement, render: (item: object, index: number) => HTMLElement}} parts */
  constructor({ scroller, feed, render }) {
    Object.assign(this, { scroller, feed, render });
    this.items = [];
    this.rows = new Map();
    this.heights = new Map();
    this.offsets = new Float64Array(1);
    this.first = 0;
    this.last = 0;
    /** Whether a list that is scrolled to its end stays there when rows are added. */
    this.follows = true;
    this.stick = false;
    this.lastTop = 0;
    this.observer = new ResizeObserver(() => this.schedule());
    this.observer.observe(scroller);
    this.left = new AbortController();
    scroller.addEventListener('scroll', () => this.onScroll(), { passive: true, signal: this.left.signal });
  }

  destroy() {
    this.observer.disconnect();
    this.left.abort();
    cancelAnimationFrame(this.frame);
  }

  /** Shows these items. The list may be the same one, with new or changed items. */
  update(items) {
    this.items = items;
    this.schedule();
  }

  schedule() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.layout();
    });
  }

  onScroll() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    if (scrollHeight - scrollTop - clientHeight < NEAR_END) this.stick = this.follows;
    else if (scrollTop < this.lastTop - 1) this.stick = false;
    this.lastTop = scrollTop;
    this.schedule();
  }

  measureOffsets() {
    if (this.offsets.length !== this.items.length + 1) this.offsets = new Float64Array(this.items.length + 1);
    for (let i = 0; i < this.items.length; i += 1) {
      this.offsets[i + 1] = this.offsets[i] + (this.heights.get(this.items[i].key) ?? GUESS);
    }
  }

  /** Returns the index of the row at a distance from the start of the list. */
  indexAt(distance) {
    let low = 0;
    let high = this.items.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.offsets[middle + 1] <= distance) low = middle + 1;
      else high = middle;
    }
    return Math.min(low, Math.max(0, this.items.length - 1));
  }

  layout() {
    if (!this.scroller.contains(this.feed)) return;
    const start =
      this.feed.getBoundingClientRect().top -
      this.scroller.getBoundingClientRect().top -
      this.scroller.clientTop +
      this.scroller.scrollTop;
    this.measureOffsets();
    const top = this.scroller.scrollTop - start;
    const anchor = this.target?.index ?? this.indexAt(Math.max(0, top));
    const within = this.target ? -this.target.margin : top - this.offsets[anchor];
    for (let pass = 0; pass < 4; pass += 1) {
      const middle =
        this.stick && !this.target
          ? this.offsets[this.items.length] - this.scroller.clientHeight
          : this.offsets[anchor] + within;
      if (!this.place(Math.max(0, middle))) break;
    }
    this.feed.style.paddingTop = `${this.offsets[this.first]}px`;
    this.feed.style.paddingBottom = `${this.offsets[this.items.length] - this.offsets[this.last]}px`;
    this.restore(start, anchor, within);
    this.target = null;
    this.onLayout?.();
  }

  restore(start, anchor, within) {
    const wanted =
      this.stick && !this.target ? this.scroller.scrollHeight : Math.max(0, start + this.offsets[anchor] + within);
    if (Math.abs(this.scroller.scrollTop - wanted) > 0.5) this.scroller.scrollTop = wanted;
    this.lastTop = this.scroller.scrollTop;
  }

  /** Renders the rows around a position. Returns whether a height turned out to be different. */
  place(top) {
    this.first = this.indexAt(Math.max(0, top - OVERSCAN));
    const end = top + this.scroller.clientHeight + OVERSCAN;
    this.last = this.items.length ? Math.min(this.items.length, this.indexAt(end) + 1, this.first + MOST_ROWS) : 0;
    this.removeOthers();
    let after = null;
    const shown = [];
    for (let i = this.last - 1; i >= this.first; i -= 1) {
      const row = this.row(i);
      if (row.nextSibling !== after || row.parentNode !== this.feed) this.feed.insertBefore(row, after);
      after = row;
      shown.push([this.items[i].key, row]);
    }
    return this.measure(shown);
  }

  removeOthers() {
    const wanted = new Set();
    for (let i = this.first; i < this.last; i += 1) wanted.add(this.items[i].key);
    for (const [key, { element }] of this.rows) {
      if (wanted.has(key)) continue;
      if (element.contains(document.activeElement)) this.scroller.focus({ preventScroll: true });
      this.discard(key, element);
    }
  }

  discard(key, element) {
    this.observer.unobserve(element);
    element.remove();
    this.rows.delete(key);
  }

  row(index) {
    const item = this.items[index];
    const known = this.rows.get(item.key);
    if (known?.version === item.version) return known.element;
    const element = this.render(item, index);
    if (known) this.replace(known.element, element);
    this.observer.observe(element);
    this.rows.set(item.key, { element, version: item.version });
    return element;
  }

  /** Replaces a row and keeps the focus on the control at the same position. */
  replace(old, element) {
    const selector = 'button, summary, input, textarea, a';
    const position = old.contains(document.activeElement)
      ? [...old.querySelectorAll(selector)].indexOf(document.activeElement)
      : -2;
    this.observer.unobserve(old);
    old.replaceWith(element);
    if (position === -1) element.focus({ preventScroll: true });
    else if (position >= 0) (element.querySelectorAll(selector)[position] ?? element).focus({ preventScroll: true });
  }

  measure(shown) {
    let differs = false;
    for (const [key, row] of shown) {
      const height = row.getBoundingClientRect().height;
      if (Math.abs((this.heights.get(key) ?? GUESS) - height) > 0.5) differs = true;
      this.heights.set(key, height);
    }
    if (differs) this.measureOffsets();
    return differs;
  }

  /** Scrolls to a row, with a margin above it. */
  scrollToIndex(index, margin = 80) {
    this.stick = false;
    this.target = { index, margin };
    this.layout();
  }

  scrollToEnd() {
    this.stick = true;
    this.schedule();
  }

  /** Returns the element of an item if it is in the document. */
  elementOf(key) {
    return this.rows.get(key)?.element ?? null;
  }
}
