// Finds the program `agentline`: from the option, the variable, PATH, or the local build of a checkout.
import { accessSync, constants, statSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const NAME = process.platform === 'win32' ? 'agentline.exe' : 'agentline';
const ROOT = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..', '..', '..');

/** Returns the path of the program. Throws if it is not found. */
export function findBinary(option, basePath, env = process.env) {
  const named = option || env.AGENTLINE_BIN;
  if (named) {
    const isPath = named.includes('/') || named.includes(path.sep);
    const found = isPath ? executable(path.resolve(option ? basePath : process.cwd(), named)) : onPath(named, env);
    if (found) return found;
    throw new Error(`agentline was not found: ${option ? 'agentline_bin' : 'AGENTLINE_BIN'} is ${named}`);
  }
  const built = ['release', 'debug'].map((kind) => path.join(ROOT, 'target', kind, NAME));
  const found = onPath(NAME, env) ?? built.map(executable).find(Boolean);
  if (found) return found;
  throw new Error('agentline was not found. Add it to PATH, or set AGENTLINE_BIN or agentline_bin to its path');
}

function onPath(name, env) {
  const folders = (env.PATH ?? env.Path ?? '').split(path.delimiter).filter(Boolean);
  return folders.map((folder) => executable(path.join(folder, name))).find(Boolean);
}

function executable(file) {
  try {
    accessSync(file, constants.X_OK);
    return statSync(file).isFile() ? file : undefined;
  } catch {
    return undefined;
  }
}
