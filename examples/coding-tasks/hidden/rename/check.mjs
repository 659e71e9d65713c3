import assert from "node:assert/strict";
import fs from "node:fs";
import * as users from "./users.mjs";
import { greet } from "./greet.mjs";
assert.deepEqual(Object.keys(users), ["findUser"]);
assert.equal(greet(1), "Hello, Ada!");
assert.equal(greet(2), "Hello, stranger!");
assert.match(fs.readFileSync("notes.txt", "utf8"), /getUserName/);
