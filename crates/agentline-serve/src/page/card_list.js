// A long list of cards in a scrolling view, with only the cards near the window in the document.

import { h } from './dom.js';
import { VirtualList } from './virtual_list.js';

/** A list of cards. `element` belongs into the main part of the page. */
export class CardList {
  constructor() {
    this.element = h('ul.cards.long');
    this.updates = 0;
    this.list = new VirtualList({
      scroller: document.querySelector('#main'),
      feed: this.element,
      render: ({ card, total }, index) => {
        const row = card();
        // Most of the other items are not in the document.
        row.setAttribute('aria-posinset', index + 1);
        row.setAttribute('aria-setsize', total);
        return row;
      },
    });
    // New cards at the end must not move the cards that are read.
    this.list.follows = false;
  }

  /** Shows these cards. A card is a function that creates a list item. @param {{key: string, card: () => HTMLElement}[]} cards */
  update(cards) {
    this.updates += 1;
    this.list.update(cards.map((card) => ({ ...card, total: cards.length, version: this.updates })));
  }

  /** Moves the focus to the last card in the document if it is in an element that is about to be removed. */
  takeFocusFrom(element) {
    if (!element.contains(document.activeElement)) return;
    this.element.lastElementChild?.querySelector('a')?.focus({ preventScroll: true });
  }

  destroy() {
    this.list.destroy();
  }
}
