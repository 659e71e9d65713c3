// A value that reports its changes, and settings that the browser keeps.

/**
 * Creates a value with subscribers.
 * @template T
 * @param {T} value
 */
export function createStore(value) {
  const listeners = new Set();
  return {
    get: () => value,
    /** @param {T} next */
    set(next) {
      if (Object.is(next, value)) return;
      value = next;
      for (const listener of [...listeners]) listener(value);
    },
    /** Calls a listener with every new value. Returns a function that ends this. */
    subscribe(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

/** Reads a setting that this browser keeps. */
export function setting(name, fallback = '') {
  try {
    return localStorage.getItem(`agentline.${name}`) ?? fallback;
  } catch {
    return fallback;
  }
}

/** Keeps a setting in this browser, if it allows that. */
export function keepSetting(name, value) {
  try {
    if (value) localStorage.setItem(`agentline.${name}`, value);
    else localStorage.removeItem(`agentline.${name}`);
  } catch {
    // Without storage, the page works with its defaults.
  }
}

const SIGNED_OUT = 'agentline.signed-out';

/** Whether this tab was signed out by its user, not by the end of the session. */
export function hasSignedOut() {
  try {
    return sessionStorage.getItem(SIGNED_OUT) !== null;
  } catch {
    return false;
  }
}

/** Keeps that this tab was signed out by its user, or forgets it. */
export function keepSignedOut(isSignedOut) {
  try {
    if (isSignedOut) sessionStorage.setItem(SIGNED_OUT, 'yes');
    else sessionStorage.removeItem(SIGNED_OUT);
  } catch {
    // Without storage, the page says only that the sign-in is missing.
  }
}

const HELD = 'agentline.held-runs';

/** The runs that this tab keeps alive. They survive a reload, and end with the tab. */
export function runsOfTab() {
  try {
    return JSON.parse(sessionStorage.getItem(HELD) ?? '[]');
  } catch {
    return [];
  }
}

/** Keeps which runs this tab keeps alive. @param {string[]} runs */
export function keepRunsOfTab(runs) {
  try {
    sessionStorage.setItem(HELD, JSON.stringify(runs));
  } catch {
    // Without storage, a tab that is loaded again keeps only the run that it shows alive.
  }
}

/** Removes all settings but the color scheme. */
export function forgetSettings() {
  keepRunsOfTab([]);
  try {
    const names = Object.keys(localStorage).filter((name) => name.startsWith('agentline.'));
    for (const name of names) if (name !== 'agentline.theme') localStorage.removeItem(name);
  } catch {
    // Without storage, nothing was kept.
  }
}
