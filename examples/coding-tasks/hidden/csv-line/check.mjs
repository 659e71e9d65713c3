import assert from "node:assert/strict";
import { parseLine } from "./csv.mjs";
assert.deepEqual(parseLine("a,b,c"), ["a", "b", "c"]);
assert.deepEqual(parseLine('"a,b",c'), ["a,b", "c"]);
assert.deepEqual(parseLine('"say ""hi""",'), ['say "hi"', ""]);
assert.deepEqual(parseLine(""), [""]);
