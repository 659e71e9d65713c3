// One `agentline host` for all providers of an evaluation: JSON-RPC over stdin and stdout, one message per line. An idle host
// does not keep this process alive. The host and every process that it started end with this process.
import { spawn } from 'node:child_process';
import { StringDecoder } from 'node:string_decoder';

const hosts = new Map();
/** How many characters of stderr are kept for error messages. */
const STDERR_LENGTH = 4000;
/** How long a host may take to shut down before it is killed. */
const SHUTDOWN_TIMEOUT = 10_000;
/** How long a program may take to answer `initialize`. */
const INITIALIZE_TIMEOUT = 30_000;
/** An unpaired surrogate as JSON.stringify writes it. The first alternative skips escaped backslashes. */
const LONE_SURROGATE = /\\\\|\\ud[89a-f][0-9a-f]{2}/g;

/** Returns the running host for this program and environment, or starts one. */
export function hostFor(binary, env, settings) {
  const key = JSON.stringify([binary, Object.entries(env).sort(), settings]);
  let host = hosts.get(key);
  if (!host) {
    host = new Host(binary, env, settings, () => hosts.delete(key));
    hosts.set(key, host);
  }
  return host;
}

/** Ends every host without pending requests. */
export async function endIdleHosts() {
  await Promise.all([...hosts.values()].filter((host) => host.isIdle()).map((host) => host.end()));
}

export class Host {
  constructor(binary, env, settings, onEnd, initializeTimeout = INITIALIZE_TIMEOUT) {
    this.pending = new Map();
    this.runs = new Map();
    this.lastId = 0;
    this.stderr = '';
    this.child = spawn(binary, ['host'], { env, stdio: ['pipe', 'pipe', 'pipe'], windowsHide: true });
    this.ended = new Promise((resolve) => {
      const end = (reason) => {
        onEnd();
        this.closedBecause ??= reason;
        for (const { reject } of this.pending.values()) reject(new Error(this.closedBecause));
        this.pending.clear();
        this.runs.clear();
        resolve();
      };
      this.child.on('error', (error) => end(`agentline could not be started: ${error.message}`));
      this.child.on('close', (code, signal) => {
        const stderr = this.stderr.trim();
        end(`agentline host exited (${signal ?? `exit code ${code}`})${stderr ? `: ${stderr}` : ''}`);
      });
    });
    this.child.stdin.on('error', () => {});
    // A chunk may end in the middle of a character.
    const decoder = new StringDecoder('utf8');
    let rest = '';
    this.child.stdout.on('data', (chunk) => {
      const lines = (rest + decoder.write(chunk)).split('\n');
      rest = lines.pop();
      for (const line of lines) this.dispatch(line);
    });
    this.child.stderr.setEncoding('utf8');
    this.child.stderr.on('data', (text) => {
      this.stderr = (this.stderr + text).slice(-STDERR_LENGTH);
    });
    this.updateRefs();
    const client = { name: 'agentline-promptfoo', version: '0.1.0' };
    this.ready = this.request('initialize', { client, protocol: 1, ...settings });
    const timer = setTimeout(() => {
      const seconds = initializeTimeout / 1000;
      this.closedBecause = `${binary} did not answer within ${seconds} s; check that it is agentline`;
      this.child.kill('SIGKILL');
    }, initializeTimeout);
    this.ready.catch(() => {}).finally(() => clearTimeout(timer));
  }

  isIdle() {
    return this.pending.size === 0;
  }

  /** Keeps this process alive only while a request is pending. */
  updateRefs() {
    const parts = [this.child, this.child.stdin, this.child.stdout, this.child.stderr];
    for (const part of parts) part?.[this.isIdle() ? 'unref' : 'ref']?.();
  }

  request(method, params) {
    if (this.closedBecause) return Promise.reject(new Error(this.closedBecause));
    const id = ++this.lastId;
    const response = new Promise((resolve, reject) => this.pending.set(id, { resolve, reject }));
    this.updateRefs();
    this.send({ id, method, params });
    return response;
  }

  send(message) {
    if (this.child.stdin.writable) this.child.stdin.write(`${lineOf({ jsonrpc: '2.0', ...message })}\n`);
  }

  dispatch(line) {
    let message;
    try {
      message = JSON.parse(line);
    } catch {
      return;
    }
    if (message.method) return void this.onMessage(message);
    const request = this.pending.get(message.id);
    if (!request) return;
    this.pending.delete(message.id);
    this.updateRefs();
    if (message.error) request.reject(Object.assign(new Error(message.error.message), { rpc: message.error }));
    else request.resolve(message.result);
  }

  /** Passes a notification or a request from the host to the callbacks of the run. */
  async onMessage({ id, method, params }) {
    const callback = this.runs.get(params?.run)?.[method];
    if (id === undefined || id === null) return void callback?.(params);
    try {
      if (!callback) throw new Error(`no handler for ${method}`);
      this.send({ id, result: await callback(params) });
    } catch (error) {
      this.send({ id, error: { code: -32603, message: String(error?.message ?? error) } });
    }
  }

  /** Runs a prompt. `callbacks` has a function per method. An aborted signal ends the run and all its processes. */
  async run(run, params, callbacks, signal) {
    const cancel = () => this.cancel(run);
    this.runs.set(run, callbacks);
    try {
      await this.ready;
      if (signal?.aborted) return undefined;
      const response = this.request('run', { ...params, run });
      signal?.addEventListener('abort', cancel, { once: true });
      return await response;
    } finally {
      signal?.removeEventListener('abort', cancel);
      this.runs.delete(run);
    }
  }

  cancel(run) {
    this.request('cancel', { run }).catch(() => {});
  }

  /** Shuts the host down, and kills it after a timeout. */
  async end() {
    this.request('shutdown', {}).catch(() => {});
    this.child.ref();
    const timer = setTimeout(() => this.child.kill('SIGKILL'), SHUTDOWN_TIMEOUT);
    await this.ended;
    clearTimeout(timer);
  }
}

/** Serializes a message. Replaces unpaired surrogates, which UTF-8 cannot encode, with U+FFFD. */
export function lineOf(message) {
  return JSON.stringify(message).replace(LONE_SURROGATE, (found) => (found === '\\\\' ? found : '\ufffd'));
}
