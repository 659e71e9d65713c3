// Draws stacked bar charts as SVG. The same numbers are in a table beside each chart.

import { h, svg } from './dom.js';
import { shorten } from './text.js';

/** In a narrow window, the chart has fewer units, so that its text stays readable. */
const widthOf = () => (innerWidth < 600 ? 400 : 960);
const HEIGHT = 260;
const LEFT = 64;
const BOTTOM = 34;
const TOP = 12;

/**
 * @typedef {{key: string, name: string}} Series
 * @param {{rows: {name: string, values: Object<string, number>}[], series: Series[], format: (value: number) => string, label: string}} data
 */
export function barChart({ rows, series, format, label }) {
  const sums = rows.map((row) => series.reduce((sum, { key }) => sum + (row.values[key] ?? 0), 0));
  const full = widthOf();
  const top = niceMaximum(Math.max(...sums, 0));
  const height = HEIGHT - BOTTOM - TOP;
  const step = (full - LEFT) / Math.max(1, rows.length);
  const y = (value) => TOP + height - (top ? (value / top) * height : 0);
  const bars = rows.map((row, i) => bar(row, { series, x: LEFT + i * step, width: step, y, format, sum: sums[i] }));
  const lines = [0, 0.25, 0.5, 0.75, 1].map((share) => [
    svg('line', { class: 'grid-line', x1: LEFT, x2: full, y1: y(top * share), y2: y(top * share) }),
    svg(
      'text',
      { class: 'axis-text', x: LEFT - 8, y: y(top * share) + 4, 'text-anchor': 'end' },
      format(top * share),
    ),
  ]);
  const every = Math.ceil(rows.length / Math.max(1, Math.floor((full - LEFT) / 92)));
  const names = rows.map((row, i) =>
    i % every === 0
      ? svg(
          'text',
          { class: 'axis-text', x: LEFT + i * step + step / 2, y: HEIGHT - 12, 'text-anchor': 'middle' },
          shorten(row.name || 'unknown', Math.max(8, Math.floor((step * every) / 8))),
        )
      : null,
  );
  const chart = svg(
    'svg',
    {
      viewBox: `0 0 ${full} ${HEIGHT}`,
      class: 'chart',
      role: 'img',
      'aria-label': `${label}. The table below has the same numbers.`,
    },
    lines,
    bars,
    names,
  );
  return h('figure.chart-box', {}, h('figcaption', {}, label, legend(series)), chart);
}

function legend(series) {
  return h(
    'ul.legend',
    {},
    series.map(({ key, name }) => h('li', {}, h(`i.part.${key}`, { 'aria-hidden': 'true' }), name)),
  );
}

function bar(row, { series, x, width, y, format, sum }) {
  const gap = Math.min(10, width * 0.2);
  const thick = Math.min(56, Math.max(1, width - gap));
  const left = x + (width - thick) / 2;
  let below = 0;
  const parts = series.map(({ key }) => {
    const value = row.values[key] ?? 0;
    if (!value) return null;
    const top = y(below + value);
    const part = svg('rect', {
      class: `part ${key}`,
      x: left,
      y: top,
      width: thick,
      height: Math.max(0.5, y(below) - top),
    });
    below += value;
    return part;
  });
  return svg(
    'g',
    {},
    svg('title', {}, `${row.name}: ${format(sum)}`),
    svg('rect', { class: 'hover', x, y: TOP, width, height: HEIGHT - BOTTOM - TOP }),
    parts,
  );
}

/** A round number that is at least the value. */
function niceMaximum(value) {
  if (value <= 0) return 0;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 4, 5, 8, 10].map((factor) => factor * power).find((candidate) => candidate >= value);
}

/** A ring or bar of shares, such as passed, failed and other runs. */
export function shareBar(parts, label) {
  const total = parts.reduce((sum, { value }) => sum + value, 0);
  let x = 0;
  const rects = parts.map(({ key, value }) => {
    const width = total ? (value / total) * 100 : 0;
    const rect = svg('rect', { class: `part ${key}`, x, y: 0, width, height: 8 });
    x += width;
    return rect;
  });
  return svg(
    'svg',
    { class: 'share-bar', viewBox: '0 0 100 8', preserveAspectRatio: 'none', role: 'img', 'aria-label': label },
    rects,
  );
}

/** A line with the interval of a rate and its middle, from 0 to 1. */
export function intervalLine(rate, interval, label) {
  const parts = [svg('line', { class: 'grid-line', x1: 0, x2: 100, y1: 6, y2: 6 })];
  if (interval)
    parts.push(svg('line', { class: 'interval', x1: interval[0] * 100, x2: interval[1] * 100, y1: 6, y2: 6 }));
  if (typeof rate === 'number')
    parts.push(svg('rect', { class: 'point', x: rate * 100 - 0.8, y: 1, width: 1.6, height: 10 }));
  return svg(
    'svg',
    { class: 'interval-chart', viewBox: '0 0 100 12', preserveAspectRatio: 'none', role: 'img', 'aria-label': label },
    parts,
  );
}
