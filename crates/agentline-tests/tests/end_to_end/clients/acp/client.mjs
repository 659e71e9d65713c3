// A client of the public TypeScript SDK for ACP. It starts an agent, sends one prompt, allows what it is asked, and prints
// what it got as JSON.
import { spawn } from 'node:child_process'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Readable, Writable } from 'node:stream'
import { pathToFileURL } from 'node:url'

const sdk = join(process.env.MODULES, '@agentclientprotocol/sdk/dist/v1/stable/acp.js')
const { client, methods, ndJsonStream, PROTOCOL_VERSION, RequestError } = await import(pathToFileURL(sdk))

const [prompt, program, ...args] = process.argv.slice(2)
const agent = spawn(program, args, { stdio: ['pipe', 'pipe', 'inherit'] })
const stream = ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout))

const seen = { updates: [], asked: [], read: [], written: [] }
const app = client({ name: 'test' })
  .onNotification(methods.client.session.update, ({ params }) => seen.updates.push(params.update))
  .onRequest(methods.client.session.requestPermission, ({ params }) => {
    seen.asked.push(params.toolCall.title)
    const option = params.options.find((option) => option.kind === 'allow_once')
    return { outcome: { outcome: 'selected', optionId: option.optionId } }
  })
  .onRequest(methods.client.fs.readTextFile, async ({ params }) => {
    seen.read.push(params.path)
    try {
      return { content: await readFile(params.path, 'utf8') }
    } catch {
      throw RequestError.resourceNotFound(params.path)
    }
  })
  .onRequest(methods.client.fs.writeTextFile, async ({ params }) => {
    seen.written.push(params.path)
    await writeFile(params.path, params.content)
    return {}
  })

await app.connectWith(stream, async (agent) => {
  seen.initialized = await agent.request(methods.agent.initialize, {
    protocolVersion: PROTOCOL_VERSION,
    clientCapabilities: { fs: { readTextFile: true, writeTextFile: true } },
  })
  const session = await agent.request(methods.agent.session.new, { cwd: process.cwd(), mcpServers: [] })
  seen.modes = session.modes
  seen.answer = await agent.request(methods.agent.session.prompt, {
    sessionId: session.sessionId,
    prompt: [{ type: 'text', text: prompt }],
  })
})
agent.stdin.end()
await new Promise((resolve) => (agent.exitCode === null ? agent.on('exit', resolve) : resolve()))
seen.exit = agent.exitCode
console.log(JSON.stringify(seen))
