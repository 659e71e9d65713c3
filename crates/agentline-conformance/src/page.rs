//! The matrix as Markdown: a section for each version of an agent. What was not played again stays as it is.

use crate::matrix::{Cell, CellStatus, Matrix};
use crate::scenarios;
use crate::target::TestedSurface;
use std::collections::BTreeMap;
use std::fmt::Write as _;

const PASS: &str = "pass";
const NOT_PLAYED: &str = "not played";

/// Returns the text of a page's generated part with the results of a matrix. `versions` are the agents and versions that
/// the page lists, in order; results that the matrix does not have are those of the earlier text.
#[must_use]
pub fn updated_page(earlier: &str, matrix: &Matrix, versions: &[(String, String)]) -> String {
    let mut sections: BTreeMap<&str, Section> =
        titles_and_bodies(earlier).map(|(title, body)| (title, Section::parse(body))).collect();
    let mut titles: Vec<String> =
        versions.iter().map(|(agent, version)| format!("{agent} {version}")).collect();
    let played: Vec<(String, &Cell)> =
        matrix.cells.iter().map(|cell| (title_of(&cell.target), cell)).collect();
    for (title, cell) in &played {
        sections.entry(title).or_default().put(cell);
        if !titles.contains(title) {
            titles.push(title.clone());
        }
    }
    let mut text = String::new();
    for title in titles {
        let body =
            sections.get(&*title).map_or_else(|| Section::default().to_markdown(), Section::to_markdown);
        let _ = write!(text, "\n### {title}\n\n{body}");
    }
    text
}

fn title_of(target: &TestedSurface) -> String {
    let version = target.version.map_or_else(|| "?".to_owned(), |version| version.to_string());
    format!("{} {version}", target.agent)
}

fn titles_and_bodies(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split("\n### ").skip(1).filter_map(|part| part.split_once("\n\n"))
}

/// The results of one version.
#[derive(Debug, Default)]
struct Section {
    surfaces: Vec<String>,
    /// The content of each cell, by scenario and surface.
    cells: BTreeMap<(String, String), Content>,
}

/// The content of a cell: a word, and reasons that are listed below the table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Content {
    word: String,
    reasons: Vec<String>,
}

impl Content {
    fn new(word: impl Into<String>) -> Self {
        Self { word: word.into(), reasons: Vec::new() }
    }

    fn of(status: &CellStatus) -> Self {
        let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        match status {
            CellStatus::Pass => Self::new(PASS),
            CellStatus::Explained { reasons } => {
                Self { word: "differs".to_owned(), reasons: reasons.iter().map(|r| one_line(r)).collect() }
            }
            CellStatus::NotApplicable { reason } => {
                Self { word: "–".to_owned(), reasons: vec![one_line(reason)] }
            }
            // What was observed can have paths of this machine.
            CellStatus::Fail { differences } => {
                let aspects: Vec<&str> = differences.iter().map(|one| one.aspect.name()).collect();
                Self::new(format!("**FAIL**: {}", aspects.join(", ")))
            }
        }
    }

    /// Reads a cell such as `differs (1) (2)`.
    fn parse(cell: &str, reasons: &[&str]) -> Self {
        let mut word = cell.trim();
        let mut own = Vec::new();
        while let Some((rest, number)) = word.strip_suffix(')').and_then(|rest| rest.rsplit_once(" (")) {
            let reason = number.parse::<usize>().ok().and_then(|number| reasons.get(number.checked_sub(1)?));
            let Some(reason) = reason else { break };
            own.insert(0, (*reason).to_owned());
            word = rest;
        }
        Self { word: word.to_owned(), reasons: own }
    }

    fn is_pass(&self) -> bool {
        self.word == PASS
    }
}

impl Section {
    fn put(&mut self, cell: &Cell) {
        let surface = cell.target.surface.to_string();
        if !self.surfaces.contains(&surface) {
            self.surfaces.push(surface.clone());
        }
        self.cells.insert((cell.scenario.to_owned(), surface), Content::of(&cell.status));
    }

