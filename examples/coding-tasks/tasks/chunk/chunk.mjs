// Splits a list into parts of the given size; the last one may be shorter.
export function chunk(list, size) {
  const parts = [];
  for (let at = 0; at + size <= list.length; at += size) parts.push(list.slice(at, at + size));
  return parts;
}
