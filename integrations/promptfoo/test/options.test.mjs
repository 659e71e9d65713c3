// Tests that every option reaches the run, that paths are relative to the configuration, and that the defaults are safe.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { ALIASES } from '../lib/options.mjs';
import { stage } from './stage.mjs';

test('by default, an agent can only read, in an empty directory, for two minutes', async (t) => {
  const { provider, params } = stage(t);
  await provider().callApi('hi');
  // Explicit permissions and a permission hook are not overridden.
  await provider({ disable_tools: ['WebFetch'] }).callApi('hi');
  await provider({ allow: ['Bash(ls)'], deny: ['WebFetch'] }).callApi('hi');
  await provider({ hooks: { permission: () => true } }).callApi('hi');
  assert.deepEqual(params().map(({ deny }) => deny), [['Bash'], undefined, ['WebFetch'], undefined]);
  const [run, disabled] = params();
  assert.deepEqual(disabled.disable_tools, ['WebFetch', 'Bash']);
  assert.deepEqual(
    [run.agent, run.prompt, run.permission_mode, run.temporary_workspace, run.timeout_ms, run.working_dir, run.pass_env, run.max_retries],
    ['gemini', 'hi', 'default', true, 120000, undefined, ['*'], 0],
  );
});

test('options are passed to the run', async (t) => {
  const { provider, params, folder } = stage(t);
  const config = {
    apiKey: 'k', googleCloudProject: 'p', useVertexAI: true, model: 'm', working_dir: './src', include_directories: ['../lib', '/opt'],
    approval_mode: 'suggest', sandbox: 'docker', mcp_settings_path: 'mcp.json', disable_tools: ['Bash'], timeout_ms: 5, max_turns: 3,
    max_cost: 0.5, allow: ['Write(src/**)'], resume: 'latest', mcp_servers: { docs: { url: 'http://x' } }, output_schema: { type: 'object' },
  };
  await provider(config, { env: { EXTRA: 'yes' } }).callApi('hi');
  const [run] = params();
  const at = (file) => path.resolve(folder, file);
  const expected = {
    api_key: 'k', google_cloud_project: 'p', use_vertex_ai: true, model: 'm', working_dir: at('src'), include_directories: [at('../lib'), '/opt'],
    approval_mode: 'suggest', sandbox: 'docker', mcp_settings_path: at('mcp.json'), disable_tools: ['Bash'], timeout_ms: 5, max_turns: 3,
    max_cost: 0.5, allow: ['Write(src/**)'], resume: 'latest', mcp_servers: { docs: { url: 'http://x' } }, output_schema: { type: 'object' },
    env: { EXTRA: 'yes' },
  };
  for (const [key, value] of Object.entries(expected)) assert.deepEqual(run[key], value, key);
  assert.equal(run.permission_mode, undefined);
  assert.equal(run.temporary_workspace, undefined);
  for (const ours of ['basePath', 'base_path', 'agentline_bin', 'host_env']) assert.equal(run[ours], undefined, ours);
});

test('the options of a prompt override those of the provider under any alias', async (t) => {
  const { provider, params } = stage(t);
  const prompt = { config: { permission_mode: 'plan', timeout: 7, model: 'other', agent: 'codex', extensions: null, transform: 'output', runSerially: true } };
  await provider({ yolo: true, extensions: [], timeout_ms: 5, model: 'm' }).callApi('hi', { prompt });
  const [run] = params();
  assert.deepEqual([run.permission_mode, run.yolo, run.timeout, run.timeout_ms, run.model], ['plan', undefined, 7, undefined, 'other']);
  assert.equal(run.agent, 'codex');
  assert.ok(!('transform' in run || 'run_serially' in run || 'extensions' in run));
});

test('a prompt can set any name of an option', async (t) => {
  const { provider, params } = stage(t);
  const call = (config, prompt) => provider(config).callApi('hi', { prompt: { config: prompt } });
  const value = { yolo: true, allow: ['Write'], timeout: 7, model: 'm' };
  for (const group of ALIASES) {
    for (const given of group) {
      for (const set of group) {
        await call({ [given]: value[given] ?? 1 }, { [set]: value[set] ?? 2 });
        const run = params().at(-1);
        assert.deepEqual(group.filter((name) => name in run), [set], `${set} over ${given}`);
      }
    }
  }
  await call({ max_budget_usd: 1 }, { max_cost: null });
  assert.ok(!('max_budget_usd' in params().at(-1)));
});

