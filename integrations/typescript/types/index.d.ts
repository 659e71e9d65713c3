/// <reference lib="esnext.disposable" />
// agentline for Node.js.

export * from './agent-cli.js';
export * from './client.js';
export * from './errors.js';
export * from './events.js';
export * from './messages.js';
export * from './options.js';
export * from './outcome.js';
