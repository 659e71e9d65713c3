// Tests the client with the real Gemini CLI and a scripted model. The Rust test that starts this file provides both.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { AbortError, connect, detectCli, execute, extractTextContent, getCapabilities, loadMessages, parse } from '../src/index.js';
import { limit, living, sample, until } from './stage.mjs';

const model = process.env.AGENTLINE_MODEL;
const defaults = { model, extensions: [], permissionMode: 'bypass', passEnv: ['MARK_OF_THE_TEST'], timeout: 90 };

describe('the real Gemini CLI', () => {
  /** @type {import('../types/index.js').Agentline} */
  let agentline;
  before(async () => (agentline = await connect({ defaults })));
  after(() => agentline.close());

  test('detectCli finds it, and it reports its own capabilities', limit, async () => {
    assert.equal(detectCli(), process.env.GEMINI_CLI_PATH);
    const gemini = sample('ToolCapabilities', await getCapabilities({ client: agentline, tool: 'gemini' }));
    assert.equal(gemini.source, 'agent');
    assert.ok(gemini.models.some(({ id }) => id === 'gemini-2.5-pro'));
    assert.ok(gemini.supportsSlashCommands && gemini.supportsModels && gemini.supportsWebSearch && gemini.supportsThinking);
  });

  test('execute writes a file with acceptEdits, and the saved session can be loaded', limit, async () => {
    const calls = [];
    const result = await execute({
      prompt: 'Say hello',
      permissionMode: 'acceptEdits',
      model,
      json: true,
      options: { extensions: [] },
      client: agentline,
      onStart: ({ started }) => calls.push(`start ${started.agent}`),
      onEvent: ({ event, message }) => calls.push(`${event.type} ${message ? extractTextContent(message) : ''}`),
      onError: (error) => calls.push(`error ${error}`),
      onClose: (code) => calls.push(`close ${code}`),
    });
    sample('ExecuteResult<any>', result).messages.forEach((message) => sample('SdkMessage', message));
    assert.ok(result.success && result.messages.length > 0, JSON.stringify(result));
    assert.deepEqual([result.exitCode, result.error, result.quotaExceeded], [0, undefined, false]);
    assert.deepEqual(result.data, { greeting: 'hello' });
    assert.deepEqual([calls[0], calls.at(-1)], ['start gemini', 'close 0']);
    assert.ok(calls.some((one) => one.startsWith('assistant Hello')), `${calls}`);
    assert.deepEqual([calls[1], calls.at(-2)], ['system ', 'result '], `${calls}`);
    assert.equal(readFileSync('hello.txt', 'utf8'), 'hello\n');

    const latest = await loadMessages({ client: agentline });
    latest.forEach((message) => sample('SdkMessage', message));
    // A run returns the same messages as its saved session, without the prompt.
    assert.deepEqual(result.messages.map(({ id }) => id), latest.slice(1).map(({ id }) => id));
    assert.deepEqual(parse(latest.at(-1)._original).content, latest.at(-1).content);
    const { sessionId } = result;
    assert.deepEqual(await loadMessages({ client: agentline, sessionId }), latest);
    const last = latest.at(-1);
    assert.deepEqual([latest[0].role, last.role], ['user', 'assistant']);
    // The agent also saves the text before the tool call as a separate record.
    const write = latest.find(({ content }) => content[0]?.type === 'tool_use');
    const [use, outcome] = write.content;
    assert.deepEqual([use.name, use.native_name, outcome.type], ['Write', 'write_file', 'tool_result']);
    assert.deepEqual([outcome.tool_use_id, outcome.is_error], [use.id, false]);
    assert.deepEqual([write.tool, write._original.type], ['gemini', 'gemini']);
    assert.ok(last.usage.total_tokens > 0 && last.usage.totalTokens === last.usage.total_tokens && last.timestamp > 1e12);

    const list = (await agentline.sessions.list({ agent: 'gemini', project: process.cwd() })).map((one) => sample('SessionSummary', one));
    assert.ok(list.some(({ id }) => id === sessionId));
    const claude = sample('LoadedSession<T.ClaudeMessage>', await agentline.sessions.load({ session: sessionId, view: 'claude' }));
    assert.ok(claude.messages.some(({ role, content }) => role === 'user' && content[0].type === 'tool_result'));
    assert.ok(claude.messages.every(({ _original }) => _original !== undefined));
    sample('LoadedSession', await agentline.sessions.load({ session: sessionId, order: 'turn', context: true }));
    const found = await agentline.sessions.search({ words: ['greeting'], contextLines: 1 });
    found.forEach((one) => sample('SearchResult', one));
    assert.ok(found.some(({ id, hits }) => id === sessionId && hits.length > 0));
  });

  test('a cold run has the exit code of the agent, and its session can be resumed', limit, async () => {
    const cold = { prompt: 'Say nothing more', model, warm: false, client: agentline, options: { extensions: [] } };
    const first = await execute(cold);
    assert.deepEqual([first.success, first.outcome.agent_exit_code, first.exitCode], [true, 0, 0], JSON.stringify(first));
    const second = await execute({ ...cold, warm: true, resume: true, sessionId: first.sessionId });
    assert.equal(sample('ExecuteResult<any>', second).sessionId, first.sessionId);
  });

  test('tools, permission and a typed answer', limit, async () => {
    const cities = [];
    const asks = [];
    const events = [];
    const outcome = await agentline.run({
      prompt: 'Tell me the weather in Paris',
      permissionMode: 'default',
      outputSchema: { type: 'object', properties: { degrees: { type: 'number' } }, required: ['degrees'] },
      tools: [
        {
          name: 'weather',
          description: 'The weather of a city',
          inputSchema: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
          handler: ({ city }) => {
            cities.push(city);
            return { degrees: 21 };
          },
        },
      ],
      onPermission: (ask) => {
        asks.push(sample('PermissionAsk', ask));
        return ask.kind === 'shell' ? { decision: 'deny', reason: 'no commands here' } : true;
      },
      onEvent: (event) => events.push(sample('RunEvent', event).type),
      messages: true,
    });
    sample('Outcome', outcome);
    assert.deepEqual(cities, ['Paris']);
    assert.deepEqual(outcome.output, { degrees: 21 });
    assert.ok(asks.some((ask) => ask.kind === 'shell' && ask.command === 'rm -rf build'), JSON.stringify(asks));
    assert.equal(outcome.verdict, 'done_with_denials');
    assert.equal(outcome.denied[0].reason, 'no commands here');
    assert.ok(outcome.cost_usd > 0 && outcome.usage.total_tokens > 0);
    assert.ok(['started', 'tool_use', 'tool_result', 'permission'].every((type) => events.includes(type)), `${events}`);
  });

  test('every kind of value that a tool returns reaches the model', limit, async () => {
    const values = { int: 42, float: 0.5, list: [1, 'two'], bool: false, none: undefined, text: '42', nested: [{ a: [null] }] };
    const tools = Object.entries(values).map(([name, value]) => ({ name: `get_${name}`, description: name, handler: () => value }));
    const failed = [];
    const onEvent = (event) => event.type === 'tool_result' && failed.push(event.is_error);
    await agentline.run({ prompt: 'Use every value', tools, toolServer: 'shop', onEvent });
    assert.deepEqual(failed, Array(7).fill(false));
  });

  test('an abort ends the command that the agent runs', limit, async () => {
    const stop = new AbortController();
    const stream = agentline.stream({ prompt: 'Wait for me', signal: stop.signal });
    const reading = (async () => {
      for await (const event of stream) {
        if (event.type !== 'tool_use') continue;
        await until('the command runs', () => living('sleep 621').length > 0);
        stop.abort();
      }
    })();
    await assert.rejects(reading, AbortError);
    await until('the command ends', () => living('sleep 621').length === 0);
  });

  test('an exceeded quota is reported', limit, async () => {
    const options = { extensions: [], config: { max_retries: 0 } };
    const result = await execute({ prompt: 'Exceed the quota', model, client: agentline, options });
    assert.deepEqual([result.success, result.quotaExceeded], [false, true], JSON.stringify(result));
    assert.equal(sample('Outcome', result.outcome).error.kind, 'rate_limited');
  });
});
