// Finds the program `agentline`.

import { accessSync, constants, statSync } from 'node:fs';
import { delimiter, join, resolve } from 'node:path';
import { BinaryNotFoundError } from './errors.js';

const NAME = process.platform === 'win32' ? 'agentline.exe' : 'agentline';

/** @param {string} path */
function isProgram(path) {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}

/** @param {{ bin?: string, env?: Record<string, string | undefined> }} [options] */
export function findBinary(options = {}) {
  const env = options.env ?? process.env;
  const named = options.bin ?? (env.AGENTLINE_BIN || undefined);
  // A value with a slash is a path. A bare name is searched for on PATH.
  if (named !== undefined && /[\\/]/.test(named)) {
    const path = resolve(named);
    return isProgram(path) ? path : null;
  }
  // An empty entry means the current directory, whose programs are not trusted.
  const folders = (env.PATH ?? env.Path ?? '').split(delimiter).filter((folder) => folder !== '');
  const found = folders.map((folder) => join(folder, named ?? NAME)).find(isProgram);
  return found === undefined ? null : resolve(found);
}

/** @param {{ bin?: string, env?: Record<string, string | undefined> }} options */
export function needBinary(options) {
  const found = findBinary(options);
  if (found !== null) return found;
  const named = options.bin ?? (options.env ?? process.env).AGENTLINE_BIN;
  const message = named ? `\`${named}\` was not found or is not executable` : 'the program `agentline` is not on PATH';
  throw new BinaryNotFoundError(message, {
    hint: 'install agentline, or set AGENTLINE_BIN or `bin` to its path',
  });
}
