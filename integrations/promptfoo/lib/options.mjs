// The `config` of a provider, with that of the prompt on top, as the parameters of one run.
import path from 'node:path';
import { fileURLToPath } from 'node:url';

/** Options that are about the host or about this provider, not about the agent. */
const OURS = new Set([
  'basePath', 'agentline_bin', 'agentlineBin', 'host_env', 'hostEnv', 'max_concurrent', 'maxConcurrent', 'pool', 'hooks', 'mcp',
  'cache', 'cache_mcp', 'inherit_process_env', 'max_retries', 'maxRetries', 'output_schema', 'outputSchema',
]);
/** Options that hold a path, or a list of them; a relative one starts from the folder of the configuration. */
const PATHS = ['working_dir', 'cwd', 'include_directories', 'mcp_settings_path', 'record', 'prompt_file', 'attachments'];
/** Any of these says what the agent may do. */
const PERMISSION = ['permission_mode', 'approval_mode', 'yolo', 'mode_id'];
/** Options of a test case that are promptfoo's own; they arrive with those of the prompt. */
const PROMPTFOOS = new Set([
  'prefix', 'suffix', 'rubric_prompt', 'provider', 'factuality', 'postprocess', 'transform', 'transform_vars', 'store_output_as',
  'disable_var_expansion', 'disable_conversation_var', 'disable_default_asserts', 'run_serially', 'repeat',
]);
/** Milliseconds; that of the plan which this provider comes from. */
export const DEFAULT_TIMEOUT = 120_000;

const snake = (key) => key.replace(/AI$/, '_ai').replace(/[A-Z]/g, (c) => `_${c.toLowerCase()}`).replace(/-/g, '_');

/** The configuration of one call: the provider's, that of the prompt on top, names of variables filled in. */
export function settle(config, context) {
  const own = bySnake(config ?? {});
  const prompt = bySnake(context?.prompt?.config ?? {});
  // Whichever of its names the prompt uses, it replaces the provider's.
  for (const group of [PERMISSION, ['timeout', 'timeout_ms'], ['working_dir', 'cwd'], ['model', 'model_id']]) {
    if (group.some((key) => key in prompt)) for (const key of group) delete own[key];
  }
  // `null` takes an option of the provider back.
  const both = Object.entries({ ...own, ...prompt }).filter(
    ([key, value]) => value !== undefined && value !== null && !PROMPTFOOS.has(key),
  );
  const vars = context?.vars ?? {};
  return Object.fromEntries(both.map(([key, value]) => [key, filled(value, vars, PATHS.includes(key) ? key : undefined)]));
}

const bySnake = (config) =>
  Object.fromEntries(Object.entries(config).map(([key, value]) => [key === 'basePath' ? key : snake(key), value]));

/** `{{name}}` becomes the variable of the test case, `{{name.part}}` a part of it; a name that it does not have becomes nothing. A path, which
 * would be that of another folder without the name, is refused. */
function filled(value, vars, path) {
  if (Array.isArray(value)) return value.map((one) => filled(one, vars, path));
  if (isTable(value)) return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, filled(one, vars)]));
  if (typeof value !== 'string') return value;
  return value.replace(/\{\{\s*([\w.]+)\s*\}\}/g, (whole, name) => {
    const found = name in vars ? vars[name] : name.split('.').reduce((at, key) => at?.[key], vars);
    if ((found ?? '') === '' && path && value.trim() !== whole) throw new Error(`${path}: the test case has no variable \`${name}\``);
    return found ?? '';
  });
}

const isTable = (value) => value !== null && typeof value === 'object' && Object.getPrototypeOf(value) === Object.prototype;

/** What `run` of the host is asked for. */
export function runParams(config, env, basePath) {
  const params = {};
  for (const [key, value] of Object.entries(config)) {
    if (OURS.has(key) || value === '') continue;
    params[key] = PATHS.includes(key) ? resolved(value, basePath) : value;
  }
  if (params.agent_bin?.includes('/')) params.agent_bin = path.resolve(basePath, params.agent_bin);
  if (params.timeout === undefined && params.timeout_ms === undefined) params.timeout_ms = DEFAULT_TIMEOUT;
  // Nobody can be asked, so what is not read-only is refused unless the user says otherwise. That the shell is refused by a rule, and not
  // only by the mode, lets calls that go on at once share one process of the agent.
  if (!PERMISSION.some((key) => key in params)) {
    params.permission_mode = 'default';
    const given = ['allow', 'allowed_tools', 'ask', 'ask_tools'].some((key) => key in params) || config.hooks;
    // Codex runs commands in a sandbox that writes nothing here, and takes no such rule.
    if (!given && !/^codex/.test(params.agent ?? '')) {
      params.deny = [...new Set([...list(params.deny ?? params.disable_tools), 'Bash'])];
      delete params.disable_tools;
    }
  }
  if (params.working_dir === undefined && params.cwd === undefined) params.temporary_workspace = true;
  if (config.inherit_process_env) params.pass_env ??= ['*'];
  const variables = Object.entries({ ...env, ...table(params.env) }).filter(([, value]) => value !== undefined);
  if (variables.length) params.env = Object.fromEntries(variables.map(([name, value]) => [name, String(value)]));
  if (config.output_schema) params.output_schema = schema(config.output_schema, basePath);
  if (config.mcp) params.mcp_servers = { ...mcpServers(config.mcp), ...table(params.mcp_servers) };
  // promptfoo's scheduler retries what was refused, and slows down for it; both at once would multiply.
  params.max_retries = config.max_retries ?? 0;
  return params;
}

function resolved(value, basePath) {
  if (Array.isArray(value)) return value.map((one) => resolved(one, basePath));
  if (typeof value !== 'string') return value;
  if (value.startsWith('file://')) return path.resolve(basePath, value.startsWith('file:///') ? fileURLToPath(value) : value.slice(7));
  return value.startsWith('~/') ? value : path.resolve(basePath, value);
}

const list = (value) => (Array.isArray(value) ? value : value ? [value] : []);

const schema = (value, basePath) => (typeof value === 'string' ? resolved(value, basePath) : value);

/** A table, also where it was written as a list of `NAME=VALUE`. */
function table(value) {
  if (!Array.isArray(value)) return value ?? {};
  return Object.fromEntries(value.map((one) => [one.slice(0, one.indexOf('=')), one.slice(one.indexOf('=') + 1)]));
}

/** promptfoo's own way to name MCP servers: `{enabled, server, servers}`. */
function mcpServers({ enabled = true, server, servers = [] }) {
  if (!enabled) return {};
  const all = [...(server ? [server] : []), ...servers];
  return Object.fromEntries(
    all.map(({ name, command, args, env, url, headers, path: script }, i) => {
      const own = url ? { url, headers } : { command: command ?? runnerOf(script), args: args ?? (script ? [script] : undefined), env };
      const known = Object.entries(own).filter(([, value]) => value !== undefined);
      return [name ?? `server${i + 1}`, Object.fromEntries(known)];
    }),
  );
}

const runnerOf = (script) => (script?.endsWith('.py') ? 'python' : script ? process.execPath : undefined);
