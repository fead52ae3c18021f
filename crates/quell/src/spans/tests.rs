use quell_core::event::Headers;

use super::*;

fn headers(parent: &str, state: Option<&str>) -> Headers {
    let parent = (PARENT.to_owned(), parent.to_owned());
    [Some(parent), state.map(|state| (STATE.to_owned(), state.to_owned()))].into_iter().flatten().collect()
}

fn parent(n: usize) -> String {
    format!("00-{:032x}-{:016x}-01", n + 1, n + 1)
}

#[test]
fn a_context_is_what_the_headers_say_and_nothing_when_they_are_wrong() {
    let found = context("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", Some("a=1,b=2")).unwrap();
    assert_eq!(found.trace_id().to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(found.span_id().to_string(), "00f067aa0ba902b7");
    assert!(found.is_sampled() && found.is_remote());
    assert_eq!(found.trace_state().header(), "a=1,b=2");
    assert!(context("00-00000000000000000000000000000000-00f067aa0ba902b7-01", None).is_none());
    let torn = context("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00", Some("nonsense")).unwrap();
    assert!(!torn.is_sampled() && torn.trace_state().header().is_empty(), "a wrong state is left out");
}

#[test]
fn events_of_one_context_have_one_origin_and_those_of_many_have_a_bound() {
    let same: Vec<Headers> = (0..5).map(|_| headers(&parent(7), None)).chain([Headers::new()]).collect();
    assert!(Origins::of(same.iter()).only().is_some());
    assert!(Origins::of([Headers::new()].iter()).only().is_none());
    let many: Vec<Headers> = (0..LINKS_MAX + 3).map(|n| headers(&parent(n), None)).collect();
    let origins = Origins::of(many.iter().chain(&many));
    assert_eq!((origins.contexts.len(), origins.beyond), (LINKS_MAX, 3));
    let linked = origins.linked(builder("x".to_owned(), SpanKind::Client, Vec::new()));
    assert_eq!(linked.links.unwrap().len(), LINKS_MAX);
    assert_eq!(linked.attributes.unwrap(), [KeyValue::new(names::UNLINKED, 3_i64)]);
}

#[test]
fn an_operation_on_several_queues_names_none_of_them() {
    let (chat, mail) = (QueueName::new("chat").unwrap(), QueueName::new("mail").unwrap());
    assert_eq!(named("claim", one_of([&chat, &chat].into_iter())), "claim chat");
    assert_eq!(named("claim", one_of([&chat, &mail].into_iter())), "claim");
}

/// Other tests of this process may not switch it on: nobody can switch it off again.
#[test]
fn until_somebody_records_headers_stay_as_they_came() {
    let mut sent = HeaderMap::new();
    sent.insert(PARENT, HeaderValue::from_static("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"));
    let before = sent.clone();
    assert!(serving(&Method::POST, "/v1/queues/{queue}/events", &mut sent).0.is_none());
    assert_eq!(sent, before);
    assert!(beginning().is_none());
}