    /// Reads a section that [`Section::to_markdown`] wrote.
    fn parse(body: &str) -> Self {
        let mut section = Self::default();
        let reasons: Vec<&str> = body
            .lines()
            .filter_map(|line| line.split_once(". "))
            .filter(|(number, _)| number.parse::<usize>().is_ok())
            .map(|(_, reason)| reason)
            .collect();
        let mut rows = body.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
        let header = rows.next().unwrap_or_default();
        section.surfaces =
            header.split(" | ").skip(1).map(|name| name.trim_matches('`').to_owned()).collect();
        let mut others = None;
        for row in rows {
            let mut cells = row.split(" | ");
            let name = cells.next().unwrap_or_default();
            if let Some(count) = name.strip_prefix("others (") {
                others = count.strip_suffix(')').and_then(|count| count.parse::<usize>().ok());
                continue;
            }
            for (surface, cell) in section.surfaces.iter().zip(cells) {
                let key = (name.trim_matches('`').to_owned(), surface.clone());
                section.cells.insert(key, Content::parse(cell, &reasons));
            }
        }
        let all = scenarios::all();
        let is_unlisted =
            |name: &&str| !section.surfaces.iter().any(|s| section.cells.contains_key(&key(name, s)));
        let unlisted: Vec<&str> = all.iter().map(|scenario| scenario.name).filter(is_unlisted).collect();
        // With another number, the kit had other scenarios, and it is not known which of them were played.
        if others == Some(unlisted.len()) {
            for name in unlisted {
                for surface in section.surfaces.clone() {
                    section.cells.insert(key(name, &surface), Content::new(PASS));
                }
            }
        }
        section
    }

    /// Returns the table. Scenarios that passed on every surface share a row.
    fn to_markdown(&self) -> String {
        if self.surfaces.is_empty() {
            return "Not played.\n".to_owned();
        }
        let mut reasons: Vec<&str> = Vec::new();
        let mut text = String::from("| scenario |");
        for surface in &self.surfaces {
            let _ = write!(text, " `{surface}` |");
        }
        let _ = writeln!(text, "\n|---|{}", "---|".repeat(self.surfaces.len()));
        let mut passed = 0;
        for scenario in scenarios::all() {
            let cells = self.surfaces.iter().map(|surface| self.cells.get(&key(scenario.name, surface)));
            if cells.clone().all(|cell| cell.is_some_and(Content::is_pass)) {
                passed += 1;
                continue;
            }
            let _ = write!(text, "| `{}` |", scenario.name);
            for cell in cells {
                let _ = write!(text, " {}", cell.map_or(NOT_PLAYED, |cell| &cell.word));
                for reason in cell.iter().flat_map(|cell| &cell.reasons) {
                    let _ = write!(text, " ({})", number(&mut reasons, reason));
                }
                text.push_str(" |");
            }
            text.push('\n');
        }
        if passed > 0 {
            let _ =
                writeln!(text, "| others ({passed}) |{}", format!(" {PASS} |").repeat(self.surfaces.len()));
        }
        for (index, reason) in reasons.iter().enumerate() {
            let _ = writeln!(text, "{}{}. {reason}", if index == 0 { "\n" } else { "" }, index + 1);
        }
        text
    }
}

fn key(scenario: &str, surface: &str) -> (String, String) {
    (scenario.to_owned(), surface.to_owned())
}

