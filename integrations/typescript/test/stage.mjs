// Shared by the tests. The Rust test that starts them sets the environment: AGENTLINE_BIN, a home directory, an agent,
// MARK_OF_THE_TEST for every process, and SAMPLES, the directory for values that the compiler checks.

import assert from 'node:assert/strict';
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

/** The timeout of a test; long enough for a busy machine. */
export const limit = { timeout: 120_000 };

/** The default settings: no permission requests, no quiet period, and the complete environment for the agent's processes. */
export const defaults = {
  permissionMode: 'bypass',
  passEnv: ['*'],
  quietPeriodMs: 0,
  timeout: 90,
};

const samples = [];

/** Saves a value from the protocol, so that the compiler can check it against the type with this name. */
export function sample(type, value) {
  claim(`T.${type}`, value);
  return value;
}

/** Saves a value, so that the compiler can check it against a type expression. `T` has the types of the package. */
export function claim(type, value) {
  samples.push(`export const s${samples.length}: ${type} = ${JSON.stringify(value)};`);
}

after(() => {
  const folder = process.env.SAMPLES;
  if (!folder) return;
  const types = new URL('../types/index.js', import.meta.url).pathname;
  writeFileSync(join(folder, `${process.pid}.ts`), `import type * as T from '${types}';\n${samples.join('\n')}\n`);
});

/** Returns the running processes of this test whose command contains these words, except those of the test runner. */
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
      // The process has exited in the meantime.
    }
  }
  return found;
}

/** Waits until a condition holds. */
export async function until(description, holds) {
  const end = Date.now() + 60_000;
  while (!holds()) {
    assert.ok(Date.now() < end, `timed out: ${description}; running: ${JSON.stringify(living())}`);
    await sleep(20);
  }
}
