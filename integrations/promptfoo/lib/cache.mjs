// Whether an answer may come from a cache: promptfoo's switches decide, and the provider's own `cache: false`.

/** `true`, `false`, or nothing where the configuration alone decides. */
export function mayCache(config, context, { argv = process.argv, env = process.env } = {}) {
  if (config.cache === false || context?.bustCache) return false;
  // A repetition wants another answer, not the same one again.
  if ((context?.repeatIndex ?? 0) > 0) return false;
  if (argv.includes('--no-cache') || isOff(env.PROMPTFOO_CACHE_ENABLED)) return false;
  if ((config.mcp || config.mcp_servers || config.mcp_settings_path) && !config.cache_mcp) return false;
  return storeIsOn(context, env);
}

const isOff = (value) => value !== undefined && ['0', 'false', 'no', 'off'].includes(String(value).toLowerCase());

/** promptfoo does not tell a provider whether its cache is on. While it is off, the cache that it hands out has no store but memory. */
function storeIsOn(context, env) {
  if (typeof context?.getCache !== 'function') return false;
  if ((env.PROMPTFOO_CACHE_TYPE ?? (env.NODE_ENV === 'test' ? 'memory' : 'disk')) === 'memory') return true;
  try {
    const stores = context.getCache().stores ?? [];
    return stores.some((store) => !((store.opts?.store ?? store.store) instanceof Map));
  } catch {
    return false;
  }
}
