// Tests that invalid options are refused before anything starts, with a fake agent and the real program.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { EXECUTE_OPTIONS } from '../src/execute.js';
import { UsageError, connect } from '../src/index.js';
import * as names from '../src/option-names.js';
import { defaults, limit, living, until } from './stage.mjs';

const PACKAGE = new URL('..', import.meta.url);

describe('the options of a client', () => {
  /** @type {import('../types/index.js').Agentline} */
  let agentline;
  before(async () => (agentline = await connect({ defaults })));
  after(() => agentline.close());

  test('a misspelled option is refused before anything starts', limit, async () => {
    const before = living().length;
    for (const [call, key, hint] of [
      [() => agentline.run({ prompt: 'say x', timout: 3 }), 'timout', 'did you mean `timeout`?'],
      [() => agentline.run({ prompt: 'say x', onPermision: () => true }), 'onPermision', 'did you mean `onPermission`?'],
      [() => agentline.run({ prompt: 'say x', max_turns: 3 }), 'max_turns', 'did you mean `maxTurns`?'],
      [() => agentline.run({ prompt: 'say x', xyzzy: 3 }), 'xyzzy', 'put a setting that the types do not list into `config`'],
      [() => agentline.run({ prompt: 'say x', config: { modle: 'x' } }), 'modle', 'did you mean `model`?'],
      [() => agentline.run('say x', { timout: 3 }), 'timout', 'did you mean `timeout`?'],
      [async () => agentline.stream({ prompt: 'say x', evnts: true }), 'evnts', 'did you mean `events`?'],
      [() => agentline.session({ messages: true }), 'messages', null],
      [() => agentline.session('say x'), 'options', null],
      [() => agentline.pool.configure({ maxProcess: 1 }), 'maxProcess', 'did you mean `maxProcesses`?'],
      [() => agentline.pool.prewarm({ modle: 'x' }), 'modle', 'did you mean `model`?'],
      [() => agentline.sessions.list({ agnet: 'x' }), 'agnet', 'did you mean `agent`?'],
      [() => agentline.sessions.load({ sesion: 'x' }), 'sesion', 'did you mean `session`?'],
      [() => agentline.sessions.search({ words: [], regx: true }), 'regx', 'did you mean `regex`?'],
      [() => connect({ defaults: { timout: 3 } }), 'defaults.timout', 'did you mean `defaults.timeout`?'],
      [() => connect({ pool: { lane: 3 } }), 'pool.lane', 'did you mean `pool.lanes`?'],
      [() => connect({ defautls: {} }), 'defautls', 'did you mean `defaults`?'],
    ]) {
      const error = await call().catch((error) => error);
      assert.ok(error instanceof UsageError, `${key}: ${error}`);
      assert.equal(error.problems[0].key, key);
      if (hint) assert.equal(error.hint, hint);
      assert.ok(!error.hint || !error.message.includes(error.hint), error.message);
    }
    const conversation = await agentline.session();
    await assert.rejects(conversation.run('say x', { mesages: true }), { message: '`mesages`: is not a known option', hint: 'did you mean `messages`?' });
    await conversation.close();
    await until('nothing is left', () => living().length <= before);
    // Every name that the host accepts for a setting is accepted here.
    assert.equal((await agentline.run({ prompt: 'say x', cwd: '.', yolo: true })).text, 'x');
  });

  test('functions and tools are checked before anything starts', limit, async () => {
    const tool = { name: 'add', description: '', handler: () => 1 };
    for (const [options, key] of [
      [{ check: true }, 'check'],
      [{ onEvent: 'text' }, 'onEvent'],
      [{ onPermission: {} }, 'onPermission'],
      [{ tools: tool }, 'tools'],
      [{ tools: [null] }, 'tools.0'],
      [{ tools: [{ ...tool, handler: undefined }] }, 'tools.add.handler'],
      [{ tools: [{ ...tool, handlr: () => 1 }] }, 'tools.add.handlr'],
      [{ tools: [{ ...tool, policy: 'deny' }] }, 'tools.add.policy'],
      [{ tools: [{ ...tool, name: 7 }] }, 'tools.7.name'],
    ]) {
      const error = await agentline.run({ prompt: 'say x', ...options }).catch((error) => error);
      assert.ok(error instanceof UsageError && error.problems[0].key === key, `${key}: ${error}`);
    }
    // A schema of Zod may have a type that JSON does not have.
    const input = () => {
      throw new Error('Date cannot be represented in JSON Schema');
    };
    const schema = { '~standard': { version: 1, vendor: 'zod', validate: () => ({ value: 1 }), jsonSchema: { input } } };
    for (const options of [{ outputSchema: schema }, { tools: [{ ...tool, inputSchema: schema }] }]) {
      const error = await agentline.run({ prompt: 'say x', ...options }).catch((error) => error);
      assert.ok(error instanceof UsageError && /Date cannot be represented/.test(error.message) && error.hint, String(error));
    }
  });

  test('the prompt can be the first argument', limit, async () => {
    assert.equal((await agentline.run('say hello')).text, 'hello');
    assert.equal((await agentline.run('say hello', { timeout: 60, messages: true })).messages.length > 0, true);
    assert.equal((await agentline.stream('say hello').outcome).text, 'hello');
    for (const wrong of [undefined, 7, null]) {
      await assert.rejects(agentline.run(wrong), /`options`: must be an object, got/);
    }
    await assert.rejects(agentline.run({ prompt: 'say x' }, { timeout: 3 }), /must be the only argument/);
  });
});

test('the names of options are those of the types', () => {
  const types = ['options', 'client', 'agent-cli'].map((file) => readFileSync(new URL(`types/${file}.d.ts`, PACKAGE), 'utf8')).join('\n');
  const own = (type) => {
    const body = new RegExp(`export interface ${type}\\b[^{]*\\{\\n([\\s\\S]*?)\\n\\}`).exec(types)[1];
    return [...body.matchAll(/^  (\w+)\??:/gm)].map((found) => found[1]);
  };
  for (const [known, ...interfaces] of [
    [names.KEYS, 'Keys'],
    [names.RUN_OPTIONS, 'Keys', 'Callbacks', 'PromptOptions', 'RunOptions'],
    [names.CONVERSATION_OPTIONS, 'Keys', 'Callbacks', 'ConversationOptions'],
    [names.PROMPT_OPTIONS, 'PromptOptions'],
    [names.TOOL_DEFINITION, 'ToolDefinition'],
    [names.CONNECT_OPTIONS, 'ConnectOptions'],
    [names.POOL_SETTINGS, 'PoolSettings'],
    [names.SESSIONS_QUERY, 'SessionsQuery'],
    [names.SEARCH_QUERY, 'SessionsQuery', 'SearchQuery'],
    [names.LOAD_QUERY, 'LoadQuery'],
    [EXECUTE_OPTIONS, 'SharedOptions', 'ExecuteOptions'],
    [names.LOAD_MESSAGES_OPTIONS, 'SharedOptions', 'LoadSessionOptions', 'LoadMessagesOptions'],
  ]) {
    assert.deepEqual([...known].sort(), [...new Set(interfaces.flatMap(own))].sort(), interfaces.join());
  }
});
