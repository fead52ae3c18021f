//! Replies by the three providers, against local servers that speak their protocols.

#![expect(clippy::unwrap_used, reason = "what a test builds for itself is there, or the test fails")]

use std::time::Duration;

use quell::clock::{RealTime, Time};
use quell::fetch::{Guard, Http, HttpSettings};
use quell::quell_core::clock::Timestamp;
use quell::webhook::Secret;
use quell_chat::local::{LocalProviders, ProviderFault};
use quell_chat::message::Channel;
use quell_chat::provider::{Provider, Recipient, Reconciled, Sending};

fn http() -> Http {
    // No address of this machine is allowed by itself: that one stands in an account is enough.
    Http::new(Guard::default(), &HttpSettings::default()).unwrap()
}

fn ada() -> Recipient {
    Recipient { customer: "50376819621".into(), from: None }
}

fn now() -> Timestamp {
    RealTime::new().wall()
}

/// The account as it is, or an impatient one when there is nothing to wait for.
fn patient(provider: Provider, fault: ProviderFault) -> Provider {
    let silent = matches!(fault, ProviderFault::SilentAfter | ProviderFault::SilentBefore);
    if silent { short(provider) } else { provider }
}

/// The same account, impatient.
fn short(provider: Provider) -> Provider {
    let soon = Duration::from_millis(200);
    match provider {
        Provider::Wati(mut account) => {
            account.timeout = soon;
            Provider::Wati(account)
        }
        Provider::Twilio(mut account) => {
            account.timeout = soon;
            Provider::Twilio(account)
        }
        Provider::Meta(mut account) => {
            account.timeout = soon;
            Provider::Meta(account)
        }
    }
}

/// The same account elsewhere.
fn elsewhere(provider: Provider, url: &str) -> Provider {
    match provider {
        Provider::Wati(mut account) => {
            account.server = url.into();
            Provider::Wati(account)
        }
        Provider::Twilio(mut account) => {
            account.base_url = url.into();
            Provider::Twilio(account)
        }
        Provider::Meta(mut account) => {
            account.base_url = url.into();
            Provider::Meta(account)
        }
    }
}

fn with_token(provider: Provider, token: &str) -> Provider {
    let token = Secret::new(token);
    match provider {
        Provider::Wati(mut account) => {
            account.token = token;
            Provider::Wati(account)
        }
        Provider::Twilio(mut account) => {
            account.auth_token = token;
            Provider::Twilio(account)
        }
        Provider::Meta(mut account) => {
            account.token = token;
            Provider::Meta(account)
        }
    }
}

#[tokio::test]
async fn a_reply_arrives_as_it_was_written() {
    let providers = LocalProviders::start().await.unwrap();
    let text = "Yes & no: 100 % #1?\n«Ça va» 👋 +1=2";
    let before = now();
    for channel in Channel::ALL {
        let sending = providers.account(channel).send(&http(), &ada(), text, "reply-7").await;
        let delivered = providers.delivered().pop().unwrap();
        assert_eq!(sending, Sending::Sent { id: delivered.id.clone() }, "{channel}");
        assert_eq!((delivered.channel, delivered.text.as_str()), (channel, text));
        assert!(delivered.to.ends_with("50376819621"), "{delivered:?}");
        assert_eq!(delivered.own_id.as_deref(), (channel == Channel::Meta).then_some("reply-7"));
        assert!(delivered.at >= before && delivered.at <= now());
    }
    assert_eq!(providers.delivered().len(), 3);
}

#[tokio::test]
async fn a_reply_leaves_from_where_the_message_came_to() {
    let providers = LocalProviders::start().await.unwrap();
    let to = Recipient { from: Some("whatsapp:+14150000000".into()), ..ada() };
    providers.account(Channel::Twilio).send(&http(), &to, "Yes", "").await;
    assert_eq!(providers.delivered()[0].from, "whatsapp:+14150000000");
    let to = Recipient { from: Some("106540352242922".into()), customer: "US.1234".into() };
    let sending = providers.account(Channel::Meta).send(&http(), &to, "Yes", "").await;
    assert!(matches!(sending, Sending::Sent { .. }), "{sending:?}");
    assert_eq!(providers.delivered()[1].to, "US.1234", "by the id that Meta gave this business");
}

