// What runs really said has the types that we say. The tests before this one left it in SAMPLES; EXPECTED_SAMPLES names the types that
// must be among it.

import assert from 'node:assert/strict';
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { complaints, limit, strict } from './compiler.mjs';

test('what runs really said has the types that we say', limit, () => {
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
  const paths = files.map((name) => join(folder, name));
  const said = complaints(...strict, '--exactOptionalPropertyTypes', ...paths, bad);
  const lines = said.trim().split('\n').filter((line) => line.includes('error'));
  assert.deepEqual(lines.map((line) => line.replace(/.*error /, '')), [
    "TS2353: Object literal may only specify known properties, and '\"no_such_field\"' does not exist in type 'Outcome<unknown>'.",
  ]);
});
