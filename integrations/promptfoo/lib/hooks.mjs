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

/** What they mean for the run, and who answers the host's questions. `fail` hears of a function without which the run has no use:
 * one that watches it, or says whether it is complete. */
export function wire({ event, permission, check, tools = [] }, take, fail = () => {}) {
  const failed = (name) => (error) => fail(`hooks.${name} failed: ${error?.message ?? error}`);
  const params = {
    events: event ? true : ['tool_use', 'tool_result'],
    ask_permission: Boolean(permission),
    check: Boolean(check),
    tools: tools.map(({ name, description, input_schema, timeout_ms }) => ({ name, description, input_schema, timeout_ms })),
  };
  const callbacks = {
    'run/event': ({ event: told }) => {
      take(told);
      if (event) new Promise((resolve) => resolve(event(told))).catch(failed('event'));
    },
    'permission/ask': async ({ ask }) => {
      const said = await permission(ask);
      return typeof said === 'object' ? said : { decision: said === true || said === 'allow' ? 'allow' : 'deny' };
    },
    check: async (question) => {
      const said = await Promise.resolve(question).then(check).catch((error) => {
        failed('check')(error);
        throw error;
      });
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
