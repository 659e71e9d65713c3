// Tests the provider as promptfoo uses it: its id, its answers, its errors, and the shared host.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';
import Provider, { AgentlineProvider, GeminiCLIProvider, GeminiCli } from '../index.mjs';
import { Host } from '../lib/host.mjs';
import { FAKE_HOST, stage } from './stage.mjs';

test('the provider has the expected ids and names', () => {
  // promptfoo looks up a name of `package:…` in the default export.
  for (const name of [GeminiCli, GeminiCLIProvider, Provider.GeminiCli, Provider.GeminiCLIProvider]) assert.equal(name, Provider);
  const gemini = new AgentlineProvider({ id: 'file://../index.mjs' });
  assert.deepEqual([gemini.id(), `${gemini}`], ['google:gemini-cli', '[Google Gemini CLI Provider]']);
  const claude = new AgentlineProvider({ config: { agent: 'claude' } });
  assert.deepEqual([claude.id(), `${claude}`], ['agentline:claude', '[agentline Claude Code Provider]']);
  assert.equal(new AgentlineProvider({ id: 'mine' }).id(), 'mine');
  assert.equal(new AgentlineProvider({ id: 'package:agentline-promptfoo:GeminiCli' }).id(), 'google:gemini-cli');
});

test('the id of the unreleased SDK is reserved', async () => {
  for (const options of [{ id: 'google:gemini-agent-sdk' }, { config: { agent: 'google:gemini-agent-sdk' } }]) {
    const { error } = await new AgentlineProvider(options).callApi('hi');
    assert.match(error, /reserved.*google:gemini-cli/);
  }
});

test('a response has tokens, cost, session and tool calls', async (t) => {
  const { provider } = stage(t);
  const { output, tokenUsage, cost, sessionId, raw, metadata, error } = await provider().callApi('tools');
  assert.deepEqual([output, cost, sessionId, error], ['an answer', 0.5, 's-1', undefined]);
  const completionDetails = { reasoning: 5, cacheReadInputTokens: 30 };
  assert.deepEqual(tokenUsage, { total: 125, prompt: 100, completion: 20, cached: 30, numRequests: 2, completionDetails });
  assert.equal(JSON.parse(raw).schema, 'agentline.outcome/1');
  assert.equal(metadata.verdict, 'done');
  assert.deepEqual(metadata.toolCalls[0], {
    id: 't1', name: 'write_file', canonicalName: 'Write', input: { file_path: 'a' }, output: 'written', is_error: false, parentToolUseId: null,
    status: 'ok',
  });
  assert.equal(metadata.toolCalls[1].parentToolUseId, 't1');
  assert.equal(metadata.terminalReason, 'completed');
  // Data that no event contained comes from the messages of the run, which are not part of `raw`.
  assert.deepEqual([metadata.toolCalls[2].input, metadata.toolCalls[2].output], [{ name: 'tidy' }, 'no such skill']);
  assert.equal(JSON.parse(raw).messages, undefined);
  assert.deepEqual(metadata.skillCalls, [{ name: 'tidy', input: { name: 'tidy' }, source: 'tool', is_error: true }]);
  assert.deepEqual((await provider().callApi('value')).output, { n: 4 });
});

test('errors are returned with the documented messages', async (t) => {
  const { provider } = stage(t);
  for (const [prompt, expected] of [
    ['late', 'Gemini CLI error: what happened'],
    ['crash', 'Gemini CLI error: Exit code 3: boom'],
    ['quoted', 'Gemini CLI error: Exit code 3: the license expired'],
    ['model', 'unknown_model: what happened'],
    // The agent's own type, and the hint with the names of options.
    ['typed', 'FatalTurnLimitedError: what happened (retry; if it fails again, pass another `model`)'],
    ['stopped', 'Gemini CLI error: what happened (raise `max_turns`)'],
    ['slow', 'Gemini CLI error: what happened (raise `timeout_ms`)'],
    ['blocked', 'blocked: what happened'],
    ['usage', 'Gemini CLI error: timeout: must be > 0 (write seconds)'],
  ]) {
    const response = await provider().callApi(prompt);
    assert.deepEqual([response.error, response.output], [expected, undefined]);
  }
  assert.match((await provider({ timeout: 5 }).callApi('slow')).error, /raise `timeout`\)$/);
  const nowhere = await provider({ agentline_bin: './nowhere' }).callApi('hi');
  assert.match(nowhere.error, /^Gemini CLI error: agentline was not found/);
  const lost = await provider({ hooks: './nowhere.mjs' }).callApi('hi');
  assert.match(lost.error, /nowhere\.mjs/);
});

