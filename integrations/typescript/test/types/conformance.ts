// What is written in JavaScript is what the types say of it.

import * as program from '../../src/index.js';
import type * as types from '../../types/index.js';

type Exports = { [Name in keyof typeof types]: (typeof types)[Name] };

export const exported: Exports = program;