#[tokio::test]
async fn a_long_reply_is_cut_to_what_the_provider_takes() {
    let providers = LocalProviders::start().await.unwrap();
    for channel in Channel::ALL {
        for text in ["word ".repeat(2000), "слово ".repeat(2000), "👋".repeat(5000)] {
            let account = providers.account(channel);
            let sending = account.send(&http(), &ada(), &text, "").await;
            assert!(matches!(sending, Sending::Sent { .. }), "{channel} {sending:?}");
            let got = providers.delivered().pop().unwrap().text;
            assert_eq!(got, account.fit(&text));
            assert!(got.ends_with('…') && text.starts_with(got.trim_end_matches('…')), "{channel}");
        }
    }
}

#[tokio::test]
async fn what_was_certainly_not_sent_is_told_from_what_may_have_been() {
    let providers = LocalProviders::start().await.unwrap();
    let wait = Duration::from_secs(7);
    for channel in Channel::ALL {
        let fail = async |fault: ProviderFault| {
            providers.fail_next(channel, fault);
            let before = providers.delivered().len();
            let sending = patient(providers.account(channel), fault).send(&http(), &ada(), "Yes", "").await;
            (sending, providers.delivered().len() > before)
        };
        for (fault, after) in [
            (ProviderFault::TooMany(None), None),
            (ProviderFault::TooMany(Some(wait)), Some(wait)),
            (ProviderFault::Unavailable(wait), Some(wait)),
        ] {
            let (sending, sent) = fail(fault).await;
            let again = match sending {
                Sending::NotSent { again: Some(after), source_fault: true, .. } => after,
                other => panic!("{channel} {fault:?}: {other:?}"),
            };
            assert_eq!((again, sent), (after, false), "{channel} {fault:?}");
        }
        let (sending, sent) = fail(ProviderFault::Refused { status: 400, code: 131_047 }).await;
        assert!(matches!(sending, Sending::NotSent { again: None, source_fault: false, .. }), "{sending:?}");
        assert!(!sent);
        for (fault, really) in [
            (ProviderFault::ErrorBefore, false),
            (ProviderFault::ErrorAfter, true),
            (ProviderFault::SilentBefore, false),
            (ProviderFault::SilentAfter, true),
            (ProviderFault::GarbageAfter, true),
        ] {
            let (sending, sent) = fail(fault).await;
            assert!(matches!(sending, Sending::Unknown { .. }), "{channel} {fault:?}: {sending:?}");
            assert_eq!(sent, really, "{channel} {fault:?}");
        }
    }
    providers.fail_next(Channel::Wati, ProviderFault::Refused { status: 200, code: 1 });
    let sending = providers.account(Channel::Wati).send(&http(), &ada(), "Yes", "").await;
    assert!(
        matches!(sending, Sending::NotSent { again: None, .. }),
        "a good status and a bad result: {sending:?}"
    );
}

