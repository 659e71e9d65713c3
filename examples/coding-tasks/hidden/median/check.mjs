import assert from "node:assert/strict";
import { median } from "./stats.mjs";
const list = [10, 9, 1];
assert.equal(median(list), 9);
assert.deepEqual(list, [10, 9, 1], "the list stays unchanged");
assert.equal(median([4, 1, 3, 2]), 2.5);
assert.ok(Number.isNaN(median([])));
