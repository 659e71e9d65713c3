// A provider for promptfoo: `id: file://promptfoo-provider.mjs`. Every key of its `config` is a setting of agentline, in snake_case
// or camelCase; the AGENTLINE_… variables carry them. AGENTLINE_BIN is the program, if it is not on the PATH.
import { spawn } from 'node:child_process';

const snake = (key) => key.replace(/AI$/, '_ai').replace(/([A-Z])/g, '_$1').toUpperCase();
const text = (value) => (Array.isArray(value) ? value.join(',') : String(value));

export default class AgentlineProvider {
  constructor({ id, config } = {}) {
    this.name = id;
    this.config = config ?? {};
  }

  id() {
    return this.name ?? 'agentline';
  }

  async callApi(prompt, context, { abortSignal } = {}) {
    const config = { ...this.config, ...context?.prompt?.config };
    const settings = Object.entries(config).map(([key, value]) => [`AGENTLINE_${snake(key)}`, text(value)]);
    const env = { AGENTLINE_PASS_ENV: '*', ...process.env, ...Object.fromEntries(settings) };
    const { AGENTLINE_BIN = 'agentline', ...rest } = env;
    const child = spawn(AGENTLINE_BIN, ['run', '--output', 'promptfoo', '-'], { env: rest, stdio: ['pipe', 'pipe', 'inherit'] });
    abortSignal?.addEventListener('abort', () => child.kill('SIGTERM'));
    child.stdin.end(prompt);
    let told = '';
    for await (const piece of child.stdout) told += piece;
    return told ? JSON.parse(told) : { error: 'agentline said nothing; see standard error' };
  }
}