test('errors name options as the user wrote them', async (t) => {
  const { provider } = stage(t);
  const errorOf = async (config, prompt) => (await provider(config).callApi(prompt)).error;
  assert.match(await errorOf({ working_dir: '/x' }, 'nowhere'), /working_dir: .*existing directory with `working_dir`/);
  assert.match(await errorOf({ cwd: '/x' }, 'nowhere'), /with `cwd`/);
  assert.match(await errorOf({ workingDir: '/x' }, 'nowhere'), /workingDir: .*with `workingDir`/);
  assert.match(await errorOf({ maxTurns: 3 }, 'stopped'), /raise `maxTurns`/);
  assert.match(await errorOf({ timeoutMs: 3 }, 'slow'), /raise `timeoutMs`/);
});

test('the id of a provider selects its agent', async (t) => {
  const { provider, params } = stage(t);
  const claude = provider({}, { id: 'agentline:claude' });
  assert.deepEqual([claude.id(), `${claude}`], ['agentline:claude', '[agentline Claude Code Provider]']);
  assert.equal((await claude.callApi('usage')).error, 'Claude Code error: timeout: must be > 0 (write seconds)');
  await claude.callApi('hi');
  assert.equal(params()[1].agent, 'claude');
  // An option is more specific than an id, which may be any text.
  assert.equal(provider({ agent: 'codex' }, { id: 'agentline:claude' }).agent(), 'codex');
});

test('an empty answer is an empty output', async (t) => {
  const { provider } = stage(t);
  const { output, error, metadata } = await provider().callApi('empty');
  assert.deepEqual([output, error, metadata.verdict, metadata.terminalReason], ['', undefined, 'empty', 'empty']);
});

test('the metadata says why a run ended', async (t) => {
  const { provider } = stage(t);
  const reasonOf = async (prompt) => (await provider().callApi(prompt)).metadata.terminalReason;
  assert.deepEqual([await reasonOf('stopped'), await reasonOf('model'), await reasonOf('hi')], ['max_turns', 'unknown_model', 'completed']);
});

test('the metadata says whether the scheduler should retry', async (t) => {
  const { provider } = stage(t);
  const of = async (prompt) => (await provider().callApi(prompt)).metadata;
  const limited = await of('limited');
  assert.deepEqual([limited.rateLimitKind, limited.http.status, limited.http.headers], ['rate_limit', 429, { 'retry-after-ms': '1500' }]);
  // Without a time from the service, the scheduler waits a minute, as for promptfoo's own providers.
  assert.deepEqual((await of('busy')).http.headers, { 'retry-after-ms': '60000' });
  assert.deepEqual([(await of('quota')).rateLimitKind, (await of('quota')).http.headers], ['quota', {}]);
  assert.equal((await of('daily')).rateLimitKind, 'quota');
  assert.equal((await of('changed')).rateLimitKind, 'quota');
  assert.equal((await provider({ max_retries: 2 }).callApi('limited')).metadata.rateLimitKind, 'quota');
  assert.equal((await of('hi')).rateLimitKind, undefined);
});

test('with an aborted signal, nothing starts', async (t) => {
  const { provider, lines } = stage(t);
  const { error } = await provider().callApi('hi', undefined, { abortSignal: AbortSignal.abort() });
  assert.equal(error, 'Gemini CLI call aborted before it started');
  assert.throws(lines, /ENOENT/);
});

test('an abort cancels the run', async (t) => {
  const { provider, lines } = stage(t);
  const abort = new AbortController();
  const call = provider().callApi('hang', undefined, { abortSignal: abort.signal });
  while (!safely(lines).some(({ method }) => method === 'run')) await new Promise((next) => setTimeout(next, 10));
  abort.abort();
  const { error, metadata } = await call;
  assert.deepEqual([error, metadata.verdict], ['Gemini CLI call aborted', 'cancelled']);
  const [run, cancel] = ['run', 'cancel'].map((name) => lines().find(({ method }) => method === name).params.run);
  assert.equal(run, cancel);
});

const safely = (lines) => {
  try {
    return lines();
  } catch {
    return [];
  }
};

test('all providers of an evaluation share one host, and cleanup ends it', async (t) => {
  const { provider, lines } = stage(t);
  const [one, two] = [provider(), provider({ agent: 'claude' })];
  await Promise.all([one.callApi('a'), two.callApi('b'), one.callApi('c')]);
  const pids = new Set(lines().map(({ pid }) => pid));
  assert.equal(pids.size, 1);
  await one.cleanup();
  await two.cleanup();
  assert.ok(lines().some(({ method }) => method === 'shutdown'));
  assert.throws(() => process.kill([...pids][0], 0), /ESRCH/);
  // Another evaluation in the same process, as with `promptfoo eval --watch`.
  assert.equal((await one.callApi('again')).output, 'an answer');
});

