import assert from "node:assert/strict";
import { slugify } from "./slugify.mjs";
assert.equal(slugify("Hello, World!"), "hello-world");
assert.equal(slugify("  Crème brûlée -- 2 "), "creme-brulee-2");
assert.equal(slugify("!!!"), "");
