// Compiles the declarations with promptfoo's own types and the TypeScript example of the README. TYPESCRIPT is the path of the
// compiler, and PROMPTFOO_MODULES the `node_modules` with promptfoo; the Rust test that starts these tests sets both.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';
import * as exported from '../index.mjs';
import { stage } from './stage.mjs';

const PACKAGE = path.dirname(path.dirname(fileURLToPath(import.meta.url)));
const { TYPESCRIPT, PROMPTFOO_MODULES } = process.env;

const CONSUMER = `
import type { ApiProvider } from 'promptfoo';
import Provider, { AgentlineProvider, GeminiCLIProvider, GeminiCli } from 'agentline-promptfoo';
import type { AgentMetadata, AgentlineOptions, GeminiCLIOptions, Hooks } from 'agentline-promptfoo';

const hooks: Hooks = { event: ({ type, text }) => console.log(type, text), permission: async ({ tool }) => tool === 'Write' };
const config: GeminiCLIOptions = { useVertexAI: true, hooks, timeout_ms: 5, env: { A: 1 } };
const others: AgentlineOptions = { agent: 'claude', permission_mode: 'acceptEdits' };
export const providers: ApiProvider[] = [new Provider({ config }), new AgentlineProvider({ config: others }), new GeminiCli(), new GeminiCLIProvider()];
export async function verdict(): Promise<string | undefined> {
  const { output, metadata } = await new GeminiCLIProvider().callApi('hi', undefined, { abortSignal: AbortSignal.timeout(5) });
  const known: AgentMetadata | undefined = metadata;
  return known?.toolCalls[0]?.parentToolUseId ?? known?.verdict ?? output;
}
// @ts-expect-error a misspelt value
export const wrong: GeminiCLIOptions = { approval_mode: 'sometimes' };
// @ts-expect-error a number
export const text: GeminiCLIOptions = { timeout_ms: '5' };
`;

test('the types fit those of promptfoo', { skip: !TYPESCRIPT && 'TYPESCRIPT is not set', timeout: 300_000 }, async (t) => {
  const { folder } = stage(t);
  const modules = path.join(folder, 'node_modules');
  mkdirSync(modules);
  symlinkSync(PACKAGE, path.join(modules, 'agentline-promptfoo'));
  symlinkSync(path.join(PROMPTFOO_MODULES, 'promptfoo'), path.join(modules, 'promptfoo'));
  const [, example] = readFileSync(path.join(PACKAGE, 'README.md'), 'utf8').match(/```ts\n([^]*?)```/);
  writeFileSync(path.join(folder, 'promptfooconfig.mts'), example);
  writeFileSync(path.join(folder, 'consumer.mts'), CONSUMER);
  const flags = ['--noEmit', '--strict', '--skipLibCheck', '--target', 'es2022', '--module', 'nodenext', '--typeRoots', modules];
  const args = [TYPESCRIPT, ...flags, 'promptfooconfig.mts', 'consumer.mts'];
  const done = spawnSync(process.execPath, args, { cwd: folder, encoding: 'utf8' });
  assert.deepEqual([done.stdout, done.status], ['', 0], done.stderr);
  // Node.js removes the types itself.
  const { default: config } = await import(pathToFileURL(path.join(folder, 'promptfooconfig.mts')).href);
  assert.deepEqual(config.providers[0].config, { working_dir: './src', approval_mode: 'plan', max_cost: 0.5 });
});

test('the declarations name every export', () => {
  const declared = readFileSync(path.join(PACKAGE, 'index.d.mts'), 'utf8');
  assert.deepEqual(Object.keys(exported).sort(), ['AgentlineProvider', 'GeminiCLIProvider', 'GeminiCli', 'default']);
  for (const name of Object.keys(exported)) assert.match(declared, new RegExp(`\\b(class|as) ${name}\\b`));
});
