// Formats numbers, sizes, costs and times for people.

const number = new Intl.NumberFormat('en-US');
const compact = new Intl.NumberFormat('en-US', { notation: 'compact', maximumFractionDigits: 1 });

/** @param {number | null | undefined} value */
export const known = (value) => value !== null && value !== undefined;

/** 12,345 */
export const count = (value) => (known(value) ? number.format(value) : '–');

/** 12.3K */
export const short = (value) => (known(value) ? compact.format(value) : '–');

/** "1 file", "2 files" */
export const plural = (value, noun) => `${count(value)} ${noun}${value === 1 ? '' : 's'}`;

/** $0.0203 */
export function money(value) {
  if (!known(value)) return '–';
  if (value === 0) return '$0';
  if (value < 0.0001) return '<$0.0001';
  // Sums of decimal fractions are rounded like the fractions themselves.
  const exact = Number(value.toFixed(7));
  const rounded = (digits) => (Math.round(Number((exact * 10 ** digits).toFixed(4))) / 10 ** digits).toFixed(digits);
  return `$${exact < 1 ? rounded(4) : rounded(2)}`;
}

/** 850 ms, 9.7 s, 3 min 12 s, 2 h 5 min */
export function duration(ms) {
  if (!known(ms)) return '–';
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60000) return `${(ms / 1000).toFixed(ms < 9950 ? 1 : 0)} s`;
  const minutes = Math.floor(ms / 60000);
  if (minutes < 60) return `${minutes} min ${Math.floor((ms % 60000) / 1000)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** 3:07 */
export function clock(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, '0')}`;
}

/** "just now", "5 min ago", "Nov 15, 10:32" */
export function ago(ms, now = Date.now()) {
  if (!known(ms)) return '';
  const seconds = Math.round((now - ms) / 1000);
  if (seconds < 45) return 'just now';
  if (seconds < 3600) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.round(seconds / 3600)} h ago`;
  return moment(ms);
}

/** "Nov 15, 10:32", with the year if it is not the current one */
export function moment(ms) {
  if (!known(ms)) return '';
  const date = new Date(ms);
  const year = date.getFullYear() === new Date().getFullYear() ? undefined : 'numeric';
  return date.toLocaleString('en-US', {
    year,
    month: 'short',
    day: 'numeric',
    hour: '2-digit',
    minute: '2-digit',
    hour12: false,
  });
}

/** 1.2 MB */
export function bytes(value) {
  if (!known(value)) return '–';
  const units = ['bytes', 'KB', 'MB', 'GB'];
  const step = value < 1000 ? 0 : Math.min(3, Math.floor(Math.log10(value) / 3));
  return step === 0 ? `${value} bytes` : `${(value / 1000 ** step).toFixed(1)} ${units[step]}`;
}

/** "done_with_denials" → "Done with denials" */
export function words(value) {
  const text = String(value ?? '')
    .replaceAll('_', ' ')
    .replaceAll('-', ' ');
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** The last two parts of a path. */
export function tail(path) {
  const parts = String(path ?? '')
    .split('/')
    .filter(Boolean);
  return parts.length > 2 ? `…/${parts.slice(-2).join('/')}` : String(path ?? '');
}
