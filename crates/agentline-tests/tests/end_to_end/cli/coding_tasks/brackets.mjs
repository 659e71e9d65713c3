const PAIRS = { ")": "(", "]": "[", "}": "{" };

export function isBalanced(text) {
  const open = [];
  for (const c of text) {
    if ("([{".includes(c)) open.push(c);
    else if (c in PAIRS && open.pop() !== PAIRS[c]) return false;
  }
  return open.length === 0;
}
