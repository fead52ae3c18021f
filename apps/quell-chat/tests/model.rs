//! The model client against a local server that speaks the real protocol, and against recorded answers.

#![expect(clippy::unwrap_used, reason = "what a test builds for itself is there, or the test fails")]

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use quell::clock::SteppedTime;
use quell::fetch::{FetchError, Fetcher, Guard, Http, HttpSettings, Reply};
use quell::quell_core::batch::{Batch, WorkerId};
use quell::quell_core::event::{
    AppendPolicy, EventId, Key, LaneKey, NewEvent, NewEventId, Payload, QueueName, SourceName,
};
use quell::quell_core::inspect::{Inspect, Inspected, SourceFilter};
use quell::quell_core::memory::MemoryStore;
use quell::quell_core::source::SourceRules;
use quell::quell_core::store::{
    AppendRequest, ClaimQueues, ClaimRequest, Control, ControlAction, RunPolicy, Store,
};
use quell::quell_core::window::Window;
use quell::webhook::Secret;
use quell_chat::local::{Asked, Ended, LocalModel, ModelFault, Script};
use quell_chat::model::{
    Answer, ModelCall, ModelError, NoReply, Reading, Role, Turn, ask, fault, http_settings, read,
};
use serde_json::Value;

const LONG: Duration = Duration::from_secs(30);

/// A store with the source `model`, and one run that asks it.
struct World {
    store: Arc<MemoryStore>,
    batch: Batch,
}

impl World {
    async fn new() -> World {
        let store = Arc::new(MemoryStore::new(Arc::new(SteppedTime::new())));
        let name = SourceName::new("model").unwrap();
        let action = ControlAction::PutSource { name: name.clone(), rules: SourceRules::default() };
        store.control(Control { actor: "test".into(), action }).await.unwrap();
        let lane = LaneKey::new(QueueName::new("chat").unwrap(), Key::new("wati:1").unwrap());
        let id = NewEventId::Made(EventId::new("evt_1").unwrap());
        let policy = Arc::new(AppendPolicy { window: Window::none(), ..AppendPolicy::default() });
        let mut event = NewEvent::new(lane, id, Payload::of(&serde_json::json!({})), policy);
        event.source = Some(name);
        store.append(AppendRequest { events: vec![event], repeat: false }).await.unwrap();
        let request = ClaimRequest {
            worker: Arc::new(WorkerId { name: "w".into(), pid: 1, start: "a".into() }),
            queues: ClaimQueues::Any(Arc::new(RunPolicy::default())),
            tenant: None,
            max: 1,
            reclaim: true,
            claim_id: None,
        };
        let batch = store.claim(request).await.unwrap().batches.pop().unwrap();
        World { store, batch }
    }

    /// A client that means this server.
    fn fetcher(&self, model: &LocalModel) -> Fetcher {
        self.bounded(model, &http_settings())
    }

    fn bounded(&self, model: &LocalModel, settings: &HttpSettings) -> Fetcher {
        let http = Http::new(Guard::default(), settings).unwrap().meaning(&model.base_url());
        Fetcher::new(http, self.store.clone(), &self.batch)
    }

    async fn streak(&self) -> u32 {
        let filter = SourceFilter { limit: 1, ..SourceFilter::default() };
        match self.store.inspect(Inspect::Sources(filter)).await {
            Ok(Inspected::Sources(mut page)) => page.items.pop().unwrap().failure_streak,
            other => panic!("{other:?}"),
        }
    }
}

fn turns() -> Vec<Turn> {
    vec![Turn::new(Role::System, "Be kind."), Turn::new(Role::User, "Do you buy coins? 👋")]
}

fn call(model: &LocalModel, stream: bool) -> ModelCall {
    ModelCall { stream, timeout: LONG, ..ModelCall::new(model.base_url(), "local") }
}

