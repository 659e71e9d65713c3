// Calls the HTTP interface of the server and reports whether it can be reached.

import { createStore } from './store.js';

/** Whether the server answers: `ok`, `away` or `signed_out`. */
export const connection = createStore('ok');

/** A failed request, with what the server says about it. */
export class ApiError extends Error {
  /** @param {number} status 0 if there was no response */
  constructor(status, error) {
    super(error.message ?? `The server answered with status ${status}`);
    this.status = status;
    this.code = error.code ?? 'internal';
    this.hint = error.hint ?? null;
    /** @type {{key: string, message: string, hint?: string}[]} */
    this.problems = error.problems ?? [];
  }
}

/** Adds parameters that have a value to a path. */
export function withQuery(path, params = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value !== undefined && value !== null && value !== '') query.set(name, value);
  }
  const text = query.toString();
  return text ? `${path}?${text}` : path;
}

/** Builds a path from parts that may contain any character. */
export const pathOf = (...parts) => `/v1/${parts.map(encodeURIComponent).join('/')}`;

async function request(method, path, body, signal) {
  const init = {
    method,
    signal,
    credentials: 'same-origin',
    cache: 'no-store',
    headers: { Accept: 'application/json' },
  };
  if (body !== undefined) {
    init.body = JSON.stringify(body);
    init.headers['Content-Type'] = 'application/json';
  }
  let response;
  try {
    response = await fetch(path, init);
  } catch (error) {
    if (signal?.aborted) throw error;
    connection.set('away');
    throw new ApiError(0, {
      code: 'away',
      message: 'The server cannot be reached.',
      hint: 'Check that agentline serve is still running.',
    });
  }
  if (!response.ok) throw await failure(response);
  connection.set('ok');
  return response.status === 204 ? null : response.json();
}

async function failure(response) {
  const body = await response.json().catch(() => null);
  const error = body?.error ?? {};
  if (response.status === 401) connection.set('signed_out');
  else if (response.status === 502 || response.status === 504) connection.set('away');
  else connection.set('ok');
  return new ApiError(response.status, error);
}

export const get = (path, params, signal) => request('GET', withQuery(path, params), undefined, signal);
export const post = (path, body = {}, signal) => request('POST', path, body, signal);
export const remove = (path) => request('DELETE', path);

/** Opens a conversation and sends its first prompt. If the server refuses that, no conversation stays open. */
export async function openConversation(settings, prompt) {
  const path = pathOf('conversations', (await post('/v1/conversations', settings)).conversation);
  try {
    return await post(`${path}/prompts`, { prompt });
  } catch (error) {
    // Without an answer, the prompt may be in progress. The error of the prompt says more than one of this request.
    if (error.status >= 400 && error.status < 500) await remove(path).catch(() => {});
    throw error;
  }
}

/** Waits, or until a signal aborts. */
export function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener(
      'abort',
      () => {
        clearTimeout(timer);
        resolve();
      },
      { once: true },
    );
  });
}

let info;
/** How much the clock of the server is ahead of that of the browser, in milliseconds. */
let ahead = 0;

/** What the server offers. It is requested once. */
export function serverInfo() {
  info ??= requestInfo().catch((error) => {
    info = undefined;
    throw error;
  });
  return info;
}

async function requestInfo() {
  const before = Date.now();
  const answer = await get('/v1/info');
  ahead = answer.now_ms - (before + Date.now()) / 2;
  return answer;
}

/** The time of the server, as far as it is known, in milliseconds since the Unix epoch. */
export const serverNow = () => Date.now() + ahead;
