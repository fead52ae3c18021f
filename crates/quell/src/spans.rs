//! What a tracing system is told of an event's path, by OpenTelemetry's conventions for messaging (1.44, still in
//! development there).
//!
//! | span | kind | when |
//! | --- | --- | --- |
//! | `POST /v1/queues/{queue}/events` and the like | server | a request brings events in or ends a run |
//! | `append {queue}` | producer | events are stored; its context travels with them |
//! | `claim {queue}` | client | a claim that was handed something |
//! | `process {queue}` | consumer | one attempt, from the claim to its end, linked to the context of every event |
//! | `settle {queue}` | client | the attempt's outcome is told to the store |
//!
//! A run that comes from one context alone continues that trace; one that comes from several begins a trace of its own. The
//! links are there in both cases, as the conventions demand. Keys are attributes only where somebody said so
//! ([`Recording::keys`]); payloads, error texts, tenants and paths of requests never are.
//!
//! Until [`record`] is called nothing is recorded, and every function here ends after a look at one flag. An event's headers
//! are then left as they came. A program that uses this library gives it the provider of its own; the `quell` command makes
//! one by the `OTEL_…` variables.

mod names;

use std::collections::HashSet;
use std::sync::OnceLock;
use std::time::SystemTime;

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use opentelemetry::global::{BoxedSpan, BoxedTracer};
use opentelemetry::trace::{
    Link, Span, SpanBuilder, SpanContext, SpanId, SpanKind, Status, TraceContextExt, TraceFlags, TraceId,
    TraceState, Tracer, TracerProvider,
};
use opentelemetry::{Context, InstrumentationScope, KeyValue};
use quell_core::batch::{Batch, WorkerId};
use quell_core::error::StoreResult;
use quell_core::event::{Headers, NewEvent, QueueName};
use quell_core::outcome::Verdict;
use quell_core::step::{HandlerEnd, RunEnd};
use quell_core::store::{Claimed, SettleRequest};

use crate::clock::{RealTime, Time};
use crate::trace::{PARENT, Parts, STATE, Trace};

/// Contexts that one span is linked to: what the SDKs keep by default. Those beyond it are counted in `quell.unlinked`.
const LINKS_MAX: usize = 128;

/// What is recorded beyond the usual.
#[derive(Debug, Clone, Copy, Default)]
pub struct Recording {
    /// Also the keys of lanes. They may name people.
    pub keys: bool,
}

struct Recorder {
    tracer: BoxedTracer,
    wishes: Recording,
}

static RECORDER: OnceLock<Recorder> = OnceLock::new();

/// From now on spans are recorded, by the provider of the caller. Only the first call counts.
pub fn record<P>(provider: &P, wishes: Recording)
where
    P: TracerProvider,
    P::Tracer: Send + Sync + 'static,
    <P::Tracer as Tracer>::Span: Send + Sync + 'static,
{
    let scope = InstrumentationScope::builder("quell")
        .with_version(env!("CARGO_PKG_VERSION"))
        .with_schema_url(names::SCHEMA)
        .build();
    let tracer = BoxedTracer::new(Box::new(provider.tracer_with_scope(scope)));
    let _ = RECORDER.set(Recorder { tracer, wishes });
}

/// A span that is under way, or nothing where none are recorded. It ends when it is dropped.
#[derive(Debug, Default)]
#[must_use = "a span ends when it is dropped"]
pub struct Recorded(Option<BoxedSpan>);

