//! `quell prices source add`: a section at the end of the configuration, checked as the whole file before a byte is changed.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use quell::config::{Config, Env, Flags, Settings, SettingsInput, SourceText};
use quell::quell_core::event::{SourceName, Tenant};
use quell::quell_core::store::SourceScope;

use crate::args::{ByHand, Global};
use crate::commands::prices::pair;
use crate::context::{self, CONFIG_NAME, Loaded};
use crate::failure::{self, Failure};
use crate::output;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum AdapterName {
    /// Any service that answers with JSON
    Json,
    /// The Browse API of eBay
    Ebay,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  quell prices source add shop --url 'https://api.example.com/search?q={query}&page={page}' \\
       --items /results --title /name --price /price --id /sku --currency USD --price-type ask --paging page
  quell prices source add ebay --adapter ebay --client-id-env EBAY_ID --client-secret-env EBAY_SECRET

Everything else that a source can be told is in docs/reference/configuration.md: edit the section that this writes.")]
pub(in crate::commands::prices) struct AddArgs {
    /// Its name, also of the section [sources.NAME] that governs it
    name: String,
    /// How it is asked
    #[arg(long, value_enum, default_value_t = AdapterName::Json)]
    adapter: AdapterName,
    /// Where a page is found: {query}, {year}, {page} and so on stand for values
    #[arg(long, value_name = "TEMPLATE")]
    url: Option<String>,
    /// The list of items in an answer, a JSON pointer
    #[arg(long, value_name = "POINTER")]
    items: Option<String>,
    /// The id of an item
    #[arg(long, value_name = "POINTER")]
    id: Option<String>,
    /// The title of an item
    #[arg(long, value_name = "POINTER")]
    title: Option<String>,
    /// The price of an item
    #[arg(long, value_name = "POINTER")]
    price: Option<String>,
    /// The URL of an item
    #[arg(long, value_name = "POINTER")]
    link: Option<String>,
    /// The day of an item
    #[arg(long, value_name = "POINTER")]
    date: Option<String>,
    /// The currency of an item, where it says it
    #[arg(long, value_name = "POINTER")]
    currency_field: Option<String>,
    /// What all prices are in
    #[arg(long, value_name = "CODE")]
    currency: Option<String>,
    /// What prices mean: sold, ask or bid
    #[arg(long, value_name = "TYPE", default_value = "ask")]
    price_type: String,
    /// How pages are counted: none, page, offset or next
    #[arg(long, value_name = "WAY")]
    paging: Option<String>,
    /// Items of a page
    #[arg(long, value_name = "N")]
    page_size: Option<u32>,
    /// A header of each request, where {secret} stands for the secret; may be given several times
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = pair)]
    headers: Vec<(String, String)>,
    /// The environment variable with the secret
    #[arg(long, value_name = "NAME")]
    secret_env: Option<String>,
    /// eBay: the environment variable with the client id
    #[arg(long, value_name = "NAME")]
    client_id_env: Option<String>,
    /// eBay: the environment variable with the client secret
    #[arg(long, value_name = "NAME")]
    client_secret_env: Option<String>,
    /// Show the section and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    by: ByHand,
}

pub(in crate::commands::prices) async fn add(args: AddArgs, global: &Global) -> Result<u8, Failure> {
    let name = SourceName::new(&args.name)?;
    let path = global.config.clone().unwrap_or_else(|| PathBuf::from(CONFIG_NAME));
    let before = match std::fs::read_to_string(&path) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => {
            return Err(Failure::new(failure::USAGE, format!("cannot read {}: {error}", path.display())));
        }
    };
    let section = section(&name, &args);
    let after = joined(before.as_deref().unwrap_or_default(), &section);
    let settings = checked(&path, &after, global)?;
    if args.dry_run {
        output::text(&section)?;
        return Ok(0);
    }
    write_whole(&path, &after)?;
    let engine =
        context::open_now(&Loaded { settings, file: Some(path.clone()), env: Env::from_process() }).await?;
    engine.apply_sources().await?;
    let scope = SourceScope { tenant: Tenant::none(), name: name.clone() };
    engine.disable_source(scope, &context::actor(&args.by)).await?;
    let shown = path.display();
    output::line(match before {
        Some(_) => format!("added [prices.sources.{name}] to {shown}"),
        None => format!(
            "wrote {shown} with [prices.sources.{name}]; other queues must be named there from now on"
        ),
    })?;
    output::say(format!(
        "it is disabled: when its terms allow to ask it and to keep its prices, `quell prices source enable {name}`, then \
         `quell prices source test {name} --title …`. Processes that run read the file again after `kill -HUP`."
    ));
    Ok(0)
}

