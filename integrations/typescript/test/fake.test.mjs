// Tests the client with a fake agent and the real program.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { chmodSync, existsSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import {
  AbortError,
  AgentlineError,
  BinaryNotFoundError,
  HostGoneError,
  NoSessionError,
  RunError,
  StopRun,
  UsageError,
  connect,
  expectDone,
  findBinary,
} from '../src/index.js';
import { claim, defaults, limit, living, sample, until } from './stage.mjs';

const PACKAGE = new URL('..', import.meta.url);

describe('a client', () => {
  /** @type {import('../types/index.js').Agentline} */
  let agentline;
  before(async () => (agentline = await connect({ defaults })));
  after(() => agentline.close());

  test('a run returns its outcome', limit, async () => {
    const outcome = sample('Outcome', await agentline.run({ prompt: 'say Hello', name: 'greeting', messages: true }));
    assert.equal(outcome.verdict, 'done');
    assert.equal(outcome.text, 'Hello');
    assert.equal(outcome.name, 'greeting');
    assert.equal(outcome.messages.at(-1).role, 'assistant');
    assert.equal(expectDone(outcome), outcome);
    assert.equal(agentline.server.name, 'agentline');
    assert.ok(agentline.agentIds.includes('gemini'));
  });

  test('a stream yields events of every type, and has an outcome', limit, async () => {
    const script = `think hm
say Hello
plan
commands
info
mode yolo
config
unknown
image
tool write_file a.txt hi
ask write_file b.txt ho
run echo hi
used 5 100
update {"sessionUpdate":"tool_call","toolCallId":"m","kind":"execute","status":"in_progress","title":"make","locations":[{"path":"/a","line":3}]}
update {"sessionUpdate":"tool_call_update","toolCallId":"m","status":"in_progress","content":[{"type":"content","content":{"type":"text","text":"built"}}]}
update {"sessionUpdate":"tool_call_update","toolCallId":"m","status":"completed","rawOutput":{"code":0}}
usage 10 3
raw {broken
stderr something odd
say bye`;
    const stream = agentline.stream({ prompt: script, emitThoughts: true, messages: true, diffs: true });
    const events = [];
    for await (const event of stream) events.push(sample('RunEvent', event));
    const outcome = sample('Outcome', await stream.outcome);
    const types = new Set(events.map((event) => event.type));
    const expected = 'started thinking text plan commands session_info mode config_option agent content tool_use tool_output tool_result';
    for (const type of [...expected.split(' '), 'permission', 'usage', 'unreadable', 'file_change']) {
      assert.ok(types.has(type), `${type} in ${[...types]}`);
    }
    assert.deepEqual([events[0].type, events[0].schema], ['started', 'agentline.events/1']);
    assert.equal(events.find((event) => event.type === 'tool_output').text, 'built');
    assert.deepEqual(outcome.usage.context, { used: 5, size: 100 });
    assert.match(outcome.files[1].diff, /^--- \/dev\/null\n\+\+\+ b\/b\.txt\n/);
    assert.deepEqual(outcome.files.map((file) => file.path), ['a.txt', 'b.txt']);
    outcome.messages.forEach((message) => sample('ClaudeMessage', message));
  });

  test('events can be filtered, and a listener that throws stops the run', limit, async () => {
    const types = [];
    const prompt = 'say a\nplan\nsay b';
    await agentline.run({ prompt, events: ['plan'], onEvent: (event) => types.push(event.type) });
    assert.deepEqual(types, ['plan']);
    const broken = () => {
      throw new TypeError('broken listener');
    };
    await assert.rejects(agentline.run({ prompt: 'say up\nrun sleep 611', onEvent: broken }), /broken listener/);
    await until('the command ends', () => living('sleep 611').length === 0);
    const later = async () => broken();
    await assert.rejects(agentline.run({ prompt: 'say up\nrun sleep 611', onEvent: later }), /broken listener/);
    await until('the command ends', () => living('sleep 611').length === 0);
  });

  test('a check that throws stops the run and is not called again', limit, async () => {
    let checks = 0;
    const check = async () => {
      checks += 1;
      throw new TypeError('broken check');
    };
    await assert.rejects(agentline.run({ prompt: 'say x', check }), /broken check/);
    const conversation = await agentline.session({ check });
    await assert.rejects(conversation.run('say y'), /broken check/);
    assert.equal(checks, 2);
    await conversation.close();
  });

  test('unpaired surrogates are replaced', limit, async () => {
    const half = '🎉'.slice(0, 1);
    assert.equal((await agentline.run({ prompt: `say a ${half} 🎉` })).text, 'a \ufffd 🎉');
    const inputSchema = { type: 'object' };
    const tools = [{ name: 'cut', description: '', inputSchema, handler: () => `cut ${half} \\ud83d` }];
    assert.match((await agentline.run({ prompt: 'call agentline cut {}', tools })).text, /cut \ufffd \\ud83d/);
  });

  test('a stream that is closed before its first event stops its run, and two readers can share a stream', limit, async () => {
    const left = agentline.stream({ prompt: 'say x\nrun sleep 613' });
    await left[Symbol.asyncIterator]().return();
    assert.equal((await left.outcome).verdict, 'cancelled');
    const shared = agentline.stream({ prompt: 'say a\nplan\nsay b' });
    const read = async () => {
      const texts = [];
      for await (const event of shared) texts.push(event.text ?? '');
      return texts.join('');
    };
    const both = await Promise.all([read(), read()]);
    assert.deepEqual([...both.join('')].sort().join(''), 'ab');
  });

  test('a schema of a library gives the value its defaults, in answers and in tools', limit, async () => {
    // A schema as Zod has it: an object with an integer `n` and a default for `unit`.
    const jsonSchema = { type: 'object', properties: { n: { type: 'integer' }, unit: { type: 'string' } }, required: ['n'] };
    const validate = (value) => (value.n > 9 ? { issues: [{ message: 'too large' }] } : { value: { unit: 'C', ...value } });
    const standard = { version: 1, vendor: 'test', validate, jsonSchema: { input: () => jsonSchema } };
    const schema = { '~standard': standard };
    assert.deepEqual((await agentline.run({ prompt: 'say {"n": 4}', outputSchema: schema })).output, { unit: 'C', n: 4 });
    const error = await agentline.run({ prompt: 'say {"n": 12}', outputSchema: schema }).catch((error) => error);
    assert.ok(error instanceof RunError && /too large/.test(error.message) && error.outcome.output.n === 12, String(error));
    const conversation = await agentline.session({ outputSchema: schema });
    assert.deepEqual((await conversation.run('say {"n": 5}')).output, { unit: 'C', n: 5 });
    await conversation.close();
    const tools = [{ name: 'warm', description: '', inputSchema: schema, handler: ({ n, unit }) => `${n} ${unit}` }];
    assert.match((await agentline.run({ prompt: 'call agentline warm {"n": 3}', tools })).text, /3 C/);
    const old = { '~standard': { version: 1, vendor: 'zod', validate } };
    const tooOld = await agentline.run({ prompt: 'say x', outputSchema: old }).catch((error) => error);
    assert.ok(tooOld instanceof UsageError && /`outputSchema`: cannot be .* by this version of zod/.test(tooOld.message));
  });

  test('with an aborted signal, nothing starts', limit, async () => {
    const { pool } = await agentline.pool.status();
    const gone = AbortSignal.abort(new Error('no time'));
    const error = await agentline.run({ prompt: 'say x', signal: gone }).catch((error) => error);
    assert.ok(error instanceof AbortError && error instanceof AgentlineError);
    assert.equal(error.name, 'AbortError');
    assert.equal(error.cause.message, 'no time');
    assert.equal(error.outcome, null);
    await assert.rejects(agentline.stream({ prompt: 'say x', signal: gone }).outcome, AbortError);
    await assert.rejects(agentline.session({ signal: gone }), AbortError);
    assert.equal((await agentline.pool.status()).pool.runs, pool.runs);
  });

  test('an abort ends the run and all its processes', limit, async () => {
    const stop = new AbortController();
    const run = agentline.run({
      prompt: 'say begun\nrun sleep 612',
      signal: stop.signal,
      onEvent: (event) => event.type === 'tool_use' && setTimeout(() => stop.abort(), 50),
    });
    const error = await run.catch((error) => error);
    assert.ok(error instanceof AbortError, String(error));
    assert.equal(error.verdict, 'cancelled');
    assert.equal(error.outcome.text, 'begun');
    await until('the command ends', () => living('sleep 612').length === 0);
    // An abort right after the request, possibly before the host has registered the run.
    const rushed = Array.from({ length: 8 }, () => {
      const now = new AbortController();
      const pending = agentline.run({ prompt: 'run sleep 613', signal: now.signal });
      now.abort();
      return assert.rejects(pending, AbortError);
    });
    await Promise.all(rushed);
    assert.equal(living('sleep 613').length, 0);
  });

  test('leaving the loop stops the run', limit, async () => {
    const stream = agentline.stream({ prompt: 'say begun\nrun sleep 614' });
    for await (const event of stream) if (event.type === 'tool_use') break;
    assert.equal((await stream.outcome).verdict, 'cancelled');
    const other = agentline.stream({ prompt: 'say begun\nrun sleep 614' });
    other.cancel();
    assert.equal((await other.outcome).verdict, 'cancelled');
    await until('the command ends', () => living('sleep 614').length === 0);
  });

  test('the permission callback decides', limit, async () => {
    const asks = [];
    const ask = (file, onPermission) =>
      agentline.run({ prompt: `ask write_file ${file} hi\nsay done`, permissionMode: 'default', onPermission });
    const allowed = await ask('p1.txt', (question, { signal }) => {
      asks.push(sample('PermissionAsk', question));
      assert.ok(!signal.aborted);
      return true;
    });
    assert.equal(asks[0].tool, 'Write');
    assert.equal(asks[0].diffs[0].new, 'hi');
    assert.equal(allowed.files[0].path, 'p1.txt');
    const denied = sample('Outcome', await ask('p2.txt', async () => ({ decision: 'deny', reason: 'not on a Sunday' })));
    assert.equal(denied.verdict, 'done_with_denials');
    assert.equal(denied.denied[0].reason, 'not on a Sunday');
    assert.throws(() => expectDone(denied, { denials: false }), RunError);
    const thrown = await ask('p3.txt', () => {
      throw new Error('no decision');
    });
    assert.match(thrown.denied[0].reason, /no decision/);
    assert.equal((await ask('p4.txt', () => 'deny')).verdict, 'done_with_denials');
    assert.ok(!existsSync('p3.txt') && !existsSync('p4.txt'));
  });

  test('functions can be tools', limit, async () => {
    let context;
    const tools = [
      {
        name: 'add',
        description: 'Adds',
        inputSchema: { type: 'object', properties: { a: { type: 'integer' }, b: { type: 'integer' } } },
        handler: async ({ a, b }) => ({ sum: a + b }),
      },
      {
        name: 'fail',
        description: 'Fails',
        handler: () => {
          throw new Error('out of paper');
        },
      },
      {
        name: 'slow',
        description: 'Never answers',
        timeoutMs: 500,
        handler: (_, { signal, call, run }) => {
          context = { signal, call, run };
          return new Promise(() => {});
        },
      },
    ];
    const prompt = 'call agentline add {"a": 2, "b": 3}\ncall agentline fail {}\ncall agentline slow {}';
    let text = '';
    const onEvent = (event) => (text += event.type === 'text' ? event.text : '');
    const outcome = await agentline.run({ prompt, tools, onEvent });
    assert.match(text, /"sum":5/);
    assert.match(text, /out of paper/);
    assert.equal(outcome.tool_calls, 3);
    assert.ok(context.signal.aborted, 'the result is no longer needed');
  });

  test('a policy decides on tool calls, and a hook adds to their results', limit, async () => {
    const seen = [];
    const double = {
      name: 'double',
      description: 'Doubles a number',
      handler: ({ n }) => {
        if (n === 2) throw new Error('not two');
        return n * 2;
      },
      policy: ({ n }) => {
        if (n === 9) throw new Error('no judge');
        return n === 0 ? { decision: 'deny', reason: 'zero is not for you' } : n === 1 ? undefined : n > 0;
      },
      after: async (input, result, { call }) => {
        seen.push([input.n, result, call]);
        if (input.n === 3) throw new Error('no word');
        return 'and a note';
      },
    };
    const prompt = [1, 2, 3, 0, -1, 9].map((n) => `call agentline double {"n": ${n}}`).join('\n');
    let text = '';
    const onEvent = (event) => (text += event.type === 'tool_result' ? `${event.content}\n` : '');
    await agentline.run({ prompt, tools: [double], onEvent });
    for (const expected of [
      '2\n\nand a note',
      'not two\n\nand a note',
      'zero is not for you',
      'the policy of the tool denies this call',
      'the policy of the tool failed: no judge',
    ]) {
      assert.ok(text.includes(expected), `${expected}: ${text}`);
    }
    assert.deepEqual(seen, [
      [1, { output: 2, isError: false }, 1],
      [2, { output: 'not two', isError: true }, 2],
      [3, { output: 6, isError: false }, 3],
    ]);
  });

  test('a tool can end the run', limit, async () => {
    class SectionNeeded extends StopRun {}
    const open = {
      name: 'open',
      description: 'Opens a section',
      handler: ({ section }) => {
        throw new SectionNeeded(`${section} is needed`);
      },
    };
    const events = [];
    const prompt = 'call agentline open {"section": "appendix"}\nsay more';
    const run = agentline.run({ prompt, tools: [open], onEvent: (event) => events.push(event) });
    await assert.rejects(run, (error) => error instanceof SectionNeeded && error.message === 'appendix is needed');
    assert.ok(events.some(({ type, code }) => type === 'warning' && code === 'stopped_by_tool'), JSON.stringify(events));
    const conversation = await agentline.session({ tools: [open] });
    await assert.rejects(conversation.run(prompt), SectionNeeded);
    assert.equal((await conversation.run('say still here')).text, 'still here');
    await conversation.close();
  });

  test('answers are validated against a schema and by a check', limit, async () => {
    const outputSchema = { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] };
    const typed = sample('Outcome', await agentline.run({ prompt: 'say {"n": 4}', outputSchema }));
    assert.deepEqual(typed.output, { n: 4 });
    const texts = [];
    const check = (answer) => {
      texts.push(sample('CheckQuestion', answer).text);
      return texts.length === 1 ? 'say second' : true;
    };
    const checked = await agentline.run({ prompt: 'say first', check, maxRounds: 3 });
    assert.equal(checked.verdict, 'done');
    assert.equal(texts[0], 'first');
    assert.match(texts[1], /second/);
  });

  test('a conversation keeps its history and tools, and can be closed', limit, async () => {
    const tools = [{ name: 'now', description: 'The time', handler: () => 'noon' }];
    const conversation = await agentline.session({ tools });
    assert.equal((await conversation.run('say one')).text, 'one');
    assert.match((await conversation.run('history')).text, /say one/);
    assert.match((await conversation.run('call agentline now {}')).text, /noon/);
    const stop = new AbortController();
    const stream = conversation.stream('say begun\nsleep 60000', { signal: stop.signal });
    await assert.rejects(async () => {
      for await (const event of stream) if (event.type === 'text') stop.abort();
    }, AbortError);
    const last = await conversation.run('say on', { messages: true });
    assert.equal(last.text, 'on');
    assert.equal(last.session_id, conversation.sessionId);
    assert.ok(last.messages.length > 0);
    await conversation.close();
    await conversation.close();
    await assert.rejects(conversation.run('say x'), UsageError);
  });

  test('many runs are concurrent and no answer is lost', limit, async () => {
    const runs = Array.from({ length: 24 }, async (_, n) => {
      const prompt = `chunks 50 part${n} {n} \nsay end ${n}`;
      const stream = agentline.stream({ prompt, permissionMode: 'plan' });
      let text = '';
      for await (const event of stream) if (event.type === 'text') text += event.text;
      assert.equal(text, (await stream.outcome).text);
      assert.ok(text.includes(`part${n} 50`) && text.endsWith(`end ${n}`), text);
    });
    await Promise.all(runs);
    const status = sample('PoolStatus', await agentline.pool.status());
    assert.equal(status.runs.active, 0);
    assert.ok(status.pool.started <= 12, JSON.stringify(status));
  });

  test('a rate-limited run is retried and reported, and the error has the outcome', limit, async () => {
    const retries = [];
    const prompt = 'error 429 quota exceeded. Please retry in 1s';
    const run = { prompt, maxRetries: 1, onRetry: (retry) => retries.push(sample('RunRetry', retry)) };
    const error = await agentline.run({ ...run, throwOnFailure: true }).catch((error) => error);
    assert.ok(error instanceof RunError, String(error));
    assert.equal(error.verdict, 'rate_limited');
    assert.equal(error.phase, 'response');
    assert.equal(sample('Outcome', error.outcome).attempts, 2);
    assert.equal(retries[0].attempt, 2);
    assert.equal(error.outcome.error.retry_after_ms, 1000);
    const models = [];
    const refused = 'refused 1 refusals You have exhausted your daily quota on this model.\nsay second model';
    const outcome = await agentline.run({
      prompt: refused,
      fallbackModels: ['gemini-2.5-pro'],
      retryAfterChanges: true,
      onRetry: ({ model }) => models.push(model),
      onEvent: (event) => event.type === 'retry' && models.push(sample('RunEvent', event).model),
    });
    assert.deepEqual([outcome.text, outcome.attempts, models], ['second model', 2, ['gemini-2.5-pro', 'gemini-2.5-pro']]);
  });

  test('problems with a request are reported by key', limit, async () => {
    const error = await agentline.run({ prompt: 'x', timeout: 'soon', agent: 'geminy' }).catch((error) => error);
    assert.ok(error instanceof UsageError, String(error));
    error.problems.forEach((problem) => sample('Problem', problem));
    assert.ok(error.problems.some((problem) => problem.key === 'timeout'), error.message);
    assert.equal(error.phase, 'request');
    // Every hint is in `hint`, and none in the message.
    const hints = error.problems.flatMap(({ hint }) => hint || []);
    assert.ok(hints.length > 0 && hints.every((hint) => error.hint.includes(hint)), error.hint);
    assert.ok(!error.message.includes('hint') && !hints.some((hint) => error.message.includes(hint)), error.message);
    assert.equal(error.outcome, null);
    await assert.rejects(agentline.request('fly'), /unknown method/);
    await assert.rejects(agentline.run({ prompt: 'x', config: { a: 1n } }), TypeError);
    await assert.rejects(agentline.run({ prompt: 'say ok', config: { no_such_key: 1 } }), /`no_such_key`: is not a known key/);
    await assert.rejects(agentline.sessions.load({ session: 'none' }), NoSessionError);
    assert.deepEqual(await agentline.sessions.list({ since: new Date(0), limit: 3 }), []);
  });

  test('attachments can be bytes', limit, async () => {
    const attachments = [
      { name: 'dot.png', data: Uint8Array.from([137, 80, 78, 71, 13, 10, 26, 10]) },
      { name: 'note.txt', text: 'remember' },
    ];
    const deadline = new Date(Date.now() + 80_000);
    const outcome = await agentline.run({ prompt: 'echo_prompt', attachments, deadline });
    assert.match(outcome.text, /image/);
  });

  test('agents and the pool', limit, async () => {
    (await agentline.agents()).forEach((agent) => sample('AgentInfo', agent));
    assert.match(await agentline.detect(), /fake-acp/);
    assert.ok(sample('AgentCapabilities', await agentline.capabilities('gemini')).models.length > 0);
    await assert.rejects(agentline.detect('geminy'), UsageError);
    await agentline.pool.configure({ idleS: 600, maxProcesses: 3 });
    assert.equal(await agentline.pool.prewarm({ runs: 1 }), 1);
    const { pool } = sample('PoolStatus', await agentline.pool.status());
    assert.ok(pool.processes.length >= 1);
  });
});

