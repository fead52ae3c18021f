//! Conversations, where a process answers them: the handlers of `chat` and `chat.failed`, and the tenants as the file has them now.
//!
//! `[chat]` is looked at again whenever the file changes, so that a window, a prompt or an account can be changed while
//! customers are writing. A file that cannot be used changes nothing, and says so.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use quell::config::{CHAT, Flags};
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
            let http = quell_chat::client(engine.settings())
                .map_err(|error| Failure::new(failure::FAILED, error.to_string()))?;
            handlers = quell_chat::handlers(engine, &book, &ready, &http);
            live = Some(ready);
        }
        let follower = loaded
            .file
            .clone()
            .map(|file| tokio::spawn(follow(engine.clone(), live, file, global.clone(), loaded.env.clone())));
        Ok(Some(Chats { handlers, follower }))
    }

    pub(super) fn handlers(&self) -> BTreeMap<QueueName, OwnHandler> {
        self.handlers.clone()
    }
}

impl Drop for Chats {
    fn drop(&mut self) {
        if let Some(follower) = &self.follower {
            follower.abort();
        }
    }
}

/// Puts what the file says in force whenever it has changed.
async fn follow(
    engine: Engine,
    live: Option<Arc<Live>>,
    file: PathBuf,
    global: Global,
    env: BTreeMap<String, String>,
) {
    let mut known = changed_at(&file);
    loop {
        clock::sleep(LOOK_EVERY).await;
        let now = changed_at(&file);
        if now == known {
            continue;
        }
        known = now;
        match read(&engine, live.as_deref(), &global, &env) {
            Ok(true) => tracing::info!(file = %file.display(), "chat.changed"),
            Ok(false) => {}
            Err(problem) => {
                tracing::warn!(file = %file.display(), problem, "what the file says cannot be used; [chat] stays as it was");
            }
        }
    }
}

/// When the file was changed last; nothing while it cannot be read, as between the two moves of an editor.
fn changed_at(file: &PathBuf) -> Option<SystemTime> {
    std::fs::metadata(file).and_then(|found| found.modified()).ok()
}

fn read(
    engine: &Engine,
    live: Option<&Live>,
    global: &Global,
    env: &BTreeMap<String, String>,
) -> Result<bool, String> {
    let loaded = context::load(global, Flags::default()).map_err(|failure| failure.to_string())?;
    let chat = loaded.settings.chat.ok_or("it has no [chat] any more; restart for that")?;
    let declared = &engine.settings().sources;
    let new = |source: &&SourceName| !declared.iter().any(|known| known.name == **source);
    if let Some(source) = chat.tenants.values().flat_map(|tenant| tenant.sources()).find(new) {
        return Err(format!("the source {source} is new; restart for that"));
    }
    let changed = match live {
        Some(live) => live.change(&chat, env)?,
        None => true,
    };
    if let Some(queue) = engine.settings().queue(&quell_chat::queue(CHAT)) {
        chat.apply(&queue);
    }
    Ok(changed)
}
