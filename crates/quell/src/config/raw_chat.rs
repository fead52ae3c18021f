//! `[chat]` as written. The doc comment of each field is its entry in the reference manual.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::value::{DurationText, SizeText, Written};

/// `[chat]`
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ChatConfig {
    /// What holds for every tenant unless its own section says otherwise, and for messages that belong to no tenant. The same
    /// settings as `[chat.tenants.NAME]`.
    pub default: Option<ChatTenantConfig>,
    /// The tenants by name, as the endpoints name them; one without a section is not answered. All of `[chat]` may be changed
    /// while `quell serve` and `quell work` run: it is in force within two seconds.
    #[schemars(with = "BTreeMap<String, ChatTenantConfig>")]
    pub tenants: BTreeMap<toml::Spanned<String>, ChatTenantConfig>,
}

/// `[chat.tenants.NAME]`
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ChatTenantConfig {
    /// How long a customer must be silent before an answer, in milliseconds, 100 to 120000; what is outside is moved to the
    /// nearest of them, with a warning. Default `60000`.
    pub wait_time_before_replying_ms: Option<Written<i64>>,
    /// Whether each further message starts the wait anew; otherwise it counts from the first one. Default `true`.
    pub message_reset_enabled: Option<Written<bool>>,
    /// The longest wait from the first message on, never below two waits. Default: five waits.
    pub max_wait: Option<Written<DurationText>>,
    /// Shows that somebody types, where the provider can (Meta). Default `true`.
    pub typing_indicator_enabled: Option<Written<bool>>,
    /// A reply waits as long as it takes to type: 30 ms for each character, 1 to 8 s. Default `true`.
    pub natural_delays_enabled: Option<Written<bool>>,
    /// By how much that wait varies, 0 to 100. Default `20`.
    pub delay_variance_percent: Option<Written<i64>>,
    /// What a message does that comes while an answer is made: `"queue"` (it is answered next), `"interrupt"` (the model is
    /// stopped and asked again with everything) or `"gate"` (the answer is made, and thrown away if it no longer fits).
    /// Default `"queue"`.
    pub during_run: Option<Written<String>>,
    /// How several messages are joined: `"timed"` (each later one as `[+5s] text`) or `"plain"`. Default `"timed"`.
    pub aggregation: Option<Written<String>>,
    /// Whether a text that is sent twice in one burst counts once. A customer may say "ok" twice. Default `false`.
    pub content_dedupe: Option<Written<bool>>,
    /// What the model is told to be.
    pub prompt: Option<Written<String>>,
    /// The same from a file, which is read again when it changes.
    pub prompt_file: Option<Written<String>>,
    /// How many earlier messages of the conversation the model is shown, 0 to 1000. Default `40`.
    pub history_messages: Option<Written<i64>>,
    /// How large they may be together. Default `"32KiB"`.
    pub history_bytes: Option<Written<SizeText>>,
    /// What a customer is told when no answer could be made. Default: nothing.
    pub escalation_message: Option<Written<String>>,
    /// Whether the conversation is also paused then, so that nothing is answered before `quell chat resume`. Default `false`.
    pub pause_when_escalated: Option<Written<bool>>,
    /// The model that answers.
    pub model: ChatModelConfig,
    /// The account at WATI, for messages that come by it.
    pub wati: Option<WatiConfig>,
    /// The account at Twilio, for messages that come by it.
    pub twilio: Option<TwilioConfig>,
    /// The account at Meta, for messages that come by it.
    pub meta: Option<MetaConfig>,
}