/// The section as it is written into the file.
fn section(name: &SourceName, args: &AddArgs) -> String {
    let text = |value: &str| toml::Value::String(value.to_owned()).to_string();
    let mut out = format!("[prices.sources.{}]\n", key(name.as_str()));
    let mut put = |setting: &str, value: Option<String>| {
        if let Some(value) = value {
            let _ = writeln!(out, "{setting} = {value}");
        }
    };
    match args.adapter {
        AdapterName::Ebay => {
            put("adapter", Some(text("ebay")));
            put("client_id_env", args.client_id_env.as_deref().map(text));
            put("client_secret_env", args.client_secret_env.as_deref().map(text));
            put("url", args.url.as_deref().map(text));
            put("currency", args.currency.as_deref().map(text));
        }
        AdapterName::Json => {
            put("url", args.url.as_deref().map(text));
            put("items", args.items.as_deref().map(text));
            let fields = [
                ("id", &args.id),
                ("title", &args.title),
                ("price", &args.price),
                ("currency", &args.currency_field),
                ("url", &args.link),
                ("date", &args.date),
            ];
            let fields: Vec<String> = fields
                .iter()
                .filter_map(|(field, at)| Some(format!("{field} = {}", text(at.as_deref()?))))
                .collect();
            put("fields", Some(format!("{{ {} }}", fields.join(", "))));
            put("price_type", Some(text(&args.price_type)));
            put("currency", args.currency.as_deref().map(text));
            if args.paging.is_some() || args.page_size.is_some() {
                let by = args.paging.as_deref().map(|by| format!("by = {}", text(by)));
                let size = args.page_size.map(|size| format!("size = {size}"));
                let parts: Vec<String> = by.into_iter().chain(size).collect();
                put("paging", Some(format!("{{ {} }}", parts.join(", "))));
            }
            let headers: Vec<String> = args
                .headers
                .iter()
                .map(|(name, value)| format!("{} = {}", text(name), text(value)))
                .collect();
            put("headers", (!headers.is_empty()).then(|| format!("{{ {} }}", headers.join(", "))));
            put("secret_env", args.secret_env.as_deref().map(text));
        }
    }
    out
}

/// A key of TOML; dots of a name are no path.
fn key(name: &str) -> String {
    let bare = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    if bare { name.to_owned() } else { format!("\"{name}\"") }
}

fn joined(before: &str, section: &str) -> String {
    let mut text = before.trim_end().to_owned();
    if !text.is_empty() {
        text.push_str("\n\n");
    }
    text.push_str(section);
    text
}

/// What the file would mean. Nothing is written that could not be read again.
fn checked(path: &Path, text: &str, global: &Global) -> Result<Settings, Failure> {
    let source = SourceText::new(path.display().to_string(), text);
    let config = Config::parse(&source.text, &source.name)?;
    let env = Env::from_process();
    let flags = Flags { store: global.store.clone(), ..Flags::default() };
    let input = SettingsInput { config: Some((config, source)), env: &env, flags };
    Ok(Settings::resolve_with(input, &quell_chat::inbound::schemes())?)
}

/// The whole file or the old one: whoever reads it meanwhile never sees a half.
fn write_whole(path: &Path, text: &str) -> Result<(), Failure> {
    let shown = path.display();
    let told =
        |error: std::io::Error| Failure::new(failure::FAILED, format!("cannot write {shown}: {error}"));
    // A link is followed, so that the file it points to is changed and the link stays.
    let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let beside = target.with_extension(format!("toml.{}", std::process::id()));
    let write = || -> std::io::Result<()> {
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).open(&beside)?;
        file.write_all(text.as_bytes())?;
        if let Ok(known) = std::fs::metadata(&target) {
            file.set_permissions(known.permissions())?;
        }
        file.sync_all()?;
        std::fs::rename(&beside, &target)
    };
    write().map_err(|error| {
        let _ = std::fs::remove_file(&beside);
        told(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_goes_behind_what_is_there_and_names_stay_names() {
        assert_eq!(joined("store = \"x\"\n\n\n", "[a]\n"), "store = \"x\"\n\n[a]\n");
        assert_eq!(joined("", "[a]\n"), "[a]\n");
        assert_eq!((key("shop"), key("shop.de")), ("shop".to_owned(), "\"shop.de\"".to_owned()));
    }
}
