//! The configuration described: JSON Schema for editors, the template of `quell init`, the reference page.

/// The JSON Schema of `quell.toml`, for editors.
pub fn json_schema() -> serde_json::Value {
    schemars::schema_for!(super::Config).to_value()
}

/// The commented `quell.toml` that `quell init` writes.
pub fn template() -> &'static str {
    include_str!("template.toml")
}

/// The settings as tables of the reference page.
pub fn reference() -> String {
    String::new()
}
