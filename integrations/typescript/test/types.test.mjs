// Compiles the declarations, a consumer that uses every export, and the JavaScript itself.

import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { compileErrors, limit } from './compiler.mjs';

const PACKAGE = fileURLToPath(new URL('..', import.meta.url));
test('the declarations, a consumer and the JavaScript compile together', limit, () => {
  assert.equal(compileErrors('-p', PACKAGE), '');
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