test('the exit of a host is reported, and the next call starts a new one', async (t) => {
  const { provider, lines } = stage(t);
  const { error } = await provider().callApi('die');
  assert.match(error, /^Gemini CLI error: agentline host exited \(exit code 3\)/);
  assert.equal((await provider().callApi('hi')).output, 'an answer');
  assert.equal(lines().filter(({ started }) => started).length, 2);
});

test('hooks receive events and answer requests', async (t) => {
  const { provider, params, folder } = stage(t);
  const seen = [];
  const hooks = {
    event: ({ type, text }) => type === 'text' && seen.push(text),
    permission: ({ tool }) => tool === 'Write',
    check: ({ text }) => (text === 'half' ? 'the other half' : true),
    tools: [{ name: 'add', description: 'Adds', input_schema: { type: 'object' }, run: ({ a, b }) => ({ sum: a + b }) }],
  };
  const agent = provider({ hooks });
  const outputOf = async (prompt) => (await agent.callApi(prompt)).output;
  await agent.callApi('stream');
  assert.deepEqual(seen, ['a', 'b', 'ü']);
  assert.equal(await outputOf('permission'), '{"decision":"allow"}');
  assert.equal(await outputOf('check'), '{"done":false,"message":"the other half"}');
  assert.equal(await outputOf('call'), '{"output":{"sum":5}}');
  const [run] = params();
  assert.deepEqual([run.events, run.ask_permission, run.check, run.tools[0].name], [true, true, true, 'add']);
  writeFileSync(path.join(folder, 'hooks.mjs'), 'export const permission = () => false;');
  const refused = await provider({ hooks: 'file://hooks.mjs' }).callApi('permission');
  assert.equal(refused.output, '{"decision":"deny"}');
});

test('a hook that is never called is an error', async (t) => {
  const { provider, folder } = stage(t);
  const { error } = await provider({ hooks: { permission: () => true, PreToolUse: [] } }).callApi('hi');
  assert.equal(error, 'Gemini CLI error: hooks: PreToolUse is not a hook (event, permission, check, tools)');
  writeFileSync(path.join(folder, 'none.mjs'), 'export const helper = 1;');
  assert.match((await provider({ hooks: 'none.mjs' }).callApi('hi')).error, /helper is not a hook/);
  const tools = [{ name: 'look', run: () => 1, policy: () => false }];
  assert.match((await provider({ hooks: { tools } }).callApi('hi')).error, /hooks\.tools: look: unknown policy/);
});

test('a warm host does not keep the process alive', (t) => {
  const { folder } = stage(t);
  const script = `
    import Provider from ${JSON.stringify(pathToFileURL(path.resolve(path.dirname(FAKE_HOST), '..', 'index.mjs')).href)};
    const provider = new Provider({ config: { agentline_bin: ${JSON.stringify(FAKE_HOST)} } });
    console.log((await provider.callApi('hi')).output);`;
  const env = { ...process.env, FAKE_HOST_LOG: path.join(folder, 'log') };
  const done = spawnSync(process.execPath, ['--input-type=module', '-e', script], { env, timeout: 60_000, encoding: 'utf8' });
  assert.deepEqual([done.stdout.trim(), done.status], ['an answer', 0], done.stderr);
});

test('a hook that throws ends only its own call', async (t) => {
  const { provider, lines } = stage(t);
  const broken = () => {
    throw new Error('my mistake');
  };
  for (const event of [broken, async () => broken()]) {
    const { error, output } = await provider({ hooks: { event } }).callApi('stream');
    assert.deepEqual([error, output], ['Gemini CLI error: hooks.event failed: my mistake', undefined]);
  }
  const { error } = await provider({ hooks: { check: broken } }).callApi('check');
  assert.equal(error, 'Gemini CLI error: hooks.check failed: my mistake');
  // The runs are cancelled, because another round would only cost money.
  assert.ok(lines().filter(({ method }) => method === 'cancel').length >= 3);
  assert.equal((await provider().callApi('hi')).output, 'an answer');
});

test('unpaired surrogates in a prompt are replaced', async (t) => {
  const { provider, params } = stage(t);
  const text = '\\ud83d \\\\ud83d 🎉';
  assert.equal((await provider().callApi(`hi ${'🎉'.slice(0, 1)} ${text}`)).output, 'an answer');
  assert.equal(params()[0].prompt, `hi \ufffd ${text}`);
});

test('a program that is not agentline times out', async (t) => {
  const { folder } = stage(t);
  const program = path.join(folder, 'silent');
  writeFileSync(program, '#!/bin/sh\nexec sleep 600\n', { mode: 0o755 });
  const host = new Host(program, process.env, {}, () => {}, 200);
  await assert.rejects(host.ready, /silent did not answer within 0.2 s; check that it is agentline/);
  await host.ended;
});
