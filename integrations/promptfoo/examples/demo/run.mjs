// Serves the scripted model of `agentline demo` and evaluates promptfooconfig.yaml with it. Run `node run.mjs` or `npm run demo`.
// PROMPTFOO is the path of promptfoo's main.js. Without it, npx downloads the version that the tests use.
import { spawn } from 'node:child_process';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { findBinary } from '../../lib/binary.mjs';

const here = path.dirname(fileURLToPath(import.meta.url));
const model = spawn(findBinary(undefined, here), ['demo', '--serve'], { stdio: ['pipe', 'pipe', 'inherit'] });
const first = await new Promise((resolve) => {
  createInterface({ input: model.stdout }).once('line', resolve);
  model.once('close', () => resolve(undefined));
});
if (!first) process.exit(1);

const served = JSON.parse(first);
const { HOME, ...demo } = served.env;
const env = { ...process.env, ...demo, AGENTLINE_MODEL: served.model, AGENTLINE_DEMO_HOME: HOME, PROMPTFOO_DISABLE_TELEMETRY: '1', PROMPTFOO_DISABLE_UPDATE: '1' };
const [program, ...args] = process.env.PROMPTFOO ? [process.execPath, process.env.PROMPTFOO] : ['npx', '--yes', 'promptfoo@0.123.1'];
const config = path.join(here, 'promptfooconfig.yaml');
const evaluation = spawn(program, [...args, 'eval', '--no-cache', '-c', config, ...process.argv.slice(2)], { env, stdio: 'inherit' });
process.exitCode = await new Promise((resolve) => evaluation.once('close', (code) => resolve(code ?? 1)));
model.stdin.end();