/// Returns the number of a reason in the list, and adds it if it is new.
fn number<'a>(reasons: &mut Vec<&'a str>, reason: &'a str) -> usize {
    match reasons.iter().position(|known| *known == reason) {
        Some(index) => index + 1,
        None => {
            reasons.push(reason);
            reasons.len()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expected::{Aspect, Difference};
    use agentline::Surface;
    use agentline::agents::{SurfaceFeatures, Version};

    fn cell(version: Version, surface: Surface, scenario: &'static str, status: CellStatus) -> Cell {
        let target = TestedSurface {
            agent: "mine".to_owned(),
            surface,
            version: Some(version),
            program: "/nowhere".into(),
            features: SurfaceFeatures::default(),
        };
        Cell { target, scenario, status, took_ms: 1 }
    }

    fn versions() -> Vec<(String, String)> {
        [("mine", "2.0.0"), ("mine", "1.0.0"), ("other", "3.0.0")]
            .map(|(agent, version)| (agent.to_owned(), version.to_owned()))
            .into()
    }

    #[test]
    fn version_that_was_played_replaces_its_section_only() {
        let (new, old) = (Version(2, 0, 0), Version(1, 0, 0));
        let reason = CellStatus::NotApplicable { reason: "it has\n  none".into() };
        let first = Matrix {
            cells: vec![
                cell(new, Surface::Acp, "text", CellStatus::Pass),
                cell(new, Surface::Json, "text", CellStatus::Pass),
                cell(new, Surface::Acp, "write", CellStatus::Pass),
                cell(new, Surface::Json, "write", CellStatus::Explained { reasons: vec!["a reason"] }),
                cell(new, Surface::Json, "schema", reason),
            ],
        };
        let page = updated_page("", &first, &versions());
        for line in [
            "### mine 2.0.0",
            "| scenario | `acp` | `json` |",
            "| `write` | pass | differs (2) |",
            "| `schema` | not played | – (1) |",
            "| others (1) | pass | pass |",
            "1. it has none",
            "2. a reason",
        ] {
            assert!(page.lines().any(|found| found == line), "{line}\n{page}");
        }
        assert!(
            page.ends_with("\n### mine 1.0.0\n\nNot played.\n\n### other 3.0.0\n\nNot played.\n"),
            "{page}"
        );

        let differences = vec![Difference::new(Aspect::Verdict, "done", "/tmp/somewhere")];
        let second =
            Matrix { cells: vec![cell(old, Surface::Acp, "text", CellStatus::Fail { differences })] };
        let both = updated_page(&page, &second, &versions());
        let kept = page.split("\n### mine 1.0.0").next().unwrap_or_default();
        assert!(both.starts_with(kept) && both.contains("| `text` | **FAIL**: verdict |"), "{both}");
        assert!(!both.contains("somewhere"), "{both}");
        assert_eq!(updated_page(&both, &Matrix::default(), &versions()), both);
        assert_eq!(
            updated_page(&both, &Matrix::default(), &versions()[2..]),
            "\n### other 3.0.0\n\nNot played.\n"
        );
    }

    #[test]
    fn scenario_that_was_played_again_replaces_its_cell_only() {
        let version = Version(2, 0, 0);
        let play = |surface, status: CellStatus| {
            let names = scenarios::all().into_iter().map(|scenario| scenario.name);
            names.map(move |name| cell(version, surface, name, status.clone())).collect::<Vec<_>>()
        };
        let mut cells = play(Surface::Acp, CellStatus::Pass);
        cells.extend(play(Surface::Json, CellStatus::Pass));
        cells[0].status = CellStatus::Explained { reasons: vec!["one", "two"] };
        let page = updated_page("", &Matrix { cells }, &versions()[..1]);
        let others = scenarios::all().len() - 1;
        assert!(page.contains("| `text` | differs (1) (2) | pass |\n"), "{page}");
        assert!(page.contains(&format!("| others ({others}) | pass | pass |")), "{page}");

        let again =
            vec![cell(version, Surface::Json, "write", CellStatus::Explained { reasons: vec!["two"] })];
        let merged = updated_page(&page, &Matrix { cells: again }, &versions()[..1]);
        for line in
            ["| `text` | differs (1) (2) | pass |", "| `write` | pass | differs (2) |", "1. one", "2. two"]
        {
            assert!(merged.lines().any(|found| found == line), "{line}\n{merged}");
        }
        assert!(merged.contains(&format!("| others ({}) | pass | pass |", others - 1)), "{merged}");

        // The kit has a scenario more than when the page was written.
        let older = page.replace(&format!("others ({others})"), &format!("others ({})", others - 1));
        let unknown = updated_page(&older, &Matrix::default(), &versions()[..1]);
        assert!(unknown.contains("| `write` | not played | not played |"), "{unknown}");
    }
}
