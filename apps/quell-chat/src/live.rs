//! The tenants as they are in force now: settings with their prompts and secrets read.
//!
//! A change of the configuration replaces them all at once while the process runs ([`Live::change`]). A run that has begun goes
//! on by what it began with; the next one is answered by the new ones.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use quell::config::{ChatSettings, ChatTenant, PromptSource, SecretSource};
use quell::quell_core::event::{self, SourceName};
use quell::secrets;
use quell::webhook::Secret;

use crate::message::Channel;
use crate::model::{MaxTokensAs, ModelCall};
use crate::provider::{MetaAccount, Provider, TwilioAccount, WatiAccount};

/// Larger prompts are a mistake: somebody has named the wrong file.
const PROMPT_BYTES_MAX: u64 = 256 * 1024;

/// One tenant, ready to answer.
#[derive(Debug)]
pub struct Tenant {
    pub settings: Arc<ChatTenant>,
    pub prompt: Option<String>,
    pub model: ModelCall,
    providers: BTreeMap<Channel, Provider>,
}

impl Tenant {
    /// By which account replies leave.
    pub fn provider(&self, channel: Channel) -> Option<&Provider> {
        self.providers.get(&channel)
    }

    /// What limits and guards that provider.
    pub fn source(&self, channel: Channel) -> Option<&SourceName> {
        let settings = &self.settings;
        match channel {
            Channel::Wati => settings.wati.as_ref().map(|account| &account.source),
            Channel::Twilio => settings.twilio.as_ref().map(|account| &account.source),
            Channel::Meta => settings.meta.as_ref().map(|account| &account.source),
        }
    }

    fn ready(settings: &Arc<ChatTenant>, env: &BTreeMap<String, String>) -> Result<Tenant, String> {
        let secret = |source: &SecretSource| {
            secrets::read(source, env).map(Secret::new).map_err(|error| error.to_string())
        };
        let model = &settings.model;
        let call = ModelCall {
            key: model.key.as_ref().map(secret).transpose()?,
            stream: model.stream,
            timeout: model.timeout,
            temperature: model.temperature,
            max_tokens: model.max_tokens,
            max_tokens_as: match model.older_max_tokens {
                true => MaxTokensAs::MaxTokens,
                false => MaxTokensAs::MaxCompletionTokens,
            },
            ..ModelCall::new(&model.url, &model.name)
        };
        let mut providers = BTreeMap::new();
        if let Some(wati) = &settings.wati {
            let account = WatiAccount::new(&wati.url, None, secret(&wati.token)?);
            providers.insert(Channel::Wati, Provider::Wati(account));
        }
        if let Some(twilio) = &settings.twilio {
            let account = TwilioAccount::new(&twilio.account, secret(&twilio.token)?, twilio.from.clone());
            let account = TwilioAccount { base_url: twilio.url.clone(), ..account };
            providers.insert(Channel::Twilio, Provider::Twilio(account));
        }
        if let Some(meta) = &settings.meta {
            let number = meta.phone_number_id.clone().unwrap_or_default();
            let account = MetaAccount {
                base_url: meta.url.clone(),
                version: meta.version.clone(),
                ..MetaAccount::new(number, secret(&meta.token)?)
            };
            providers.insert(Channel::Meta, Provider::Meta(account));
        }
        let prompt = settings.prompt.as_ref().map(read_prompt).transpose()?;
        Ok(Tenant { settings: settings.clone(), prompt, model: call, providers })
    }
}

fn read_prompt(source: &PromptSource) -> Result<String, String> {
    let path = match source {
        PromptSource::Text(text) => return Ok(text.clone()),
        PromptSource::File(path) => path,
    };
    let shown = path.display();
    let size =
        std::fs::metadata(path).map_err(|error| format!("the prompt {shown} cannot be read: {error}"))?.len();
    if size > PROMPT_BYTES_MAX {
        return Err(format!("the prompt {shown} has {size} bytes, and {PROMPT_BYTES_MAX} are allowed"));
    }
    std::fs::read_to_string(path).map_err(|error| format!("the prompt {shown} cannot be read: {error}"))
}

type Tenants = BTreeMap<event::Tenant, Arc<Tenant>>;

/// The tenants in force.
#[derive(Debug)]
pub struct Live(RwLock<Arc<Tenants>>);

impl Live {
    /// Reads prompts and secrets; an error names the tenant and what is missing.
    pub fn load(chat: &ChatSettings, env: &BTreeMap<String, String>) -> Result<Live, String> {
        Ok(Live(RwLock::new(Arc::new(ready(chat, env)?))))
    }

    /// Replaces all of them, or none if something is missing.
    pub fn change(&self, chat: &ChatSettings, env: &BTreeMap<String, String>) -> Result<(), String> {
        let next = Arc::new(ready(chat, env)?);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = next;
        Ok(())
    }

    pub fn tenant(&self, name: &event::Tenant) -> Option<Arc<Tenant>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }
}

fn ready(chat: &ChatSettings, env: &BTreeMap<String, String>) -> Result<Tenants, String> {
    let one = |(name, settings): (&event::Tenant, &Arc<ChatTenant>)| match Tenant::ready(settings, env) {
        Ok(tenant) => Ok((name.clone(), Arc::new(tenant))),
        Err(problem) => Err(format!("[{}]: {problem}", ChatSettings::section(name))),
    };
    chat.tenants.iter().map(one).collect()
}
