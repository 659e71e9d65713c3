// Functions of the user that take part in a run: `hooks` is an object of them, or the path of a module that exports them.
import path from 'node:path';
import { pathToFileURL } from 'node:url';

/** The functions, whichever way they were given. */
export async function loadHooks(hooks, basePath) {
  if (!hooks) return {};
  if (typeof hooks !== 'string') return hooks;
  const file = path.resolve(basePath, hooks.replace(/^file:\/\//, ''));
  const module = await import(pathToFileURL(file).href);
  return module.default ?? module;
}

/** What they mean for the run, and who answers the host's questions. */
export function wire({ event, permission, check, tools = [] }, take) {
  const params = {
    events: event ? true : ['tool_use', 'tool_result'],
    ask_permission: Boolean(permission),
    check: Boolean(check),
    tools: tools.map(({ name, description, input_schema, timeout_ms }) => ({ name, description, input_schema, timeout_ms })),
  };
  const callbacks = {
    'run/event': ({ event: told }) => {
      take(told);
      event?.(told);
    },
    'permission/ask': async ({ ask }) => {
      const said = await permission(ask);
      return typeof said === 'object' ? said : { decision: said === true || said === 'allow' ? 'allow' : 'deny' };
    },
    check: async (question) => {
      const said = await check(question);
      return typeof said === 'object' ? said : said === true ? { done: true } : { done: false, message: String(said || 'not done yet') };
    },
    'tool/call': async ({ tool, input }) => {
      const { run } = tools.find(({ name }) => name === tool) ?? {};
      if (!run) throw new Error(`no function ${tool}`);
      return { output: await run(input) };
    },
  };
  return { params, callbacks };
}
