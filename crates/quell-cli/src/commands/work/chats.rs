//! Conversations, where a process answers them: the handlers of `chat` and `chat.failed`, and the tenants as the file has them now.
//!
//! `[chat]` is looked at again whenever the file changes, so that a window, a prompt or an account can be changed while
//! customers are writing. A file that cannot be used changes nothing, and says so.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use quell::config::{CHAT, ChatSettings, Flags, PromptSource};
use quell::quell_core::event::{QueueName, SourceName};
use quell::worker::OwnHandler;
use quell::{Engine, clock};
use quell_chat::book;
use quell_chat::live::Live;
use tokio::task::JoinHandle;

use crate::args::Global;
use crate::context::{self, Loaded};
use crate::failure::{self, Failure};

/// How often the file is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Answers, and follows the file until it is dropped.
pub(super) struct Chats {
    handlers: BTreeMap<QueueName, OwnHandler>,
    live: Option<Arc<Live>>,
    follower: Option<JoinHandle<()>>,
}

impl Chats {
    /// Nothing where the file has no `[chat]`. A process that only takes messages in needs no keys and no accounts, and follows
    /// the file for the windows.
    pub(super) async fn open(
        engine: &Engine,
        loaded: &Loaded,
        global: &Global,
        works: bool,
    ) -> Result<Option<Chats>, Failure> {
        let Some(chat) = &loaded.settings.chat else { return Ok(None) };
        let (mut live, mut handlers) = (None, BTreeMap::new());
        if works {
            let ready =
                Live::load(chat, &loaded.env).map_err(|problem| Failure::new(failure::USAGE, problem))?;
            let ready = Arc::new(ready);
            let book = book::open(engine.store().clone()).await?;
            let http = quell_chat::client(&engine.settings())
                .map_err(|error| Failure::new(failure::FAILED, error.to_string()))?;
            handlers = quell_chat::handlers(engine, &book, &ready, &http);
            live = Some(ready);
        }
        let follower = loaded.file.clone().map(|file| {
            let following = Following {
                engine: engine.clone(),
                live: live.clone(),
                file,
                global: global.clone(),
                env: loaded.env.clone(),
            };
            tokio::spawn(following.follow(chat.clone()))
        });
        Ok(Some(Chats { handlers, live, follower }))
    }

    pub(super) fn handlers(&self) -> BTreeMap<QueueName, OwnHandler> {
        self.handlers.clone()
    }

    /// Puts what the file says now in force, or says what is missing.
    pub(super) fn change(&self, chat: &ChatSettings, env: &BTreeMap<String, String>) -> Result<(), String> {
        self.live.as_ref().map_or(Ok(()), |live| live.change(chat, env))
    }
}

impl Drop for Chats {
    fn drop(&mut self) {
        if let Some(follower) = &self.follower {
            follower.abort();
        }
    }
}

/// Puts what the file says in force whenever it, or a prompt that it names, has changed.
struct Following {
    engine: Engine,
    live: Option<Arc<Live>>,
    file: PathBuf,
    global: Global,
    env: BTreeMap<String, String>,
}

impl Following {
    async fn follow(self, mut chat: ChatSettings) {
        let mut known = self.marks(&chat);
        loop {
            clock::sleep(LOOK_EVERY).await;
            let now = self.marks(&chat);
            if now == known {
                continue;
            }
            known = now;
            match self.read() {
                Ok(next) => {
                    tracing::info!(file = %self.file.display(), "chat.changed");
                    known = self.marks(&next);
                    chat = next;
                }
                Err(problem) => {
                    let file = self.file.display();
                    tracing::warn!(%file, problem, "what the file says cannot be used; [chat] stays as it was");
                }
            }
        }
    }

    /// When each file was changed last; nothing while one cannot be read, as between the two moves of an editor.
    fn marks(&self, chat: &ChatSettings) -> Vec<Option<SystemTime>> {
        let prompts = chat.tenants.values().filter_map(|tenant| match &tenant.prompt {
            Some(PromptSource::File(path)) => Some(path),
            _ => None,
        });
        let changed_at = |path: &PathBuf| std::fs::metadata(path).and_then(|found| found.modified()).ok();
        std::iter::once(&self.file).chain(prompts).map(changed_at).collect()
    }

    fn read(&self) -> Result<ChatSettings, String> {
        let loaded = context::load(&self.global, Flags::default()).map_err(|failure| failure.to_string())?;
        let chat = loaded.settings.chat.ok_or("it has no [chat] any more; restart for that")?;
        let settings = self.engine.settings();
        let new = |source: &&SourceName| !settings.sources.iter().any(|known| known.name == **source);
        if let Some(source) = chat.tenants.values().flat_map(|tenant| tenant.sources()).find(new) {
            return Err(format!("the source {source} is new; SIGHUP or POST /v1/reload takes it in"));
        }
        if let Some(live) = &self.live {
            live.change(&chat, &self.env)?;
        }
        if let Some(queue) = self.engine.settings().queue(&quell_chat::queue(CHAT)) {
            chat.apply(&queue);
        }
        Ok(chat)
    }
}
