// Runs the examples of the README unchanged, with the package's name, and compiles them.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { compileErrors, limit as compiling, strict } from './compiler.mjs';
import { limit } from './stage.mjs';

const PACKAGE = fileURLToPath(new URL('..', import.meta.url));
const run = promisify(execFile);
const page = readFileSync(join(PACKAGE, 'README.md'), 'utf8');
const examples = [...page.matchAll(/^```js\n(.*?)^```$/gms)].map((found) => found[1]);
const [aRun, events, callbacks, conversations, functions] = examples;

/** Runs an example in the current directory and returns its output. */
async function outputOf(example) {
  const file = join(process.cwd(), `example-${examples.indexOf(example)}.mjs`);
  writeFileSync(file, example);
  return (await run(process.execPath, [file])).stdout;
}

before(() => {
  mkdirSync('node_modules', { recursive: true });
  symlinkSync(PACKAGE, join('node_modules', 'agentline'), 'dir');
});

test('a run', limit, async () => assert.equal(await outputOf(aRun), 'done It is written.\ncreated hello.txt true\n'));

test('events', limit, async () => assert.match(await outputOf(events), /^Hello.*\n \d+\n$/s));

test('permission, tools, checks', limit, async () => assert.equal(await outputOf(callbacks), '{ degrees: 21 }\n'));

test('conversations and saved sessions', limit, async () => {
  assert.match(await outputOf(conversations), /^Ada\n\d+ messages\n.*Ada.*\n$/);
});

test('the four functions', limit, async () => {
  assert.match(await outputOf(functions), /^true\nHello.*\ntrue 0 \d+\nuser assistant.*\ntrue\n$/s);
});

test('the compiler accepts the examples', compiling, () => {
  const files = examples.map((example, n) => {
    writeFileSync(`example-${n}.mts`, example);
    return `example-${n}.mts`;
  });
  assert.equal(compileErrors(...strict, ...files), '');
  assert.equal(examples.length, 5);
});
