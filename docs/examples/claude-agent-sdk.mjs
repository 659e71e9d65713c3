#!/usr/bin/env node
// Replaces Claude Code: pass the path of this file to the Claude Agent SDK as `pathToClaudeCodeExecutable`, and `query()`
// drives the agent that AGENTLINE_AGENT names. AGENTLINE_BIN is the path of agentline, if it is not on PATH.
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';

const asked = process.argv.slice(2);
const value = (flag) =>
  asked.flatMap((word, i) => (word === flag ? [asked[i + 1]] : word.startsWith(`${flag}=`) ? [word.slice(flag.length + 1)] : [])).at(-1);

const flags = ['--output', 'claude'];
for (const flag of ['--permission-mode', '--model', '--resume', '--max-turns']) {
  if (value(flag)) flags.push(flag, value(flag));
}

const text = (content) =>
  typeof content === 'string' ? content : content.map((block) => block.text ?? '').join('\n');

function run(prompt) {
  const args = ['run', ...flags, '--', prompt];
  const child = spawn(process.env.AGENTLINE_BIN ?? 'agentline', args, { stdio: ['ignore', 'inherit', 'inherit'] });
  return new Promise((resolve) => child.on('close', resolve));
}

for await (const line of createInterface({ input: process.stdin })) {
  const message = JSON.parse(line);
  if (message.type === 'control_request') {
    // The SDK sends an initial control request, which accepts an empty response.
    const response = { subtype: 'success', request_id: message.request_id, response: { commands: [], models: [], account: {} } };
    console.log(JSON.stringify({ type: 'control_response', response }));
  } else if (message.type === 'user') {
    await run(text(message.message.content));
  }
}
