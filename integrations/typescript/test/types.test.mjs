// The compiler has the last word on the types: over the declarations, over a consumer that uses every export, over the JavaScript
// itself, and over what real runs said. MODULES is the folder with the compiler.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { join } from 'node:path';
import { test } from 'node:test';

const PACKAGE = fileURLToPath(new URL('..', import.meta.url));
const COMPILER = join(process.env.MODULES, 'typescript', 'bin', 'tsc');
const LIMIT = { timeout: 300_000 };

/** What the compiler has to say; empty when it has nothing. */
function complaints(...flags) {
  const done = spawnSync(process.execPath, [COMPILER, ...flags, '--typeRoots', join(process.env.MODULES, '@types')], {
    encoding: 'utf8',
  });
  assert.equal(done.status === 0, done.stdout === '', done.stdout + done.stderr);
  return done.stdout;
}

test('the declarations, a consumer and the JavaScript fit together', LIMIT, () => {
  assert.equal(complaints('-p', PACKAGE), '');
});

test('the consumer uses every export', () => {
  const consumer = readFileSync(join(PACKAGE, 'test/types/consumer.ts'), 'utf8');
  const names = readdirSync(join(PACKAGE, 'types')).flatMap((file) => {
    const text = readFileSync(join(PACKAGE, 'types', file), 'utf8');
    return [...text.matchAll(/^export (?:interface|type|class|function) (\w+)/gm)].map((found) => found[1]);
  });
  assert.ok(names.length > 90, `${names.length}`);
  assert.deepEqual([...new Set(names)].filter((name) => !new RegExp(`\\b${name}\\b`).test(consumer)), []);
});

test('what runs really said has the types that we say', LIMIT, () => {
  const folder = process.env.SAMPLES;
  const files = readdirSync(folder).filter((name) => name.endsWith('.ts'));
  const samples = files.map((name) => readFileSync(join(folder, name), 'utf8')).join('\n');
  for (const type of process.env.EXPECTED_SAMPLES.split(' ')) {
    assert.ok(samples.includes(`: T.${type} = `), `no run gave a value of the type ${type}`);
  }
  // A field that the types do not know must be found, or all of this means nothing.
  const outcome = /(: T\.Outcome = \{)/;
  const told = /from '.*'/.exec(samples)?.[0];
  const wrong = samples.split('\n').find((line) => outcome.test(line)).replace(outcome, '$1"no_such_field":1,');
  const bad = join(folder, 'wrong.ts');
  writeFileSync(bad, `import type * as T ${told};\n${wrong}\n`);
  const flags = ['--noEmit', '--strict', '--exactOptionalPropertyTypes', '--target', 'es2022', '--module', 'nodenext'];
  const said = complaints(...flags, '--types', 'node', '--skipLibCheck', ...files.map((name) => join(folder, name)), bad);
  const lines = said.trim().split('\n').filter((line) => line.includes('error'));
  assert.deepEqual(lines.map((line) => line.replace(/.*error /, '')), [
    "TS2353: Object literal may only specify known properties, and '\"no_such_field\"' does not exist in type 'Outcome<unknown>'.",
  ]);
});