/// `model = { … }`
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ChatModelConfig {
    /// Where a server speaks the chat completions of OpenAI; `/chat/completions` is added. Default
    /// `"https://api.openai.com/v1"`.
    pub url: Option<Written<String>>,
    /// The name of the model. Required.
    pub name: Option<Written<String>>,
    /// A file with the key and nothing else.
    pub key_file: Option<Written<String>>,
    /// An environment variable with the key. Default: none is sent.
    pub key_env: Option<Written<String>>,
    /// The source that limits and guards the model, from `[sources]`. Default: one of its own, `chat-model`, without a limit.
    pub source: Option<Written<String>>,
    /// From the question to the last word of the answer. Default `"60s"`.
    pub timeout: Option<Written<DurationText>>,
    /// Passed on as it is. Default: the server's own.
    pub temperature: Option<Written<f64>>,
    /// The longest answer, in tokens. Default: the server's own.
    pub max_tokens: Option<Written<i64>>,
    /// What the server calls that bound: `"max_completion_tokens"`, or `"max_tokens"` for older ones. Default
    /// `"max_completion_tokens"`.
    pub max_tokens_field: Option<Written<String>>,
    /// Whether the answer is read as it is made, so that an interrupt stops it early. Default `true`.
    pub stream: Option<Written<bool>>,
}

/// `wati = { … }`
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WatiConfig {
    /// The address of the account, with the tenant: `"https://live-mt-server.wati.io/12345"`. Required.
    pub url: Option<Written<String>>,
    /// A file with the access token.
    pub token_file: Option<Written<String>>,
    /// An environment variable with the access token. One of the two is required.
    pub token_env: Option<Written<String>>,
    /// The source that limits and guards the provider, from `[sources]`. Default: one of its own, `chat-wati`.
    pub source: Option<Written<String>>,
}

/// `twilio = { … }`
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TwilioConfig {
    /// The account's SID, `"AC…"`. Required.
    pub account: Option<Written<String>>,
    /// The number that replies come from, `"whatsapp:+14155550100"`. Default: the one that the customer wrote to.
    pub from: Option<Written<String>>,
    /// A file with the auth token.
    pub token_file: Option<Written<String>>,
    /// An environment variable with the auth token. One of the two is required.
    pub token_env: Option<Written<String>>,
    /// Default `"https://api.twilio.com"`.
    pub url: Option<Written<String>>,
    /// As for `wati`. Default `chat-twilio`.
    pub source: Option<Written<String>>,
}

/// `meta = { … }`
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MetaConfig {
    /// The id of the number that replies come from. Default: the one that the customer wrote to.
    pub phone_number_id: Option<Written<String>>,
    /// A file with the access token.
    pub token_file: Option<Written<String>>,
    /// An environment variable with the access token. One of the two is required.
    pub token_env: Option<Written<String>>,
    /// The version of the API. Default `"v21.0"`.
    pub version: Option<Written<String>>,
    /// Default `"https://graph.facebook.com"`.
    pub url: Option<Written<String>>,
    /// As for `wati`. Default `chat-meta`.
    pub source: Option<Written<String>>,
}

macro_rules! over {
    ($own:expr, $base:expr; $($field:ident),+) => {
        $( if $own.$field.is_none() { $own.$field = $base.$field.clone(); } )+
    };
}

impl ChatTenantConfig {
    /// With what the base says wherever this says nothing.
    pub(super) fn over(mut self, base: &ChatTenantConfig) -> Self {
        // A prompt of one's own in either form replaces that of the base.
        if self.prompt.is_none() && self.prompt_file.is_none() {
            self.prompt = base.prompt.clone();
            self.prompt_file = base.prompt_file.clone();
        }
        over!(self, base; wait_time_before_replying_ms, message_reset_enabled, max_wait, typing_indicator_enabled,
            natural_delays_enabled, delay_variance_percent, during_run, aggregation, content_dedupe, history_messages,
            history_bytes, escalation_message, pause_when_escalated, wati, twilio, meta);
        let model = &mut self.model;
        if model.key_file.is_none() && model.key_env.is_none() {
            model.key_file = base.model.key_file.clone();
            model.key_env = base.model.key_env.clone();
        }
        over!(model, base.model; url, name, source, timeout, temperature, max_tokens, max_tokens_field, stream);
        self
    }
}
