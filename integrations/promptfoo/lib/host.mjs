// One `agentline host` for all providers of an evaluation: JSON-RPC over its standard streams, a line a message. It lets the
// event loop end while nothing is asked of it, and it ends when this process does, with everything that it started.
import { spawn } from 'node:child_process';
import { StringDecoder } from 'node:string_decoder';

const hosts = new Map();
/** How much of its standard error is kept for an error message. */
const TAIL = 4000;
/** How long a host may take to end in order before it is ended. */
const PATIENCE = 10_000;
/** How long a program may take to say that it is agentline. */
const GREETING = 30_000;
/** Half of a character, as JSON.stringify writes it; a backslash of the text itself is no beginning of one. */
const HALF = /\\\\|\\ud[89a-f][0-9a-f]{2}/g;

/** The host for this program and environment: the one that runs, or a new one. */
export function hostFor(binary, env, settings) {
  const key = JSON.stringify([binary, Object.entries(env).sort(), settings]);
  let host = hosts.get(key);
  if (!host) {
    host = new Host(binary, env, settings, () => hosts.delete(key));
    hosts.set(key, host);
  }
  return host;
}

/** Ends every host that nobody waits for. */
export async function endIdleHosts() {
  await Promise.all([...hosts.values()].filter((host) => host.isIdle()).map((host) => host.end()));
}

export class Host {
  constructor(binary, env, settings, onEnd, greeting = GREETING) {
    this.greeting = greeting;
    this.waiting = new Map();
    this.runs = new Map();
    this.lastId = 0;
    this.stderr = '';
    this.child = spawn(binary, ['host'], { env, stdio: ['pipe', 'pipe', 'pipe'], windowsHide: true });
    this.ended = new Promise((resolve) => {
      const end = (why) => {
        onEnd();
        this.gone ??= why;
        for (const { reject } of this.waiting.values()) reject(new Error(this.gone));
        this.waiting.clear();
        this.runs.clear();
        resolve();
      };
      this.child.on('error', (error) => end(`agentline could not be started: ${error.message}`));
      this.child.on('close', (code, signal) => {
        const said = this.stderr.trim();
        end(`agentline host ended (${signal ?? `exit code ${code}`})${said ? `: ${said}` : ''}`);
      });
    });
    this.child.stdin.on('error', () => {});
    // A character may be cut in two where a chunk ends.
    const decoder = new StringDecoder('utf8');
    let rest = '';
    this.child.stdout.on('data', (chunk) => {
      const lines = (rest + decoder.write(chunk)).split('\n');
      rest = lines.pop();
      for (const line of lines) this.take(line);
    });
    this.child.stderr.setEncoding('utf8');
    this.child.stderr.on('data', (text) => {
      this.stderr = (this.stderr + text).slice(-TAIL);
    });
    this.hold();
    const client = { name: 'agentline-promptfoo', version: '0.1.0' };
    this.ready = this.request('initialize', { client, protocol: 1, ...settings });
    const late = setTimeout(() => {
      this.gone = `${binary} did not answer within ${this.greeting / 1000} s: is it agentline?`;
      this.child.kill('SIGKILL');
    }, this.greeting);
    this.ready.catch(() => {}).finally(() => clearTimeout(late));
  }

  isIdle() {
    return this.waiting.size === 0;
  }

  /** Keeps this process alive while an answer is waited for, and only then. */
  hold() {
    const parts = [this.child, this.child.stdin, this.child.stdout, this.child.stderr];
    for (const part of parts) part?.[this.isIdle() ? 'unref' : 'ref']?.();
  }

  request(method, params) {
    if (this.gone) return Promise.reject(new Error(this.gone));
    const id = ++this.lastId;
    const answer = new Promise((resolve, reject) => this.waiting.set(id, { resolve, reject }));
    this.hold();
    this.send({ id, method, params });
    return answer;
  }

  send(message) {
    if (this.child.stdin.writable) this.child.stdin.write(`${lineOf({ jsonrpc: '2.0', ...message })}\n`);
  }

  take(line) {
    let message;
    try {
      message = JSON.parse(line);
    } catch {
      return;
    }
    if (message.method) return void this.asked(message);
    const waiter = this.waiting.get(message.id);
    if (!waiter) return;
    this.waiting.delete(message.id);
    this.hold();
    if (message.error) waiter.reject(Object.assign(new Error(message.error.message), { rpc: message.error }));
    else waiter.resolve(message.result);
  }

  /** An event, or a question that the run's callbacks answer. */
  async asked({ id, method, params }) {
    const answer = this.runs.get(params?.run)?.[method];
    if (id === undefined || id === null) return void answer?.(params);
    try {
      if (!answer) throw new Error(`nobody answers ${method}`);
      this.send({ id, result: await answer(params) });
    } catch (error) {
      this.send({ id, error: { code: -32603, message: String(error?.message ?? error) } });
    }
  }

  /** One run; `callbacks` are by method. A signal that is given ends it with all that it started. */
  async run(run, params, callbacks, signal) {
    const cancel = () => this.cancel(run);
    this.runs.set(run, callbacks);
    try {
      await this.ready;
      if (signal?.aborted) return undefined;
      const answer = this.request('run', { ...params, run });
      signal?.addEventListener('abort', cancel, { once: true });
      return await answer;
    } finally {
      signal?.removeEventListener('abort', cancel);
      this.runs.delete(run);
    }
  }

  cancel(run) {
    this.request('cancel', { run }).catch(() => {});
  }

  /** Ends it in order; what does not end is ended. */
  async end() {
    this.request('shutdown', {}).catch(() => {});
    this.child.ref();
    const late = setTimeout(() => this.child.kill('SIGKILL'), PATIENCE);
    await this.ended;
    clearTimeout(late);
  }
}

/** A message as JSON that every reader takes: half of a character, where a text was cut inside of one, is no text in UTF-8. */
export function lineOf(message) {
  return JSON.stringify(message).replace(HALF, (found) => (found === '\\\\' ? found : '\ufffd'));
}