/// A request of this route begins. Its headers name its span from here on, so that what is done for it belongs to it.
pub fn serving(method: &Method, route: &str, headers: &mut HeaderMap) -> Recorded {
    let Some(recorder) = RECORDER.get() else { return Recorded(None) };
    let Origin(parent) = origin(headers);
    let attributes = vec![
        KeyValue::new(names::HTTP_METHOD, method.to_string()),
        KeyValue::new(names::HTTP_ROUTE, route.to_owned()),
    ];
    let builder = builder(format!("{method} {route}"), SpanKind::Server, attributes);
    let recorded = recorder.start(builder, parent);
    if let Some(trace) = recorded.trace() {
        let mut set = |name: &'static str, value: Option<&str>| {
            match value.and_then(|value| HeaderValue::from_str(value).ok()) {
                Some(value) => headers.insert(HeaderName::from_static(name), value),
                None => headers.remove(name),
            };
        };
        set(PARENT, Some(&trace.parent));
        set(STATE, trace.state.as_deref());
    }
    recorded
}

/// Events are about to be stored. From here on their context is that of this span.
pub(crate) fn appending(events: &mut [NewEvent]) -> Recorded {
    let Some(recorder) = RECORDER.get() else { return Recorded(None) };
    let origins = Origins::of(events.iter().map(|event| &event.headers));
    let queue = one_of(events.iter().map(|event| &event.lane.queue));
    let mut attributes = messaging("append", "send", queue);
    if let [event] = &*events {
        attributes.push(KeyValue::new(names::MESSAGE_ID, event.id.id().to_string()));
        recorder.add_key(&mut attributes, event.lane.key.as_str());
    } else {
        attributes.push(count_of(events.len()));
    }
    // Whoever sent them is the parent, and not one of many that only had a part in it.
    let (parent, links) = match origins.only() {
        Some(only) => (Some(only), Origins::default()),
        None => (None, origins),
    };
    let builder = links.linked(builder(named("append", queue), SpanKind::Producer, attributes));
    let recorded = recorder.start(builder, parent);
    if let Some(trace) = recorded.trace() {
        events.iter_mut().for_each(|event| trace.write(&mut event.headers));
    }
    recorded
}

/// When a call began that is only worth a span if something comes of it.
pub(crate) fn beginning() -> Option<SystemTime> {
    RECORDER.get().map(|_| now())
}

/// A claim was answered. One that was handed nothing is not told: idle workers ask all the time.
pub(crate) fn claimed(began: Option<SystemTime>, worker: &WorkerId, answer: &StoreResult<Claimed>) {
    let (Some(recorder), Some(began), Ok(claimed)) = (RECORDER.get(), began, answer) else { return };
    if claimed.batches.is_empty() {
        return;
    }
    let events = || claimed.batches.iter().flat_map(|batch| &batch.events);
    let queue = one_of(claimed.batches.iter().map(|batch| &batch.lane.queue));
    let mut attributes = messaging("claim", "receive", queue);
    attributes.push(count_of(events().count()));
    attributes.push(KeyValue::new(names::CLIENT_ID, worker.name.clone()));
    let builder = builder(named("claim", queue), SpanKind::Client, attributes).with_start_time(began);
    let origins = Origins::of(events().map(|event| &event.headers));
    drop(recorder.start(origins.linked(builder), None));
}

/// An attempt begins.
pub(crate) fn processing(batch: &Batch, worker: &WorkerId) -> Recorded {
    let Some(recorder) = RECORDER.get() else { return Recorded(None) };
    let queue = &batch.lane.queue;
    let mut attributes = messaging("process", "process", Some(queue));
    attributes.extend([
        count_of(batch.events.len()),
        KeyValue::new(names::CLIENT_ID, worker.name.clone()),
        KeyValue::new(names::RUN_ID, batch.run_id.to_string()),
        KeyValue::new(names::ATTEMPT, i64::from(batch.attempt)),
        KeyValue::new(names::FIRED_BY, batch.fired_by.as_str()),
    ]);
    recorder.add_key(&mut attributes, batch.lane.key.as_str());
    let origins = Origins::of(batch.events.iter().map(|event| &event.headers));
    let parent = origins.only();
    let builder = origins.linked(builder(named("process", Some(queue)), SpanKind::Consumer, attributes));
    recorder.start(builder, parent)
}

/// Where a request comes from.
#[derive(Debug, Default)]
pub struct Origin(Option<SpanContext>);

