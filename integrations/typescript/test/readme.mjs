// The examples of the README, which one test runs and another one compiles, both in the current directory.

import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The directory of the package. */
export const PACKAGE = fileURLToPath(new URL('..', import.meta.url));

const page = readFileSync(join(PACKAGE, 'README.md'), 'utf8');

/** The text of each example. */
export const examples = [...page.matchAll(/^```js\n(.*?)^```$/gms)].map((found) => found[1]);

/** Writes an example to a file with this extension, and returns its path. */
export function writeExample(example, extension) {
  const file = join(process.cwd(), `example-${examples.indexOf(example)}.${extension}`);
  writeFileSync(file, example);
  return file;
}

/** Makes the package available under its name. */
export function linkPackage() {
  mkdirSync('node_modules', { recursive: true });
  symlinkSync(PACKAGE, join('node_modules', 'agentline'), 'dir');
}
