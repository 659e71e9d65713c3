// Merges the `config` of the provider and of the prompt, and converts it to the parameters of a run.
import path from 'node:path';
import { fileURLToPath } from 'node:url';

/** Options of the host or of this provider, which are not settings of the run. */
const PROVIDER_OPTIONS = new Set([
  'basePath', 'agentline_bin', 'agentlineBin', 'host_env', 'hostEnv', 'max_concurrent', 'maxConcurrent', 'pool', 'hooks', 'mcp',
  'cache', 'cache_mcp', 'inherit_process_env', 'max_retries', 'maxRetries', 'output_schema', 'outputSchema',
]);
/** Options with a path or a list of paths, which are relative to the directory of the configuration. */
const PATHS = ['working_dir', 'cwd', 'include_directories', 'mcp_settings_path', 'record', 'prompt_file', 'attachments'];
/** Options that set the permission mode. */
const PERMISSION_OPTIONS = ['permission_mode', 'approval_mode', 'yolo', 'mode_id'];
/** promptfoo's own options of a test case, which arrive with those of the prompt. */
const PROMPTFOO_OPTIONS = new Set([
  'prefix', 'suffix', 'rubric_prompt', 'provider', 'factuality', 'postprocess', 'transform', 'transform_vars', 'store_output_as',
  'disable_var_expansion', 'disable_conversation_var', 'disable_default_asserts', 'run_serially', 'repeat',
]);
/** The default timeout of a call in milliseconds. */
export const DEFAULT_TIMEOUT = 120_000;

const snakeCase = (key) => key.replace(/AI$/, '_ai').replace(/[A-Z]/g, (c) => `_${c.toLowerCase()}`).replace(/-/g, '_');

/** Returns the configuration of one call. The prompt overrides the provider, and variables are replaced. */
export function mergeConfig(config, context) {
  const provider = snakeKeys(config ?? {});
  const prompt = snakeKeys(context?.prompt?.config ?? {});
  // An option of the prompt replaces every alias of it in the provider's configuration.
  for (const group of [PERMISSION_OPTIONS, ['timeout', 'timeout_ms'], ['working_dir', 'cwd'], ['model', 'model_id']]) {
    if (group.some((key) => key in prompt)) for (const key of group) delete provider[key];
  }
  // `null` unsets an option of the provider.
  const merged = Object.entries({ ...provider, ...prompt }).filter(
    ([key, value]) => value !== undefined && value !== null && !PROMPTFOO_OPTIONS.has(key),
  );
  const vars = context?.vars ?? {};
  return Object.fromEntries(
    merged.map(([key, value]) => [key, expandVars(value, vars, PATHS.includes(key) ? key : undefined)]),
  );
}

const snakeKeys = (config) =>
  Object.fromEntries(Object.entries(config).map(([key, value]) => [key === 'basePath' ? key : snakeCase(key), value]));

/** Replaces `{{name}}` with the variable of the test case, and `{{name.part}}` with a part of it. An unknown name becomes an
 * empty string; in a path it is an error, because the path would name another directory. */
function expandVars(value, vars, path) {
  if (Array.isArray(value)) return value.map((one) => expandVars(one, vars, path));
  if (isTable(value)) return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, expandVars(one, vars)]));
  if (typeof value !== 'string') return value;
  return value.replace(/\{\{\s*([\w.]+)\s*\}\}/g, (whole, name) => {
    const found = name in vars ? vars[name] : name.split('.').reduce((at, key) => at?.[key], vars);
    if ((found ?? '') === '' && path && value.trim() !== whole) throw new Error(`${path}: the test case has no variable \`${name}\``);
    return found ?? '';
  });
}

const isTable = (value) => value !== null && typeof value === 'object' && Object.getPrototypeOf(value) === Object.prototype;

/** Returns the parameters of the host's method `run`. */
export function runParams(config, env, basePath) {
  const params = {};
  for (const [key, value] of Object.entries(config)) {
    if (PROVIDER_OPTIONS.has(key) || value === '') continue;
    params[key] = PATHS.includes(key) ? resolved(value, basePath) : value;
  }
  if (params.agent_bin?.includes('/')) params.agent_bin = path.resolve(basePath, params.agent_bin);
  if (params.timeout === undefined && params.timeout_ms === undefined) params.timeout_ms = DEFAULT_TIMEOUT;
  // No user can answer permission requests, so by default everything except reading is denied. An explicit rule against the
  // shell, in addition to the mode, lets concurrent calls share one process of the agent.
  if (!PERMISSION_OPTIONS.some((key) => key in params)) {
    params.permission_mode = 'default';
    const hasRules = ['allow', 'allowed_tools', 'ask', 'ask_tools'].some((key) => key in params) || config.hooks;
    // Codex runs commands in a read-only sandbox and does not support this rule.
    if (!hasRules && !/^codex/.test(params.agent ?? '')) {
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
  // promptfoo's scheduler retries rejected calls; retries in both places would multiply.
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

/** Converts a list of `NAME=VALUE` to an object. Returns an object unchanged. */
function table(value) {
  if (!Array.isArray(value)) return value ?? {};
  return Object.fromEntries(value.map((one) => [one.slice(0, one.indexOf('=')), one.slice(one.indexOf('=') + 1)]));
}

/** Converts promptfoo's format of MCP servers: `{enabled, server, servers}`. */
function mcpServers({ enabled = true, server, servers = [] }) {
  if (!enabled) return {};
  const all = [...(server ? [server] : []), ...servers];
  return Object.fromEntries(
    all.map(({ name, command, args, env, url, headers, path: script }, i) => {
      const server = url ? { url, headers } : { command: command ?? runnerOf(script), args: args ?? (script ? [script] : undefined), env };
      const known = Object.entries(server).filter(([, value]) => value !== undefined);
      return [name ?? `server${i + 1}`, Object.fromEntries(known)];
    }),
  );
}

const runnerOf = (script) => (script?.endsWith('.py') ? 'python' : script ? process.execPath : undefined);
