// Whether an answer may come from a cache: promptfoo's switches decide, and the provider's own `cache: false`.

/** What a run is told about the cache; with `cache_mcp` it may be used although servers are asked. */
export function cacheOf(config, context) {
  if (!mayCache(config, context)) return false;
  return config.cache_mcp ? { on: true, impure: true } : true;
}

function mayCache(config, context) {
  if (config.cache === false || context?.bustCache) return false;
  // A repetition wants another answer, not the same one again.
  if ((context?.repeatIndex ?? 0) > 0) return false;
  if ((config.mcp || config.mcp_servers || config.mcp_settings_path) && !config.cache_mcp) return false;
  return storeIsOn(context, process.env);
}

/** promptfoo does not tell a provider whether its cache is on. While it is off, the cache that it hands out has no store but memory; where
 * memory is the store that the user chose, only the switches themselves tell. */
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
