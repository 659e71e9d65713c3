// The compiler has the last word on the types: over the declarations, over a consumer that uses every export, and over the JavaScript
// itself.

import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { complaints, limit } from './compiler.mjs';

const PACKAGE = fileURLToPath(new URL('..', import.meta.url));
test('the declarations, a consumer and the JavaScript fit together', limit, () => {
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
