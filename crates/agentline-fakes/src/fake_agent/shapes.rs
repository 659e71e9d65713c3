//! Faults in the format of events: fields that are missing, of the wrong type or duplicated, or with unexpected values.

use std::io;

use serde_json::{Value, json};

use super::agent::FakeAgent;

/// Returns the events of a run with all their fields, for modification.
fn specimens() -> [(&'static str, Vec<(&'static str, Value)>); 6] {
    let error = json!({"type": "file_not_found", "message": "File not found"});
    [
        ("init", vec![("session_id", json!("s")), ("model", json!("auto"))]),
        ("message", vec![("role", json!("assistant")), ("content", json!("text")), ("delta", json!(true))]),
        (
            "tool_use",
            vec![("tool_name", json!("read_file")), ("tool_id", json!("t")), ("parameters", json!({}))],
        ),
        (
            "tool_result",
            vec![
                ("tool_id", json!("t")),
                ("status", json!("error")),
                ("output", json!("o")),
                ("error", error),
            ],
        ),
        ("error", vec![("severity", json!("warning")), ("message", json!("m"))]),
        ("result", vec![("status", json!("success")), ("error", Value::Null), ("stats", json!({}))]),
    ]
}

pub(super) fn wrong_types(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    let wrong = [
        json!(42),
        json!(-1.5),
        json!(null),
        json!([1, "two"]),
        json!({"a": {"b": []}}),
        json!(false),
        json!(""),
    ];
    for (kind, fields) in specimens() {
        // An invalid result would end the run; it has its own fault.
        if kind == "result" {
            continue;
        }
        for spoilt in 0..fields.len() {
            for value in &wrong {
                let mut fields = fields.clone();
                fields[spoilt].1 = value.clone();
                agent.event(kind, &fields)?;
            }
        }
    }
    for kind in [r#"{"type":5}"#, r#"{"type":null}"#, r#"{"type":["init"]}"#, r#"{"type":{}}"#] {
        agent.raw(format!("{kind}\n"))?;
    }
    agent.send_text("All done. 4")?;
    agent.succeed()
}

pub(super) fn wrong_result_types(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    agent.send_text("All done. 4")?;
    let stats = json!({"total_tokens": "many", "input_tokens": [], "models": 3, "tool_calls": {}, "duration_ms": null});
    agent.event("result", &[("status", json!("success")), ("error", json!("none")), ("stats", stats)])?;
    Ok(0)
}

pub(super) fn missing_fields(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    for (kind, fields) in specimens() {
        if kind == "result" {
            continue;
        }
        for left_out in 0..fields.len() {
            let mut fields = fields.clone();
            fields.remove(left_out);
            agent.event(kind, &fields)?;
        }
        agent.raw(format!("{{\"type\":\"{kind}\"}}\n"))?;
    }
    agent.raw("{}\n{\"timestamp\":\"2026-11-15T04:28:24.844Z\"}\n")?;
    agent.send_text("All done. 4")?;
    agent.succeed()
}

pub(super) fn no_stats(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    agent.send_text("All done. 4")?;
    agent.event("result", &[("status", json!("success"))])?;
    Ok(0)
}

pub(super) fn unknown_status(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    agent.send_text("All done. 4")?;
    agent.event("result", &[("status", json!("partial")), ("stats", agent.stats())])?;
    Ok(0)
}

pub(super) fn unknown_events(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    for kind in ["thought", "plan", "usage", "TOOL_USE", "", "heartbeat"] {
        agent.event(kind, &[("content", json!("from a later version")), ("nested", json!({"a": [1, 2]}))])?;
    }
    let extra = [
        ("role", json!("assistant")),
        ("content", json!("with ")),
        ("delta", json!(true)),
        ("later", json!({})),
    ];
    agent.event("message", &extra)?;
    agent
        .event("message", &[("role", json!("system")), ("content", json!("who?")), ("delta", json!(true))])?;
    agent.send_text("All done. 4")?;
    agent.succeed()
}

pub(super) fn not_objects(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    agent.raw("[1,2,3]\n\"text\"\n42\nnull\ntrue\n[]\n[{\"type\":\"init\"}]\n")?;
    agent.send_text("All done. 4")?;
    agent.succeed()
}

