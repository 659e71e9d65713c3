// Loaded by Node.js before Gemini CLI, unless the workspace is fully trusted. Hides the files with which a workspace
// could configure the agent: settings, `.env` files, custom commands, agents, skills, policies and sandbox scripts. The
// user's own files stay visible. The agent's file tools use the asynchronous calls, so they can still read these files.
'use strict';
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { syncBuiltinESMExports } = require('node:module');

const CONFIG = null; // agentline writes { homes, contextFiles, confirm: { fd, line }, keepOptions } here

const CONFIG_FILES = /^(\.env|sandbox[.-].*)$/;
const CONFIG_DIRS = /^(commands|agents|skills|policies|extensions)$/;

const { existsSync, realpathSync } = fs;
const realPath = (file) => {
  try {
    return realpathSync(file);
  } catch {
    return file;
  }
};
const cliHome = path.resolve(process.env.GEMINI_CLI_HOME || os.homedir());
const cliHomes = new Set([cliHome, realPath(cliHome)]);
const userHomes = new Set([...cliHomes, ...CONFIG.homes.map((home) => path.resolve(home))]);

function resolved(file) {
  if (Buffer.isBuffer(file)) return path.resolve(file.toString());
  if (file instanceof URL) return path.resolve(decodeURIComponent(file.pathname));
  return typeof file === 'string' ? path.resolve(file) : null;
}

// Splits a path at its last `.gemini` or `.agents`: the directory above it, and the names below it.
function split(file) {
  const parts = file.split(path.sep);
  const at = Math.max(parts.lastIndexOf('.gemini'), parts.lastIndexOf('.agents'));
  return at < 0 ? null : { root: parts.slice(0, at).join(path.sep) || path.sep, below: parts.slice(at + 1) };
}

// Settings read as empty. They stay visible, because the agent's file tools first check whether a file exists.
function isSettings(given) {
  const file = resolved(given);
  if (file === null || path.basename(file) !== 'settings.json') return false;
  const found = split(file);
  return found !== null && found.below.length === 1 && !cliHomes.has(found.root);
}

function isHiddenFile(given) {
  const file = resolved(given);
  if (file === null) return false;
  const name = path.basename(file);
  if (name !== '.env' && name !== 'SKILL.md' && !file.includes('.gemini')) return false;
  const found = split(file);
  if (found && found.below.length === 1) return CONFIG_FILES.test(name) && !userHomes.has(found.root);
  if (found && found.below.length === 2 && found.below[0] === 'skills' && name === 'SKILL.md') {
    return !userHomes.has(found.root);
  }
  if (name !== '.env') return false;
  const ofExtension = found && found.below[0] === 'extensions' && userHomes.has(found.root);
  return !ofExtension && !userHomes.has(path.dirname(file));
}

function isHiddenDir(given) {
  const file = resolved(given);
  if (file === null || !CONFIG_DIRS.test(path.basename(file))) return false;
  const found = split(file);
  return found !== null && found.below.length === 1 && !userHomes.has(found.root);
}

const isHidden = (file) => isHiddenFile(file) || isHiddenDir(file);
const isHiddenSkill = (file) => isHiddenFile(file) && path.basename(String(file)) === 'SKILL.md';

// A context file that links out of its repository could pass any file of the user to the model.
function isEscapingContext(given) {
  const file = resolved(given);
  if (file === null || !CONFIG.contextFiles.includes(path.basename(file))) return false;
  const dir = path.dirname(file);
  if (path.basename(dir) === '.gemini' && userHomes.has(path.dirname(dir))) return false;
  let root = dir;
  while (!existsSync(path.join(root, '.git')) && path.dirname(root) !== root) root = path.dirname(root);
  if (!existsSync(path.join(root, '.git')) || [...userHomes].some((home) => isInside(home, root))) root = dir;
  return !isInside(realPath(file), realPath(root));
}

function isInside(file, dir) {
  const relative = path.relative(dir, file);
  return relative === '' || !(relative === '..' || relative.startsWith(`..${path.sep}`) || path.isAbsolute(relative));
}

function missing(call, file) {
  const error = new Error(`ENOENT: no such file or directory, ${call} '${file}'`);
  return Object.assign(error, { code: 'ENOENT', errno: -2, syscall: call, path: String(file) });
}

// Confirms that the script is active once the agent has read the user's settings and looked for a `.env` file through
// the calls below, because it loads those of a workspace in the same way. A version that loads them differently is not
// confirmed.
const ownSettings = path.join(cliHome, '.gemini', 'settings.json');
const unseen = new Set(existsSync(ownSettings) ? [ownSettings, '.env'] : ['.env']);
function saw(what) {
  if (unseen.delete(what) && unseen.size === 0) fs.writeSync(CONFIG.confirm.fd, `${CONFIG.confirm.line}\n`);
}

function patch(target, name, hides, instead) {
  const original = target[name];
  if (typeof original !== 'function') return;
  const patched = function (file, ...rest) {
    return hides(file) ? instead(file, rest) : original.call(this, file, ...rest);
  };
  target[name] = Object.assign(patched, original);
}

const callBack = (rest, ...results) => process.nextTick(rest[rest.length - 1], ...results);
const fail = (call) => (file) => {
  throw missing(call, file);
};

patch(
  fs,
  'existsSync',
  (file) => {
    if (unseen.size > 0) saw(path.basename(String(file)));
    return isHidden(file);
  },
  () => false,
);
patch(fs, 'readFileSync', (file) => isHiddenFile(file) || isEscapingContext(file), fail('open'));
patch(
  fs,
  'readFileSync',
  (file) => {
    if (unseen.size > 0) saw(resolved(file));
    return isSettings(file);
  },
  (_, [options]) => (options ? '{}' : Buffer.from('{}')),
);
patch(fs, 'openSync', isHiddenFile, fail('open'));
patch(fs, 'accessSync', isHidden, fail('access'));
for (const call of ['stat', 'lstat']) {
  patch(fs, `${call}Sync`, isHidden, (file, [options]) => {
    if (options?.throwIfNoEntry === false) return undefined;
    throw missing(call, file);
  });
  patch(fs, call, isHiddenSkill, (file, rest) => callBack(rest, missing(call, file)));
  patch(fs.promises, call, isHiddenSkill, async (file) => fail(call)(file));
}
patch(fs, 'readFile', isEscapingContext, (file, rest) => callBack(rest, missing('open', file)));
patch(fs.promises, 'readFile', isEscapingContext, async (file) => fail('open')(file));
patch(fs, 'readdirSync', isHiddenDir, () => []);
patch(fs, 'readdir', isHiddenDir, (_, rest) => callBack(rest, null, []));
patch(fs.promises, 'readdir', isHiddenDir, async () => []);
patch(fs, 'opendirSync', isHiddenDir, fail('opendir'));
patch(fs, 'opendir', isHiddenDir, (file, rest) => callBack(rest, missing('opendir', file)));
patch(fs.promises, 'opendir', isHiddenDir, async (file) => fail('opendir')(file));
syncBuiltinESMExports();

// The agent's tools and servers start without this script. Inside a container, the agent itself still needs it.
if (!CONFIG.keepOptions) {
  const options = (process.env.NODE_OPTIONS || '').replace(/^(?:"(?:[^"\\]|\\.)*"|\S+) ?/, '');
  if (options) process.env.NODE_OPTIONS = options;
  else delete process.env.NODE_OPTIONS;
}
