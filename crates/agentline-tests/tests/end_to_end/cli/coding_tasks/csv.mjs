export function parseLine(line) {
  const fields = [""];
  let quoted = false;
  for (let at = 0; at < line.length; at += 1) {
    const c = line[at];
    if (quoted && c === '"' && line[at + 1] === '"') fields[fields.length - 1] += line[(at += 1)];
    else if (c === '"') quoted = !quoted;
    else if (c === "," && !quoted) fields.push("");
    else fields[fields.length - 1] += c;
  }
  return fields;
}
