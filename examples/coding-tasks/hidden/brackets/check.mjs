import assert from "node:assert/strict";
import { isBalanced } from "./brackets.mjs";
for (const text of ["", "a(b)[c]{d}", "{[()]}"]) assert.equal(isBalanced(text), true, text);
for (const text of ["(", ")(", "([)]", "{{}"]) assert.equal(isBalanced(text), false, text);
