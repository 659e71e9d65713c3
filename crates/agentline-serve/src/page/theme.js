// Switches between the system's color scheme, light and dark.

import { notice } from './states.js';
import { keepSetting, setting } from './store.js';

/** Applies the kept choice. */
export function applyTheme() {
  const theme = setting('theme');
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

/** Switches from the system's scheme to the other one, to the same one whatever the system has, and back to the system's. */
export function toggleTheme() {
  const [same, other] = matchMedia('(prefers-color-scheme: dark)').matches ? ['dark', 'light'] : ['light', 'dark'];
  const now = document.documentElement.dataset.theme ?? '';
  const next = { '': other, [other]: same, [same]: '' }[now];
  keepSetting('theme', next);
  applyTheme();
  notice(next ? `Color scheme: ${next}` : 'Color scheme: that of the system');
}
