// Checks that the values of real runs match the declared types. Earlier tests saved the values in SAMPLES; EXPECTED_SAMPLES
// lists the types that must occur.

import assert from 'node:assert/strict';
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { compileErrors, limit, strict } from './compiler.mjs';

test('the values of real runs match the declared types', limit, () => {
  const folder = process.env.SAMPLES;
  const files = readdirSync(folder).filter((name) => name.endsWith('.ts'));
  const samples = files.map((name) => readFileSync(join(folder, name), 'utf8')).join('\n');
  for (const type of process.env.EXPECTED_SAMPLES.split(' ')) {
    assert.ok(samples.includes(`: T.${type} = `), `no run produced a value of the type ${type}`);
  }
  // An unknown field must cause an error, which shows that the check works.
  const outcome = /(: T\.Outcome = \{)/;
  const source = /from '.*'/.exec(samples)?.[0];
  const invalid = samples.split('\n').find((line) => outcome.test(line)).replace(outcome, '$1"no_such_field":1,');
  const invalidFile = join(folder, 'invalid.ts');
  writeFileSync(invalidFile, `import type * as T ${source};\n${invalid}\n`);
  const paths = files.map((name) => join(folder, name));
  const errors = compileErrors(...strict, '--exactOptionalPropertyTypes', ...paths, invalidFile);
  const lines = errors.trim().split('\n').filter((line) => line.includes('error'));
  assert.deepEqual(lines.map((line) => line.replace(/.*error /, '')), [
    "TS2353: Object literal may only specify known properties, and '\"no_such_field\"' does not exist in type 'Outcome<unknown, ClaudeMessage>'.",
  ]);
});
