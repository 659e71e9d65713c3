// A run and its tool calls as spans, for promptfoo's traces and trajectory assertions. promptfoo registers its tracer with the OpenTelemetry API, which
// keeps it in one well-known place of the process; so a provider needs no dependency to reach it.
const API = Symbol.for('opentelemetry.js.api.1');
/** Longest text of an attribute. */
const LONGEST = 4096;

/** Tells them in the trace of the call that is going on; without tracing it does nothing. */
export function emitSpans(tools, outcome) {
  const tracer = globalThis[API]?.trace?.getTracer?.('agentline-promptfoo');
  if (!tracer) return;
  const { input_tokens: input = 0, output_tokens: output = 0 } = outcome.usage ?? {};
  const run = tracer.startSpan(`invoke_agent ${outcome.agent}`, {
    startTime: tools.began,
    attributes: {
      'gen_ai.operation.name': 'invoke_agent',
      'gen_ai.agent.name': outcome.agent,
      'gen_ai.request.model': outcome.model ?? '',
      'gen_ai.conversation.id': outcome.session_id ?? '',
      'gen_ai.usage.input_tokens': input ?? 0,
      'gen_ai.usage.output_tokens': output ?? 0,
      'gen_ai.response.finish_reasons': [outcome.verdict],
    },
  });
  run.setStatus({ code: outcome.error ? 2 : 1, message: outcome.error?.message });
  run.end(tools.began + (outcome.duration_ms ?? 0));
  for (const call of tools.calls.values()) {
    const startTime = tools.began + (call.started ?? 0);
    const span = tracer.startSpan(call.canonicalName || call.name, {
      startTime,
      attributes: {
        'gen_ai.operation.name': 'execute_tool',
        'gen_ai.tool.call.id': call.id,
        'gen_ai.tool.name': call.name,
        'tool.name': call.name,
        'tool.input': text(call.input),
        'tool.output': text(call.output),
        'tool.is_error': Boolean(call.is_error),
        ...(call.ended === undefined ? { 'tool.incomplete': true } : {}),
      },
    });
    // 2 is an error, 1 is well.
    span.setStatus({ code: call.is_error || call.ended === undefined ? 2 : 1, message: call.reason });
    span.end(tools.began + Math.max(call.ended ?? call.started ?? 0, call.started ?? 0));
  }
}

function text(value) {
  if (value === undefined || value === null) return '';
  const all = typeof value === 'string' ? value : JSON.stringify(value);
  return all.length > LONGEST ? `${all.slice(0, LONGEST - 15)}... [truncated]` : all;
}