fn text(answer: Result<Answer, ModelError>) -> String {
    match answer {
        Ok(Answer::Reply { text, .. }) => text,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_question_is_answered_in_pieces_and_whole() {
    let said = "Yes, we do. Schöne Grüße 👋👋👋!";
    let model = LocalModel::start(Script::fixed(said)).await.unwrap();
    let world = World::new().await;
    let fetcher = world.fetcher(&model);
    for stream in [true, false] {
        let settings = ModelCall {
            key: Some(Secret::new("k")),
            temperature: Some(0.5),
            max_tokens: Some(9),
            ..call(&model, stream)
        };
        let Ok(Answer::Reply { text, cut, usage, request_id }) = ask(&fetcher, &settings, &turns()).await
        else {
            panic!("it answers");
        };
        assert_eq!((text.as_str(), cut), (said, false));
        assert_eq!((usage.prompt, usage.completion, usage.total), (Some(7), Some(6), Some(13)));
        assert_eq!(request_id.is_some(), stream);
    }
    let asked = model.asked();
    for (asked, stream) in asked.iter().zip([true, false]) {
        assert_eq!((&asked.messages, asked.stream, asked.ended), (&turns(), stream, Ended::Whole));
        assert_eq!(
            (&asked.body["max_completion_tokens"], &asked.body["temperature"]),
            (&9.into(), &0.5.into())
        );
    }
    assert_eq!(asked.len(), 2);
    assert_eq!(world.streak().await, 0);
}

#[tokio::test]
async fn the_answer_may_be_made_of_the_question_and_change_while_it_runs() {
    let model =
        LocalModel::start(Script::computed(|asked| asked.messages[1].content.to_uppercase())).await.unwrap();
    let world = World::new().await;
    let fetcher = world.fetcher(&model);
    assert_eq!(text(ask(&fetcher, &call(&model, true), &turns()).await), "DO YOU BUY COINS? 👋");
    model.follow(Script::fixed("   "));
    // A handler may ask from any thread.
    let nothing =
        tokio::spawn(async move { ask(&fetcher, &call(&model, true), &turns()).await }).await.unwrap();
    assert!(matches!(nothing, Ok(Answer::Nothing { why: NoReply::Blank, .. })), "{nothing:?}");
}

#[tokio::test]
async fn every_fault_is_told_by_its_name() {
    let model = LocalModel::start(Script::fixed("Yes, we buy silver coins.")).await.unwrap();
    for stream in [true, false] {
        let world = World::new().await;
        let fetcher = world.fetcher(&model);
        let fail = async |fault: ModelFault| {
            model.fail_next(fault);
            ask(&fetcher, &call(&model, stream), &turns()).await
        };
        let wait = Duration::from_millis(2500);
        let limited = fail(ModelFault::RateLimited(wait)).await;
        assert!(matches!(&limited, Err(ModelError::RateLimited { retry_after: Some(w), .. }) if *w == wait));
        assert_eq!(world.streak().await, 1, "it is the source's fault");

        // It asked for two seconds of silence, so the next requests are those of another world.
        let world = World::new().await;
        let fetcher = world.fetcher(&model);
        let fail = async |fault: ModelFault| {
            model.fail_next(fault);
            ask(&fetcher, &call(&model, stream), &turns()).await
        };
        assert!(matches!(fail(ModelFault::Quota).await, Err(ModelError::Quota(_))));
        let error = fail(ModelFault::ServerError).await;
        assert!(matches!(error, Err(ModelError::Fetch(FetchError::Fault { .. }))), "{error:?}");
        assert_eq!(world.streak().await, 2);
        assert!(matches!(fail(ModelFault::ContextLength).await, Err(ModelError::ContextLength(_))));
        assert_eq!(world.streak().await, 0, "that is our own");
        for broken in [ModelFault::Cut, ModelFault::ErrorMidway, ModelFault::Garbage] {
            let is_lost = broken == ModelFault::Cut && !stream;
            let answer = fail(broken.clone()).await;
            let right = match &answer {
                Err(ModelError::Broken(_)) => !is_lost,
                Err(ModelError::Fetch(FetchError::Fault { .. })) => is_lost,
                _ => false,
            };
            assert!(right, "{broken:?} {answer:?}");
        }
        let lost = fail(ModelFault::Lost).await;
        assert!(matches!(lost, Err(ModelError::Fetch(FetchError::Fault { .. }))), "{lost:?}");
        assert_eq!(
            text(fail(ModelFault::Slow(Duration::from_millis(50))).await),
            "Yes, we buy silver coins."
        );
        assert_eq!(world.streak().await, 0);
    }
}

#[tokio::test]
async fn a_conversation_may_be_too_long_by_turns_or_by_bytes() {
    let world = World::new().await;
    let script = Script { turns_max: Some(1), ..Script::fixed("Yes") };
    let model = LocalModel::start(script).await.unwrap();
    let fetcher = world.fetcher(&model);
    let ask = async |turns: &[Turn]| ask(&fetcher, &call(&model, true), turns).await;
    assert!(matches!(ask(&turns()).await, Err(ModelError::ContextLength(_))));
    assert_eq!(text(ask(&turns()[..1]).await), "Yes");
    model.follow(Script { bytes_max: Some(8), ..Script::fixed("Yes") });
    assert!(matches!(ask(&turns()).await, Err(ModelError::ContextLength(_))));
    assert_eq!(text(ask(&turns()[..1]).await), "Yes");
}

#[tokio::test]
async fn a_wrong_key_is_refused_and_never_shown() {
    let script = Script { key: Some(Secret::new("right")), ..Script::fixed("Yes") };
    let model = LocalModel::start(script).await.unwrap();
    let world = World::new().await;
    let fetcher = world.fetcher(&model);
    let with = |key: &str| ModelCall { key: Some(Secret::new(key)), ..call(&model, true) };
    let error = ask(&fetcher, &with("opensesame"), &turns()).await.unwrap_err();
    assert!(matches!(error, ModelError::Refused(_)), "{error:?}");
    assert_eq!(text(ask(&fetcher, &with("right"), &turns()).await), "Yes");

    // A server that repeats the key does not make us repeat it.
    for status in [400, 429, 500] {
        let body = br#"{"error":{"message":"bad key right!","code":"x"}}"#.to_vec();
        model.fail_next(ModelFault::Exactly { status, headers: vec![], body });
        let error = ask(&fetcher, &with("right"), &turns()).await.unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains("right"), "{shown}");
    }
}

#[tokio::test]
async fn a_slow_answer_times_out_and_a_huge_one_is_not_read() {
    let model = LocalModel::start(Script { delay: LONG, ..Script::fixed("Yes") }).await.unwrap();
    let world = World::new().await;
    let settings = ModelCall { timeout: Duration::from_millis(150), ..call(&model, true) };
    let error = ask(&world.fetcher(&model), &settings, &turns()).await;
    assert!(matches!(error, Err(ModelError::Fetch(FetchError::Fault { .. }))), "{error:?}");
    assert_eq!(world.streak().await, 1);
    let hung_up = |asked: &[Asked]| asked[0].ended == Ended::HungUp;
    tokio::time::timeout(LONG, model.wait_until(hung_up)).await.unwrap();

    model.follow(Script::fixed("x".repeat(100_000)));
    let small = HttpSettings { body_bytes_max: 50_000, ..http_settings() };
    for stream in [true, false] {
        let error = ask(&world.bounded(&model, &small), &call(&model, stream), &turns()).await;
        assert!(matches!(error, Err(ModelError::Fetch(FetchError::Own(_)))), "{error:?}");
    }
}

#[tokio::test]
async fn whoever_drops_the_question_hangs_up() {
    let slow = |script: Script| Script { delay: Duration::from_millis(200), ..script };
    let model = LocalModel::start(slow(Script::fixed("x".repeat(10_000)))).await.unwrap();
    let world = World::new().await;
    let fetcher = world.fetcher(&model);
    for (n, stream) in [true, false].into_iter().enumerate() {
        model.follow(Script {
            // The first is dropped in the middle of the answer, the second before its beginning.
            thinking: if stream { Duration::ZERO } else { LONG },
            ..slow(Script::fixed("x".repeat(10_000)))
        });
        let (settings, turns) = (call(&model, stream), turns());
        tokio::select! {
            answer = ask(&fetcher, &settings, &turns) => panic!("{answer:?}"),
            () = async {
                model.wait_until(|asked| asked.len() == n + 1).await;
                quell::clock::sleep(Duration::from_millis(300)).await;
            } => {}
        }
        let hung_up = |asked: &[Asked]| asked[n].ended == Ended::HungUp;
        tokio::time::timeout(LONG, model.wait_until(hung_up)).await.unwrap();
    }
    assert_eq!(world.streak().await, 0, "that says nothing of the model");
}

/// A recorded answer.
struct Case {
    id: String,
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    expect: Value,
}

/// Those of chat completions, and the time at which they were recorded.
fn cases() -> (Vec<Case>, SystemTime) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures");
    let manifest = std::fs::read(format!("{folder}/openai/manifest.json")).unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    let mut cases = Vec::new();
    for case in manifest["cases"].as_array().unwrap() {
        let id = case["id"].as_str().unwrap().to_owned();
        // Another interface, which this client does not speak.
        if id.starts_with("openai/responses_") {
            continue;
        }
        let headers = case["headers"].as_object().unwrap().iter();
        cases.push(Case {
            id,
            status: u16::try_from(case["status"].as_u64().unwrap()).unwrap(),
            headers: headers
                .map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()))
                .collect(),
            body: std::fs::read(format!("{folder}/{}", case["body_file"].as_str().unwrap())).unwrap(),
            expect: case["expect"].clone(),
        });
    }
    (cases, SystemTime::UNIX_EPOCH + Duration::from_secs(manifest["now"].as_u64().unwrap()))
}