pub(super) fn deep_nesting(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    let depth = agent.size("depth", 10_000);
    let (open, close) = ("{\"a\":[".repeat(depth / 2), "]}".repeat(depth / 2));
    let fields = r#""tool_name":"write_file","tool_id":"deep""#;
    agent.raw(format!("{{\"type\":\"tool_use\",{fields},\"parameters\":{{\"p\":{open}1{close}}}}}\n"))?;
    // And one that is never closed.
    agent.raw(format!("{}\n", "[".repeat(depth)))?;
    agent.tool_done("deep")?;
    agent.send_text("All done. 4")?;
    agent.succeed()
}

/// Returns the result with these texts, which need not be JSON, as token counts.
fn with_tokens(agent: &mut FakeAgent, total: &str, input: &str, output: &str) -> io::Result<u8> {
    agent.begin()?;
    agent.send_text("All done. 4")?;
    let counts =
        format!(r#""total_tokens":{total},"input_tokens":{input},"output_tokens":{output},"cached":{input}"#);
    let stats =
        format!(r#"{{{counts},"input":{input},"duration_ms":{total},"tool_calls":{output},"models":{{}}}}"#);
    agent.raw(format!("{{\"type\":\"result\",\"status\":\"success\",\"stats\":{stats}}}\n"))?;
    Ok(0)
}

pub(super) fn huge_numbers(agent: &mut FakeAgent) -> io::Result<u8> {
    with_tokens(agent, "1e400", "18446744073709551616", "123456789012345678901234567890.5")
}

pub(super) fn nan_tokens(agent: &mut FakeAgent) -> io::Result<u8> {
    with_tokens(agent, "NaN", "Infinity", "-Infinity")
}

pub(super) fn negative_tokens(agent: &mut FakeAgent) -> io::Result<u8> {
    with_tokens(agent, "-5", "-1", "-9223372036854775808")
}

pub(super) fn fractional_tokens(agent: &mut FakeAgent) -> io::Result<u8> {
    with_tokens(agent, "125.0", "1e2", "20.5")
}

pub(super) fn stats_disagree(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    agent.write_file("t1")?;
    agent.send_text("All done. 4")?;
    let mut stats = agent.stats();
    stats["total_tokens"] = json!(3);
    stats["cached"] = json!(5_000);
    stats["tool_calls"] = json!(17);
    agent.event("result", &[("status", json!("success")), ("stats", stats)])?;
    Ok(0)
}

pub(super) fn duplicate_keys(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    agent.raw("{\"type\":\"init\",\"type\":\"message\",\"role\":\"assistant\",\"content\":\"a\",\"content\":\"b\",\"delta\":true}\n")?;
    agent.send_text("All done. 4")?;
    let stats = agent.stats();
    agent.raw(format!(
        "{{\"type\":\"result\",\"status\":\"error\",\"status\":\"success\",\"stats\":{stats}}}\n"
    ))?;
    Ok(0)
}

pub(super) fn lone_surrogate(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    for escape in [r"\ud800", r"\udc00 backwards \ud800", r"\ud83e\udd80 is whole", r"\u0000"] {
        agent.raw(format!(
            "{{\"type\":\"message\",\"role\":\"assistant\",\"content\":\"{escape}\",\"delta\":true}}\n"
        ))?;
    }
    agent.send_text("All done. 4")?;
    agent.succeed()
}

pub(super) fn odd_timestamps(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.begin()?;
    for time in
        ["\"\"", "\"yesterday\"", "0", "\"1970-01-01T00:00:00.000Z\"", "\"9999-99-99T99:99:99Z\"", "null"]
    {
        let fields = r#""role":"assistant","content":"tick ","delta":true"#;
        agent.raw(format!("{{\"type\":\"message\",\"timestamp\":{time},{fields}}}\n"))?;
    }
    agent.send_text("All done. 4")?;
    agent.succeed()
}

pub(super) fn other_agents_format(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.read_prompt()?;
    agent.raw(concat!(
        r#"{"type":"system","subtype":"init","session_id":"s","model":"m","tools":[]}"#, "\n",
        r#"{"type":"assistant","message":{"role":"assistant","content":[{"type":"text","text":"All done. 4"}]}}"#, "\n",
        r#"{"type":"result","subtype":"success","is_error":false,"result":"All done. 4","session_id":"s"}"#, "\n",
    ))?;
    Ok(0)
}

pub(super) fn plain_text(agent: &mut FakeAgent) -> io::Result<u8> {
    agent.read_prompt()?;
    agent.raw("All done. 4\n")?;
    Ok(0)
}
