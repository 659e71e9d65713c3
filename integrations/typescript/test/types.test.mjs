// Compiles the declarations, a consumer that uses every export, the JavaScript itself, and the examples of the README.

import assert from 'node:assert/strict';
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import * as agentline from '../src/index.js';
import { compileErrors, limit } from './compiler.mjs';
import { PACKAGE, examples, linkPackage, writeExample } from './readme.mjs';

// One project, because the compiler takes most of its time for the types of the language and of Node.js.
test('the declarations, a consumer, the JavaScript and the examples compile together', limit, () => {
  linkPackage();
  const own = join(PACKAGE, 'tsconfig.json');
  const include = JSON.parse(readFileSync(own, 'utf8')).include.map((folder) => join(PACKAGE, folder));
  const files = examples.map((example) => writeExample(example, 'mts'));
  writeFileSync('tsconfig.json', JSON.stringify({ extends: own, include, files }));
  assert.equal(compileErrors('-p', '.'), '');
});

test('the types resolve in a CommonJS program', limit, () => {
  writeFileSync(
    'program.cts',
    `import { connect, UsageError, type Outcome } from 'agentline';
import gemini = require('agentline/gemini');
export const run = async (): Promise<Outcome> => (await connect({ bin: gemini.detectCli() ?? 'agentline' })).run({ prompt: 'x' });
export const isUsage = (error: unknown): error is UsageError => error instanceof UsageError;
`,
  );
  const compilerOptions = { strict: true, noEmit: true, target: 'es2022', module: 'node16', lib: ['es2023', 'dom'], types: [] };
  writeFileSync('tsconfig.cjs.json', JSON.stringify({ compilerOptions, files: ['program.cts'] }));
  assert.equal(compileErrors('-p', 'tsconfig.cjs.json'), '');
  const types = readFileSync(join(PACKAGE, 'types/index.d.cts'), 'utf8');
  const exported = [...types.matchAll(/^export const (\w+)/gm)].map((found) => found[1]);
  assert.deepEqual(exported, Object.keys(agentline).sort());
});

test('the consumer uses every export', () => {
  const consumer = readFileSync(join(PACKAGE, 'test/types/consumer.ts'), 'utf8');
  const names = readdirSync(join(PACKAGE, 'types')).flatMap((file) => {
    const text = readFileSync(join(PACKAGE, 'types', file), 'utf8');
    return [...text.matchAll(/^export (?:interface|type|class|function|const) (\w+)/gm)].map((found) => found[1]);
  });
  assert.ok(names.length > 90, `${names.length}`);
  assert.deepEqual([...new Set(names)].filter((name) => !new RegExp(`\\b${name}\\b`).test(consumer)), []);
});
