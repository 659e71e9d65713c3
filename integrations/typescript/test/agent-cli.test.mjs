// Tests `execute`, `loadMessages`, `detectCli` and `getCapabilities` with a fake agent.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import {
  AgentlineError,
  BinaryNotFoundError,
  NoSessionError,
  UsageError,
  connect,
  detectCli,
  execute,
  getCapabilities,
  loadMessages,
} from '../src/index.js';
import { defaults, limit, living, sample, until } from './stage.mjs';

const { permissionMode, ...options } = defaults;

describe('the four functions', () => {
  test('execute returns a result and calls its callbacks', limit, async () => {
    const calls = [];
    const result = await execute({
      prompt: 'say Hello {"greeting": "hello"}\nstderr something odd',
      permissionMode: 'acceptEdits',
      json: true,
      verbose: true,
      options,
      onStart: (started) => calls.push(`start ${started.agent}`),
      onStdout: (event) => event.type === 'text' && calls.push(`stdout ${event.text}`),
      onStderr: (text) => calls.push(`stderr ${text.length > 0}`),
      onError: (message) => calls.push(`error ${message}`),
      onClose: (code) => calls.push(`close ${code}`),
    });
    sample('ExecuteResult', result);
    assert.equal(result.success, true);
    assert.equal(result.error, null);
    assert.equal(result.exitCode, 0);
    assert.deepEqual(result.data, { greeting: 'hello' });
    assert.ok(result.duration > 0 && result.sessionId && result.messages.length > 0);
    assert.equal(result.quotaExceeded, false);
    assert.equal(calls[0], 'start gemini');
    assert.equal(calls.at(-1), 'close 0');
    assert.ok(calls.some((one) => one.startsWith('stdout Hello')), `${calls}`);
    assert.ok(calls.includes('stderr true'), `${calls}`);
    assert.ok(!calls.some((one) => one.startsWith('error')), `${calls}`);
  });

  test('a cold run succeeds', limit, async () => {
    const result = await execute({ prompt: 'say Hello', warm: false, options: { ...options, surface: 'acp' } });
    assert.equal(result.success, true, JSON.stringify(result));
    assert.equal(result.exitCode, 0);
  });

  test('failures are reported in the result and do not reject', limit, async () => {
    const errors = [];
    const prompt = 'error 429 quota exceeded. Please retry in 1s';
    const config = { max_retries: 0 };
    const onError = (message) => errors.push(message);
    const quota = await execute({ prompt, options: { ...options, config }, onError });
    assert.deepEqual([quota.success, quota.quotaExceeded, quota.exitCode], [false, true, null]);
    assert.deepEqual(errors, [quota.error]);
    const closed = [];
    const refused = await execute({ prompt: '  ', options, onClose: (code) => closed.push(code) });
    assert.ok(!refused.success && refused.error && refused.outcome === null);
    assert.deepEqual(closed, [null]);
    const nowhere = await execute({ prompt: 'x', bin: './no-such-program' });
    assert.match(nowhere.error, /was not found or is not executable/);
    const late = await execute({ prompt: 'sleep 60000', timeout: 700, options });
    assert.equal(late.outcome.verdict, 'timed_out');
  });

  test('an abort is reported, and an aborted signal starts nothing', limit, async () => {
    const before = await execute({ prompt: 'say x', signal: AbortSignal.abort(), bin: './no-such-program' });
    assert.deepEqual([before.success, before.error], [false, 'the run was aborted']);
    const stop = new AbortController();
    const onStdout = (event) => event.type === 'text' && stop.abort();
    const during = await execute({
      prompt: 'say up\nsleep 60000',
      signal: stop.signal,
      options,
      onStdout,
    });
    assert.equal(during.outcome.verdict, 'cancelled');
    const broken = execute({
      prompt: 'say up\nsleep 60000',
      options,
      onStdout: () => {
        throw new TypeError('broken callback');
      },
    });
    await assert.rejects(broken, /broken callback/);
  });

  test('calls share one agentline until the environment changes', limit, async () => {
    const hosts = () => living(' host').map(({ pid }) => pid);
    await Promise.all([1, 2, 3].map(() => execute({ prompt: 'say x', options })));
    const [first, ...others] = hosts();
    assert.deepEqual(others, []);
    process.kill(first, 'SIGKILL');
    await until('it has exited', () => !hosts().includes(first));
    // A call before the exit is noticed fails; the next call starts a new process.
    await execute({ prompt: 'say x', options });
    assert.equal((await execute({ prompt: 'say again', options })).success, true);
    const [second] = hosts();
    process.env.SOMETHING_NEW = 'yes';
    const result = await execute({ prompt: 'env SOMETHING_NEW', options });
    assert.match(result.outcome.text, /SOMETHING_NEW=yes/);
    await until('the previous process exits', () => !hosts().includes(second));
  });

  test('loadMessages throws or returns an empty list if there is no session', limit, async () => {
    const error = await loadMessages().catch((error) => error);
    assert.ok(error instanceof NoSessionError && error instanceof AgentlineError);
    assert.equal(error.message, `No Gemini session found for project: ${process.cwd()}`);
    assert.deepEqual(await loadMessages({ missing: 'empty', sessionId: '12345678' }), []);
    await assert.rejects(loadMessages({ tool: 'no-such-agent' }), UsageError);
  });

  test('detectCli is synchronous', limit, () => {
    assert.equal(detectCli(), process.env.GEMINI_CLI_PATH);
    assert.equal(detectCli('codex'), null);
    assert.throws(() => detectCli('no-such-agent'), UsageError);
    assert.throws(() => detectCli('gemini', { bin: './no-such-program' }), BinaryNotFoundError);
  });

  test('getCapabilities returns all agents or one of them', limit, async () => {
    const client = await connect({ defaults });
    const all = await getCapabilities({ client });
    assert.ok(Object.keys(all).length >= 4);
    Object.values(all).forEach((one) => sample('ToolCapabilities', one));
    assert.equal(all.gemini.cliPath, process.env.GEMINI_CLI_PATH);
    assert.equal(all.codex.source, 'table');
    const gemini = await getCapabilities({ client, tool: 'gemini' });
    assert.deepEqual(gemini, all.gemini);
    assert.ok(gemini.supportsModels && gemini.supportsWebSearch && gemini.supportsThinking && gemini.models.length > 0);
    await client.close();
  });
});
