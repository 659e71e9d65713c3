import assert from "node:assert/strict";
process.env.TZ = "Europe/Berlin";
const { daysBetween } = await import("./days.mjs");
assert.equal(daysBetween("2024-03-30", "2024-04-01"), 2);
assert.equal(daysBetween("2024-10-26", "2024-10-28"), 2);
assert.equal(daysBetween("2024-03-01", "2024-02-28"), -2);
