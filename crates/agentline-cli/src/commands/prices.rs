//! `agentline prices`: shows token prices, their date, and which are from the settings.

use crate::{
    error::CommandError,
    exit,
    output::ReportFormat,
    render::table::{Column, Table},
    setup::{Setup, prices_flag},
    ui::Ui,
};
use agentline::PriceTable;
use agentline_core::Price;
use clap::Args;
use serde::Serialize;
use std::{io::Write, path::PathBuf};

#[derive(Debug, Args)]
pub(crate) struct PricesArgs {
    /// Only this model, by its id or the id of one of its releases
    model: Option<String>,
    /// Workspace whose settings apply [default: the current directory]
    #[arg(short = 'C', long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// TOML file with prices that override the built-in ones
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: ReportFormat,
}

/// One row of the JSON output.
#[derive(Serialize)]
struct Row<'a> {
    model: &'a str,
    #[serde(flatten)]
    price: &'a Price,
    /// The maker of the model, or null for a price from the settings.
    maker: Option<&'a str>,
    as_of: Option<&'a str>,
    source: &'a str,
    /// Whether the price is from the settings.
    overridden: bool,
}

const USER_SETTINGS: &str = "your settings";

pub(crate) fn run(ui: &mut Ui, args: &PricesArgs) -> Result<u8, CommandError> {
    let table = Setup::read(args.cwd.as_deref(), prices_flag(args.prices.as_deref()))?.config()?.prices();
    let mut rows: Vec<Row<'_>> = match &args.model {
        Some(model) => match table.row(model) {
            Some((id, price)) => vec![row(&table, id, price)],
            None => {
                let hint = format!("set a price in agentline.toml: [prices.models.\"{model}\"]");
                ui.error(&format!("no price is known for `{model}`"), Some(&hint));
                return Ok(exit::FAILED);
            }
        },
        None => table.models.iter().map(|(id, price)| row(&table, id, price)).collect(),
    };
    rows.sort_by_key(|row| (row.maker, row.model));
    match args.output {
        ReportFormat::Json => writeln!(ui.out(), "{}", serde_json::to_string(&rows).unwrap_or_default())?,
        ReportFormat::Text => show(ui, &rows)?,
    }
    Ok(exit::DONE)
}

fn row<'a>(table: &'a PriceTable, model: &'a str, price: &'a Price) -> Row<'a> {
    let from = table.source(model);
    Row {
        model,
        price,
        maker: from.map(|from| from.maker.as_str()),
        as_of: from.map(|from| from.as_of.as_str()),
        source: from.map_or(USER_SETTINGS, |from| from.source.as_str()),
        overridden: from.is_none(),
    }
}

/// Writes a line for each price, another for long prompts, and the sources at the end.
fn show(ui: &mut Ui, rows: &[Row<'_>]) -> Result<(), CommandError> {
    let numbers = ["input", "cached", "write", "write 1h", "output"].map(Column::right);
    let columns = std::iter::once(Column::left("US dollars")).chain(numbers).chain([Column::left("date")]);
    let mut table = Table::new(columns.collect());
    let mut add = |name: &str, prices: [Option<f64>; 5], date: &str| {
        let cells = std::iter::once(name.to_owned()).chain(prices.map(dollars)).chain([date.to_owned()]);
        table.row(cells.collect());
    };
    for row in rows {
        let Price { input, output, cached, cache_write, cache_write_long, long } = *row.price;
        let date = row.as_of.unwrap_or(USER_SETTINGS);
        add(row.model, [Some(input), cached, cache_write, cache_write_long, Some(output)], date);
        if let Some(long) = long {
            let prices =
                [Some(long.input), long.cached, long.cache_write, long.cache_write_long, Some(long.output)];
            add(&format!("  > {}", long.above), prices, "");
        }
    }
    let width = ui.width();
    table.write(ui, width)?;
    let mut sources: Vec<(&str, &str)> =
        rows.iter().filter_map(|row| Some((row.maker?, row.source))).collect();
    sources.dedup();
    ui.report(
        "\nPrices are per million tokens. Rows with `>` apply to all tokens of a request with a longer prompt."
    )?;
    for (maker, source) in sources {
        ui.report(&format!("{maker}: {source}"))?;
    }
    Ok(())
}

/// Formats a price with at least two decimals and no trailing zeros beyond them.
fn dollars(usd: Option<f64>) -> String {
    let Some(usd) = usd else { return "-".to_owned() };
    let digits = format!("{usd:.6}");
    let short = digits.trim_end_matches('0');
    let behind = short.len() - short.find('.').map_or(short.len(), |at| at + 1);
    format!("{usd:.*}", behind.max(2))
}

#[cfg(test)]
mod tests {
    use super::dollars;

    #[test]
    fn prices_are_formatted_like_vendor_price_lists() {
        let written = [0.0, 2.0, 12.5, 0.125, 0.005, 168.0, 0.0375].map(|usd| dollars(Some(usd)));
        assert_eq!(written, ["0.00", "2.00", "12.50", "0.125", "0.005", "168.00", "0.0375"]);
        assert_eq!(dollars(None), "-");
    }
}
