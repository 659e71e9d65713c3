//! Serves a script until standard input ends, then prints the requests: `play_script demo` or `play_script FILE`.

use std::io::{self, Read, Write};

use agentline_mock::gemini::{self, GeminiModel, Script};

fn main() -> io::Result<()> {
    let script = match std::env::args().nth(1).as_deref() {
        None | Some("demo") => gemini::demo_script(),
        Some(file) => serde_json::from_slice::<Script>(&std::fs::read(file)?)?,
    };
    let model = GeminiModel::start(script)?;
    let mut out = io::stdout();
    writeln!(out, "{}", model.url())?;
    out.flush()?;
    io::stdin().read_to_end(&mut Vec::new())?;
    for request in model.requests() {
        let (at, purpose, path) = (request.at_ms, request.purpose, &request.path);
        let tools = request.offered_tools().join(",");
        writeln!(out, "{at:>6} ms  {purpose:?}  {path}  turn {}  tools [{tools}]", request.turn())?;
    }
    Ok(())
}
