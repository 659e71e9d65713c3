//! Sends a step: as an event stream, as one JSON answer, or with its fault.

use std::borrow::Cow;
use std::io;

use serde_json::{Value, json};

use crate::http::HttpConnection;
use crate::server::After;

use super::step::{GeminiAnswer, Midway};
use super::{GeminiPart, GeminiStep, GeminiTokens};

const EVENT_STREAM: &str = "text/event-stream";
const JSON: &str = "application/json; charset=UTF-8";

/// Sends one step. `wait` sleeps, and returns `false` when the model is being stopped.
pub(super) fn send(
    step: &GeminiStep,
    model: &str,
    streams: bool,
    connection: &mut HttpConnection,
    wait: &dyn Fn(u64) -> bool,
) -> io::Result<After> {
    if step.delay_ms > 0 && !wait(step.delay_ms) {
        return Ok(After::Closed);
    }
    match &step.answer {
        GeminiAnswer::Drop => {
            connection.drop_now();
            Ok(After::Closed)
        }
        GeminiAnswer::Hang => {
            connection.wait_for_close();
            Ok(After::Closed)
        }
        GeminiAnswer::Http { status, body } => send_status(*status, body, connection),
        GeminiAnswer::UnknownModel => {
            let message = format!("models/{model} is not found for API version v1beta");
            let step = GeminiStep::api_error(404, "NOT_FOUND", &message, Value::Null);
            send(&step, model, streams, connection, wait)
        }
        GeminiAnswer::Raw(bytes) => stream(step, &[bytes], connection, wait),
        GeminiAnswer::Blocked(reason) => {
            let feedback = json!({
                "promptFeedback": {"blockReason": reason},
                "usageMetadata": usage(step.usage),
                "modelVersion": model,
            });
            send_frames(step, streams, &[feedback], connection, wait)
        }
        GeminiAnswer::Many { count, text } if streams => {
            send_many(step, model, *count, text, connection, wait)
        }
        GeminiAnswer::Many { count, text } => {
            let whole = (1..=*count).map(|number| numbered(text, number)).collect();
            let frame = frame(step, model, &[GeminiPart::Text(whole)], Last::Yes);
            send_frames(step, streams, &[frame], connection, wait)
        }
        GeminiAnswer::Chunks(chunks) if streams => {
            // A broken stream must not have reported that it was finished.
            let ends = step.midway.is_none() || chunks.len() > 1;
            let frames: Vec<Value> = (1..)
                .zip(chunks)
                .map(|(number, parts)| {
                    let last = if ends && number == chunks.len() { Last::Yes } else { Last::No };
                    frame(step, model, parts, last)
                })
                .collect();
            send_frames(step, streams, &frames, connection, wait)
        }
        GeminiAnswer::Chunks(chunks) => {
            let parts: Vec<GeminiPart> = chunks.iter().flatten().cloned().collect();
            send_frames(step, streams, &[frame(step, model, &parts, Last::Yes)], connection, wait)
        }
    }
}

/// Sends a complete JSON answer with status 200.
pub(super) fn send_json(body: &Value, connection: &mut HttpConnection) -> io::Result<After> {
    connection.answer(200, JSON, body.to_string().as_bytes())?;
    Ok(After::Open)
}

/// Returns a candidate with one text, the answer to a helper request.
pub(super) fn plain_answer(model: &str, text: String) -> Value {
    frame(&GeminiStep::empty(), model, &[GeminiPart::Text(text)], Last::Yes)
}

fn send_status(status: u16, body: &Value, connection: &mut HttpConnection) -> io::Result<After> {
    match body {
        Value::String(text) => connection.answer(status, "text/html; charset=UTF-8", text.as_bytes())?,
        other => connection.answer(status, JSON, other.to_string().as_bytes())?,
    }
    Ok(After::Open)
}

fn send_frames(
    step: &GeminiStep,
    streams: bool,
    frames: &[Value],
    connection: &mut HttpConnection,
    wait: &dyn Fn(u64) -> bool,
) -> io::Result<After> {
    if streams {
        let events: Vec<Vec<u8>> = frames.iter().map(event).collect();
        let events: Vec<&[u8]> = events.iter().map(Vec::as_slice).collect();
        return stream(step, &events, connection, wait);
    }
    let whole = frames.first().map(Value::to_string).unwrap_or_default();
    let Some(midway) = step.midway else {
        connection.answer(200, JSON, whole.as_bytes())?;
        return Ok(After::Open);
    };
    connection.answer_in_part(JSON, &whole.as_bytes()[..whole.len() / 2], whole.len())?;
    Ok(break_off(midway, connection))
}

