import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import fs from "node:fs";
const print = () => execFileSync(process.execPath, ["count.mjs"], { encoding: "utf8" }).trim();
assert.equal(print(), "the 3\na 2\nand 2");
fs.writeFileSync("words.txt", "b a c. B!");
assert.equal(print(), "b 2\na 1\nc 1");
