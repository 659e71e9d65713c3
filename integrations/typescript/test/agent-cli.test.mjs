// Tests the functions of agent-cli-sdk with a fake agent.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { chmodSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as claudeModule from '../src/claude.js';
import * as codexModule from '../src/codex.js';
import * as geminiModule from '../src/gemini.js';
import {
  AgentlineError,
  BinaryNotFoundError,
  NoSessionError,
  UsageError,
  connect,
  detectClaudeCli,
  detectCli,
  detectCodexCli,
  detectGeminiCli,
  detectLauncher,
  execute,
  extractJSON,
  extractSessionIdFromEvents,
  extractTextContent,
  getCapabilities,
  isAskUserQuestionTool,
  isBashTool,
  isEditTool,
  isExitPlanModeTool,
  isGlobTool,
  isGrepTool,
  isMcpTool,
  isReadTool,
  isSlashCommand,
  isTodoWriteTool,
  isWebSearchTool,
  isWriteTool,
  loadMessages,
  parse,
} from '../src/index.js';
import { defaults, limit, living, sample, until } from './stage.mjs';

const { permissionMode, ...options } = defaults;

describe('the functions of agent-cli-sdk', () => {
  test('execute returns a result and calls its callbacks with the shapes of the SDK', limit, async () => {
    const calls = [];
    const lines = [];
    let stdout;
    const result = await execute({
      prompt: 'say Hello {"greeting": "hello"}\ntool write_file a.txt hi\nsay bye\nstderr something odd',
      permissionMode: 'acceptEdits',
      json: true,
      verbose: true,
      options,
      onStart: (process) => calls.push(`start ${process.started.agent} ${process.killed}`),
      onEvent: (data) => lines.push(data),
      onStdout: (data) => (stdout = data),
      onStderr: (text) => calls.push(`stderr ${text.length > 0}`),
      onError: (error) => calls.push(`error ${error}`),
      onClose: (code) => calls.push(`close ${code}`),
    });
    sample('ExecuteResult<any>', result);
    assert.equal(result.success, true);
    assert.equal(result.error, undefined);
    assert.equal(result.exitCode, 0);
    assert.deepEqual(result.data, { greeting: 'hello' });
    assert.ok(result.duration > 0 && result.sessionId !== 'unknown' && result.messages.length > 0);
    assert.equal(result.quotaExceeded, false);
    assert.equal(calls[0], 'start gemini false');
    assert.equal(calls.at(-1), 'close 0');
    assert.ok(calls.includes('stderr true'), `${calls}`);
    assert.ok(!calls.some((one) => one.startsWith('error')), `${calls}`);
    // The messages are in the view `unified`: each result follows its call.
    const blocks = result.messages.flatMap(({ content }) => content.map(({ type }) => type));
    assert.deepEqual(blocks.slice(blocks.indexOf('tool_use')).slice(0, 2), ['tool_use', 'tool_result']);
    assert.ok(result.messages.every(({ id, timestamp, tool, _original }) => id && timestamp > 0 && tool === 'gemini' && _original));
    const types = lines.map(({ event }) => event.type);
    assert.deepEqual([types[0], types.at(-1)], ['system', 'result']);
    assert.ok(lines.every(({ raw, event }) => JSON.stringify(event) === JSON.stringify(JSON.parse(raw))));
    assert.ok(lines.every(({ event, message }) => (message === null) === (event.type === 'system' || event.type === 'result')));
    const hello = lines.find(({ message }) => message?.role === 'assistant').message;
    assert.match(hello.content[0].text, /^Hello/);
    assert.deepEqual([stdout.events.length, stdout.raw.trim().split('\n').length], [lines.length, lines.length]);
    assert.equal(stdout.messages.length, lines.filter(({ message }) => message).length);
  });

  test('data is the text unless a JSON value is requested and found', limit, async () => {
    const plain = await execute({ prompt: 'say one {"a": 1}', options });
    assert.equal(plain.data, 'one {"a": 1}');
    const without = await execute({ prompt: 'say no value', json: true, options });
    assert.deepEqual([without.success, without.data], [true, 'no value']);
  });

  test('no option is ignored', limit, async () => {
    const refused = await execute({ prompt: 'say x', options, alowedTools: ['Read'], toolSettings: { disallowed: ['Bash'] } });
    assert.equal(refused.success, false);
    assert.match(refused.error, /`alowedTools`: is not a known option\n`toolSettings\.disallowed`: is not a known option/);
    assert.match(refused.error, /hint: put settings .* into `options`; use allowedTools, disallowedTools/);
    const inner = await execute({ prompt: 'say x', options: { timout: 3 } });
    assert.match(inner.error, /`options\.timout`: is not a known option\n {2}hint: did you mean `options\.timeout`\?/);
    const claude = await execute({ tool: 'claude', prompt: 'say x', sessionId: 'mine' });
    assert.match(claude.error, /`mine` is not a UUID/);
    for (const [call, name] of [
      [() => loadMessages({ tol: 'gemini' }), 'tol'],
      [() => getCapabilities({ tol: 'gemini' }), 'tol'],
      [async () => parse('{}', { tol: 'gemini' }), 'tol'],
      [async () => detectCli('gemini', { bim: 'x' }), 'bim'],
      [async () => detectLauncher('gemini', { bim: 'x' }), 'bim'],
      [async () => extractJSON('{}', { bim: 'x' }), 'bim'],
      [() => geminiModule.loadSession({ sesionId: 'x' }), 'sesionId'],
    ]) {
      await assert.rejects(call, (error) => error instanceof UsageError && error.problems[0].key === name, name);
    }
    const twice = await execute({ prompt: 'say x', options: { ...options, resume: 'latest' } });
    assert.match(twice.error, /`options\.resume`: is an option of execute\n {2}hint: pass `resume`/);

    const ask = 'ask write_file denied.txt hi\nsay done';
    const skip = await execute({ prompt: ask, dangerouslySkipPermissions: true, options });
    assert.deepEqual([skip.outcome.verdict, skip.outcome.files.length], ['done', 1]);
    const denied = await execute({
      prompt: ask,
      dangerouslySkipPermissions: true,
      toolSettings: { disallowedTools: ['Write'] },
      options,
    });
    assert.deepEqual([denied.outcome.verdict, denied.outcome.files.length], ['done_with_denials', 0]);
    const allowed = await execute({ prompt: ask, toolSettings: { allowedTools: ['Write'] }, options });
    assert.equal(allowed.outcome.verdict, 'done');
    // A rule of Claude Code covers the command alone and with arguments, but no other command.
    const shell = { dangerouslySkipPermissions: true, toolSettings: { disallowedTools: ['Bash(echo:*)'] }, options };
    const echo = await execute({ prompt: 'ask run echo hi\nsay done', ...shell });
    assert.equal(echo.outcome.verdict, 'done_with_denials');

    const appended = await execute({ prompt: 'hello there', appendSystemPrompt: 'Be brief.', options });
    assert.match(appended.outcome.text, /Be brief\./);
    const image = await execute({ prompt: 'say x', images: [{ path: 'no-such-image.png' }], options });
    assert.match(image.error, /no-such-image\.png/);
    const servers = await execute({ prompt: 'say x', mcpConfig: ['{broken'], options });
    assert.match(servers.error, /mcpConfig: cannot read `\{broken`/);
    const mcpConfig = ['{"mcpServers": {"notes": {"command": "no-such-server", "args": ["of notes"]}}}'];
    const named = await execute({ prompt: 'echo_servers', mcpConfig, options });
    assert.match(named.outcome.text, /notes/);
    const quiet = await execute({ prompt: 'say x', streaming: false, options, onEvent: () => assert.fail('streaming is off') });
    assert.equal(quiet.success, true);
    const continued = await execute({ prompt: 'say x', tool: 'claude', continue: true, options });
    assert.match(continued.error, /no session of claude found/);
    await assert.rejects(execute({ prompt: 'say x', tool: 'codex', options }), /^RunError: Codex CLI not found/);
  });

  test('the process of onStart stops the run', limit, async () => {
    const result = await execute({ prompt: 'say up\nsleep 60000', options, onStart: (process) => process.kill() });
    assert.deepEqual([result.success, result.outcome.verdict, result.exitCode], [false, 'cancelled', -1]);
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
    const onError = (error) => errors.push(error);
    const quota = await execute({ prompt, options: { ...options, config }, onError });
    assert.deepEqual([quota.success, quota.quotaExceeded, quota.exitCode], [false, true, -1]);
    assert.ok(errors.length === 1 && errors[0] instanceof Error);
    assert.equal(errors[0].message, quota.error);
    const closed = [];
    const refused = await execute({ prompt: '  ', options, onClose: (code) => closed.push(code) });
    assert.ok(!refused.success && refused.error && refused.outcome === null);
    assert.deepEqual([closed, refused.exitCode, refused.sessionId, refused.data], [[-1], -1, 'unknown', '']);
    const nowhere = await execute({ prompt: 'x', bin: './no-such-program' });
    assert.match(nowhere.error, /was not found or is not executable/);
    const late = await execute({ prompt: 'sleep 60000', timeout: 700, options });
    assert.equal(late.outcome.verdict, 'timed_out');
  });

  test('an abort is reported, and an aborted signal starts nothing', limit, async () => {
    const before = await execute({ prompt: 'say x', signal: AbortSignal.abort(), bin: './no-such-program' });
    assert.deepEqual([before.success, before.error], [false, 'the run was aborted']);
    const stop = new AbortController();
    const onStdout = ({ messages }) => messages.length > 0 && stop.abort();
    const during = await execute({
      prompt: 'say up\nplan\nrun sleep 60',
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

  test('detectCli is synchronous and returns the CLI', limit, () => {
    assert.equal(detectCli(), process.env.GEMINI_CLI_PATH);
    assert.equal(detectCli('codex'), null);
    assert.deepEqual([detectGeminiCli(), detectCodexCli()], [detectCli(), null]);
    assert.ok(Array.isArray(detectLauncher()) && detectLauncher('codex') === null);
    assert.throws(() => detectCli('no-such-agent'), UsageError);
    assert.throws(() => detectCli('gemini', { bin: './no-such-program' }), BinaryNotFoundError);
    // agentline starts the CLI of Claude Code itself.
    const folder = mkdtempSync(join(tmpdir(), 'agentline-'));
    const claude = join(folder, 'claude');
    writeFileSync(claude, '#!/bin/sh\n');
    chmodSync(claude, 0o755);
    process.env.CLAUDE_CLI_PATH = claude;
    assert.deepEqual([detectClaudeCli(), detectLauncher('claude')], [claude, [claude]]);
    process.env.CLAUDE_CLI_PATH = join(folder, 'none');
    assert.equal(detectClaudeCli(), null);
    delete process.env.CLAUDE_CLI_PATH;
  });

  test('parse converts one record', limit, () => {
    const tool = { id: 'c1', name: 'read_file', args: { absolute_path: '/a', wait_for_previous: true }, status: 'success' };
    const tokens = { input: 5870, output: 41, cached: 5420, thoughts: 28, tool: 0, total: 5939 };
    const timestamp = '2025-10-29T10:00:00.000Z';
    const record = { id: 'm1', timestamp, type: 'gemini', content: 'Done.', toolCalls: [tool], tokens, model: 'gemini-2.5-pro' };
    const message = sample('SdkMessage', parse(record));
    assert.deepEqual(message._original, record);
    assert.deepEqual([message.role, message.tool, message.timestamp], ['assistant', 'gemini', Date.parse(timestamp)]);
    assert.deepEqual(message.content[0].input, { file_path: '/a' });
    const { inputTokens, outputTokens, totalTokens, cacheReadTokens } = message.usage;
    assert.deepEqual([inputTokens, outputTokens, totalTokens, cacheReadTokens], [5870, 41, 5939, 5420]);

    const usage = { input_tokens: 3, cache_creation_input_tokens: 3526, cache_read_input_tokens: 11040, output_tokens: 1 };
    const answer = { role: 'assistant', id: 'm', content: [{ type: 'text', text: 'Hi' }], usage };
    const line = JSON.stringify({ type: 'assistant', uuid: 'u', sessionId: 's', timestamp, message: answer });
    const claude = parse(line, { tool: 'claude' });
    const counts = [claude.usage.inputTokens, claude.usage.outputTokens, claude.usage.totalTokens];
    assert.deepEqual([counts, claude.usage.cacheReadTokens, claude.usage.cacheCreationTokens], [[3, 1, 4], 11040, 3526]);
    const content = '<command-name>/clear</command-name><command-message>clear</command-message><command-args></command-args>';
    const command = claudeModule.parse(JSON.stringify({ type: 'user', uuid: 'u', message: { role: 'user', content } }));
    assert.ok(isSlashCommand(command.content[0]) && command.content[0].command === '/clear');
    const item = { id: 'item_1', type: 'agent_message', text: 'Hello' };
    const codex = codexModule.parse(JSON.stringify({ type: 'item.completed', item }));
    assert.deepEqual([codex.id, extractTextContent(codex), codex.timestamp > 0], ['item_1', 'Hello', true]);
    for (const nothing of ['', 'no json', '{"type":"turn.started"}']) assert.equal(codexModule.parse(nothing), null);
  });

  test('a module has the functions of its agent, and loads a session by its path', limit, async () => {
    const record = { id: 'm1', timestamp: '2025-10-29T10:00:00.000Z', type: 'gemini', content: 'alone' };
    writeFileSync('bare.json', JSON.stringify(record, null, 2));
    const [message] = await geminiModule.loadSession({ sessionPath: 'bare.json' });
    assert.equal(extractTextContent(sample('SdkMessage', message)), 'alone');
    assert.deepEqual(await geminiModule.loadSession({ sessionId: 'no-such-session' }), []);
    assert.equal(geminiModule.detectCli(), process.env.GEMINI_CLI_PATH);
    assert.equal((await geminiModule.execute({ prompt: 'say x', options })).data, 'x');
  });

  test('the helpers of the SDK', limit, () => {
    assert.deepEqual(extractJSON('Here: ```json\n{"a": 1}\n``` and more'), { a: 1 });
    assert.equal(extractJSON('nothing'), null);
    assert.equal(extractSessionIdFromEvents([{}, { sessionId: '' }, { sessionId: 's' }]), 's');
    assert.equal(extractSessionIdFromEvents([]), 'unknown');
    const call = (name) => ({ type: 'tool_use', id: '1', name, input: {} });
    const guards = { Bash: isBashTool, Read: isReadTool, Write: isWriteTool, Edit: isEditTool, Glob: isGlobTool, Grep: isGrepTool };
    Object.assign(guards, { TodoWrite: isTodoWriteTool, WebSearch: isWebSearchTool, AskUserQuestion: isAskUserQuestionTool });
    Object.assign(guards, { ExitPlanMode: isExitPlanModeTool, mcp__a__b: isMcpTool });
    for (const [name, guard] of Object.entries(guards)) assert.ok(guard(call(name)) && !guard(call('Other')), name);
  });

  test('getCapabilities returns all agents or one of them', limit, async () => {
    const client = await connect({ defaults });
    const all = await getCapabilities({ client });
    assert.ok(Object.keys(all).length >= 4);
    Object.values(all).forEach((one) => sample('ToolCapabilities', one));
    assert.deepEqual([all.gemini.cliPath, all.gemini.installed], [process.env.GEMINI_CLI_PATH, true]);
    assert.deepEqual([all.codex.source, all.codex.installed, 'cliPath' in all.codex], ['table', false, false]);
    const gemini = await getCapabilities('gemini', { client });
    assert.deepEqual(gemini, all.gemini);
    assert.deepEqual(await getCapabilities({ client, tool: 'gemini' }), gemini);
    assert.ok(gemini.supportsModels && gemini.supportsWebSearch && gemini.supportsThinking && gemini.models.length > 0);
    assert.deepEqual([(await getCapabilities('cursor', { client })).installed], [false]);
    await assert.rejects(getCapabilities('no-such-agent', { client }), UsageError);
    await client.close();
  });
});
