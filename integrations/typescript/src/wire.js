// The process `agentline host`: JSON-RPC with one message per line. Every request settles, even if the process dies.

import { spawn } from 'node:child_process';
import { AgentlineError, HostGoneError, errorFromResponse } from './errors.js';

/** How many characters of stderr are kept for error messages. */
const STDERR_KEPT = 4096;
/** How long to wait for the remaining output after the process has exited. */
const DRAIN_MS = 1000;
/** How long the process may take to shut down before SIGTERM, and then before SIGKILL. */
const CLOSE_MS = 15_000;
const TERMINATE_MS = 5000;
/** An unpaired surrogate as JSON.stringify writes it. The first alternative skips escaped backslashes. */
const LONE_SURROGATE = /\\\\|\\ud[89a-f][0-9a-f]{2}/g;

/**
 * @typedef {{ resolve: (value: any) => void, reject: (error: Error) => void }} PendingRequest
 * @typedef {{
 *   request: (method: string, params: any) => Promise<unknown>,
 *   notify: (method: string, params: any) => void,
 * }} Handlers
 */

export class Wire {
  /** @type {import('node:child_process').ChildProcessWithoutNullStreams} */
  #child;
  #handlers;
  /** @type {Map<number, PendingRequest>} */
  #pending = new Map();
  #lastId = 0;
  /** @type {Buffer[]} */
  #line = [];
  #stderr = '';
  /** @type {HostGoneError | null} */
  #gone = null;
  #closing = false;
  /** @type {Promise<void>} */
  #ended;
  /** @type {() => void} */
  #end = () => {};

