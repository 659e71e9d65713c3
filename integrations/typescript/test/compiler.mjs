// Runs the TypeScript compiler. MODULES is its directory; the Rust test that starts these tests sets it.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';

/** The compiler is slow on a busy machine. */
export const limit = { timeout: 300_000 };

/** The flags for files without a project file. */
export const strict = ['--noEmit', '--strict', '--skipLibCheck', '--target', 'es2022', '--module', 'nodenext', '--types', 'node'];

/** Returns the compiler's errors, or an empty string. */
export function compileErrors(...flags) {
  const compiler = join(process.env.MODULES, 'typescript', 'bin', 'tsc');
  const roots = ['--typeRoots', join(process.env.MODULES, '@types')];
  const done = spawnSync(process.execPath, [compiler, ...flags, ...roots], { encoding: 'utf8' });
  assert.equal(done.status === 0, done.stdout === '', done.stdout + done.stderr);
  return done.stdout;
}
