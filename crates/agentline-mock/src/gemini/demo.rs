//! The script of `agentline demo`: a short task with everything that a run can show.

use serde_json::json;

use super::{GeminiPart, GeminiStep, GeminiTokens, Script};

/// Returns the demo script: a program is written and corrected, a missing file is read, a command runs, and an answer
/// is streamed.
///
/// It leaves `primes.py` and `SUMMARY.txt` in the working directory. The tools and their parameters are those of Gemini
/// CLI 0.61.0; the command works in a POSIX shell and in PowerShell.
pub fn demo_script() -> Script {
    let program = "def primes(limit):\n    found = []\n    for n in range(1, limit):\n        if all(n % p for p in found):\n            found.append(n)\n    return found\n\nprint(primes(50))\n";
    Script::new([
        GeminiStep::thought("**Planning** A small program, a check, and a summary.")
            .and_text("I will write a small program that ")
            .and_text("prints the primes below 50.")
            .and_call("write_file", json!({"file_path": "primes.py", "content": program}))
            .chunk_delay(120)
            .usage(tokens(8_200, 160, 0, 40)),
        GeminiStep::thought("**Checking** 1 is not a prime.")
            .and_text("The range starts at 1, which is not a prime. I will correct that.")
            .and_call(
                "replace",
                json!({
                    "file_path": "primes.py",
                    "instruction": "Start at 2, because 1 is not a prime.",
                    "old_string": "range(1, limit)",
                    "new_string": "range(2, limit)",
                }),
            )
            .chunk_delay(120)
            .usage(tokens(8_420, 90, 8_100, 25)),
        GeminiStep::text("Is there a list of wishes for the output?")
            .and_call("read_file", json!({"file_path": "WISHES.txt"}))
            .chunk_delay(120)
            .usage(tokens(8_560, 30, 8_300, 10)),
        GeminiStep::text("There is none, so I keep it simple and leave a note.")
            .and_call(
                "run_shell_command",
                json!({
                    "command": "echo 'primes.py prints the primes below 50.' > SUMMARY.txt",
                    "description": "Leave a one-line summary next to the program",
                }),
            )
            .chunk_delay(120)
            .usage(tokens(8_650, 45, 8_500, 10)),
        GeminiStep::chunks(
            [
                "Done. ",
                "`primes.py` prints the primes ",
                "below 50, ",
                "and `SUMMARY.txt` says so. ",
                "I asked for ",
            ]
            .into_iter()
            .chain(["`WISHES.txt` too, ", "but there is no such file."])
            .map(|text| GeminiPart::Text(text.to_owned())),
        )
        .chunk_delay(80)
        .usage(tokens(8_760, 50, 8_600, 15)),
    ])
}

fn tokens(prompt: u64, candidates: u64, cached: u64, thoughts: u64) -> GeminiTokens {
    GeminiTokens { prompt, candidates, cached, thoughts, total: None }
}
