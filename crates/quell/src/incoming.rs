//! One event on its way in, before it meets its queue.
//!
//! [`Incoming`] is plain data for those who collect events (a bulk file, a request); [`Prepared`] is the same with an
//! engine at hand, so that one event with wishes of its own is one expression. Both are checked by `Engine::append`.

use std::time::Duration;

use quell_core::event::{EventId, Headers, Invalid, Key, LaneKey, Payload, QueueName, SourceName, Tenant};
use quell_core::limits;
use quell_core::store::Receipt;
use quell_core::window::WindowPolicy;

use crate::engine::{Engine, EngineError};
use crate::wait::Waited;

/// One event on its way in, not yet checked against a queue.
#[derive(Debug, Clone)]
pub struct Incoming {
    /// Queue, key and tenant.
    pub lane: LaneKey,
    /// The caller's id; a repeated one is a duplicate.
    pub id: Option<EventId>,
    /// What it says.
    pub payload: Payload,
    /// What travels with it, such as the trace.
    pub headers: Headers,
    /// 0 to 9, 9 first: overtakes other keys by a bounded time, never inside its own.
    pub priority: u8,
    /// Kept aside this long before it enters its lane; it blocks nobody meanwhile.
    pub delay: Option<Duration>,
    /// A window of its own in place of the queue's; in a window that is open it may only shorten the wait.
    pub window: Option<WindowPolicy>,
    /// Refused when the key has anything to do: unique work.
    pub only_if_idle: bool,
    /// The source that governs it, in place of the queue's.
    pub source: Option<SourceName>,
}

impl Incoming {
    /// An event without wishes: no id, no delay, the queue's window.
    pub fn new(queue: &str, key: &str, payload: Payload) -> Result<Self, Invalid> {
        Ok(Incoming::to(LaneKey::new(QueueName::new(queue)?, Key::new(key)?), payload))
    }

    /// For a lane whose names have been checked.
    pub fn to(lane: LaneKey, payload: Payload) -> Self {
        Incoming {
            lane,
            id: None,
            payload,
            headers: Headers::new(),
            priority: limits::PRIORITY_DEFAULT,
            delay: None,
            window: None,
            only_if_idle: false,
            source: None,
        }
    }

    /// With the caller's own id: sent twice, it is stored once.
    pub fn id(mut self, id: &str) -> Result<Self, Invalid> {
        self.id = Some(EventId::new(id)?);
        Ok(self)
    }

    /// For a key of this tenant.
    pub fn tenant(mut self, tenant: &str) -> Result<Self, Invalid> {
        self.lane.tenant = Tenant::new(tenant)?;
        Ok(self)
    }

    /// 0 to 9, 9 first; 4 unless it is said.
    #[must_use]
    pub fn priority(mut self, priority: u8) -> Self {
        self.priority = priority;
        self
    }

    /// Enters its lane only after this long, at most 366 days.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }

    /// A window of its own in place of the queue's.
    #[must_use]
    pub fn window(mut self, window: WindowPolicy) -> Self {
        self.window = Some(window);
        self
    }

    /// Refused when the key has anything to do.
    #[must_use]
    pub fn only_if_idle(mut self) -> Self {
        self.only_if_idle = true;
        self
    }

    /// Governed by this source, in place of the queue's.
    pub fn source(mut self, source: &str) -> Result<Self, Invalid> {
        self.source = Some(SourceName::new(source)?);
        Ok(self)
    }
}

/// One event with its wishes, made by [`Engine::prepare`] and stored by [`Prepared::send`]. A bad name is told then.
#[must_use = "an event that is prepared and not sent is lost"]
pub struct Prepared<'a> {
    engine: &'a Engine,
    event: Result<Incoming, Invalid>,
}

impl<'a> Prepared<'a> {
    pub(crate) fn new(engine: &'a Engine, event: Result<Incoming, Invalid>) -> Self {
        Prepared { engine, event }
    }

    fn with(mut self, wish: impl FnOnce(Incoming) -> Result<Incoming, Invalid>) -> Self {
        self.event = self.event.and_then(wish);
        self
    }

    /// With the caller's own id: sent twice, it is stored once.
    pub fn id(self, id: &str) -> Self {
        self.with(|event| event.id(id))
    }

    /// For a key of this tenant.
    pub fn tenant(self, tenant: &str) -> Self {
        self.with(|event| event.tenant(tenant))
    }

    /// 0 to 9, 9 first; 4 unless it is said.
    pub fn priority(self, priority: u8) -> Self {
        self.with(|event| Ok(event.priority(priority)))
    }

    /// Enters its lane only after this long.
    pub fn delay(self, delay: Duration) -> Self {
        self.with(|event| Ok(event.delay(delay)))
    }

    /// A window of its own in place of the queue's.
    pub fn window(self, window: WindowPolicy) -> Self {
        self.with(|event| Ok(event.window(window)))
    }

    /// Refused when the key has anything to do.
    pub fn only_if_idle(self) -> Self {
        self.with(|event| Ok(event.only_if_idle()))
    }

    /// Governed by this source, in place of the queue's.
    pub fn source(self, source: &str) -> Self {
        self.with(|event| event.source(source))
    }

    /// Stores it durably.
    pub async fn send(self) -> Result<Receipt, EngineError> {
        let mut receipts = self.engine.append(vec![self.event?]).await?;
        Ok(receipts.pop().expect("one receipt per event"))
    }

    /// Stores it and waits until its run has ended, or for this long.
    pub async fn send_and_wait(self, timeout: Duration) -> Result<Waited, EngineError> {
        let (engine, event) = (self.engine, self.event?);
        let lane = event.lane.clone();
        let receipts = engine.append(vec![event]).await?;
        let id = receipts.into_iter().next().expect("one receipt per event").event_id;
        Ok(engine.wait(lane, id, timeout).await?)
    }
}
