// A client of the public TypeScript SDK for ACP on a WebSocket. It opens a new session, or loads the one that is given,
// sends one prompt, allows what it is asked, disconnects, and prints what it got as JSON.
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

const load = (modules, name) => import(pathToFileURL(createRequire(join(modules, 'a.js')).resolve(name)))
const sdk = '@agentclientprotocol/sdk'
const { client, methods, PROTOCOL_VERSION } = await load(process.env.MODULES, sdk)
const { createWebSocketStream } = await load(process.env.MODULES, `${sdk}/experimental/ws-client`)
const { default: WebSocket } = await load(process.env.WEB_SOCKET, 'ws')

const [url, cwd, prompt, loaded] = process.argv.slice(2)
const headers = { Authorization: `Bearer ${process.env.TOKEN}` }
const stream = createWebSocketStream(url, { WebSocket, headers })

const seen = { updates: [], asked: [] }
const app = client({ name: 'test' })
  .onNotification(methods.client.session.update, ({ params }) => seen.updates.push(params.update))
  .onRequest(methods.client.session.requestPermission, ({ params }) => {
    seen.asked.push(params.toolCall.title)
    const option = params.options.find((option) => option.kind === 'allow_once')
    return { outcome: { outcome: 'selected', optionId: option.optionId } }
  })

await app.connectWith(stream, async (agent) => {
  seen.initialized = await agent.request(methods.agent.initialize, {
    protocolVersion: PROTOCOL_VERSION,
    clientCapabilities: {},
  })
  if (loaded) {
    await agent.request(methods.agent.session.load, { sessionId: loaded, cwd, mcpServers: [] })
    seen.session = loaded
    seen.replayed = seen.updates.splice(0)
  } else {
    seen.session = (await agent.request(methods.agent.session.new, { cwd, mcpServers: [] })).sessionId
  }
  seen.answer = await agent.request(methods.agent.session.prompt, {
    sessionId: seen.session,
    prompt: [{ type: 'text', text: prompt }],
  })
})
console.log(JSON.stringify(seen))