describe('the host process', () => {
  const script = (text) => {
    const file = join(mkdtempSync(join(tmpdir(), 'bin-')), 'agentline');
    writeFileSync(file, `#!/bin/sh\n${text}\n`);
    chmodSync(file, 0o755);
    return file;
  };

  test('is found by option, variable and PATH', limit, async () => {
    const bin = process.env.AGENTLINE_BIN;
    const named = script('exit 0');
    assert.equal(findBinary(), bin);
    assert.equal(findBinary({ bin: named }), named);
    assert.equal(findBinary({ env: { PATH: join(named, '..') } }), named);
    assert.equal(findBinary({ env: { PATH: '' } }), null);
    const error = await connect({ bin: './no-such-program' }).catch((error) => error);
    assert.ok(error instanceof BinaryNotFoundError && error.hint.includes('AGENTLINE_BIN'), String(error));
  });

  test('may be a program that is not agentline', limit, async () => {
    await assert.rejects(connect({ bin: script('echo "unknown command" >&2; exit 2') }), (error) => {
      assert.ok(error instanceof HostGoneError);
      assert.match(error.message, /exited with code 2: unknown command/);
      return true;
    });
    await assert.rejects(connect({ bin: script('echo hello; exec sleep 615') }), /not JSON: hello/);
    await assert.rejects(connect({ bin: script('exec sleep 615'), connectTimeoutMs: 300 }), /within 300 ms/);
    await until('the programs end', () => living('sleep 615').length === 0);
  });

  test('may die, which rejects everything and leaves no process', limit, async () => {
    const agentline = await connect({ defaults });
    let up = 0;
    const onEvent = (event) => (up += event.type === 'tool_use' ? 1 : 0);
    const runs = [1, 2, 3].map(() => agentline.run({ prompt: 'say up\nrun sleep 616', onEvent }));
    const stream = agentline.stream({ prompt: 'say up\nrun sleep 616', onEvent });
    const reading = (async () => {
      for await (const event of stream) assert.ok(event.seq > 0);
    })();
    const ended = Promise.allSettled([...runs, reading, stream.outcome]);
    await until('all runs have started', () => up === 4);
    const [host] = living(' host').filter(({ command }) => command.startsWith(process.env.AGENTLINE_BIN));
    process.kill(host.pid, 'SIGKILL');
    for (const { status, reason } of await ended) {
      assert.equal(status, 'rejected');
      assert.ok(reason instanceof HostGoneError, String(reason));
      assert.match(reason.message, /SIGKILL/);
    }
    assert.ok(agentline.closed);
    await assert.rejects(agentline.run({ prompt: 'say x' }), HostGoneError);
    await agentline.close();
    await until('nothing is left', () => living('sleep 616').length === 0);
  });

  test('cancels active runs when it is closed', limit, async () => {
    const agentline = await connect({ defaults });
    let up;
    const started = new Promise((resolve) => (up = resolve));
    const run = agentline.run({ prompt: 'say up\nrun sleep 617', onEvent: (event) => event.type === 'tool_use' && up() });
    await started;
    await agentline[Symbol.asyncDispose]();
    assert.equal((await run).verdict, 'cancelled');
    assert.equal(living('sleep 617').length, 0);
    assert.equal(living(' host').length, 0);
    await agentline.close();
    await assert.rejects(agentline.run({ prompt: 'say x' }), HostGoneError);
  });

  /** Runs a program that uses the client. Returns its output and its exit status. */
  async function program(text, onOutput = () => {}) {
    const head = `import { connect, execute } from '${PACKAGE}src/index.js';\nconst defaults = ${JSON.stringify(defaults)};\n`;
    const child = spawn(process.execPath, ['--input-type=module', '-e', head + text]);
    let output = '';
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (bytes) => {
        output += bytes;
        onOutput(output, child);
      });
    }
    const [code, signal] = await new Promise((resolve) => child.on('close', (...end) => resolve(end)));
    return { code, signal, output };
  }

  test('does not keep an idle program alive', limit, async () => {
    const idle = `
      const agentline = await connect({ defaults });
      const conversation = await agentline.session();
      console.log((await conversation.run('say hi')).text);
      console.log((await execute({ prompt: 'say shared', options: defaults })).messages.length);`;
    const { code, output } = await program(idle);
    assert.equal(output.trim(), 'hi\n1');
    assert.equal(code, 0);
    await until('nothing is left', () => living().length === 0);
  });

  test('ends with the program that started it, however the program ends', limit, async () => {
    const busy = (then) => `
      const agentline = await connect({ defaults });
      const onEvent = (event) => { if (event.type === 'tool_use') { console.log('up'); ${then} } };
      await agentline.run({ prompt: 'say up\\nrun sleep 618', onEvent });`;
    assert.equal((await program(busy('process.exit(7)'))).code, 7);
    await until('nothing is left', () => living().length === 0);
    const thrown = await program(busy("setTimeout(() => { throw new Error('bang'); }, 10)"));
    assert.match(thrown.output, /bang/);
    await until('nothing is left', () => living().length === 0);
    const killed = await program(busy(''), (output, child) => output.includes('up') && child.kill('SIGKILL'));
    assert.equal(killed.signal, 'SIGKILL');
    await until('nothing is left', () => living().length === 0);
  });
});

test('every documented key has an option', () => {
  const page = readFileSync(new URL('../../docs/configuration.md', PACKAGE), 'utf8');
  const rows = page.split('<!-- keys -->')[1].split('<!-- end of keys -->')[0].split('\n');
  const keys = rows.map((row) => /^\| `(\w+)` \|/.exec(row)?.[1]).filter((key) => key && key !== 'prompt');
  assert.ok(keys.length > 50, `${keys.length}`);
  const camel = (key) => key.replace(/_(\w)/g, (_, letter) => letter.toUpperCase());
  claim('(keyof T.Keys)[]', keys.map(camel));
});
