// Decides whether an answer may come from the cache, by promptfoo's settings and the provider's `cache: false`.

/** Returns the cache setting of a run. With `cache_mcp`, runs with MCP servers use the cache too. */
export function cacheOf(config, context) {
  if (!mayCache(config, context)) return false;
  return config.cache_mcp ? { on: true, impure: true } : true;
}

function mayCache(config, context) {
  if (config.cache === false || context?.bustCache) return false;
  // A repetition needs a new answer.
  if ((context?.repeatIndex ?? 0) > 0) return false;
  if ((config.mcp || config.mcp_servers || config.mcp_settings_path) && !config.cache_mcp) return false;
  return storeIsOn(context, process.env);
}

/** Returns whether promptfoo's cache is on, which promptfoo does not report to providers. If it is off, the cache object has
 * only a memory store. If the user selected the memory store, only the flags and variables show whether it is on. */
function storeIsOn(context, env) {
  if (typeof context?.getCache !== 'function') return false;
  if ((env.PROMPTFOO_CACHE_TYPE ?? (env.NODE_ENV === 'test' ? 'memory' : 'disk')) === 'memory') {
    return !process.argv.includes('--no-cache') && !/^(0|false|no|off)$/i.test(env.PROMPTFOO_CACHE_ENABLED ?? '');
  }
  try {
    const stores = context.getCache().stores ?? [];
    return stores.some((store) => !((store.opts?.store ?? store.store) instanceof Map));
  } catch {
    return false;
  }
}
