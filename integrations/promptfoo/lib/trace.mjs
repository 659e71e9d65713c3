// The tool calls of a run as spans, for promptfoo's trajectory assertions. promptfoo registers its tracer with the OpenTelemetry API, which
// keeps it in one well-known place of the process; so a provider needs no dependency to reach it.
const API = Symbol.for('opentelemetry.js.api.1');
/** Longest text of an attribute. */
const LONGEST = 4096;

/** Tells the calls in the trace of the call that is going on; without tracing it does nothing. */
export function emitSpans(tools) {
  const tracer = globalThis[API]?.trace?.getTracer?.('agentline-promptfoo');
  if (!tracer) return;
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