/// What the headers of a request say; nothing where no spans are recorded.
pub fn origin(headers: &HeaderMap) -> Origin {
    if RECORDER.get().is_none() {
        return Origin(None);
    }
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    Origin(text(PARENT).and_then(|parent| context(parent, text(STATE))))
}

/// An attempt at a run of this queue is ended, by whoever holds it.
pub fn settling(queue: &QueueName, Origin(parent): Origin) -> Recorded {
    let Some(recorder) = RECORDER.get() else { return Recorded(None) };
    let attributes = messaging("settle", "settle", Some(queue));
    recorder.start(builder(named("settle", Some(queue)), SpanKind::Client, attributes), parent)
}

impl Recorded {
    /// What others are told, so that what they do is part of it.
    pub(crate) fn trace(&self) -> Option<Trace> {
        let context = self.0.as_ref()?.span_context();
        let flags = context.trace_flags().to_u8();
        let parent = format!("00-{}-{}-{flags:02x}", context.trace_id(), context.span_id());
        let state = Some(context.trace_state().header()).filter(|state| !state.is_empty());
        Some(Trace { parent, state })
    }

    /// The request has its answer.
    pub fn answered(mut self, status: StatusCode) {
        self.set(|| KeyValue::new(names::HTTP_STATUS, i64::from(status.as_u16())));
        if status.is_server_error() {
            self.failed(status.as_str().to_owned());
        }
    }

    /// The call is answered, well or by a refusal of this kind.
    pub fn told(mut self, refusal: Option<&'static str>) {
        if let Some(kind) = refusal {
            self.failed(kind.to_owned());
        }
    }

    /// The outcome of this attempt is told to the store. Work that follows from it comes from this attempt.
    pub(crate) fn settle(&self, queue: &QueueName, request: &mut SettleRequest) -> Recorded {
        let Some(span) = &self.0 else { return Recorded(None) };
        if let Some(trace) = self.trace() {
            let unknown = request.events.iter_mut().filter(|event| !event.headers.contains_key(PARENT));
            unknown.for_each(|event| trace.write(&mut event.headers));
        }
        settling(queue, Origin(Some(span.span_context().clone())))
    }

    /// The handler has ended.
    pub(crate) fn handled(&mut self, end: &HandlerEnd) {
        let (outcome, failed) = match end {
            HandlerEnd::Outcome(outcome) => {
                let kind = outcome.verdict.kind().as_str();
                (kind, matches!(outcome.verdict, Verdict::Retry { .. } | Verdict::Failed))
            }
            HandlerEnd::Error(_) => ("error", true),
            HandlerEnd::Panicked(_) => ("panic", true),
            HandlerEnd::Stopped => ("stopped", false),
        };
        self.set(|| KeyValue::new(names::OUTCOME, outcome));
        if failed {
            self.failed(outcome.to_owned());
        }
    }

    /// The attempt is over.
    pub(crate) fn ended(mut self, end: &RunEnd) {
        match end {
            RunEnd::Settled { state } => self.set(|| KeyValue::new(names::STATE, state.as_str())),
            RunEnd::Lost(_) => self.failed("lease_lost".to_owned()),
            RunEnd::GaveUp(_) => self.failed("unsettled".to_owned()),
        }
    }

    fn set(&mut self, attribute: impl FnOnce() -> KeyValue) {
        if let Some(span) = &mut self.0 {
            span.set_attribute(attribute());
        }
    }

    /// Told by its kind alone: a text may quote a payload.
    fn failed(&mut self, kind: String) {
        if let Some(span) = &mut self.0 {
            span.set_attribute(KeyValue::new(names::ERROR_TYPE, kind));
            span.set_status(Status::error(""));
        }
    }
}