fn check(case: &Case, answer: &Result<Answer, ModelError>, wait: bool) {
    let right = match (case.expect["outcome"].as_str().unwrap(), answer) {
        (outcome @ ("reply" | "reply_cut"), Ok(Answer::Reply { text, cut, usage, .. })) => {
            assert_eq!(text, case.expect["text"].as_str().unwrap(), "{}", case.id);
            if let Some(tokens) = case.expect.get("tokens") {
                assert_eq!(usage.total, tokens.as_u64(), "{}", case.id);
            }
            *cut == (outcome == "reply_cut")
        }
        ("refusal", Ok(Answer::Nothing { why, .. })) => *why == NoReply::Refusal,
        ("no_reply", Ok(Answer::Nothing { why, .. })) => *why == NoReply::ContentFilter,
        ("tool_call", Ok(Answer::Nothing { why, .. })) => *why == NoReply::ToolCall,
        ("retry", Err(ModelError::RateLimited { retry_after, .. })) => {
            let millis = retry_after.map(|wait| u64::try_from(wait.as_millis()).unwrap());
            !wait || millis == case.expect["after_ms"].as_u64()
        }
        ("retry", Err(ModelError::Broken(_) | ModelError::Fetch(_))) => case.expect.get("after_ms").is_none(),
        ("give_up", Err(ModelError::Quota(_) | ModelError::Refused(_)))
        | ("shorten_or_give_up", Err(ModelError::ContextLength(_))) => true,
        _ => false,
    };
    assert!(right, "{}: {answer:?}", case.id);
}

