// Signs this browser out, with all of its tabs.

import { post } from './api.js';
import { runs } from './runs.js';
import { notice } from './states.js';
import { forgetSettings, keepSignedOut } from './store.js';

const tabs = new BroadcastChannel('agentline.sign-out');

/** Loads this tab again when another one has signed out, so that it shows nothing and follows no run. */
export function followSignOut() {
  tabs.addEventListener('message', showSignedOut);
  runs.subscribe((list) => {
    if (list) keepSignedOut(false);
  });
}

function showSignedOut() {
  keepSignedOut(true);
  location.reload();
}

/** Ends the session of the browser, and removes what the page shows and keeps. */
export async function signOut() {
  try {
    await post('/v1/logout');
  } catch (error) {
    if (error.status !== 401) return notice(error.message);
  }
  forgetSettings();
  tabs.postMessage('signed out');
  showSignedOut();
}
