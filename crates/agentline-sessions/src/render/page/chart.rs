//! A chart of the tokens of every answer, with input above the line and output below it.

use super::escape;
use crate::render::{facts::grouped, text::spent};
use agentline_core::Tokens;
use std::io::{self, Write};

/// The maximum number of bars. With more answers, a bar stands for several.
const MOST_BARS: usize = 120;
/// The height of the input part, in the chart's own units.
const ABOVE: f64 = 78.0;
/// The height of the output part.
const BELOW: f64 = 40.0;
/// The width of a bar with its gap.
const STEP: f64 = 10.0;

/// The position and tokens of one answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChartTurn {
    /// The number of the entry.
    pub(super) entry: usize,
    /// The tokens of the answer.
    pub(super) tokens: Tokens,
}

/// One bar of the chart.
struct Bar {
    entry: usize,
    first: usize,
    last: usize,
    tokens: Tokens,
}

/// Writes the chart, unless there are fewer than two answers.
pub(super) fn chart(out: &mut dyn Write, turns: &[ChartTurn]) -> io::Result<()> {
    if turns.len() < 2 {
        return Ok(());
    }
    let bars = bars(turns);
    let most_in = bars.iter().map(|bar| bar.tokens.input.unwrap_or(0)).max().unwrap_or(0).max(1);
    let most_out = bars.iter().map(|bar| bar.tokens.produced()).max().unwrap_or(0).max(1);
    let width = (bars.len().max(16)) as f64 * STEP;
    let height = ABOVE + BELOW;
    writeln!(
        out,
        "<figure class=chart><figcaption>Tokens per turn\
         <span class=key><i class=kf></i>new input</span><span class=key><i class=kc></i>cached input</span>\
         <span class=key><i class=ko></i>output</span><span class=key><i class=kt></i>thoughts</span></figcaption>\
         <div class=plot><span class=top>{}</span><span class=bottom>{}</span>\
         <svg viewBox=\"0 0 {width} {height}\" preserveAspectRatio=none role=img aria-label=\"Tokens per turn\">",
        grouped(most_in),
        grouped(most_out)
    )?;
    for (i, bar) in bars.iter().enumerate() {
        let x = i as f64 * STEP + 1.0;
        let named = if bar.first == bar.last {
            format!("Turn {}", bar.first)
        } else {
            format!("Turns {} to {}", bar.first, bar.last)
        };
        write!(out, "<a href=\"#e{}\"><title>", bar.entry)?;
        escape::attribute(out, &format!("{named}: {}", spent(&bar.tokens)))?;
        write!(
            out,
            "</title><rect class=hit x=\"{}\" y=\"0\" width=\"{STEP}\" height=\"{height}\"/>",
            x - 1.0
        )?;
        let (input, cached) = (bar.tokens.input.unwrap_or(0), bar.tokens.cached.unwrap_or(0));
        let cached = cached.min(input);
        let scale = |n: u64, most: u64, room: f64| n as f64 / most as f64 * (room - 2.0);
        let (fresh_height, cached_height) =
            (scale(input - cached, most_in, ABOVE), scale(cached, most_in, ABOVE));
        rect(out, "kc", x, ABOVE - 1.0 - cached_height, cached_height)?;
        rect(out, "kf", x, ABOVE - 1.0 - cached_height - fresh_height, fresh_height)?;
        let output = scale(bar.tokens.output.unwrap_or(0), most_out, BELOW);
        let thoughts = scale(bar.tokens.thoughts.unwrap_or(0), most_out, BELOW);
        rect(out, "ko", x, ABOVE + 1.0, output)?;
        rect(out, "kt", x, ABOVE + 1.0 + output, thoughts)?;
        writeln!(out, "</a>")?;
    }
    writeln!(out, "<line x1=0 x2={width} y1={ABOVE} y2={ABOVE} /></svg></div></figure>")
}

fn rect(out: &mut dyn Write, class: &str, x: f64, y: f64, height: f64) -> io::Result<()> {
    if height <= 0.0 {
        return Ok(());
    }
    let width = STEP - 2.0;
    write!(out, "<rect class={class} x=\"{x:.1}\" y=\"{y:.2}\" width=\"{width}\" height=\"{height:.2}\"/>")
}

/// Groups answers into at most `MOST_BARS` bars.
fn bars(turns: &[ChartTurn]) -> Vec<Bar> {
    let each = turns.len().div_ceil(MOST_BARS);
    let chunks = turns.chunks(each).enumerate();
    chunks
        .map(|(i, chunk)| Bar {
            entry: chunk[0].entry,
            first: i * each + 1,
            last: i * each + chunk.len(),
            tokens: chunk.iter().fold(Tokens::default(), |sum, turn| sum.plus(turn.tokens)),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chart_groups_many_turns_into_few_bars() {
        let tokens = Tokens { input: Some(2), output: Some(1), ..Tokens::default() };
        let turns: Vec<ChartTurn> = (0..500).map(|entry| ChartTurn { entry, tokens }).collect();
        let bars = bars(&turns);
        let total: u64 = bars.iter().filter_map(|bar| bar.tokens.input).sum();
        assert!(bars.len() <= MOST_BARS && total == 1000 && bars.last().is_some_and(|bar| bar.last == 500));
        let mut out = Vec::new();
        chart(&mut out, &turns[..1]).unwrap();
        assert!(out.is_empty());
    }
}