  /**
   * @param {string} bin
   * @param {{ cwd?: string, env?: Record<string, string | undefined> }} options
   * @param {Handlers} handlers
   */
  constructor(bin, options, handlers) {
    this.#handlers = handlers;
    this.#ended = new Promise((resolve) => (this.#end = resolve));
    this.#child = spawn(bin, ['host'], {
      cwd: options.cwd,
      env: options.env ?? process.env,
      stdio: ['pipe', 'pipe', 'pipe'],
      // Ctrl-C in a terminal must reach only this program. agentline exits when its stdin closes.
      detached: process.platform !== 'win32',
      windowsHide: true,
    });
    this.#child.on('error', (error) => this.#onExit(`agentline could not be started: ${error.message}`, error));
    const { stdin, stdout, stderr } = this.#child;
    // If the system cannot create a process, there are no streams.
    if (!stdin || !stdout || !stderr) throw new HostGoneError('agentline could not be started: cannot create a process');
    stdout.on('data', (/** @type {Buffer} */ bytes) => this.#read(bytes));
    stderr.on('data', (/** @type {Buffer} */ bytes) => {
      this.#stderr = (this.#stderr + bytes.toString('utf8')).slice(-STDERR_KEPT);
    });
    // Write errors are ignored, because the exit of the process is reported.
    stdin.on('error', () => {});
    stdout.on('error', () => {});
    stderr.on('error', () => {});
    this.#child.on('exit', (code, signal) => {
      const how = signal ? `was killed by ${signal}` : `exited with code ${code}`;
      const report = () => this.#onExit(`agentline ${how}`);
      // Reads the remaining output, but only for a limited time: another process may hold the stream open.
      const timer = setTimeout(report, DRAIN_MS);
      this.#child.once('close', () => {
        clearTimeout(timer);
        report();
      });
    });
    this.#updateRefs();
  }

  get gone() {
    return this.#gone !== null || this.#closing;
  }

  /**
   * @param {string} method
   * @param {unknown} [params]
   * @returns {Promise<any>}
   */
  request(method, params = {}) {
    if (this.#gone) return Promise.reject(this.#gone);
    if (this.#closing) return Promise.reject(new HostGoneError('agentline was closed'));
    return this.#send(method, params);
  }

  /** Shuts the process down. Resolves when the process has exited. */
  async close() {
    if (this.#gone || this.#closing) return this.#ended;
    this.#closing = true;
    this.#updateRefs();
    this.#send('shutdown', {}).catch(() => {});
    this.#child.stdin.end();
    const terminate = setTimeout(() => this.#child.kill('SIGTERM'), CLOSE_MS);
    const kill = setTimeout(() => this.#child.kill('SIGKILL'), CLOSE_MS + TERMINATE_MS);
    await this.#ended;
    clearTimeout(terminate);
    clearTimeout(kill);
  }

  /** Kills the process. Its runs and their processes end with it. */
  kill() {
    this.#child.kill('SIGKILL');
  }

  /**
   * @param {string} method
   * @param {unknown} params
   * @returns {Promise<any>}
   */
  #send(method, params) {
    const id = ++this.#lastId;
    return new Promise((resolve, reject) => {
      // An exception for a value that JSON cannot represent rejects the promise.
      const line = lineOf({ jsonrpc: '2.0', id, method, params });
      this.#pending.set(id, { resolve, reject });
      this.#updateRefs();
      this.#child.stdin.write(`${line}\n`);
    });
  }

  /** @param {object} message */
  #sendMessage(message) {
    if (this.#gone) return;
    this.#child.stdin.write(`${lineOf({ jsonrpc: '2.0', ...message })}\n`);
  }

  /** Keeps the event loop alive only while a request is pending. */
  #updateRefs() {
    const busy = this.#pending.size > 0 || (this.#closing && !this.#gone);
    const streams = /** @type {import('node:net').Socket[]} */ (
      /** @type {unknown} */ ([this.#child.stdin, this.#child.stdout])
    );
    for (const handle of [this.#child, ...streams]) {
      if (busy) handle.ref();
      else handle.unref();
    }
    /** @type {import('node:net').Socket} */ (/** @type {unknown} */ (this.#child.stderr)).unref();
  }

  /** @param {Buffer} bytes */
  #read(bytes) {
    let from = 0;
    for (;;) {
      const end = bytes.indexOf(10, from);
      if (end === -1) break;
      this.#line.push(bytes.subarray(from, end));
      const line = this.#line.length === 1 ? this.#line[0] : Buffer.concat(this.#line);
      this.#line = [];
      from = end + 1;
      if (line && line.length > 0) this.#dispatch(line.toString('utf8'));
    }
    if (from < bytes.length) this.#line.push(bytes.subarray(from));
  }

  /** @param {string} line */
  #dispatch(line) {
    /** @type {any} */
    let message;
    try {
      message = JSON.parse(line);
    } catch {
      this.#onExit(`agentline printed a line that is not JSON: ${line.slice(0, 200)}`);
      this.kill();
      return;
    }
    if (message === null || typeof message !== 'object') return;
    if (typeof message.method !== 'string') return this.#onResponse(message);
    const params = message.params ?? {};
    if (message.id === undefined || message.id === null) {
      this.#handlers.notify(message.method, params);
      return;
    }
    this.#handlers.request(message.method, params).then(
      (result) => this.#reply(message.id, result),
      (error) => this.#sendMessage({ id: message.id, error: { code: error?.code ?? -32603, message: text(error) } }),
    );
  }

  /**
   * @param {unknown} id
   * @param {unknown} result
   */
  #reply(id, result) {
    try {
      this.#sendMessage({ id, result: result ?? null });
    } catch (error) {
      const message = `the answer cannot be serialized to JSON: ${text(error)}`;
      this.#sendMessage({ id, error: { code: -32603, message } });
    }
  }

  /** @param {any} message */
  #onResponse(message) {
    const request = this.#pending.get(message.id);
    if (!request) return;
    this.#pending.delete(message.id);
    if (message.error) request.reject(errorFromResponse(message.error));
    else request.resolve(message.result);
    this.#updateRefs();
  }

  /**
   * Rejects all pending requests.
   * @param {string} reason
   * @param {unknown} [cause]
   */
  #onExit(reason, cause) {
    if (this.#gone) return;
    const stderr = this.#stderr.trim();
    const message = this.#closing ? 'agentline was closed' : stderr ? `${reason}: ${stderr}` : reason;
    const hint = 'connect again; all runs of this process have ended';
    this.#gone = new HostGoneError(message, cause === undefined ? { hint } : { hint, cause });
    const pending = [...this.#pending.values()];
    this.#pending.clear();
    this.#updateRefs();
    for (const request of pending) request.reject(this.#gone);
    this.#end();
  }
}

/**
 * Serializes a message. Replaces unpaired surrogates, which UTF-8 cannot encode, with U+FFFD.
 * @param {object} message
 */
function lineOf(message) {
  return JSON.stringify(message).replace(LONE_SURROGATE, (found) => (found === '\\\\' ? found : '\ufffd'));
}

/** @param {unknown} error */
export function text(error) {
  return error instanceof Error ? error.message : String(error);
}

/**
 * Returns an error with the JSON-RPC code for an unknown method.
 * @param {string} message
 */
export function noMethod(message) {
  return Object.assign(new AgentlineError(message), { code: -32601 });
}
