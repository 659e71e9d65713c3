// Emits a run and its tool calls as spans, for promptfoo's traces and trajectory assertions. promptfoo registers its tracer with
// the OpenTelemetry API, which stores it under a well-known global symbol, so the provider needs no dependency.
const API = Symbol.for('opentelemetry.js.api.1');
/** The maximum length of an attribute. */
const MAX_ATTRIBUTE_LENGTH = 4096;

/** Adds the spans to the trace of the current call. Does nothing if tracing is off. */
export function emitSpans(tools, outcome) {
  const tracer = globalThis[API]?.trace?.getTracer?.('agentline-promptfoo');
  if (!tracer) return;
  const { input_tokens: input = 0, output_tokens: output = 0 } = outcome.usage ?? {};
  const run = tracer.startSpan(`invoke_agent ${outcome.agent}`, {
    startTime: tools.startedAt,
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
  run.end(tools.startedAt + (outcome.duration_ms ?? 0));
  for (const call of tools.calls.values()) {
    const startTime = tools.startedAt + (call.started ?? 0);
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
    // OpenTelemetry's status codes: 1 is OK, 2 is an error.
    span.setStatus({ code: call.is_error || call.ended === undefined ? 2 : 1, message: call.reason });
    span.end(tools.startedAt + Math.max(call.ended ?? call.started ?? 0, call.started ?? 0));
  }
}

function text(value) {
  if (value === undefined || value === null) return '';
  const all = typeof value === 'string' ? value : JSON.stringify(value);
  return all.length > MAX_ATTRIBUTE_LENGTH ? `${all.slice(0, MAX_ATTRIBUTE_LENGTH - 15)}... [truncated]` : all;
}
