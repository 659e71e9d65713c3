// Shows how a run ended: its verdict, totals, errors, denials and changed files.

import { codeSpans } from './code.js';
import { h } from './dom.js';
import { fileList } from './file_list.js';
import { duration, known, money, plural, short, words } from './format.js';
import { verdictClass } from './verdicts.js';

/** @param {import('./run_log.js').Item} item */
export function outcomeCard(item, actions) {
  const { outcome } = item;
  const stopped = stoppedText(item);
  const facts = [
    duration(outcome.duration_ms),
    plural(outcome.turns ?? 0, 'turn'),
    plural(outcome.tool_calls ?? 0, 'tool call'),
    `${short(outcome.usage?.total_tokens)} tokens`,
    known(outcome.cost_usd) ? money(outcome.cost_usd) : null,
  ];
  const verdict = verdictOf(outcome);
  return h(
    `section.outcome.${verdictClass(verdict)}`,
    { 'aria-label': 'Outcome' },
    h(
      'header',
      {},
      h('strong.verdict', {}, words(verdict)),
      h('span.facts', {}, facts.filter(Boolean).join(' · ')),
    ),
    stopped ? h('p.stopped', {}, stopped) : outcome.error && errorBox(outcome.error),
    outcome.denied?.length > 0 &&
      h(
        'div',
        {},
        h('div.label', {}, 'Denied'),
        h(
          'ul',
          {},
          outcome.denied.map((denial) =>
            h('li', {}, h('code', {}, denial.tool), ` ${ownReason(denial.reason) ?? ''}`),
          ),
        ),
      ),
    outcome.files?.length > 0 && fileList(outcome.files, actions, item.run),
    outcome.warnings?.length > 0 &&
      h(
        'ul.warnings',
        {},
        outcome.warnings.map((warning) => h('li', {}, codeSpans(warning.message))),
      ),
  );
}

/** The verdict, or `interrupted` if the server was stopped. */
export const verdictOf = (outcome) => (outcome.error?.kind === 'interrupted' ? 'interrupted' : outcome.verdict);

/** The reason of a denial, unless it says only that the user denied it. */
export const ownReason = (reason) => (reason === 'denied by the host' ? null : reason);

/** What to say about a run that did not end by itself. */
function stoppedText({ outcome, isFirstEvent, continues }) {
  const next = continues ? ' Continue it below.' : '';
  if (outcome.error?.kind === 'interrupted') return `The server was stopped during this run.${next}`;
  if (outcome.verdict !== 'cancelled') return null;
  return isFirstEvent ? 'You cancelled this prompt before it was sent.' : `You cancelled this run.${next}`;
}

function errorBox(error) {
  return h(
    'div.error',
    {},
    h('p', {}, codeSpans(error.message)),
    error.hint && h('p.hint', {}, h('b', {}, 'Hint: '), codeSpans(error.hint)),
    stderr(error),
  );
}

function stderr(error) {
  if (!error.stderr_tail) return null;
  return h(
    'details.raw',
    {},
    h('summary', {}, 'Standard error of the agent'),
    h('pre.output', { tabindex: '0', role: 'group', 'aria-label': 'Standard error' }, error.stderr_tail),
  );
}
