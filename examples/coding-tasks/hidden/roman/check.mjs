import assert from "node:assert/strict";
import { toRoman } from "./roman.mjs";
const expected = { 1: "I", 4: "IV", 9: "IX", 14: "XIV", 40: "XL", 90: "XC", 400: "CD", 1994: "MCMXCIV", 3999: "MMMCMXCIX" };
for (const [n, text] of Object.entries(expected)) assert.equal(toRoman(Number(n)), text);
