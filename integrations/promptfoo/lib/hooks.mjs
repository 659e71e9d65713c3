// The user's functions for a run. `hooks` is an object with the functions, or the path of a module that exports them.
import path from 'node:path';
import { pathToFileURL } from 'node:url';

const HOOKS = ['event', 'permission', 'check', 'tools'];
const TOOL_KEYS = ['name', 'description', 'input_schema', 'timeout_ms', 'run'];

/** Returns the functions of the option `hooks`. Throws if none of them would be called, or if an object has another one. */
export async function loadHooks(hooks, basePath) {
  if (!hooks) return {};
  if (typeof hooks !== 'string') return checked(hooks, Object.keys(hooks).every((name) => HOOKS.includes(name)));
  const file = path.resolve(basePath, hooks.replace(/^file:\/\//, ''));
  const module = await import(pathToFileURL(file).href);
  const found = module.default ?? module;
  // A module may export helpers too.
  return checked(found, HOOKS.some((name) => name in found));
}

function checked(hooks, isValid) {
  if (isValid) {
    for (const tool of hooks.tools ?? []) {
      const unknown = Object.keys(tool).filter((key) => !TOOL_KEYS.includes(key));
      if (unknown.length > 0) throw new Error(`hooks.tools: ${tool.name}: unknown ${unknown.join(', ')} (${TOOL_KEYS.join(', ')})`);
    }
    return hooks;
  }
  const names = Object.keys(hooks).filter((name) => !HOOKS.includes(name));
  throw new Error(`hooks: ${names.join(', ') || 'nothing'} is not a hook (${HOOKS.join(', ')})`);
}

/** Returns the parameters of the run and the callbacks for the host's requests. `fail` is called if `event` or `check` throws,
 * because the run is useless without them. */
export function connectHooks({ event, permission, check, tools = [] }, onEvent, fail = () => {}) {
  const failed = (name) => (error) => fail(`hooks.${name} failed: ${error?.message ?? error}`);
  const params = {
    events: event ? true : ['tool_use', 'tool_result'],
    ask_permission: Boolean(permission),
    check: Boolean(check),
    tools: tools.map(({ name, description, input_schema, timeout_ms }) => ({ name, description, input_schema, timeout_ms })),
  };
  const callbacks = {
    'run/event': ({ event: received }) => {
      onEvent(received);
      if (event) new Promise((resolve) => resolve(event(received))).catch(failed('event'));
    },
    'permission/ask': async ({ ask }) => {
      const decision = await permission(ask);
      if (typeof decision === 'object') return decision;
      return { decision: decision === true || decision === 'allow' ? 'allow' : 'deny' };
    },
    check: async (answer) => {
      const result = await Promise.resolve(answer).then(check).catch((error) => {
        failed('check')(error);
        throw error;
      });
      if (typeof result === 'object') return result;
      return result === true ? { done: true } : { done: false, message: String(result || 'the task is not complete') };
    },
    'tool/call': async ({ tool, input }) => {
      const { run } = tools.find(({ name }) => name === tool) ?? {};
      if (!run) throw new Error(`unknown tool ${tool}`);
      return { output: await run(input) };
    },
  };
  return { params, callbacks };
}
