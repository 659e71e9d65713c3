// One call to a tool of the program: its policy, its handler and its hook.

import { StopRun } from './errors.js';
import { text } from './wire.js';

/**
 * Returns the response to `tool/call`. Rejects with `StopRun` if the handler ends the run.
 * @param {import('../types/index.js').ToolDefinition} tool
 * @param {any} input
 * @param {import('../types/index.js').CallContext & { call: number }} context
 */
export async function callTool(tool, input, context) {
  const denied = tool.policy && (await denial(tool.policy, input, context));
  if (denied) return { output: denied, is_error: true };
  /** @type {import('../types/index.js').ToolReturn} */
  let result;
  try {
    result = { output: (await tool.handler(input, context)) ?? null, isError: false };
  } catch (error) {
    if (error instanceof StopRun) throw error;
    result = { output: text(error), isError: true };
  }
  const note = tool.after && (await noteOf(tool.after, input, result, context));
  return { output: result.output, is_error: result.isError, ...(note ? { note } : {}) };
}

/**
 * Returns why the policy denies a call, or null. An exception denies it.
 * @param {NonNullable<import('../types/index.js').ToolDefinition['policy']>} policy
 * @param {any} input
 * @param {import('../types/index.js').CallContext & { call: number }} context
 */
async function denial(policy, input, context) {
  try {
    const decided = await policy(input, context);
    const decision = typeof decided === 'object' && decided !== null ? decided.decision : decided;
    if (decision === undefined || decision === true || decision === 'allow') return null;
    const reason = typeof decided === 'object' && decided !== null ? decided.reason : undefined;
    return reason || 'the policy of the tool denies this call';
  } catch (error) {
    return `the policy of the tool failed: ${text(error)}`;
  }
}

/**
 * Returns the text of the hook, or null. A hook that fails does not affect the result.
 * @param {NonNullable<import('../types/index.js').ToolDefinition['after']>} after
 * @param {any} input
 * @param {import('../types/index.js').ToolReturn} result
 * @param {import('../types/index.js').CallContext & { call: number }} context
 */
async function noteOf(after, input, result, context) {
  try {
    const note = await after(input, result, context);
    return typeof note === 'string' ? note : null;
  } catch {
    return null;
  }
}
