#!/usr/bin/env node
// A fake `agentline host`: it logs all requests, and the first word of the prompt selects its behavior.
import { appendFileSync } from 'node:fs';
import { createInterface } from 'node:readline';

const log = (record) => appendFileSync(process.env.FAKE_HOST_LOG, `${JSON.stringify({ pid: process.pid, ...record })}\n`);
const send = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
const held = new Map();
const requests = new Map();
let lastRequest = 0;

const outcome = (more) => ({
  schema: 'agentline.outcome/1',
  agent: 'gemini',
  verdict: 'done',
  text: 'an answer',
  output: null,
  error: null,
  files: [],
  denied: [],
  usage: { input_tokens: 100, output_tokens: 20, cached_tokens: 30, thought_tokens: 5, total_tokens: 125, requests: 2, by_model: {} },
  cost_usd: 0.5,
  session_id: 's-1',
  turns: 2,
  tool_calls: 1,
  warnings: [],
  ...more,
});

const failed = (verdict, kind, more) => outcome({ verdict, error: { kind, message: 'what happened', retryable: true, ...more }, text: '' });

const ask = (method, params) =>
  new Promise((resolve) => {
    requests.set(`q${++lastRequest}`, resolve);
    send({ id: `q${lastRequest}`, method, params });
  });

async function run(id, params) {
  const { run: name, prompt } = params;
  const event = (body) => send({ method: 'run/event', params: { run: name, event: body } });
  const [word] = prompt.split(' ');
  if (word === 'die') process.exit(3);
  if (word === 'usage') {
    const problems = [{ key: 'timeout', message: 'must be > 0', hint: 'write seconds' }];
    return send({ id, error: { code: -32602, message: 'timeout must be > 0', data: { problems } } });
  }
  if (word === 'nowhere') {
    const problems = [{ key: 'working_dir', message: '`/x` is not a directory', hint: 'pass an existing directory with `--cwd`' }];
    return send({ id, error: { code: -32602, message: 'no directory', data: { problems } } });
  }
  if (word === 'hang') return held.set(name, id);
  if (word === 'permission') return send({ id, result: outcome({ text: JSON.stringify(await ask('permission/ask', { run: name, ask: { tool: 'Write' } })) }) });
  if (word === 'check') return send({ id, result: outcome({ text: JSON.stringify(await ask('check', { run: name, text: 'half' })) }) });
  if (word === 'call') return send({ id, result: outcome({ text: JSON.stringify(await ask('tool/call', { run: name, tool: 'add', input: { a: 2, b: 3 } })) }) });
  if (word === 'stream') for (const text of ['a', 'b', 'ü']) event({ type: 'text', text });
  if (word === 'tools') {
    event({ type: 'tool_use', at_ms: 5, id: 't1', name: 'Write', native_name: 'write_file', raw_input: { file_path: 'a' } });
    event({ type: 'tool_result', at_ms: 9, tool_use_id: 't1', status: 'ok', content: 'written', is_error: false });
    event({ type: 'tool_use', at_ms: 10, id: 't3', name: 'Read', native_name: 'read_file', raw_input: {}, parent_tool_use_id: 't1' });
    event({ type: 'tool_use', at_ms: 10, id: 't2', name: 'Skill', native_name: 'activate_skill', raw_input: null });
    event({ type: 'tool_result', at_ms: 11, tool_use_id: 't2', status: 'denied', content: null, is_error: true, reason: 'no' });
  }
  const results = {
    limited: () => failed('rate_limited', 'rate_limited', { retry_after_ms: 1500 }),
    daily: () => failed('rate_limited', 'rate_limited', { message: 'You have exhausted your daily quota on this model.' }),
    quota: () => failed('rate_limited', 'rate_limited', { retryable: false }),
    changed: () => ({ ...failed('rate_limited', 'rate_limited'), files: [{ path: 'a' }] }),
    late: () => failed('timed_out', 'timeout_run'),
    crash: () => ({ ...failed('failed', 'no_result'), agent_exit_code: 3, stderr_tail: 'boom\n' }),
    stopped: () => failed('limit_reached', 'max_turns', { hint: 'raise `--max-turns`' }),
    slow: () => failed('timed_out', 'timeout_run', { hint: 'raise `--timeout`' }),
    busy: () => failed('rate_limited', 'rate_limited'),
    empty: () => failed('empty', 'empty', { hint: 'retry, or rephrase the prompt' }),
    blocked: () => failed('empty', 'blocked'),
    quoted: () => ({ ...failed('failed', 'no_result', { stdout_tail: 'the license expired\n' }), agent_exit_code: 3, stderr_tail: '' }),
    typed: () => failed('failed', 'api_error', { agent_type: 'FatalTurnLimitedError', hint: 'retry; if it fails again, pass another `--model`' }),
    model: () => failed('failed', 'unknown_model'),
    value: () => outcome({ output: { n: 4 } }),
    tools: () =>
      outcome({
        messages: [
          { role: 'assistant', content: [{ type: 'tool_use', id: 't2', name: 'Skill', input: { name: 'tidy' } }] },
          { role: 'user', content: [{ type: 'tool_result', tool_use_id: 't2', content: 'no such skill' }] },
          { role: 'user', content: 'text' },
        ],
      }),
    unknown: () => outcome({ warnings: [{ code: 'unknown_key', message: '`working_dri` is not a known key' }] }),
    cached: () => outcome({ cache: { hit: true } }),
  };
  send({ id, result: (results[word] ?? outcome)() });
}

log({ started: true, home: process.env.HOME });
createInterface({ input: process.stdin })
  .on('line', (line) => {
    const { id, method, params, result } = JSON.parse(line);
    if (!method) return requests.get(id)?.(result);
    log({ method, params });
    if (method === 'run') return run(id, params);
    if (method === 'cancel') {
      send({ id: held.get(params.run), result: failed('cancelled', 'cancelled') });
      held.delete(params.run);
    }
    const methods = process.env.FAKE_HOST_METHODS?.split(',') ?? ['run', 'cache/stats'];
    send({ id, result: { methods } });
    if (method === 'shutdown') process.exit(0);
  })
  .on('close', () => process.exit(0));
