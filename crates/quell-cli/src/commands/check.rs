//! `quell check`: what is in force and where it came from, or what is wrong and how to mend it, and whether the secrets
//! are where the settings say. Opens no store.

use clap::Args;
use quell::config::{self, Flags};
use quell::{endpoints, handlers};

use crate::args::{Form, Global};
use crate::context;
use crate::failure::Failure;
use crate::output::{self, Columns, cell};
use crate::times;
use crate::transcripts;

const VALUE_CHARS: usize = 100;

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Print the JSON Schema of quell.toml, for editors
    #[arg(long, conflicts_with = "json")]
    schema: bool,
    #[command(flatten)]
    form: Form,
}

pub(crate) fn run(args: &CheckArgs, global: &Global) -> Result<u8, Failure> {
    if args.schema {
        let schema = serde_json::to_string_pretty(&config::json_schema()).map_err(std::io::Error::other)?;
        output::line(schema)?;
        return Ok(0);
    }
    let loaded = context::load(global, Flags::default())?;
    // A pattern of what must not be stored is either right or no pattern.
    transcripts::wishes(&loaded)?;
    let settings = &loaded.settings;
    let mut warnings = settings.warnings.clone();
    warnings.extend(handlers::problems(settings, &loaded.env));
    match endpoints::ready(settings, &loaded.env) {
        Ok((_, suspicious)) => warnings.extend(suspicious),
        Err(error) => warnings.push(format!("{error}, so a server with this environment does not start")),
    }
    let file = loaded.file.as_ref().map(|path| path.display().to_string());
    if args.form.json {
        output::json(&serde_json::json!({
            "file": file,
            "items": settings.explain(),
            "warnings": warnings,
            "next": null,
        }))?;
        return Ok(0);
    }
    let mut table = Columns::new(&["SETTING", "VALUE", "FROM"]);
    for line in settings.explain() {
        let from = loaded.told(&line.origin);
        table.row([cell(&line.setting), cell(times::one_line(&line.value, VALUE_CHARS)), cell(from)]);
    }
    table.write()?;
    for warning in &warnings {
        output::say(format!("warning: {warning}"));
    }
    match file {
        Some(file) => output::say(format!("{file} is fine")),
        None => output::say(
            "no quell.toml here: any queue name exists, with these defaults; `quell init` writes one",
        ),
    }
    Ok(0)
}
