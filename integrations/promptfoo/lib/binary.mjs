// Finds the program `agentline`: the option, the variable, the PATH, and the build of a checkout that this file lies in.
import { accessSync, constants, statSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const NAME = process.platform === 'win32' ? 'agentline.exe' : 'agentline';
const ROOT = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..', '..', '..');

/** The path of the program, or an error that says where it was looked for. */
export function findBinary(option, basePath, env = process.env) {
  const told = option || env.AGENTLINE_BIN;
  if (told) {
    const named = told.includes('/') || told.includes(path.sep);
    const found = named ? runnable(path.resolve(option ? basePath : process.cwd(), told)) : onPath(told, env);
    if (found) return found;
    throw new Error(`agentline was not found: ${option ? 'agentline_bin' : 'AGENTLINE_BIN'} is ${told}`);
  }
  const built = ['release', 'debug'].map((kind) => path.join(ROOT, 'target', kind, NAME));
  const found = onPath(NAME, env) ?? built.map(runnable).find(Boolean);
  if (found) return found;
  throw new Error('agentline was not found. Put it on the PATH, or say where it is with AGENTLINE_BIN or agentline_bin');
}

function onPath(name, env) {
  const folders = (env.PATH ?? env.Path ?? '').split(path.delimiter).filter(Boolean);
  return folders.map((folder) => runnable(path.join(folder, name))).find(Boolean);
}

function runnable(file) {
  try {
    accessSync(file, constants.X_OK);
    return statSync(file).isFile() ? file : undefined;
  } catch {
    return undefined;
  }
}
