// The thread behind `sync.js`: passes requests to `agentline host` and wakes the waiting thread with each response.

import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { workerData } from 'node:worker_threads';

/**
 * @type {{
 *   port: import('node:worker_threads').MessagePort,
 *   flag: Int32Array,
 *   bin: string,
 *   cwd: string,
 *   env: Record<string, string | undefined>,
 * }}
 */
const { port, flag, bin, cwd, env } = workerData;
const detached = process.platform !== 'win32';
const child = spawn(bin, ['host'], { cwd, env, detached, windowsHide: true, stdio: ['pipe', 'pipe', 'ignore'] });
let lastId = 0;
let gone = '';

/** @param {object} answer */
function wake(answer) {
  port.postMessage(answer);
  Atomics.store(flag, 0, 1);
  Atomics.notify(flag, 0);
}

/** @param {string} reason */
function end(reason) {
  gone ||= reason;
  wake({ gone });
}

child.on('error', (error) => end(`agentline could not be started: ${error.message}`));
child.on('exit', (code, signal) => end(`agentline exited with ${signal ?? `code ${code}`}`));
child.stdin.on('error', () => {});
createInterface({ input: child.stdout }).on('line', (line) => {
  const { id, result, error } = JSON.parse(line);
  if (id === lastId) wake(error ? { error } : { result });
});
port.on('message', ({ method, params }) => {
  if (gone) return end(gone);
  lastId += 1;
  child.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', id: lastId, method, params })}\n`);
});