/// Streams the events, and stops after the first if the step requires it.
fn stream(
    step: &GeminiStep,
    events: &[&[u8]],
    connection: &mut HttpConnection,
    wait: &dyn Fn(u64) -> bool,
) -> io::Result<After> {
    connection.start_stream(EVENT_STREAM)?;
    for (index, event) in events.iter().enumerate() {
        if index > 0 && step.chunk_delay_ms > 0 && !wait(step.chunk_delay_ms) {
            return Ok(After::Closed);
        }
        connection.piece(event)?;
        if let Some(midway) = step.midway {
            connection.flush()?;
            return Ok(break_off(midway, connection));
        }
        if step.chunk_delay_ms > 0 {
            connection.flush()?;
        }
    }
    connection.end_stream()?;
    Ok(After::Open)
}

/// Streams one event many times. It is created once, so that writing is nearly the only work.
fn send_many(
    step: &GeminiStep,
    model: &str,
    count: u64,
    text: &str,
    connection: &mut HttpConnection,
    wait: &dyn Fn(u64) -> bool,
) -> io::Result<After> {
    let parts = [GeminiPart::Text(text.to_owned())];
    let [event, last] = [Last::No, Last::Yes].map(|last| event(&frame(step, model, &parts, last)));
    let (event, last) = (String::from_utf8_lossy(&event), String::from_utf8_lossy(&last));
    if step.midway.is_some() || count == 0 {
        return stream(step, &[numbered(&event, 1).as_bytes()], connection, wait);
    }
    connection.start_stream(EVENT_STREAM)?;
    for number in 1..count {
        connection.piece(numbered(&event, number).as_bytes())?;
        if step.chunk_delay_ms > 0 {
            connection.flush()?;
            if !wait(step.chunk_delay_ms) {
                return Ok(After::Closed);
            }
        }
    }
    connection.piece(numbered(&last, count).as_bytes())?;
    connection.end_stream()?;
    Ok(After::Open)
}

/// Inserts the number for `{n}`. Braces in JSON's own syntax never surround a bare `n`.
fn numbered(text: &str, number: u64) -> Cow<'_, str> {
    if text.contains("{n}") { text.replace("{n}", &number.to_string()).into() } else { text.into() }
}

fn break_off(midway: Midway, connection: &mut HttpConnection) -> After {
    match midway {
        Midway::Drop => connection.drop_now(),
        Midway::Hang => connection.wait_for_close(),
    }
    After::Closed
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    Yes,
    No,
}

/// Returns one `GenerateContentResponse`. The last of a stream has the finish reason and the token counts.
fn frame(step: &GeminiStep, model: &str, parts: &[GeminiPart], last: Last) -> Value {
    let parts: Vec<Value> = parts.iter().map(part).collect();
    let mut candidate = json!({"content": {"role": "model", "parts": parts}, "index": 0});
    if last == Last::No {
        return json!({"candidates": [candidate], "modelVersion": model});
    }
    if let Some(reason) = &step.finish {
        candidate["finishReason"] = json!(reason);
    }
    json!({"candidates": [candidate], "usageMetadata": usage(step.usage), "modelVersion": model})
}

fn part(part: &GeminiPart) -> Value {
    match part {
        GeminiPart::Text(text) => json!({"text": text}),
        GeminiPart::Thought(text) => json!({"text": text, "thought": true}),
        GeminiPart::Call { name, args } => json!({"functionCall": {"name": name, "args": args}}),
    }
}

fn usage(tokens: GeminiTokens) -> Value {
    json!({
        "promptTokenCount": tokens.prompt,
        "candidatesTokenCount": tokens.candidates,
        "cachedContentTokenCount": tokens.cached,
        "thoughtsTokenCount": tokens.thoughts,
        "totalTokenCount": tokens.total.unwrap_or(tokens.prompt + tokens.candidates + tokens.thoughts),
    })
}

fn event(frame: &Value) -> Vec<u8> {
    format!("data: {frame}\r\n\r\n").into_bytes()
}
