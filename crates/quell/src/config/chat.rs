//! `[chat]`, from the file to what the application answers with, and to the policies of the queue `chat`.
//!
//! A tenant is the section of its name over `[chat.default]`. Its window, what newer messages do, and the source of its model
//! become policies of its own in the queue ([`ByTenant`](super::ByTenant)), so that stores know nothing of chat. A run that has
//! used up its attempts is told to the queue `chat.failed`, where the application escalates it: also when the last attempt died
//! with its process.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use quell_core::event::{AppendPolicy, QueueName, SourceName, Tenant};
use quell_core::lane::{DuringRun, Notify, RetryWith, RunRules};
use quell_core::lifecycle::RunState;
use quell_core::source::{Declaration, SourceRules};
use quell_core::store::RunPolicy;
use quell_core::window::{Window, WindowPolicy};
use quell_fetch::Guard;

use super::error::{ConfigError, nearest};
use super::policy::word;
use super::raw_chat::{ChatConfig, ChatModelConfig, ChatTenantConfig, MetaConfig, TwilioConfig, WatiConfig};
use super::resolver::{Found, Resolver, required, text_or};
use super::secret::{SecretSource, resolve_secret};
use super::tenants::TenantPolicy;
use super::value::{DurationText, Written};
use super::{EndpointSettings, Origin, QueueSettings};

/// The queue of messages.
pub const CHAT: &str = "chat";
/// The queue that is told of conversations for which no answer could be made.
pub const CHAT_FAILED: &str = "chat.failed";

const WAIT_DEFAULT_MS: i64 = 60_000;
const WAIT_MS: (i64, i64) = (100, 120_000);
const WAITS_DEFAULT: u32 = 5;
const WAITS_MIN: u32 = 2;
const VARIANCE_DEFAULT: i64 = 20;
const HISTORY_MESSAGES_DEFAULT: i64 = 40;
const HISTORY_MESSAGES_MAX: i64 = 1_000;
const HISTORY_BYTES_DEFAULT: u64 = 32 * 1024;
/// What a model of today reads at the most, with room to spare.
const HISTORY_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// A message of a provider has at the most this many characters.
const ESCALATION_CHARS_MAX: usize = 1_600;
const MODEL_TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);
const MODEL_TIMEOUT_MAX: Duration = Duration::from_secs(600);
const MODEL_URL: &str = "https://api.openai.com/v1";

/// What `[chat]` says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ChatSettings {
    /// The tenants that are answered; no tenant is that of `[chat.default]`.
    pub tenants: BTreeMap<Tenant, Arc<ChatTenant>>,
}

/// How one tenant's customers are answered. Its secrets are named, not known.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatTenant {
    pub tenant: Tenant,
    pub window: WindowPolicy,
    pub typing_indicator: bool,
    pub natural_delays: bool,
    pub delay_variance_percent: u8,
    pub during_run: DuringRun,
    pub aggregation: Aggregation,
    pub content_dedupe: bool,
    pub prompt: Option<PromptSource>,
    pub history_messages: usize,
    pub history_bytes: usize,
    pub escalation_message: Option<String>,
    pub pause_when_escalated: bool,
    pub model: ChatModelSettings,
    pub wati: Option<WatiSettings>,
    pub twilio: Option<TwilioSettings>,
    pub meta: Option<MetaSettings>,
}

/// How several messages become one text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aggregation {
    /// Each later one with the seconds since the first.
    Timed,
    Plain,
}

/// Where the prompt stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PromptSource {
    Text(String),
    File(PathBuf),
}

