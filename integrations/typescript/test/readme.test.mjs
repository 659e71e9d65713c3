// Runs the examples of the README unchanged, with the package's name. `types.test.mjs` compiles them.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { before, test } from 'node:test';
import { promisify } from 'node:util';
import { examples, linkPackage, writeExample } from './readme.mjs';
import { limit } from './stage.mjs';

const run = promisify(execFile);
const [aRun, events, callbacks, conversations, functions] = examples;

/** Runs an example in the current directory and returns its output. */
async function outputOf(example) {
  return (await run(process.execPath, [writeExample(example, 'mjs')])).stdout;
}

before(linkPackage);

test('the README has five examples', () => assert.equal(examples.length, 5));

test('a run', limit, async () => assert.equal(await outputOf(aRun), 'done It is written.\ncreated hello.txt true\n'));

test('events', limit, async () => assert.match(await outputOf(events), /^Hello.*\n \d+\n$/s));

test('permission, tools, checks', limit, async () => assert.equal(await outputOf(callbacks), '{ degrees: 21 }\n'));

test('conversations and saved sessions', limit, async () => {
  assert.match(await outputOf(conversations), /^Ada\n\d+ messages\n.*Ada.*\n$/);
});

test('the functions of agent-cli-sdk', limit, async () => {
  assert.match(await outputOf(functions), /^true\n.*Hello.*\ntrue 0 \d+\nuser assistant.*\ntrue\n$/s);
});
