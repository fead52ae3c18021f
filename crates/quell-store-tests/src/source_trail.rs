//! Promises about the trail of hands on sources: who enabled, disabled, reset or released one, when and why, under the queue
//! that is kept for it, with the source's name as the key.

use quell_core::error::ErrorKind;
use quell_core::event::{Key, QueueName, Tenant};
use quell_core::inspect::AuditFilter;
use quell_core::lifecycle::Change;
use quell_core::store::{Control, ControlAction, SourceScope, Store};

use crate::World;
use crate::builders::{
    breaker, control, declare, event_in, forget, refused, secs, source_name, source_scope, tenant,
    try_append, try_control,
};
use crate::reads::{assert_moment, changes, health, trail};

async fn of_sources(store: &dyn Store) -> Vec<quell_core::audit::AuditRecord> {
    let queue = Some(QueueName::of_sources());
    trail(store, AuditFilter { queue, ..AuditFilter::default() }).await
}

async fn do_as(store: &dyn Store, actor: &str, action: ControlAction) -> bool {
    let request = Control { actor: actor.to_owned(), action };
    store.control(request).await.expect("it may be done").changed
}

pub async fn every_hand_on_a_source_is_in_the_trail_with_who_when_and_why(world: &dyn World) {
    let store = world.store();
    declare(&*store, "shop", breaker(3)).await;
    let scope = || source_scope("shop");
    assert!(do_as(&*store, "token:ops: they are down", ControlAction::DisableSource(scope())).await);
    let now = health(&*store).await.now;
    do_as(&*store, "ada", ControlAction::EnableSource(scope())).await;
    do_as(&*store, "ada: again", ControlAction::ResetSource(scope())).await;
    control(&*store, ControlAction::RemoveSource { name: source_name("shop") }).await;
    do_as(&*store, "ada", ControlAction::ReleaseSource(scope())).await;
    drop(store);
    let store = world.reopen().await;
    let mut records = of_sources(&*store).await;
    records.sort_by_key(|record| record.id);
    let expected =
        [Change::SourceDisabled, Change::SourceEnabled, Change::SourceReset, Change::SourceReleased];
    assert_eq!(changes(&records), expected);
    for record in &records {
        assert_eq!(record.key.as_ref().map(Key::as_str), Some("shop"));
        assert_eq!((record.run, record.from, record.to, record.token), (None, None, None, 0));
    }
    assert_eq!((records[0].who(), records[0].reason()), (Some("token:ops"), Some("they are down")));
    assert_eq!((records[1].who(), records[1].reason()), (Some("ada"), None));
    assert_moment(world, records[0].at, now, "when it was disabled");
    let by_key = AuditFilter {
        queue: Some(QueueName::of_sources()),
        key: Some(Key::new("shop").expect("a key")),
        ..AuditFilter::default()
    };
    assert_eq!(trail(&*store, by_key).await.len(), 4, "found by the name of the source");
}

pub async fn a_hand_that_changes_nothing_or_is_refused_leaves_no_record(world: &dyn World) {
    let store = world.store();
    declare(&*store, "shop", breaker(3)).await;
    assert!(!do_as(&*store, "ada", ControlAction::EnableSource(source_scope("shop"))).await);
    let nobody = ControlAction::DisableSource(source_scope("nobody"));
    refused(try_control(&*store, nobody).await, ErrorKind::NotFound);
    assert!(of_sources(&*store).await.is_empty());
    assert!(do_as(&*store, "ada", ControlAction::DisableSource(source_scope("shop"))).await);
    assert!(!do_as(&*store, "bob", ControlAction::DisableSource(source_scope("shop"))).await);
    assert_eq!(changes(&of_sources(&*store).await), [Change::SourceDisabled]);
}

pub async fn the_sources_of_two_tenants_have_two_trails(world: &dyn World) {
    let store = world.store();
    declare(&*store, "shop", breaker(3)).await;
    let scope = |of: Tenant| SourceScope { tenant: of, name: source_name("shop") };
    do_as(&*store, "ada", ControlAction::DisableSource(scope(tenant("t1")))).await;
    do_as(&*store, "bob", ControlAction::DisableSource(scope(tenant("t2")))).await;
    let of = async |name: &str| {
        let filter = AuditFilter { tenant: Some(tenant(name)), ..AuditFilter::default() };
        trail(&*store, filter).await.iter().filter_map(|r| r.who().map(str::to_owned)).collect::<Vec<_>>()
    };
    assert_eq!((of("t1").await, of("t2").await), (vec!["ada".to_owned()], vec!["bob".to_owned()]));
}

pub async fn nobody_sends_to_the_queue_of_that_trail(world: &dyn World) {
    let store = world.store();
    let refusal =
        refused(try_append(&*store, [event_in(source_scope("shop").trail())]).await, ErrorKind::Invalid);
    assert!(refusal.detail.contains("quell.sources"), "{}", refusal.detail);
}

pub async fn the_trail_of_a_source_is_forgotten_with_the_retention(world: &dyn World) {
    let store = world.store();
    declare(&*store, "shop", breaker(3)).await;
    do_as(&*store, "ada", ControlAction::DisableSource(source_scope("shop"))).await;
    world.advance(secs(100)).await;
    forget(&*store, secs(50)).await;
    assert!(of_sources(&*store).await.is_empty());
    assert!(do_as(&*store, "bob", ControlAction::EnableSource(source_scope("shop"))).await);
    let left = of_sources(&*store).await;
    assert_eq!(left.iter().map(|r| r.who()).collect::<Vec<_>>(), [Some("bob")]);
}

pub async fn hands_that_race_are_all_in_the_trail(world: &dyn World) {
    let (store, other) = (world.store(), world.another().await);
    declare(&*store, "shop", breaker(3)).await;
    let reset = |by: &'static str| Control {
        actor: by.to_owned(),
        action: ControlAction::ResetSource(source_scope("shop")),
    };
    let (a, b) = tokio::join!(store.control(reset("ada")), other.control(reset("bob")));
    assert!(a.expect("done").changed && b.expect("done").changed);
    let mut who: Vec<String> =
        of_sources(&*store).await.iter().filter_map(|r| r.who().map(str::to_owned)).collect();
    who.sort();
    assert_eq!(who, ["ada", "bob"]);
}
