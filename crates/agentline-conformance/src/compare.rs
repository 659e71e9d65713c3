//! Compares what was observed with what a scenario expects.

use crate::bench::Scene;
use crate::expected::{Aspect, Difference, Expected};
use crate::observed::Observed;
use crate::processes;
use agentline::events::Event;
use agentline::{Tokens, Verdict};
use agentline_mock::agents::ServedRequest;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Debug;

/// Returns every difference.
pub(crate) fn differences(scene: &Scene, expected: &Expected, observed: &Observed) -> Vec<Difference> {
    let mut found = Differences(Vec::new());
    let outcome = &observed.outcome;
    let kind = outcome.error.as_ref().map(|error| error.kind);
    let message = outcome.error.as_ref().map_or("", |error| error.message.as_str());
    if outcome.verdict != expected.verdict {
        let observed = format!("{} ({kind:?}: {message})", outcome.verdict.name());
        found.add(Aspect::Verdict, expected.verdict.name(), observed);
    } else {
        found.equal(Aspect::ExitCode, &expected.exit, &outcome.verdict.exit_code());
        if expected.kind.is_some() && kind != expected.kind {
            found.add(Aspect::Kind, format!("{:?}", expected.kind), format!("{kind:?}: {message}"));
        }
    }
    if let Some(text) = &expected.text {
        found.equal(Aspect::Text, text, &outcome.text);
    }
    if let Some(thinking) = &expected.thinking {
        // Some agents add a heading to the reasoning.
        if !observed.thinking().contains(thinking.as_str()) {
            found.add(Aspect::Thinking, thinking, observed.thinking());
        }
    }
    if let Some(tools) = &expected.tools {
        let expected: Vec<_> = tools.iter().map(|(name, status)| (name.clone(), Some(*status))).collect();
        if expected != observed.tools() {
            let results = observed.tool_results().join("; ");
            found.add(Aspect::Tools, format!("{expected:?}"), format!("{:?}: {results}", observed.tools()));
        }
    }
    let denied: Vec<String> = outcome.denied.iter().map(|denial| denial.tool.clone()).collect();
    found.equal(Aspect::Denied, &expected.denied, &denied);
    let row = |path: &str, change| (path.to_owned(), format!("{change:?}"));
    let files: BTreeMap<_, _> = outcome.files.iter().map(|file| row(&file.path, file.change)).collect();
    if let Some(expected) = &expected.files {
        let expected: BTreeMap<_, _> = expected.iter().map(|(path, change)| row(path, *change)).collect();
        found.equal(Aspect::Files, &expected, &files);
    }
    for (path, content) in &expected.disk {
        let named = |content: &Option<String>| format!("{path}: {content:?}");
        found.equal(Aspect::Disk, &named(content), &named(&scene.read(path)));
    }
    if let Some(value) = &expected.output {
        let output = outcome.output.as_ref().and_then(|raw| serde_json::from_str::<Value>(raw.get()).ok());
        found.equal(Aspect::Output, &Some(value.clone()), &output);
    }
    served(&mut found, expected, observed);
    if expected.tokens {
        tokens(&mut found, scene, observed);
    }
    if expected.model {
        model(&mut found, observed);
    }
    events(&mut found, observed);
    if let (Some(within), Some(took)) = (expected.within, observed.after_request)
        && took > within
    {
        found.add(Aspect::Time, format!("at most {within:?}"), format!("{took:.1?}"));
    }
    if let Some(command) = &expected.no_process
        && processes::is_running(command)
    {
        found.add(Aspect::Processes, "no process", format!("`{command}` is still running"));
    }
    found.0
}

struct Differences(Vec<Difference>);

impl Differences {
    fn add(&mut self, aspect: Aspect, expected: impl Into<String>, observed: impl Into<String>) {
        self.0.push(Difference::new(aspect, expected, observed));
    }

    fn equal<T: PartialEq + Debug>(&mut self, aspect: Aspect, expected: &T, observed: &T) {
        if expected != observed {
            self.add(aspect, format!("{expected:?}"), format!("{observed:?}"));
        }
    }
}