test('the names of an option are those of the documentation', () => {
  const page = readFileSync(new URL('../../../docs/configuration.md', import.meta.url), 'utf8');
  const names = (cell) => [...cell.matchAll(/`(\w+)`/g)].map((found) => found[1]).filter((name) => name === name.toLowerCase());
  const rows = page.split('<!-- keys -->')[1].split('<!-- end of keys -->')[0].split('\n').map((row) => row.split('|'));
  const documented = rows.map(([, key = '', aliases = '']) => [...names(key), ...names(aliases)]).filter((group) => group.length > 1);
  assert.ok(documented.length >= 12, `${documented.length}`);
  for (const group of documented) {
    const known = ALIASES.find((one) => one.includes(group[0])) ?? [];
    assert.deepEqual(group.filter((name) => !known.includes(name)), [], group.join());
  }
});

test('`yolo: false` of a prompt cancels a bypass and no stricter mode', async (t) => {
  const { provider, params } = stage(t);
  const prompt = { config: { yolo: false } };
  for (const mode of ['plan', 'full_auto']) await provider({ approval_mode: mode }).callApi('hi', { prompt });
  await provider({ yolo: true }).callApi('hi', { prompt });
  assert.deepEqual(params().map((run) => [run.approval_mode, run.yolo]), [['plan', false], [undefined, false], [undefined, false]]);
});

test('tables of the provider and the prompt are merged', async (t) => {
  const { provider, params } = stage(t);
  const config = { env: { A: '1', B: '2', C: '3' }, mcp_servers: { a: { url: 'http://a' } } };
  const prompt = { config: { env: { B: 'two', C: null }, mcp_servers: { b: { url: 'http://b' } } } };
  await provider(config, { env: { D: 'suite' } }).callApi('hi', { prompt });
  assert.deepEqual(params()[0].env, { A: '1', B: 'two', D: 'suite' });
  assert.deepEqual(Object.keys(params()[0].mcp_servers), ['a', 'b']);
});

test('the agent sees the environment of the evaluation unless it is restricted', async (t) => {
  const { provider, params } = stage(t);
  for (const config of [{}, { inherit_process_env: true }, { inherit_process_env: false }, { pass_env: ['LANG'] }]) {
    await provider(config).callApi('hi');
  }
  assert.deepEqual(params().map((run) => run.pass_env), [['*'], ['*'], undefined, ['LANG']]);
});

test('options of promptfoo\'s own agent providers are accepted', async (t) => {
  const { provider, params, folder } = stage(t);
  const config = { disallowed_tools: ['WebFetch'], append_allowed_tools: ['Write'], additional_directories: ['lib'], append_system_prompt: 'short', cli_env: { A: '1' } };
  await provider(config).callApi('hi');
  const [{ deny, allow, include_directories, system_prompt, env }] = params();
  assert.deepEqual([deny, allow, include_directories, system_prompt, env], [['WebFetch'], ['Write'], [path.join(folder, 'lib')], 'short', { A: '1' }]);
  const { error } = await provider({ deny: ['Bash'], disallowed_tools: ['WebFetch'] }).callApi('hi');
  assert.equal(error, 'Gemini CLI error: disallowed_tools: `deny` is set twice, with different values');
});

