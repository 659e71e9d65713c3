// Checks that the JavaScript exports have the declared types.

import * as program from '../../src/index.js';
import type * as types from '../../types/index.js';

type Exports = { [Name in keyof typeof types]: (typeof types)[Name] };

export const exported: Exports = program;
