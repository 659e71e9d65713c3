// Keeps a permission request from being answered by accident: by typing, or by a click that was meant for what was there
// before.

/** How long a new request takes no answer, in milliseconds. */
const UNREAD = 500;
/** The letters that select an answer, in the order of the buttons. */
const LETTERS = ['a', 'w', 'd'];

/**
 * Dims the buttons of a card until it was visible for a moment. Returns a function that says whether that is over.
 * @param {HTMLElement} card
 * @param {HTMLElement[]} buttons
 */
export function holdBack(card, buttons) {
  let isReady = false;
  const release = () => {
    isReady = true;
    card.classList.remove('unread');
    setBlocked(buttons, false);
  };
  const wait = () => {
    if (document.hidden) document.addEventListener('visibilitychange', wait, { once: true });
    else setTimeout(release, UNREAD);
  };
  card.classList.add('unread');
  setBlocked(buttons, true);
  wait();
  return () => isReady;
}

/** Blocks buttons for assistive technology, too, but keeps the focus on them. */
export function setBlocked(buttons, isBlocked) {
  for (const button of buttons) {
    if (isBlocked) button.setAttribute('aria-disabled', 'true');
    else button.removeAttribute('aria-disabled');
  }
}

/** Moves the focus to a card. The next key may be a letter that selects an answer. */
export function focusCard(card) {
  card.focus();
  card.classList.add('armed');
}

/**
 * One letter directly after P selects a button, which Enter presses. Any other character ends both, so text that is typed
 * into no field never answers.
 * @param {HTMLElement} card
 * @param {HTMLElement[]} buttons
 */
export function listenForLetters(card, buttons) {
  let selected = null;
  card.addEventListener('keydown', (event) => {
    if (event.target instanceof HTMLInputElement || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key.length !== 1 || event.key === 'p') return;
    const button = card.classList.contains('armed') && buttons[LETTERS.indexOf(event.key.toLowerCase())];
    card.classList.remove('armed');
    if (!button && selected !== event.target) return;
    event.preventDefault();
    if (button) event.stopPropagation();
    selected = button || null;
    (button || card).focus();
  });
  card.addEventListener('focusout', (event) => {
    if (event.relatedTarget !== selected) selected = null;
    if (!card.contains(event.relatedTarget)) card.classList.remove('armed');
  });
}