test('variables of the test case are replaced', async (t) => {
  const { provider, params, folder } = stage(t);
  const agent = provider({ working_dir: 'cases/{{case}}', resume: '{{ sessionId }}' });
  await agent.callApi('one', { vars: { case: 'a' } });
  await agent.callApi('two', { vars: { case: 'b', sessionId: 's-1' } });
  const [one, two] = params();
  assert.deepEqual([one.working_dir, one.resume], [path.join(folder, 'cases/a'), undefined]);
  assert.deepEqual([two.working_dir, two.resume], [path.join(folder, 'cases/b'), 's-1']);
  const nested = provider({ working_dir: 'cases/{{case.folder}}', env: { NAME: '{{case.name}}' } });
  await nested.callApi('three', { vars: { case: { folder: 'c', name: 'ü' } } });
  assert.deepEqual([params()[2].working_dir, params()[2].env], [path.join(folder, 'cases/c'), { NAME: 'ü' }]);
  // Without the variable, the path would be the parent directory of all cases.
  const { error } = await agent.callApi('four', { vars: { cse: 'd' } });
  assert.equal(error, 'Gemini CLI error: working_dir: the test case has no variable `case`');
  assert.equal(params().length, 3);
});

test('options of a prompt may be meant for another provider', async (t) => {
  const { provider, params } = stage(t);
  await provider({ model: 'm' }).callApi('hi', { prompt: { config: { model: 'n', temperature: 0, responseFormat: {}, transform: 'output' } } });
  assert.deepEqual(params()[0].ignore_unknown, ['temperature', 'response_format']);
  await provider({ temperature: 0 }).callApi('hi');
  assert.equal(params()[1].ignore_unknown, undefined);
});

test('parts of the MCP format of promptfoo that have no effect are refused', async (t) => {
  const { provider } = stage(t);
  const errorOf = async (mcp) => (await provider({ mcp }).callApi('hi')).error;
  assert.equal(await errorOf({ enabled: true, tools: ['a'], servers: [] }), 'Gemini CLI error: mcp: tools is not supported (use `allow`, `deny` and `tool_timeout`)');
  const server = { name: 'docs', url: 'http://x', auth: { type: 'bearer', token: 't' } };
  assert.equal(await errorOf({ servers: [server] }), 'Gemini CLI error: mcp.servers.docs: auth is not supported (use `headers` to sign in)');
});

test('a key that was ignored is logged once', async (t) => {
  const { provider } = stage(t);
  const warnings = [];
  const context = { logger: { warn: (text) => warnings.push(text) } };
  for (let n = 0; n < 2; n += 1) await provider().callApi('unknown', context);
  assert.deepEqual(warnings, ['[agentline] `working_dri` is not a known key']);
});

test('MCP servers can have the format of promptfoo', async (t) => {
  const { provider, params } = stage(t);
  const servers = [{ name: 'notes', command: 'npx', args: ['notes'] }, { name: 'docs', url: 'http://x', headers: { a: 'b' } }];
  await provider({ mcp: { enabled: true, servers } }).callApi('hi');
  assert.deepEqual(params()[0].mcp_servers, { notes: { command: 'npx', args: ['notes'] }, docs: { url: 'http://x', headers: { a: 'b' } } });
});

test('answers come from the cache only if the cache of promptfoo is on', async (t) => {
  const { provider, params } = stage(t);
  const disk = () => ({ stores: [{ opts: { store: {} } }] });
  const memory = () => ({ stores: [{ opts: { store: new Map() } }] });
  const cases = [
    [{}, { getCache: disk }, true],
    [{}, { getCache: disk, repeatIndex: 0 }, true],
    [{}, { getCache: memory }, false],
    [{}, {}, false],
    [{}, { getCache: disk, bustCache: true }, false],
    [{}, { getCache: disk, repeatIndex: 1 }, false],
    [{ cache: false }, { getCache: disk }, false],
    [{ mcp_servers: { a: { url: 'http://x' } } }, { getCache: disk }, false],
    [{ mcp_servers: { a: { url: 'http://x' } }, cache_mcp: true }, { getCache: disk }, { on: true, impure: true }],
  ];
  for (const [config, context] of cases) await provider(config).callApi('hi', context);
  assert.deepEqual(params().map((run) => run.cache), cases.map(([, , expected]) => expected));
  assert.equal((await provider().callApi('cached')).cached, true);
  // An older agentline without a cache does not receive the parameter.
  const older = stage(t);
  await older.provider({ host_env: { FAKE_HOST_LOG: older.log, FAKE_HOST_METHODS: 'run' } }).callApi('hi', { getCache: disk });
  assert.ok(!('cache' in older.params()[0]));
});
