//! `quell bench`: the workloads of `quell-bench` on this machine, as a table or as JSON.

use std::path::PathBuf;

use clap::Args;
use clap::builder::PossibleValuesParser;
use quell_bench::{Figure, Options, WORKLOADS};

use crate::args::Form;
use crate::failure::{self, Failure};
use crate::output::{self, Columns, cell};

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// What to measure; all of it when left out
    #[arg(value_name = "WORKLOAD", value_parser = PossibleValuesParser::new(WORKLOADS))]
    workloads: Vec<String>,
    /// Where the files are made: the disk of this folder is measured
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    folder: PathBuf,
    /// Events of the workload `jobs`
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    jobs: usize,
    #[command(flatten)]
    form: Form,
}

pub(crate) async fn run(args: &BenchArgs) -> Result<u8, Failure> {
    if cfg!(debug_assertions) {
        output::say("this is a debug build; figures of `cargo run --release -- bench` say more");
    }
    let options = Options { folder: args.folder.clone(), jobs: args.jobs, workloads: args.workloads.clone() };
    let figures = quell_bench::run(&options, |what| output::say(what))
        .await
        .map_err(|error| Failure::new(failure::FAILED, format!("{error:#}")))?;
    if args.form.json {
        output::json(&serde_json::json!({ "items": figures, "next": null }))?;
    } else {
        table(&figures).write()?;
    }
    Ok(0)
}

fn table(figures: &[Figure]) -> Columns {
    let names = ["WORKLOAD", "WHAT", "VALUE", "UNIT", "RAW", "OF RAW", "WANTED", "REACHED"];
    let mut table = Columns::new(&names).right(2).right(4).right(5);
    for figure in figures {
        table.row([
            cell(figure.workload),
            cell(&figure.what),
            cell(number(figure.value)),
            cell(figure.unit),
            cell(output::or_dash(figure.raw.map(number))),
            cell(output::or_dash(figure.ratio.map(|ratio| format!("{:.0} %", ratio * 100.0)))),
            cell(output::or_dash(figure.target)),
            cell(output::or_dash(figure.reached.map(|reached| if reached { "yes" } else { "no" }))),
        ]);
    }
    table
}

/// Three digits that mean something.
fn number(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits() {
        let shown: Vec<String> = [0.123, 1.5, 12.34, 123.4, 45_678.9].into_iter().map(number).collect();
        assert_eq!(shown, ["0.12", "1.50", "12.3", "123", "45679"]);
    }
}
