import fs from "node:fs";

const counts = new Map();
for (const word of fs.readFileSync("words.txt", "utf8").toLowerCase().match(/\p{L}+/gu) ?? []) {
  counts.set(word, (counts.get(word) ?? 0) + 1);
}
const sorted = [...counts].sort(([a, m], [b, n]) => n - m || (a < b ? -1 : 1));
for (const [word, count] of sorted.slice(0, 3)) console.log(word, count);
