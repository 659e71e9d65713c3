// Messages as agent-cli-sdk has them, and its helpers for them.

/**
 * @typedef {import('../types/index.js').SdkMessage} SdkMessage
 * @typedef {import('../types/index.js').UnifiedMessage} UnifiedMessage
 * @typedef {import('../types/index.js').ContentBlock} ContentBlock
 */

/**
 * Adds what messages of agent-cli-sdk always have: an id, a time, and token counts in camel case.
 * @param {UnifiedMessage} message
 * @returns {SdkMessage}
 */
export function sdkMessage(message) {
  const timestamp = message.timestamp ?? Date.now();
  const sdk = { ...message, id: message.id ?? `${timestamp}-${message.role}`, timestamp };
  return /** @type {SdkMessage} */ (message.usage ? { ...sdk, usage: sdkUsage(message.tool, message.usage) } : sdk);
}

/**
 * Adds the counts as agent-cli-sdk names them. It passes on what the agent reports: Claude's input excludes cached tokens,
 * and its output includes reasoning.
 * @param {string} tool
 * @param {import('../types/index.js').UnifiedUsage} usage
 */
function sdkUsage(tool, usage) {
  const { input_tokens: input = 0, output_tokens: output = 0, reasoning_tokens: reasoning = 0 } = usage;
  const { cache_read_input_tokens: cacheReadTokens, cache_creation_input_tokens: cacheCreationTokens } = usage;
  const ofClaude = tool === 'claude';
  const inputTokens = ofClaude ? input - (cacheReadTokens ?? 0) - (cacheCreationTokens ?? 0) : input;
  const outputTokens = ofClaude ? output + reasoning : output;
  const totalTokens = ofClaude ? inputTokens + outputTokens : usage.total_tokens;
  return {
    ...usage,
    inputTokens,
    outputTokens,
    totalTokens,
    ...(cacheReadTokens === undefined ? {} : { cacheReadTokens }),
    ...(cacheCreationTokens === undefined ? {} : { cacheCreationTokens }),
  };
}

/**
 * Converts a line in Claude's format to a message; null for lines that are not messages.
 * @param {any} line
 * @param {string} tool
 * @returns {SdkMessage | null}
 */
export function messageOfLine(line, tool) {
  if (line.type !== 'assistant' && line.type !== 'user') return null;
  const { type, role, content, model } = line.message;
  // Counts of a message are known only when its session has been saved.
  const common = { id: line.uuid, content, timestamp: Date.now(), tool, _original: line };
  return role === 'assistant' ? { ...common, type, role, model } : { ...common, role };
}

/** @param {Pick<UnifiedMessage, 'content'>} message */
export function extractTextContent(message) {
  if (typeof message.content === 'string') return message.content;
  return message.content.map((block) => (block.type === 'text' ? block.text : '')).join('');
}

/** @param {{ sessionId?: string }[]} events */
export function extractSessionIdFromEvents(events) {
  return events.find(({ sessionId }) => sessionId)?.sessionId ?? 'unknown';
}

/**
 * @template {string} Name
 * @param {Name} name
 * @returns {(block: ContentBlock) => block is import('../types/index.js').CallOf<Name>}
 */
function isTool(name) {
  /**
   * @param {ContentBlock} block
   * @returns {block is import('../types/index.js').CallOf<Name>}
   */
  const is = (block) => block.type === 'tool_use' && block.name === name;
  return is;
}

export const isBashTool = isTool('Bash');
export const isReadTool = isTool('Read');
export const isWriteTool = isTool('Write');
export const isEditTool = isTool('Edit');
export const isGlobTool = isTool('Glob');
export const isGrepTool = isTool('Grep');
export const isTodoWriteTool = isTool('TodoWrite');
export const isWebSearchTool = isTool('WebSearch');
export const isAskUserQuestionTool = isTool('AskUserQuestion');
export const isExitPlanModeTool = isTool('ExitPlanMode');

/**
 * @param {ContentBlock} block
 * @returns {block is import('../types/index.js').ToolUseBlock}
 */
export function isMcpTool(block) {
  return block.type === 'tool_use' && block.name.startsWith('mcp__');
}

/**
 * @param {ContentBlock} block
 * @returns {block is import('../types/index.js').SlashCommandBlock}
 */
export function isSlashCommand(block) {
  return block.type === 'slash_command';
}