#[derive(Debug, Clone, PartialEq)]
pub struct ChatModelSettings {
    pub url: String,
    pub name: String,
    pub key: Option<SecretSource>,
    pub source: SourceName,
    pub timeout: Duration,
    pub temperature: Option<f64>,
    pub max_tokens: Option<u32>,
    /// The name of that bound is the older `max_tokens`.
    pub older_max_tokens: bool,
    pub stream: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatiSettings {
    pub url: String,
    pub token: SecretSource,
    pub source: SourceName,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TwilioSettings {
    pub url: String,
    pub account: String,
    pub from: Option<String>,
    pub token: SecretSource,
    pub source: SourceName,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetaSettings {
    pub url: String,
    pub version: String,
    pub phone_number_id: Option<String>,
    pub token: SecretSource,
    pub source: SourceName,
}

impl ChatTenant {
    /// What holds in the queue for this tenant.
    fn policy(&self, queue: &QueueSettings) -> TenantPolicy {
        let window = Window { policy: self.window, ..queue.append.window };
        let append = AppendPolicy {
            window,
            content_dedupe: self.content_dedupe,
            source: Some(self.model.source.clone()),
            ..(*queue.append).clone()
        };
        let retry_with = match self.during_run {
            DuringRun::Queue => RetryWith::Same,
            DuringRun::Interrupt | DuringRun::Gate => RetryWith::Newer,
        };
        let rules = RunRules { during_run: self.during_run, retry_with, ..queue.run.rules };
        let run = RunPolicy { rules, ..(*queue.run).clone() };
        TenantPolicy { append: Arc::new(append), run: Arc::new(run) }
    }

    /// Whether a reply can be sent the way of this scheme.
    fn answers_by(&self, scheme: &str) -> bool {
        match scheme {
            "wati" => self.wati.is_some(),
            "twilio" => self.twilio.is_some(),
            "meta" => self.meta.is_some(),
            _ => true,
        }
    }

    /// What limits and guards its model and its providers.
    pub fn sources(&self) -> impl Iterator<Item = &SourceName> {
        let wati = self.wati.as_ref().map(|account| &account.source);
        let twilio = self.twilio.as_ref().map(|account| &account.source);
        let meta = self.meta.as_ref().map(|account| &account.source);
        [Some(&self.model.source), wati, twilio, meta].into_iter().flatten()
    }
}

impl ChatSettings {
    /// The section of the file that says how this tenant's customers are answered.
    pub fn section(tenant: &Tenant) -> String {
        match tenant.is_none() {
            true => "chat.default".to_owned(),
            false => format!("chat.tenants.{tenant}"),
        }
    }

    /// Puts the policies of all tenants in force.
    pub fn apply(&self, queue: &QueueSettings) {
        let policies = self.tenants.iter().map(|(name, tenant)| (name.clone(), tenant.policy(queue)));
        queue.tenants.set(policies.collect());
    }

    /// Sources that nobody declared and that every tenant has all the same: without a limit, with a breaker.
    pub(super) fn own_sources(&self, declared: &[Declaration]) -> Vec<Declaration> {
        let mut own: Vec<Declaration> = Vec::new();
        for name in self.tenants.values().flat_map(|tenant| tenant.sources()) {
            if !declared.iter().chain(&own).any(|known| known.name == *name) {
                own.push(Declaration { name: name.clone(), rules: SourceRules::default() });
            }
        }
        own
    }
}

/// The section, its warnings included.
pub(super) fn resolve_chat(
    r: &mut Resolver<'_>,
    file: ChatConfig,
    declared: &[Declaration],
    guard: &Guard,
    warnings: &mut Vec<String>,
) -> Result<ChatSettings, ConfigError> {
    let mut tenants = BTreeMap::new();
    let base = file.default.clone().unwrap_or_default();
    let mut around = Around { declared, guard, warnings };
    if let Some(default) = file.default {
        let shown =
            Found { value: ChatSettings::section(&Tenant::none()), origin: Origin::Default, span: 0..0 };
        let tenant = resolve_tenant(r, &mut around, Tenant::none(), &shown, default)?;
        tenants.insert(Tenant::none(), Arc::new(tenant));
    }
    for (key, section) in file.tenants {
        let name = r.named(key);
        let tenant = Tenant::new(&name.value).ok().filter(|tenant| !tenant.is_none());
        let tenant = tenant.ok_or_else(|| {
            r.error(&name, format!("{:?} is not the name of a tenant: 1 to 128 bytes", name.value))
        })?;
        let shown = Found { value: ChatSettings::section(&tenant), ..name };
        let resolved = resolve_tenant(r, &mut around, tenant.clone(), &shown, section.over(&base))?;
        tenants.insert(tenant, Arc::new(resolved));
    }
    Ok(ChatSettings { tenants })
}

/// What a tenant's section is checked against.
struct Around<'a> {
    declared: &'a [Declaration],
    guard: &'a Guard,
    warnings: &'a mut Vec<String>,
}

fn resolve_tenant(
    r: &mut Resolver<'_>,
    around: &mut Around<'_>,
    tenant: Tenant,
    section: &Found<String>,
    file: ChatTenantConfig,
) -> Result<ChatTenant, ConfigError> {
    let path = |setting: &str| format!("{}.{setting}", section.value);
    let window = window(r, around, &path, &file)?;
    let words = [("queue", DuringRun::Queue), ("interrupt", DuringRun::Interrupt), ("gate", DuringRun::Gate)];
    let during_run = word(r, &path("during_run"), file.during_run, &words)?;
    let words = [("timed", Aggregation::Timed), ("plain", Aggregation::Plain)];
    let aggregation = word(r, &path("aggregation"), file.aggregation, &words)?;
    let variance = r.integer(
        &path("delay_variance_percent"),
        None,
        &[],
        file.delay_variance_percent,
        VARIANCE_DEFAULT,
        0..=100,
    )?;
    let (usual, most) = (HISTORY_MESSAGES_DEFAULT, HISTORY_MESSAGES_MAX);
    let messages = r.integer(&path("history_messages"), None, &[], file.history_messages, usual, 0..=most)?;
    let bytes = super::queue::size(
        r,
        &path("history_bytes"),
        file.history_bytes,
        HISTORY_BYTES_DEFAULT,
        HISTORY_BYTES_MAX,
    )?;
    let prompt = prompt(r, &path, file.prompt, file.prompt_file)?;
    let escalation = file.escalation_message.map(|written| r.placed(written));
    if let Some(text) = &escalation {
        if text.value.trim().is_empty() || text.value.chars().count() > ESCALATION_CHARS_MAX {
            let problem = format!("a message to a customer has 1 to {ESCALATION_CHARS_MAX} characters");
            return Err(r.error(text, problem));
        }
        r.note(path("escalation_message"), format!("{:?}", text.value), &text.origin);
    }
    Ok(ChatTenant {
        window,
        typing_indicator: flag(r, &path("typing_indicator_enabled"), file.typing_indicator_enabled, true),
        natural_delays: flag(r, &path("natural_delays_enabled"), file.natural_delays_enabled, true),
        delay_variance_percent: u8::try_from(variance).unwrap_or(u8::MAX),
        during_run,
        aggregation,
        content_dedupe: flag(r, &path("content_dedupe"), file.content_dedupe, false),
        prompt,
        history_messages: usize::try_from(messages).unwrap_or(usize::MAX),
        history_bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
        escalation_message: escalation.map(|found| found.value),
        pause_when_escalated: flag(r, &path("pause_when_escalated"), file.pause_when_escalated, false),
        model: model(r, around, section, &path, file.model)?,
        wati: file.wati.map(|wati| resolve_wati(r, around, section, wati)).transpose()?,
        twilio: file.twilio.map(|twilio| resolve_twilio(r, around, section, twilio)).transpose()?,
        meta: file.meta.map(|meta| resolve_meta(r, around, section, meta)).transpose()?,
        tenant,
    })
}

fn flag(r: &mut Resolver<'_>, setting: &str, file: Option<Written<bool>>, usual: bool) -> bool {
    let found = match file {
        Some(written) => r.placed(written),
        None => Found { value: usual, origin: Origin::Default, span: 0..0 },
    };
    r.note(setting, found.value.to_string(), &found.origin);
    found.value
}

/// What is out of range is moved into it, as the systems before did, and said.
fn window(
    r: &mut Resolver<'_>,
    around: &mut Around<'_>,
    path: &impl Fn(&str) -> String,
    file: &ChatTenantConfig,
) -> Result<WindowPolicy, ConfigError> {
    let setting = path("wait_time_before_replying_ms");
    let asked = match &file.wait_time_before_replying_ms {
        Some(written) => r.placed(written.clone()),
        None => Found { value: WAIT_DEFAULT_MS, origin: Origin::Default, span: 0..0 },
    };
    let millis = asked.value.clamp(WAIT_MS.0, WAIT_MS.1);
    if millis != asked.value {
        let (low, high) = WAIT_MS;
        around
            .warnings
            .push(format!("{setting} = {} is not between {low} and {high}; {millis} is used", asked.value));
    }
    r.note(&setting, millis.to_string(), &asked.origin);
    let wait = Duration::from_millis(u64::try_from(millis).unwrap_or_default());
    let reset = flag(r, &path("message_reset_enabled"), file.message_reset_enabled.clone(), true);
    let (least, usual) = (wait * WAITS_MIN, wait * WAITS_DEFAULT);
    let max_wait = match &file.max_wait {
        Some(written) => {
            let found = r.placed(written.clone());
            let asked = found.value.0;
            if asked < least {
                let (asked, least) = (DurationText::show(asked), DurationText::show(least));
                let setting = path("max_wait");
                around.warnings.push(format!("{setting} = {asked} is less than two waits; {least} is used"));
            }
            r.note(path("max_wait"), DurationText::show(asked.max(least)), &found.origin);
            asked.max(least)
        }
        None => {
            r.note(path("max_wait"), DurationText::show(usual), &Origin::Default);
            usual
        }
    };
    if !reset {
        return Ok(WindowPolicy::Fixed { wait });
    }
    let policy = WindowPolicy::Quiet { quiet: wait, max_wait };
    Window { policy, ..Window::default() }.check().map_err(|problem| {
        let place = file.max_wait.clone().map(|written| r.placed(written));
        let place = place.map(|found| Found { value: (), origin: found.origin, span: found.span });
        let default = Found { value: (), origin: Origin::Default, span: 0..0 };
        r.error(&place.unwrap_or(default), problem.to_string())
    })?;
    Ok(policy)
}

fn prompt(
    r: &mut Resolver<'_>,
    path: &impl Fn(&str) -> String,
    text: Option<Written<String>>,
    file: Option<Written<String>>,
) -> Result<Option<PromptSource>, ConfigError> {
    match (text.map(|w| r.placed(w)), file.map(|w| r.placed(w))) {
        (Some(_), Some(file)) => {
            Err(r.error(&file, "the prompt stands here or in a file, not both").help("remove one of them"))
        }
        (Some(text), None) => {
            let shown = format!("{} characters", text.value.chars().count());
            r.note(path("prompt"), shown, &text.origin);
            Ok(Some(PromptSource::Text(text.value)))
        }
        (None, Some(file)) => {
            r.note(path("prompt_file"), &file.value, &file.origin);
            Ok(Some(PromptSource::File(PathBuf::from(file.value))))
        }
        (None, None) => Ok(None),
    }
}

fn model(
    r: &mut Resolver<'_>,
    around: &Around<'_>,
    section: &Found<String>,
    path: &impl Fn(&str) -> String,
    file: ChatModelConfig,
) -> Result<ChatModelSettings, ConfigError> {
    let path = |setting: &str| path(&format!("model.{setting}"));
    let name = required(r, "section", section, file.name, "model.name", "model = { name = \"gpt-5-mini\" }")?;
    r.note(path("name"), &name.value, &name.origin);
    let url = url(r, around, &path("url"), file.url, MODEL_URL)?;
    let key = resolve_secret(r, &path, ("key_file", file.key_file), ("key_env", file.key_env))?;
    let source = source(r, around, &path("source"), file.source, "chat-model")?;
    let bounds = Duration::from_millis(100)..=MODEL_TIMEOUT_MAX;
    let timeout = r.duration(&path("timeout"), None, &[], file.timeout, MODEL_TIMEOUT_DEFAULT, bounds)?;
    let temperature = match file.temperature.map(|written| r.placed(written)) {
        Some(found) => Some(r.within(&path("temperature"), found, 0.0..=2.0, |value| value)?),
        None => None,
    };
    let max_tokens = match file.max_tokens {
        Some(written) => {
            let n = r.integer(&path("max_tokens"), None, &[], Some(written), 1, 1..=1_000_000)?;
            u32::try_from(n).ok()
        }
        None => None,
    };
    let words = [("max_completion_tokens", false), ("max_tokens", true)];
    let older_max_tokens = word(r, &path("max_tokens_field"), file.max_tokens_field, &words)?;
    let stream = flag(r, &path("stream"), file.stream, true);
    Ok(ChatModelSettings {
        url,
        name: name.value,
        key,
        source,
        timeout,
        temperature,
        max_tokens,
        older_max_tokens,
        stream,
    })
}

fn resolve_wati(
    r: &mut Resolver<'_>,
    around: &Around<'_>,
    section: &Found<String>,
    file: WatiConfig,
) -> Result<WatiSettings, ConfigError> {
    let path = |setting: &str| format!("{}.wati.{setting}", section.value);
    let example = "wati = { url = \"https://live-mt-server.wati.io/12345\", token_env = \"WATI_TOKEN\" }";
    let given = required(r, "section", section, file.url, "wati.url", example)?;
    let given = Written { value: given.value, span: given.span };
    let url = url(r, around, &path("url"), Some(given), "")?;
    let token = token(r, section, "wati", &path, file.token_file, file.token_env)?;
    let source = source(r, around, &path("source"), file.source, "chat-wati")?;
    Ok(WatiSettings { url, token, source })
}

fn resolve_twilio(
    r: &mut Resolver<'_>,
    around: &Around<'_>,
    section: &Found<String>,
    file: TwilioConfig,
) -> Result<TwilioSettings, ConfigError> {
    let path = |setting: &str| format!("{}.twilio.{setting}", section.value);
    let example = "twilio = { account = \"AC…\", token_env = \"TWILIO_TOKEN\" }";
    let account = required(r, "section", section, file.account, "twilio.account", example)?;
    r.note(path("account"), &account.value, &account.origin);
    let from = file.from.map(|written| r.placed(written));
    if let Some(from) = &from {
        r.note(path("from"), &from.value, &from.origin);
    }
    let url = url(r, around, &path("url"), file.url, "https://api.twilio.com")?;
    let token = token(r, section, "twilio", &path, file.token_file, file.token_env)?;
    let source = source(r, around, &path("source"), file.source, "chat-twilio")?;
    let from = from.map(|found| found.value);
    Ok(TwilioSettings { url, account: account.value, from, token, source })
}

fn resolve_meta(
    r: &mut Resolver<'_>,
    around: &Around<'_>,
    section: &Found<String>,
    file: MetaConfig,
) -> Result<MetaSettings, ConfigError> {
    let path = |setting: &str| format!("{}.meta.{setting}", section.value);
    let phone_number_id = file.phone_number_id.map(|written| r.placed(written));
    if let Some(id) = &phone_number_id {
        r.note(path("phone_number_id"), &id.value, &id.origin);
    }
    let version = text_or(r, file.version, "v21.0");
    r.note(path("version"), &version.value, &version.origin);
    let url = url(r, around, &path("url"), file.url, "https://graph.facebook.com")?;
    let token = token(r, section, "meta", &path, file.token_file, file.token_env)?;
    let source = source(r, around, &path("source"), file.source, "chat-meta")?;
    let phone_number_id = phone_number_id.map(|found| found.value);
    Ok(MetaSettings { url, version: version.value, phone_number_id, token, source })
}

/// An address that the operator wrote; without the slash at its end.
fn url(
    r: &mut Resolver<'_>,
    around: &Around<'_>,
    setting: &str,
    file: Option<Written<String>>,
    usual: &str,
) -> Result<String, ConfigError> {
    let found = text_or(r, file, usual);
    if let Err(refused) = around.guard.meaning(&found.value).admit(&found.value) {
        return Err(r.error(&found, refused.to_string()));
    }
    if found.value.contains(['?', '#']) {
        return Err(r.error(&found, "an address here has no query: it is only the beginning of one"));
    }
    r.note(setting, &found.value, &found.origin);
    Ok(found.value.trim_end_matches('/').to_owned())
}

fn source(
    r: &mut Resolver<'_>,
    around: &Around<'_>,
    setting: &str,
    file: Option<Written<String>>,
    usual: &str,
) -> Result<SourceName, ConfigError> {
    let found = text_or(r, file, usual);
    let known = |name: &str| around.declared.iter().any(|declared| declared.name.as_str() == name);
    if found.value != usual && !known(&found.value) {
        let help = match nearest(&found.value, around.declared.iter().map(|d| d.name.as_str())) {
            Some(near) => format!("did you mean {near:?}?"),
            None => format!("add a section [sources.{}]", found.value),
        };
        return Err(r.error(&found, format!("there is no source {:?}", found.value)).help(help));
    }
    let name = SourceName::new(&found.value).map_err(|e| r.error(&found, e.to_string()))?;
    r.note(setting, name.as_str(), &found.origin);
    Ok(name)
}

fn token(
    r: &mut Resolver<'_>,
    section: &Found<String>,
    provider: &str,
    path: &impl Fn(&str) -> String,
    file: Option<Written<String>>,
    env: Option<Written<String>>,
) -> Result<SecretSource, ConfigError> {
    resolve_secret(r, path, ("token_file", file), ("token_env", env))?.ok_or_else(|| {
        let problem = format!("{provider} has no token");
        r.error(section, problem).help("write token_file = \"NAME\" or token_env = \"NAME\"")
    })
}

/// Joins the tenants with their queues: the policies of each, and who is told when no answer could be made.
pub(super) fn attach_chat(
    r: &Resolver<'_>,
    queues: &mut BTreeMap<QueueName, Arc<QueueSettings>>,
    chat: &ChatSettings,
) -> Result<(), ConfigError> {
    let named = |name: &str| QueueName::new(name).expect("the name is written in this file and is valid");
    let (queue, failed) = (named(CHAT), named(CHAT_FAILED));
    let policy = (*queues[&failed].append).clone();
    let settings = Arc::make_mut(queues.get_mut(&queue).expect("the queue was made with the section"));
    if settings.run.notify.is_some() {
        let place = Found { value: (), origin: Origin::Default, span: 0..0 };
        let problem =
            "the queue chat tells chat.failed of what could not be answered, so it has no notify of its own";
        return Err(r.error(&place, problem).help("remove notify from [queues.chat]"));
    }
    let notify = Some(Arc::new(Notify { queue: failed, on: vec![RunState::Failed], policy }));
    settings.run = Arc::new(RunPolicy { notify, ..(*settings.run).clone() });
    chat.apply(settings);
    Ok(())
}

/// An endpoint whose messages could never be answered is refused while somebody looks.
pub(super) fn check_endpoint(
    r: &Resolver<'_>,
    name: &Found<String>,
    endpoint: &EndpointSettings,
    chat: Option<&ChatSettings>,
) -> Result<(), ConfigError> {
    let scheme = endpoint.scheme.name();
    if endpoint.queue.as_str() != CHAT || !["wati", "twilio", "meta"].contains(&scheme) {
        return Ok(());
    }
    // Without the section the queue is somebody else's, who reads the messages as they are.
    let Some(chat) = chat else { return Ok(()) };
    let section = ChatSettings::section(&endpoint.tenant);
    let Some(tenant) = chat.tenants.get(&endpoint.tenant) else {
        let problem = match endpoint.tenant.is_none() {
            true => format!("the endpoint names no tenant, and there is no [{section}]"),
            false => format!("there is no [{section}]"),
        };
        return Err(r.error(name, problem).help("say there how its customers are answered"));
    };
    if !tenant.answers_by(scheme) {
        let problem = format!("[{section}] has no account for {scheme}, so nothing could be answered");
        return Err(r.error(name, problem).help(format!("add [{section}.{scheme}]")));
    }
    Ok(())
}
