// Merges the `config` of the provider and of the prompt, and converts it to the parameters of a run.
import path from 'node:path';
import { fileURLToPath } from 'node:url';

/** Options of the host or of this provider, which are not settings of the run. */
const PROVIDER_OPTIONS = new Set([
  'basePath', 'agentline_bin', 'host_env', 'max_concurrent', 'pool', 'hooks', 'mcp', 'cache', 'cache_mcp', 'inherit_process_env', 'max_retries',
  'output_schema',
]);
/** Options with a path or a list of paths, which are relative to the directory of the configuration. */
const PATHS = ['working_dir', 'cwd', 'include_directories', 'mcp_settings_path', 'record', 'prompt_file', 'attachments'];
/** Options that set the permission mode. */
const PERMISSION_OPTIONS = ['permission_mode', 'approval_mode', 'yolo', 'mode_id'];
/** The names of one setting. A prompt that sets one of them overrides all of them in the provider's configuration. */
export const ALIASES = [
  PERMISSION_OPTIONS,
  ['model', 'model_id'],
  ['working_dir', 'cwd'],
  ['allow', 'allowed_tools'],
  ['deny', 'disable_tools'],
  ['ask', 'ask_tools'],
  ['timeout', 'timeout_ms'],
  ['idle_timeout', 'idle_timeout_ms'],
  ['tool_timeout', 'tool_timeout_ms'],
  ['startup_timeout', 'startup_timeout_s', 'startup_timeout_ms'],
  ['retry_patience', 'retry_patience_ms'],
  ['max_cost', 'max_budget_usd'],
  ['emit_thoughts', 'emit_thought_chunks'],
];
/** Options of promptfoo's own agent providers that mean the same as one of ours. */
const SYNONYMS = {
  additional_directories: 'include_directories',
  append_allowed_tools: 'allow',
  append_system_prompt: 'system_prompt',
  cli_env: 'env',
  custom_allowed_tools: 'allow',
  disallowed_tools: 'deny',
};
/** Tables, which are merged entry by entry. */
const TABLES = ['env', 'host_env', 'mcp_servers'];
/** Modes that `yolo: false` cancels. */
const BYPASS = new Set(['bypass', 'bypassPermissions', 'yolo', 'full_auto']);
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
  const provider = named(config ?? {});
  const prompt = named(context?.prompt?.config ?? {});
  for (const group of ALIASES) {
    if (!group.some((key) => key in prompt)) continue;
    for (const key of group) if (overrides(prompt, key, provider[key])) delete provider[key];
  }
  for (const key of TABLES) {
    if (provider[key] && prompt[key]) prompt[key] = { ...table(provider[key]), ...table(prompt[key]) };
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

/** Returns the user's spelling of each option. */
export function writtenNames(config, context) {
  const layers = [config ?? {}, context?.prompt?.config ?? {}];
  return Object.fromEntries(layers.flatMap((layer) => Object.keys(layer).map((given) => [nameOf(given), given])));
}

/** Returns the options of the prompt that the provider does not have. They may be meant for another provider of the evaluation. */
export function promptOnly(config, context) {
  const own = new Set(Object.keys(config ?? {}).map(nameOf));
  return Object.keys(context?.prompt?.config ?? {}).map(nameOf).filter((key) => !own.has(key) && !PROMPTFOO_OPTIONS.has(key));
}

/** Returns our name of an option: in snake case, and not a synonym. */
function nameOf(given) {
  const snake = given === 'basePath' ? given : snakeCase(given);
  return SYNONYMS[snake] ?? snake;
}

/** Returns whether the prompt overrides this option of the provider. `yolo: false` cancels a bypass and no stricter mode. */
function overrides(prompt, key, value) {
  const modes = PERMISSION_OPTIONS.filter((option) => option in prompt);
  const isRefusalOnly = PERMISSION_OPTIONS.includes(key) && modes.join() === 'yolo' && prompt.yolo === false;
  return !isRefusalOnly || key === 'yolo' || BYPASS.has(value);
}

/** Returns a configuration with the names of our options in snake case. */
function named(config) {
  const result = {};
  for (const [given, value] of Object.entries(config)) {
    const key = nameOf(given);
    if (key in result && JSON.stringify(result[key]) !== JSON.stringify(value)) {
      throw new Error(`${given}: \`${key}\` is set twice, with different values`);
    }
    result[key] = value;
  }
  return result;
}

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
export function runParams(config, env, basePath, foreign = []) {
  const params = foreign.length ? { ignore_unknown: foreign } : {};
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
      const key = 'disable_tools' in params && !('deny' in params) ? 'disable_tools' : 'deny';
      params[key] = [...new Set([...list(params[key]), 'Bash'])];
    }
  }
  if (params.working_dir === undefined && params.cwd === undefined) params.temporary_workspace = true;
  // As for promptfoo's own providers, the agent sees the environment of the evaluation.
  if (config.inherit_process_env !== false) params.pass_env ??= ['*'];
  const variables = Object.entries({ ...env, ...table(params.env) }).filter(([, value]) => value !== undefined && value !== null);
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
function mcpServers({ enabled = true, server, servers = [], ...other }) {
  refuseMcp('mcp', other, 'use `allow`, `deny` and `tool_timeout`');
  if (!enabled) return {};
  const all = [...(server ? [server] : []), ...servers];
  for (const { name = 'server', command, args, env, url, headers, path: script, ...unknown } of all) {
    refuseMcp(`mcp.servers.${name}`, unknown, 'use `headers` to sign in');
  }
  return Object.fromEntries(
    all.map(({ name, command, args, env, url, headers, path: script }, i) => {
      const server = url ? { url, headers } : { command: command ?? runnerOf(script), args: args ?? (script ? [script] : undefined), env };
      const known = Object.entries(server).filter(([, value]) => value !== undefined);
      return [name ?? `server${i + 1}`, Object.fromEntries(known)];
    }),
  );
}

/** Refuses parts of promptfoo's format that would have no effect. */
function refuseMcp(where, unknown, hint) {
  const names = Object.keys(unknown);
  if (names.length) throw new Error(`${where}: ${names.join(', ')} is not supported (${hint})`);
}

const runnerOf = (script) => (script?.endsWith('.py') ? 'python' : script ? process.execPath : undefined);
