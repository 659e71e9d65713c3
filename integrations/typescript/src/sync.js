// Synchronous requests: a thread communicates with an agentline process of its own while this thread waits.

import { MessageChannel, Worker, receiveMessageOnPort } from 'node:worker_threads';
import { needBinary } from './binary.js';
import { HostGoneError, errorFromResponse } from './errors.js';
import { processKey } from './shared.js';

const ANSWER_MS = 30_000;

/** @typedef {{ key: string, worker: Worker, port: import('node:worker_threads').MessagePort, flag: Int32Array }} Thread */

/** @type {Thread | null} */
let thread = null;

/** @param {string} bin */
function threadFor(bin) {
  const key = processKey(bin);
  if (thread?.key === key) return thread;
  thread?.worker.terminate();
  const { port1: port, port2 } = new MessageChannel();
  const flag = new Int32Array(new SharedArrayBuffer(4));
  const workerData = { port: port2, flag, bin, cwd: process.cwd(), env: { ...process.env } };
  const worker = new Worker(new URL('./sync-worker.js', import.meta.url), { workerData, transferList: [port2] });
  // Neither the thread nor its port keeps this process alive, and agentline ends with the thread.
  worker.unref();
  port.unref();
  thread = { key, worker, port, flag };
  return thread;
}

/**
 * Calls a method of the protocol and waits for its response.
 * @param {{ bin?: string }} options
 * @param {string} method
 * @param {object} params
 * @returns {any}
 */
export function requestSync(options, method, params) {
  const { port, flag, worker } = threadFor(needBinary(options));
  Atomics.store(flag, 0, 0);
  port.postMessage({ method, params });
  Atomics.wait(flag, 0, 0, ANSWER_MS);
  const answer = receiveMessageOnPort(port)?.message;
  if (answer === undefined || answer.gone !== undefined) {
    void worker.terminate();
    thread = null;
    throw new HostGoneError(answer?.gone ?? `agentline did not answer within ${ANSWER_MS} ms`);
  }
  if (answer.error) throw errorFromResponse(answer.error);
  return answer.result;
}
