//! The trace that something belongs to, as the W3C's *Trace Context* writes it in `traceparent` and `tracestate`.
//!
//! Events keep these headers from whoever sent them; what is recorded of their path is `spans.rs`. Whoever handles a batch is
//! told a trace, too: that of the run's span where spans are recorded. Where none are, a batch may come from many traces
//! and a request can only belong to one: it continues that of its newest event which has one. Where nobody began a trace one
//! is begun, so that what the receiver does can be found by the run.

use quell_core::event::{Event, Headers};

use crate::handler::Run;

/// The header that names the trace, the caller and whether the trace is recorded.
pub(crate) const PARENT: &str = "traceparent";
/// What the tracing systems on the way have added to it.
pub(crate) const STATE: &str = "tracestate";

/// What is sent along.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trace {
    pub(crate) parent: String,
    pub(crate) state: Option<String>,
}

impl Trace {
    /// What whoever handles this run is told.
    pub(crate) fn for_handler(run: &Run) -> Trace {
        run.trace().cloned().unwrap_or_else(|| Trace::of(run.events(), || run.draw()))
    }

    /// Puts it in the place of what is there.
    pub(crate) fn write(&self, headers: &mut Headers) {
        headers.insert(PARENT.to_owned(), self.parent.clone());
        match &self.state {
            Some(state) => headers.insert(STATE.to_owned(), state.clone()),
            None => headers.remove(STATE),
        };
    }

    /// Continues the trace of the newest event that has one, or begins one that is to be recorded.
    pub(crate) fn of(events: &[Event], mut draw: impl FnMut() -> u64) -> Trace {
        // A number of zeros alone means that there is none.
        let span = draw().max(1);
        let known = events.iter().rev().find_map(|event| {
            let Parts { trace, flags, .. } = Parts::read(event.headers.get(PARENT)?)?;
            let state = event.headers.get(STATE).cloned();
            Some(Trace { parent: format!("00-{trace}-{span:016x}-{flags}"), state })
        });
        known.unwrap_or_else(|| {
            let (high, low) = (draw(), draw().max(1));
            Trace { parent: format!("00-{high:016x}{low:016x}-{span:016x}-01"), state: None }
        })
    }
}

/// A `traceparent`, read.
pub(crate) struct Parts<'a> {
    pub(crate) trace: &'a str,
    pub(crate) span: &'a str,
    pub(crate) flags: &'a str,
}

impl<'a> Parts<'a> {
    /// A later version may have more fields behind those that are known.
    pub(crate) fn read(parent: &'a str) -> Option<Self> {
        let mut fields = parent.trim().split('-');
        let version = hex(fields.next()?, 2).filter(|version| *version != "ff")?;
        let trace = hex(fields.next()?, 32).filter(|id| !zeros(id))?;
        let span = hex(fields.next()?, 16).filter(|id| !zeros(id))?;
        let flags = hex(fields.next()?, 2)?;
        (version != "00" || fields.next().is_none()).then_some(Parts { trace, span, flags })
    }
}

/// Only small letters: the standard says so, and some receivers compare bytes.
fn hex(text: &str, length: usize) -> Option<&str> {
    let plain = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    (plain && text.len() == length).then_some(text)
}

fn zeros(text: &str) -> bool {
    text.bytes().all(|byte| byte == b'0')
}

#[cfg(test)]
mod tests {
    use quell_core::event::Headers;

    use super::*;
    use crate::handler::sample_run;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    fn sent(headers: &[&[(&str, &str)]]) -> Trace {
        let mut events = sample_run("{}").events().to_vec();
        for (event, headers) in events.iter_mut().zip(headers) {
            event.headers =
                headers.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect::<Headers>();
        }
        let mut drawn = 0;
        Trace::of(&events, || {
            drawn += 1;
            drawn
        })
    }

    #[test]
    fn the_newest_event_with_a_trace_is_continued_with_its_state() {
        let parent = |flags: &str| format!("00-{TRACE}-00f067aa0ba902b7-{flags}");
        let (old, new) = (parent("00"), parent("01"));
        let child = |flags: &str| format!("00-{TRACE}-0000000000000001-{flags}");
        let both = sent(&[&[(PARENT, &old), (STATE, "a=1")], &[(PARENT, &new), (STATE, "b=2")]]);
        assert_eq!(both, Trace { parent: child("01"), state: Some("b=2".into()) });
        let older = sent(&[&[(PARENT, &old), (STATE, "a=1")], &[(PARENT, "nonsense"), (STATE, "b=2")]]);
        assert_eq!(older, Trace { parent: child("00"), state: Some("a=1".into()) });
        let later = format!("cc-{TRACE}-00f067aa0ba902b7-03-more");
        assert_eq!(sent(&[&[], &[(PARENT, &later)]]).parent, child("03"), "its known fields");
    }

    #[test]
    fn without_a_good_one_a_trace_is_begun() {
        let fresh = "00-00000000000000020000000000000003-0000000000000001-01";
        let zeros = "0".repeat(32);
        for bad in [
            String::new(),
            "00".into(),
            format!("00-{TRACE}-00f067aa0ba902b7"),
            format!("00-{TRACE}-00f067aa0ba902b7-01-more"),
            format!("ff-{TRACE}-00f067aa0ba902b7-01"),
            format!("00-{zeros}-00f067aa0ba902b7-01"),
            format!("00-{TRACE}-0000000000000000-01"),
            format!("00-{}-00f067aa0ba902b7-01", TRACE.to_uppercase()),
            format!("00-{TRACE}x-00f067aa0ba902b7-01"),
            format!("00-{}é-00f067aa0ba902b7-01", &TRACE[..30]),
        ] {
            let begun = sent(&[&[], &[(PARENT, &bad), (STATE, "a=1")]]);
            assert_eq!(begun, Trace { parent: fresh.into(), state: None }, "{bad}");
        }
    }
}
