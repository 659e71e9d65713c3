//! The result of the kit: a status for each scenario and target, as text and JSON.

use crate::expected::Difference;
use crate::scenario::Scenario;
use crate::scenarios;
use crate::target::TestedSurface;
use serde::Serialize;
use std::fmt::Write as _;

/// The result of the kit.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Matrix {
    /// One cell for each scenario and target that was played.
    pub cells: Vec<Cell>,
}

/// One scenario on one target.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Cell {
    /// The target.
    #[serde(flatten)]
    pub target: TestedSurface,
    /// The name of the scenario.
    pub scenario: &'static str,
    /// The result.
    #[serde(flatten)]
    pub status: CellStatus,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
}

/// The result of one scenario on one target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "status", rename_all = "snake_case")]
#[non_exhaustive]
pub enum CellStatus {
    /// Everything was as expected.
    Pass,
    /// The differences are known exceptions.
    Explained {
        /// The reasons of the exceptions.
        reasons: Vec<&'static str>,
    },
    /// The agent cannot play the scenario.
    NotApplicable {
        /// Why not.
        reason: String,
    },
    /// Something was not as expected.
    Fail {
        /// What was not.
        differences: Vec<Difference>,
    },
}

impl CellStatus {
    /// Returns the word for the status in a table.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Explained { .. } => "explained",
            Self::NotApplicable { .. } => "n/a",
            Self::Fail { .. } => "FAIL",
        }
    }
}

impl Matrix {
    /// Returns the cells that failed.
    pub fn failures(&self) -> impl Iterator<Item = &Cell> {
        self.cells.iter().filter(|cell| matches!(cell.status, CellStatus::Fail { .. }))
    }

    /// Returns whether no cell failed.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.failures().next().is_none()
    }

    /// Returns the number of cells with each status, in one line.
    #[must_use]
    pub fn summary(&self) -> String {
        let count = |word| self.cells.iter().filter(|cell| cell.status.word() == word).count();
        format!(
            "{} passed, {} explained, {} not applicable, {} failed",
            count("pass"),
            count("explained"),
            count("n/a"),
            count("FAIL")
        )
    }

    /// Returns the table as text, followed by the details of everything that did not pass.
    #[must_use]
    pub fn to_text(&self) -> String {
        let targets = self.targets();
        let mut rows: Vec<Vec<String>> =
            ["agent", "surface", "version"].map(|name| vec![name.to_owned()]).into();
        for target in &targets {
            rows[0].push(target.agent.clone());
            rows[1].push(target.surface.to_string());
            rows[2].push(target.version.map_or_else(|| "?".to_owned(), |version| version.to_string()));
        }
        for scenario in self.scenarios() {
            let words = targets
                .iter()
                .map(|target| self.cell(scenario.name, target).map_or("", |cell| cell.status.word()));
            rows.push(std::iter::once(scenario.name).chain(words).map(str::to_owned).collect());
        }
        let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..=targets.len()).map(width).collect();
        let mut text = String::new();
        for row in &rows {
            let cells: Vec<String> =
                row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
            let _ = writeln!(text, "{}", cells.join("  ").trim_end());
        }
        let _ = writeln!(text, "\n{}", self.summary());
        for cell in &self.cells {
            self.details(cell, &mut text);
        }
        text
    }

    fn details(&self, cell: &Cell, text: &mut String) {
        let name = format!("{} on {}", cell.scenario, cell.target);
        match &cell.status {
            CellStatus::Pass | CellStatus::NotApplicable { .. } => {}
            CellStatus::Explained { reasons } => {
                let _ = writeln!(text, "explained: {name}: {}", reasons.join("; "));
            }
            CellStatus::Fail { differences } => {
                let _ = writeln!(text, "FAILED: {name}");
                for difference in differences {
                    let Difference { aspect, expected, observed } = difference;
                    let name = aspect.name();
                    let _ = writeln!(text, "  {name}: expected {expected}");
                    let _ = writeln!(text, "  {:width$}  observed {observed}", "", width = name.len());
                }
            }
        }
    }

    /// Returns the targets in their order.
    #[must_use]
    pub fn targets(&self) -> Vec<&TestedSurface> {
        let mut targets: Vec<&TestedSurface> = Vec::new();
        for cell in &self.cells {
            if !targets.iter().any(|target| is_same(target, &cell.target)) {
                targets.push(&cell.target);
            }
        }
        targets
    }

    fn scenarios(&self) -> Vec<Scenario> {
        let is_played = |scenario: &Scenario| self.cells.iter().any(|cell| cell.scenario == scenario.name);
        scenarios::all().into_iter().filter(is_played).collect()
    }

    fn cell(&self, scenario: &str, target: &TestedSurface) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.scenario == scenario && is_same(&cell.target, target))
    }
}

fn is_same(one: &TestedSurface, other: &TestedSurface) -> bool {
    one.is_same_surface(other) && one.version == other.version
}
