// A tiny MCP server on stdin and stdout, with the faults that its first argument names.
import { appendFileSync } from "node:fs";
import { createInterface } from "node:readline";

const fault = process.argv[2];
if (process.env.STARTS) appendFileSync(process.env.STARTS, `${process.pid}\n`);
if (fault === "dead") {
  process.stderr.write("x".repeat(5000) + "\nno licence key\n");
  process.exit(3);
}
process.stdout.write("Tiny server, version 1\n\n{broken\n");
process.stderr.write("chatter\n".repeat(20000));

const say = (message) => process.stdout.write(JSON.stringify({ jsonrpc: "2.0", ...message }) + "\n");
const text = (text) => ({ content: [{ type: "text", text }] });
const tool = (name) => ({ name, description: "", inputSchema: { type: "object" } });
let cancelled = "nothing";
const calls = {
  shout: (args) => text(String(args.word).toUpperCase()),
  variable: (args) => text(process.env[args.name] ?? "not set"),
  folder: () => text(process.cwd()),
  cancelled: () => text(cancelled),
  endless: () => undefined,
  change: () => {
    say({ method: "notifications/tools/list_changed" });
    return text("changed");
  },
  die: () => {
    process.stderr.write("out of cheese\n");
    process.exit(7);
  },
};
const answers = {
  initialize: (params) => ({
    protocolVersion: params.protocolVersion,
    capabilities: { tools: { listChanged: true }, prompts: {} },
    serverInfo: { name: "tiny", version: "1" },
  }),
  "tools/list": () => (fault === "hanging-list" ? undefined : { tools: Object.keys(calls).map(tool) }),
  "tools/call": (params) => calls[params.name]?.(params.arguments ?? {}),
  "prompts/list": () => ({ prompts: [{ name: "greet" }] }),
  "tiny/echo": (params) => params,
};
if (fault === "hanging") setInterval(() => {}, 1000);
createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  if (method === "notifications/cancelled") cancelled = `request ${typeof params.requestId}`;
  if (id === undefined || fault === "hanging") return;
  if (!answers[method]) return say({ id, error: { code: -32601, message: `no ${method}`, data: { tiny: true } } });
  const result = answers[method](params);
  if (result !== undefined) say({ id, result });
});
