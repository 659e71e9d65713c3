// The process `agentline host` and JSON-RPC with it, a line a message. Whatever becomes of the process, every request is settled.

import { spawn } from 'node:child_process';
import { AgentlineError, HostGoneError, refusal } from './errors.js';

/** How much of standard error is kept for an error message. */
const STDERR_KEPT = 4096;
/** How long the rest of the output may take after the process has ended. */
const REST_MS = 1000;
/** How long an orderly end may take before the process is ended by a signal, and how long that may take. */
const CLOSE_MS = 15_000;
const TERMINATE_MS = 5000;
/** Half of a character, as JSON.stringify writes it; a backslash of the text itself is no beginning of one. */
const HALF = /\\\\|\\ud[89a-f][0-9a-f]{2}/g;

/**
 * @typedef {{ resolve: (value: any) => void, reject: (error: Error) => void }} Waiting
 * @typedef {{
 *   request: (method: string, params: any) => Promise<unknown>,
 *   notify: (method: string, params: any) => void,
 * }} Answers
 */

export class Wire {
  /** @type {import('node:child_process').ChildProcessWithoutNullStreams} */
  #child;
  #answers;
  /** @type {Map<number, Waiting>} */
  #waiting = new Map();
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
   * @param {Answers} answers
   */
  constructor(bin, options, answers) {
    this.#answers = answers;
    this.#ended = new Promise((resolve) => (this.#end = resolve));
    this.#child = spawn(bin, ['host'], {
      cwd: options.cwd,
      env: options.env ?? process.env,
      stdio: ['pipe', 'pipe', 'pipe'],
      // A key press in a terminal is for the program that we are part of; agentline ends when its input does.
      detached: process.platform !== 'win32',
      windowsHide: true,
    });
    this.#child.on('error', (error) => this.#die(`agentline could not be started: ${error.message}`, error));
    const { stdin, stdout, stderr } = this.#child;
    // Where the machine has no room for another process there are no streams either.
    if (!stdin || !stdout || !stderr) throw new HostGoneError('agentline could not be started: no room for a process');
    stdout.on('data', (/** @type {Buffer} */ bytes) => this.#read(bytes));
    stderr.on('data', (/** @type {Buffer} */ bytes) => {
      this.#stderr = (this.#stderr + bytes.toString('utf8')).slice(-STDERR_KEPT);
    });
    // What cannot be written is known by the end of the process.
    stdin.on('error', () => {});
    stdout.on('error', () => {});
    stderr.on('error', () => {});
    this.#child.on('exit', (code, signal) => {
      const how = signal ? `was ended by ${signal}` : `ended with exit code ${code}`;
      const told = () => this.#die(`agentline ${how}`);
      // What it still said counts; but nobody waits for ever for a stream that somebody else holds open.
      const rest = setTimeout(told, REST_MS);
      this.#child.once('close', () => {
        clearTimeout(rest);
        told();
      });
    });
    this.#hold();
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

  /** Ends the process in order; whatever it is at, it is gone when this resolves. */
  async close() {
    if (this.#gone || this.#closing) return this.#ended;
    this.#closing = true;
    this.#hold();
    this.#send('shutdown', {}).catch(() => {});
    this.#child.stdin.end();
    const terminate = setTimeout(() => this.#child.kill('SIGTERM'), CLOSE_MS);
    const kill = setTimeout(() => this.#child.kill('SIGKILL'), CLOSE_MS + TERMINATE_MS);
    await this.#ended;
    clearTimeout(terminate);
    clearTimeout(kill);
  }

  /** Ends the process at once; it takes what it runs with it. */
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
      // What cannot be written as JSON is thrown here and rejects.
      const line = lineOf({ jsonrpc: '2.0', id, method, params });
      this.#waiting.set(id, { resolve, reject });
      this.#hold();
      this.#child.stdin.write(`${line}\n`);
    });
  }

  /** @param {object} message */
  #say(message) {
    if (this.#gone) return;
    this.#child.stdin.write(`${lineOf({ jsonrpc: '2.0', ...message })}\n`);
  }

  /** The event loop is held open while something is waited for, and not otherwise. */
  #hold() {
    const busy = this.#waiting.size > 0 || (this.#closing && !this.#gone);
    const streams = /** @type {import('node:net').Socket[]} */ (
      /** @type {unknown} */ ([this.#child.stdin, this.#child.stdout])
    );
    for (const one of [this.#child, ...streams]) {
      if (busy) one.ref();
      else one.unref();
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
      if (line && line.length > 0) this.#take(line.toString('utf8'));
    }
    if (from < bytes.length) this.#line.push(bytes.subarray(from));
  }

  /** @param {string} line */
  #take(line) {
    /** @type {any} */
    let message;
    try {
      message = JSON.parse(line);
    } catch {
      this.#die(`agentline said what is no JSON: ${line.slice(0, 200)}`);
      this.kill();
      return;
    }
    if (message === null || typeof message !== 'object') return;
    if (typeof message.method !== 'string') return this.#settle(message);
    const params = message.params ?? {};
    if (message.id === undefined || message.id === null) {
      this.#answers.notify(message.method, params);
      return;
    }
    this.#answers.request(message.method, params).then(
      (result) => this.#answer(message.id, result),
      (error) => this.#say({ id: message.id, error: { code: error?.code ?? -32603, message: text(error) } }),
    );
  }

  /**
   * @param {unknown} id
   * @param {unknown} result
   */
  #answer(id, result) {
    try {
      this.#say({ id, result: result ?? null });
    } catch (error) {
      this.#say({ id, error: { code: -32603, message: `the answer is no JSON: ${text(error)}` } });
    }
  }

  /** @param {any} message */
  #settle(message) {
    const waiting = this.#waiting.get(message.id);
    if (!waiting) return;
    this.#waiting.delete(message.id);
    if (message.error) waiting.reject(refusal(message.error));
    else waiting.resolve(message.result);
    this.#hold();
  }

  /**
   * @param {string} why
   * @param {unknown} [cause]
   */
  #die(why, cause) {
    if (this.#gone) return;
    const said = this.#stderr.trim();
    const message = this.#closing ? 'agentline was closed' : said ? `${why}: ${said}` : why;
    const hint = 'connect again; nothing of its runs is left running';
    this.#gone = new HostGoneError(message, cause === undefined ? { hint } : { hint, cause });
    const waiting = [...this.#waiting.values()];
    this.#waiting.clear();
    this.#hold();
    for (const one of waiting) one.reject(this.#gone);
    this.#end();
  }
}

/**
 * A message as JSON that every reader takes: half of a character, where a text was cut inside of one, is no text in UTF-8.
 * @param {object} message
 */
function lineOf(message) {
  return JSON.stringify(message).replace(HALF, (found) => (found === '\\\\' ? found : '\ufffd'));
}

/** @param {unknown} error */
export function text(error) {
  return error instanceof Error ? error.message : String(error);
}

/**
 * A refusal that the other side reads.
 * @param {string} message
 */
export function noMethod(message) {
  return Object.assign(new AgentlineError(message), { code: -32601 });
}
