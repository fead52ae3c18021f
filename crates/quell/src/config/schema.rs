//! The configuration described: JSON Schema for editors, the template of `quell init`, the tables of the reference page.
//!
//! All three come from one place or are held to it: the schema and the tables are made of the doc comments in
//! `raw.rs`, and tests keep the template equal to the built-in defaults and the page equal to the tables.

use schemars::{JsonSchema, schema_for};
use serde_json::Value;

use super::raw::{
    BreakerConfig, Config, DashboardConfig, EndpointConfig, HandlerParts, NotifyConfig, OutboundConfig,
    QueueConfig, RetryConfig, ScheduleConfig, ServerConfig, SourceConfig, TranscriptsConfig, WindowParts,
    WorkerConfig,
};
use super::raw_chat::{ChatConfig, ChatModelConfig, ChatTenantConfig, MetaConfig, TwilioConfig, WatiConfig};
use super::raw_prices::{
    MatchConfig, PagingConfig, PriceFieldsConfig, PriceSourceConfig, PriceValueConfig, PricesConfig,
};

/// The JSON Schema of `quell.toml`, for editors.
pub fn json_schema() -> Value {
    let mut schema = schema_for!(Config);
    schema.insert("title".to_owned(), "quell.toml".into());
    schema.to_value()
}

/// The commented `quell.toml` that `quell init` writes. Its values are the defaults.
pub fn template() -> &'static str {
    include_str!("template.toml")
}

/// The settings as tables in Markdown, as they stand in `docs/reference/configuration.md`.
pub fn reference() -> String {
    let mut page = String::new();
    page.push_str(&table::<Config>("Top level"));
    page.push_str(&table::<ServerConfig>("`[server]`"));
    page.push_str(&table::<DashboardConfig>("`[dashboard]`"));
    page.push_str(&table::<OutboundConfig>("`[outbound]`"));
    page.push_str(&table::<WorkerConfig>("`[worker]`"));
    page.push_str(&table::<QueueConfig>("`[queues.NAME]`"));
    page.push_str(&table::<WindowParts>("`window = { … }`"));
    page.push_str(&table::<RetryConfig>("`retry = { … }`"));
    page.push_str(&table::<HandlerParts>("`handler = { … }`"));
    page.push_str(&table::<NotifyConfig>("`notify = { … }`"));
    page.push_str(&table::<ScheduleConfig>("`[schedules.NAME]`"));
    page.push_str(&table::<SourceConfig>("`[sources.NAME]`"));
    page.push_str(&table::<BreakerConfig>("`breaker = { … }`"));
    page.push_str(&table::<EndpointConfig>("`[endpoints.NAME]`"));
    page.push_str(&table::<TranscriptsConfig>("`[transcripts]`"));
    page.push_str(&table::<ChatConfig>("`[chat]`"));
    page.push_str(&table::<ChatTenantConfig>("`[chat.tenants.NAME]`"));
    page.push_str(&table::<ChatModelConfig>("`model = { … }`"));
    page.push_str(&table::<WatiConfig>("`wati = { … }`"));
    page.push_str(&table::<TwilioConfig>("`twilio = { … }`"));
    page.push_str(&table::<MetaConfig>("`meta = { … }`"));
    page.push_str(&table::<PricesConfig>("`[prices]`"));
    page.push_str(&table::<PriceValueConfig>("`value = { … }`"));
    page.push_str(&table::<PriceSourceConfig>("`[prices.sources.NAME]`"));
    page.push_str(&table::<PriceFieldsConfig>("`fields = { … }`"));
    page.push_str(&table::<PagingConfig>("`paging = { … }`"));
    page.push_str(&table::<MatchConfig>("`match = { … }`"));
    page
}

fn table<T: JsonSchema>(title: &str) -> String {
    let schema = schema_for!(T).to_value();
    let mut text = format!("### {title}\n\n| setting | meaning |\n| --- | --- |\n");
    let settings = schema["properties"].as_object().into_iter().flatten();
    for (name, setting) in settings {
        let meaning = setting["description"].as_str().unwrap_or("").replace('\n', " ").replace('|', "\\|");
        text.push_str(&format!("| `{name}` | {meaning} |\n"));
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use super::*;
    use crate::config::{Explained, Flags, Settings, SettingsInput, SourceText};

    fn resolved(text: &str) -> Settings {
        let config = Config::parse(text, "quell.toml").expect("the text parses");
        let env = BTreeMap::new();
        let config = Some((config, SourceText::new("quell.toml", text)));
        Settings::resolve(SettingsInput { config, env: &env, flags: Flags::default() }).expect("it is valid")
    }

    fn values(settings: &Settings) -> Vec<(String, String)> {
        settings.explain().into_iter().map(|Explained { setting, value, .. }| (setting, value)).collect()
    }

    #[test]
    fn the_template_states_the_built_in_defaults() {
        let bare = resolved("[queues.example]\n");
        assert_eq!(values(&resolved(template())), values(&bare));
        assert_eq!(resolved(template()).queues, bare.queues);
    }

    #[test]
    fn the_settings_that_the_template_leaves_commented_are_valid_defaults_too() {
        // A commented setting has no blank after its mark; prose has.
        let whole: String = template()
            .lines()
            .map(|line| match line.strip_prefix('#') {
                Some(setting) if !setting.starts_with(' ') => format!("{setting}\n"),
                _ => format!("{line}\n"),
            })
            .collect();
        assert_ne!(whole, template());
        assert_eq!(values(&resolved(&whole)), values(&resolved("[queues.example]\n")));
    }

    #[test]
    fn every_setting_has_a_text_in_the_schema() {
        fn check(at: &str, schema: &Value, seen: &mut usize) {
            for (name, property) in schema["properties"].as_object().into_iter().flatten() {
                let text = property["description"].as_str().unwrap_or("");
                assert!(text.len() > 20, "{at}.{name} has no doc comment");
                *seen += 1;
            }
        }
        let schema = json_schema();
        let mut seen = 0;
        check("top", &schema, &mut seen);
        for (name, part) in schema["$defs"].as_object().expect("tables are definitions") {
            check(name, part, &mut seen);
        }
        assert!(seen > 35, "{seen}");
        assert!(schema["properties"].get("notify").is_none(), "what is refused is not offered by editors");
        assert_eq!(schema["additionalProperties"], false);
    }

    #[test]
    fn the_committed_schema_for_editors_is_the_one_of_these_types() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/quell.schema.json");
        let committed = std::fs::read_to_string(&path).expect("the schema is committed");
        let committed: Value = serde_json::from_str(&committed).expect("it is JSON");
        assert!(committed == json_schema(), "run `cargo xtask config-schema`");
    }

    /// To write the page anew: `QUELL_WRITE_REFERENCE=1 cargo test -p quell --lib reference_page`.
    #[test]
    fn the_reference_page_holds_exactly_these_tables() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/configuration.md");
        let page = std::fs::read_to_string(&path).expect("the page exists");
        let (begin, end) = ("<!-- settings: begin -->\n\n", "<!-- settings: end -->");
        let (head, rest) = page.split_once(begin).expect("the page marks where the tables begin");
        let (tables, tail) = rest.split_once(end).expect("the page marks where the tables end");
        if std::env::var_os("QUELL_WRITE_REFERENCE").is_some() {
            let anew = format!("{head}{begin}{}{end}{tail}", reference());
            std::fs::write(&path, anew).expect("the page can be written");
            return;
        }
        assert!(tables == reference(), "docs/reference/configuration.md is not what the doc comments say");
    }
}
