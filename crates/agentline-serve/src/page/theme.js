// Switches between the system's color scheme, light and dark.

import { announce } from './dom.js';
import { keepSetting, setting } from './store.js';

/** Applies the kept choice. */
export function applyTheme() {
  const theme = setting('theme');
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

/** Switches to the other scheme. A switch back to the scheme of the system follows the system again. */
export function toggleTheme() {
  const system = matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
  const now = document.documentElement.dataset.theme ?? system;
  const next = now === 'dark' ? 'light' : 'dark';
  keepSetting('theme', next === system ? '' : next);
  applyTheme();
  announce(`The ${next} theme is on`);
}