/// Compares the requests that reached the model.
fn served(found: &mut Differences, expected: &Expected, observed: &Observed) {
    let turns = observed.turns().count();
    if let Some(count) = expected.turns {
        found.equal(Aspect::Requests, &count, &turns);
    }
    if let Some(most) = expected.max_turns
        && turns > most
    {
        found.add(Aspect::Requests, format!("at most {most}"), turns.to_string());
    }
    for text in &expected.reaches_model {
        if !observed.turns().any(|request| request.body.to_string().contains(text)) {
            found.add(Aspect::Model, format!("a request with `{text}`"), "none");
        }
    }
    for tool in &expected.offers {
        let offered =
            observed.turns().next().map(|request| request.offered_tools.clone()).unwrap_or_default();
        if !offered.iter().any(|name| name.ends_with(tool.as_str())) {
            found.add(Aspect::Offered, tool, offered.join(", "));
        }
    }
}

/// Compares the tokens of the outcome with those of the model's own log, of all requests of the run.
fn tokens(found: &mut Differences, scene: &Scene, observed: &Observed) {
    let counts_reasoning = scene.bench.scripted.counts_reasoning;
    let all = logged(observed.log.iter(), counts_reasoning);
    let own = token_list(&observed.outcome.usage.tokens);
    if own == token_list(&all) {
        return;
    }
    let helpers = observed.log.iter().filter(|request| !request.is_turn).count();
    if helpers > 0 && own == token_list(&logged(observed.turns(), counts_reasoning)) {
        let missing = format!("{helpers} requests for the agent's own purposes are not counted");
        found.add(Aspect::OwnRequests, token_list(&all), missing);
    } else {
        found.add(Aspect::Tokens, token_list(&all), own);
    }
}

/// Returns the sum of the tokens that the model reported for these requests.
fn logged<'a>(requests: impl Iterator<Item = &'a ServedRequest>, counts_reasoning: bool) -> Tokens {
    let (mut input, mut output, mut cached, mut reasoning) = (0, 0, 0, 0);
    for tokens in requests.filter_map(|request| request.tokens.as_ref()) {
        input += tokens.input;
        output += tokens.output;
        cached += tokens.cached;
        reasoning += tokens.reasoning;
    }
    let thoughts = counts_reasoning.then_some(reasoning);
    Tokens {
        input: Some(input),
        output: Some(output - thoughts.unwrap_or(0)),
        cached: Some(cached),
        thoughts,
        total: Some(input + output),
        ..Tokens::default()
    }
}

fn token_list(tokens: &Tokens) -> String {
    let numbers = [
        ("input", tokens.input),
        ("output", tokens.output),
        ("cached", tokens.cached),
        ("thoughts", tokens.thoughts),
        ("total", tokens.total),
    ];
    let number = |(name, number): (&str, Option<u64>)| {
        format!("{name} {}", number.map_or_else(|| "unknown".to_owned(), |number| number.to_string()))
    };
    numbers.map(number).join(", ")
}

/// Compares the model of the outcome with the one that answered.
fn model(found: &mut Differences, observed: &Observed) {
    let Some(ran) = observed.turns().last().map(|request: &ServedRequest| request.model.as_str()) else {
        return;
    };
    let named = observed.outcome.model.as_deref().unwrap_or("none");
    // Some agents put the name of the service before it.
    if named != ran && !named.ends_with(&format!("/{ran}")) {
        found.add(Aspect::ModelName, ran, named);
    }
}

/// Checks the promises about events that hold for every run.
fn events(found: &mut Differences, observed: &Observed) {
    let records = &observed.records;
    if !records.first().is_some_and(|record| matches!(record.event, Event::Started(_))) {
        found.add(
            Aspect::Events,
            "`started` first",
            records.first().map_or("nothing", |r| r.event.type_word()),
        );
    }
    if records.windows(2).any(|pair| pair[1].seq != pair[0].seq + 1) {
        found.add(Aspect::Events, "consecutive numbers", "a gap");
    }
    if let Some((name, _)) = observed.tools().iter().find(|(_, status)| status.is_none()) {
        found.add(Aspect::Events, "a result for each tool call", format!("none for `{name}`"));
    }
    if observed.outcome.unreadable_lines > 0 {
        found.add(
            Aspect::Events,
            "readable lines",
            format!("{} unreadable", observed.outcome.unreadable_lines),
        );
    }
    let is_done = matches!(observed.outcome.verdict, Verdict::Done | Verdict::DoneWithDenials);
    if is_done && !observed.streamed_text().contains(observed.outcome.text.trim()) {
        found.add(Aspect::Events, "text events with the answer", observed.streamed_text());
    }
}