impl Recorder {
    fn start(&self, builder: SpanBuilder, parent: Option<SpanContext>) -> Recorded {
        // Of nothing that happens to be under way in this thread.
        let mut around = Context::new();
        if let Some(parent) = parent {
            around = around.with_remote_span_context(parent);
        }
        Recorded(Some(self.tracer.build_with_context(builder, &around)))
    }

    fn add_key(&self, attributes: &mut Vec<KeyValue>, key: &str) {
        if self.wishes.keys {
            attributes.push(KeyValue::new(names::PARTITION_ID, key.to_owned()));
        }
    }
}

/// Where events come from: distinct contexts, as many as are linked, and how many there are beyond.
#[derive(Default)]
struct Origins {
    contexts: Vec<SpanContext>,
    beyond: usize,
}

impl Origins {
    fn of<'h>(headers: impl Iterator<Item = &'h Headers>) -> Self {
        let (mut origins, mut seen) = (Origins::default(), HashSet::new());
        for headers in headers {
            let state = headers.get(STATE).map(String::as_str);
            let Some(found) = headers.get(PARENT).and_then(|parent| context(parent, state)) else { continue };
            if !seen.insert((found.trace_id(), found.span_id())) {
                continue;
            }
            if origins.contexts.len() < LINKS_MAX {
                origins.contexts.push(found);
            } else {
                origins.beyond += 1;
            }
        }
        origins
    }

    fn only(&self) -> Option<SpanContext> {
        match &self.contexts[..] {
            [only] => Some(only.clone()),
            _ => None,
        }
    }

    fn linked(self, builder: SpanBuilder) -> SpanBuilder {
        let beyond = i64::try_from(self.beyond).unwrap_or(i64::MAX);
        let mut builder = builder;
        if let (1.., Some(attributes)) = (beyond, &mut builder.attributes) {
            attributes.push(KeyValue::new(names::UNLINKED, beyond));
        }
        let links = self.contexts.into_iter().map(|context| Link::new(context, Vec::new(), 0));
        builder.with_links(links.collect())
    }
}

/// What the two headers say; a wrong one is as good as none.
fn context(parent: &str, state: Option<&str>) -> Option<SpanContext> {
    let Parts { trace, span, flags } = Parts::read(parent)?;
    let (trace, span) = (TraceId::from_hex(trace).ok()?, SpanId::from_hex(span).ok()?);
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?);
    let state = state.and_then(|state| state.parse::<TraceState>().ok()).unwrap_or_default();
    Some(SpanContext::new(trace, span, flags, true, state))
}

fn builder(name: String, kind: SpanKind, attributes: Vec<KeyValue>) -> SpanBuilder {
    SpanBuilder::from_name(name).with_kind(kind).with_attributes(attributes)
}

/// `process orders`, or without a queue when there are several: the operation alone.
fn named(operation: &str, queue: Option<&QueueName>) -> String {
    queue.map_or_else(|| operation.to_owned(), |queue| format!("{operation} {queue}"))
}

fn messaging(operation: &'static str, kind: &'static str, queue: Option<&QueueName>) -> Vec<KeyValue> {
    let mut attributes = vec![
        KeyValue::new(names::SYSTEM, "quell"),
        KeyValue::new(names::OPERATION_NAME, operation),
        KeyValue::new(names::OPERATION_TYPE, kind),
    ];
    attributes.extend(queue.map(|queue| KeyValue::new(names::DESTINATION, queue.to_string())));
    attributes
}

fn count_of(events: usize) -> KeyValue {
    KeyValue::new(names::MESSAGE_COUNT, i64::try_from(events).unwrap_or(i64::MAX))
}

/// The one queue of all of these, if it is one.
fn one_of<'q>(mut queues: impl Iterator<Item = &'q QueueName>) -> Option<&'q QueueName> {
    let first = queues.next()?;
    queues.all(|queue| queue == first).then_some(first)
}

fn now() -> SystemTime {
    let millis = u64::try_from(RealTime::new().wall().as_millis()).unwrap_or(0);
    SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(millis)
}

#[cfg(test)]
mod tests;