#[tokio::test]
async fn nothing_is_sent_without_a_connection_a_permission_or_a_token() {
    let providers = LocalProviders::start().await.unwrap();
    let closed = {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    for channel in Channel::ALL {
        let account = elsewhere(providers.account(channel), &closed);
        let sending = account.send(&http(), &ada(), "Yes", "").await;
        assert!(
            matches!(sending, Sending::NotSent { again: Some(None), source_fault: true, .. }),
            "{channel} {sending:?}"
        );
        // What speaks another protocol is not spoken to.
        let account = elsewhere(providers.account(channel), "ftp://127.0.0.1:9");
        let sending = account.send(&http(), &ada(), "Yes", "").await;
        assert!(
            matches!(sending, Sending::NotSent { again: None, source_fault: false, .. }),
            "{channel} {sending:?}"
        );
        for token in ["opensesame", "open\nsesame"] {
            let account = with_token(providers.account(channel), token);
            let sending = account.send(&http(), &ada(), "The text", "").await;
            assert!(matches!(sending, Sending::NotSent { again: None, .. }), "{channel} {sending:?}");
            let shown = format!("{account:?} {sending:?}");
            assert!(!shown.contains("sesame") && !shown.contains("text"), "{shown}");
        }
    }
    assert_eq!(providers.received(), []);
}

#[tokio::test]
async fn no_error_holds_the_text() {
    let providers = LocalProviders::start().await.unwrap();
    for channel in Channel::ALL {
        for fault in [
            ProviderFault::TooMany(None),
            ProviderFault::ErrorAfter,
            ProviderFault::SilentAfter,
            ProviderFault::GarbageAfter,
            ProviderFault::Refused { status: 400, code: 1 },
        ] {
            providers.fail_next(channel, fault);
            let sending =
                patient(providers.account(channel), fault).send(&http(), &ada(), "geheim", "").await;
            assert!(!format!("{sending:?}").contains("geheim"), "{channel} {sending:?}");
        }
    }
}

#[tokio::test]
async fn a_provider_that_keeps_a_list_is_asked_what_it_has_sent() {
    let providers = LocalProviders::start().await.unwrap();
    for channel in [Channel::Wati, Channel::Twilio] {
        let account = providers.account(channel);
        let since = now();
        let reconcile = async |text: &str| account.reconcile(&http(), &ada(), text, since).await;
        assert_eq!(reconcile("Yes").await, Reconciled::NotSent, "{channel}");

        providers.fail_next(channel, ProviderFault::ErrorBefore);
        account.send(&http(), &ada(), "Yes", "").await;
        assert_eq!(reconcile("Yes").await, Reconciled::NotSent, "{channel}");

        providers.fail_next(channel, ProviderFault::SilentAfter);
        short(account.clone()).send(&http(), &ada(), "Yes", "").await;
        let id = providers.delivered().pop().unwrap().id;
        assert_eq!(reconcile("Yes").await, Reconciled::Sent { id }, "{channel}");
        assert_eq!(reconcile("No").await, Reconciled::NotSent, "{channel}");
        let later = Timestamp::from_millis(now().as_millis() + 60_000);
        assert_eq!(account.reconcile(&http(), &ada(), "Yes", later).await, Reconciled::NotSent, "too old");
        let other = Recipient { customer: "1".into(), from: None };
        assert_eq!(account.reconcile(&http(), &other, "Yes", since).await, Reconciled::NotSent, "to another");

        let long = "слово ".repeat(2000);
        account.send(&http(), &ada(), &long, "").await;
        assert!(matches!(reconcile(&long).await, Reconciled::Sent { .. }), "as it was cut");

        let wrong = with_token(account.clone(), "wrong").reconcile(&http(), &ada(), "Yes", since).await;
        assert!(matches!(wrong, Reconciled::Unknown { .. }), "{wrong:?}");
        for n in 0..12 {
            account.send(&http(), &ada(), &n.to_string(), "").await;
        }
        assert!(matches!(reconcile("Yes").await, Reconciled::Unknown { .. }), "it has left the page");
    }
    let meta = providers.account(Channel::Meta).reconcile(&http(), &ada(), "Yes", now()).await;
    assert!(matches!(meta, Reconciled::Unknown { .. }));
}

#[tokio::test]
async fn only_meta_shows_that_somebody_writes() {
    let providers = LocalProviders::start().await.unwrap();
    for channel in Channel::ALL {
        providers.account(channel).typing(&http(), &ada(), "wamid.1").await;
    }
    let received = providers.received();
    assert_eq!(received.len(), 1);
    assert_eq!((received[0].channel, received[0].typing_for.as_deref()), (Channel::Meta, Some("wamid.1")));
    assert_eq!(providers.delivered(), []);
    // Nothing depends on it.
    with_token(providers.account(Channel::Meta), "wrong").typing(&http(), &ada(), "wamid.2").await;
    assert_eq!(providers.received().len(), 1);
}