#[test]
fn recorded_answers_mean_what_they_should() {
    let (cases, now) = cases();
    assert_eq!(cases.len(), 17);
    for case in &cases {
        let is_stream = case.headers.iter().any(|(_, value)| value.starts_with("text/event-stream"));
        let status = StatusCode::from_u16(case.status).unwrap();
        if is_stream {
            for size in [1, 2, 3, 5, 64, case.body.len()] {
                let mut reading = Reading::default();
                let fed = case.body.chunks(size).try_for_each(|piece| reading.feed(piece).map(|_| ()));
                check(case, &fed.and_then(|()| reading.end(None)), true);
            }
        } else if case.status == 429 || case.status >= 500 {
            let headers = case.headers.iter().map(|(name, value)| {
                (HeaderName::try_from(name.as_str()).unwrap(), HeaderValue::try_from(value.as_str()).unwrap())
            });
            let reply = Reply { status, headers: HeaderMap::from_iter(headers), body: case.body.clone() };
            match fault(&reply, now) {
                Some(error) => check(case, &Err(error), true),
                None => assert_eq!(case.expect["outcome"], "retry", "{}", case.id),
            }
        } else {
            check(case, &read(status, &case.body, None), true);
        }
    }
}

#[tokio::test]
async fn recorded_answers_mean_the_same_over_the_wire_byte_by_byte() {
    let model = LocalModel::start(Script::fixed("")).await.unwrap();
    for case in cases().0 {
        // One world each: after some of them the source wants to be left alone.
        let world = World::new().await;
        let (headers, body) = (case.headers.clone(), case.body.clone());
        model.fail_next(ModelFault::Exactly { status: case.status, headers, body });
        let answer = ask(&world.fetcher(&model), &call(&model, true), &turns()).await;
        // Dates were recorded long ago.
        check(&case, &answer, case.id != "openai/err_429_http_date");
        if let Ok(Answer::Reply { request_id, .. }) = &answer {
            let sent = case.headers.iter().find(|(name, _)| name == "x-request-id").map(|(_, value)| value);
            assert_eq!(request_id.as_ref(), sent, "{}", case.id);
        }
    }
}
