// What the tests share. The Rust test that starts them gives the surroundings by environment: AGENTLINE_BIN, a home, an agent,
// MARK_OF_THE_TEST on every process, and SAMPLES, the folder for values that the compiler is to check.

import assert from 'node:assert/strict';
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

/** No test waits for ever, however busy the machine is. */
export const limit = { timeout: 120_000 };

/** What everyone asks for: no question, no wait for stragglers, the mark on whatever the agent starts. */
export const defaults = {
  permissionMode: 'bypass',
  passEnv: ['*'],
  quietPeriodMs: 0,
  timeout: 90,
};

const samples = [];

/** Keeps a value that came over the wire, for the compiler to hold the type of this name to. */
export function sample(type, value) {
  claim(`T.${type}`, value);
  return value;
}

/** Keeps a value for the compiler to hold a type to that may name those of the package as `T`. */
export function claim(type, value) {
  samples.push(`export const s${samples.length}: ${type} = ${JSON.stringify(value)};`);
}

after(() => {
  const folder = process.env.SAMPLES;
  if (!folder) return;
  const types = new URL('../types/index.js', import.meta.url).pathname;
  writeFileSync(join(folder, `${process.pid}.ts`), `import type * as T from '${types}';\n${samples.join('\n')}\n`);
});

/** The processes of this test that live and have these words in their command; those of the test runner do not count. */
export function living(words = '') {
  const mark = `MARK_OF_THE_TEST=${process.env.MARK_OF_THE_TEST}`;
  const found = [];
  for (const pid of readdirSync('/proc').filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)) {
    try {
      const environ = readFileSync(`/proc/${pid}/environ`, 'utf8');
      const command = readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ');
      const state = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').pop() ?? '';
      const ours = environ.includes(mark) && !command.includes(' --test ') && !state.startsWith('Z');
      if (ours && command.includes(words)) found.push({ pid: Number(pid), command });
    } catch {
      // It has ended in the meantime.
    }
  }
  return found;
}

/** Waits until this holds. */
export async function until(what, holds) {
  const end = Date.now() + 60_000;
  while (!holds()) {
    assert.ok(Date.now() < end, `${what}; alive: ${JSON.stringify(living())}`);
    await sleep(20);
  }
}
