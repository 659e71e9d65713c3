// Shared by the tests: a directory, the fake host, and its log.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { AgentlineProvider } from '../index.mjs';

export const FAKE_HOST = path.join(path.dirname(fileURLToPath(import.meta.url)), 'fake-host.mjs');

/** Returns a separate environment for one test, with its own host. */
export function stage(t) {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'agentline-promptfoo-'));
  const log = path.join(folder, 'log');
  t.after(async () => {
    await new AgentlineProvider().cleanup();
    rmSync(folder, { recursive: true, force: true });
  });
  const provider = (config = {}, more = {}) =>
    new AgentlineProvider({
      id: 'file://index.mjs',
      ...more,
      config: { agentline_bin: FAKE_HOST, host_env: { FAKE_HOST_LOG: log }, basePath: folder, ...config },
    });
  const lines = () => readFileSync(log, 'utf8').trim().split('\n').map((line) => JSON.parse(line));
  const params = () => lines().filter(({ method }) => method === 'run').map((line) => line.params);
  return { folder, log, provider, lines, params };
}
