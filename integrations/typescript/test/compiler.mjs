// The TypeScript compiler. MODULES is the folder that it is in; the Rust test that starts the tests has put it there.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';

/** It takes its time where many want the machine. */
export const limit = { timeout: 300_000 };

/** What it is asked for where there is no project file. */
export const strict = ['--noEmit', '--strict', '--skipLibCheck', '--target', 'es2022', '--module', 'nodenext', '--types', 'node'];

/** What it has to say; empty when it has nothing. */
export function complaints(...flags) {
  const compiler = join(process.env.MODULES, 'typescript', 'bin', 'tsc');
  const roots = ['--typeRoots', join(process.env.MODULES, '@types')];
  const done = spawnSync(process.execPath, [compiler, ...flags, ...roots], { encoding: 'utf8' });
  assert.equal(done.status === 0, done.stdout === '', done.stdout + done.stderr);
  return done.stdout;
}
