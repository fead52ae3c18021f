//! Keys of applications: scripts that run whole, under a prefix that is the application's alone.
//!
//! A store without keys keeps these promises by having none to give, which [`World::has_keys`] must say, too.

use std::sync::Arc;

use quell_core::error::ErrorKind;
use quell_core::keys::Keys;
use quell_core::store::Store;
use quell_core::tables::Cell;
use tokio::task::JoinSet;

use crate::World;
use crate::builders::{append_one, event, refused, secs};
use crate::reads::{assert_moment, health, verify};

const PUT: &str = "redis.call('SET', KEYS[1], ARGV[1])";
const GET: &str = "return { redis.call('GET', KEYS[1]) }";

/// The keys of a store that must have some.
fn shop(store: Arc<dyn Store>) -> Arc<dyn Keys> {
    store.keys().expect("this store has keys")
}

async fn put(keys: &dyn Keys, name: &str, value: &str) {
    let answer = keys.run("shop", PUT, &[name], vec![value.into()]).await.expect("the keys take it");
    assert_eq!(answer, [], "a script that returns nothing answers nothing");
}

async fn get(keys: &dyn Keys, name: &str) -> Cell {
    let mut answer = keys.read("shop", GET, &[name], vec![]).await.expect("a key can be read");
    assert_eq!(answer.len(), 1);
    answer.remove(0)
}

pub async fn a_store_has_keys_or_says_that_it_has_none(world: &dyn World) {
    assert_eq!(world.store().keys().is_some(), world.has_keys());
    assert!(
        !(world.store().keys().is_some() && world.store().tables().is_some()),
        "an application need not choose"
    );
}

pub async fn values_come_back_as_they_were_passed(world: &dyn World) {
    if !world.has_keys() {
        return;
    }
    let keys = shop(world.store());
    let odd = "Ω 'quoted' \"twice\" \\ \0 \u{2028} 🪙";
    let values = vec![
        Cell::Text(odd.into()),
        Cell::Null,
        Cell::Int(i64::MAX),
        Cell::Text(String::new()),
        Cell::Int(7),
    ];
    let answer = keys
        .run("shop", "return { ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), #KEYS }", &[], values)
        .await;
    let largest = Cell::Text(i64::MAX.to_string());
    let wanted =
        [Cell::Text(odd.into()), Cell::Null, largest, Cell::Text(String::new()), Cell::Int(7), Cell::Int(0)];
    assert_eq!(answer.expect("the keys take it"), wanted, "a number is passed as text: Lua would round it");
    put(&*keys, "coin:1", odd).await;
    assert_eq!(get(&*shop(world.another().await), "coin:1").await, Cell::Text(odd.into()));
    assert_eq!(get(&*keys, "coin:2").await, Cell::Null);
}

pub async fn what_a_script_wrote_survives_a_restart(world: &dyn World) {
    if !world.has_keys() {
        return;
    }
    let keys = shop(world.store());
    put(&*keys, "coin", "a").await;
    drop(keys);
    let keys = shop(world.reopen().await);
    assert_eq!(get(&*keys, "coin").await, Cell::Text("a".into()));
}

pub async fn a_script_tells_the_time_of_the_store(world: &dyn World) {
    if !world.has_keys() {
        return;
    }
    let store = world.store();
    let keys = shop(store.clone());
    for _ in 0..2 {
        world.advance(secs(3_600)).await;
        let answer = keys.run("shop", "return { now() }", &[], vec![]).await.expect("the keys take it");
        let Cell::Int(told) = answer[0] else { panic!("a time is a number: {answer:?}") };
        let told = quell_core::clock::Timestamp::from_millis(told);
        assert_moment(world, told, health(&*store).await.now, "the store's own time");
    }
}

pub async fn of_many_who_change_a_key_on_a_condition_exactly_one_does(world: &dyn World) {
    if !world.has_keys() {
        return;
    }
    let (keys, other) = (shop(world.store()), shop(world.another().await));
    let mut buyers = JoinSet::new();
    for buyer in 0..8 {
        let keys = if buyer % 2 == 0 { keys.clone() } else { other.clone() };
        buyers.spawn(async move {
            let sell = "if redis.call('EXISTS', KEYS[1]) == 1 then
                            return redis.error_reply('CONFLICT the coin is sold')
                        end
                        redis.call('SET', KEYS[1], ARGV[1])
                        redis.call('SADD', key('buyers'), ARGV[1])
                        return { ARGV[1] } -- what follows belongs to the store";
            keys.run("shop", sell, &["sold"], vec![format!("buyer {buyer}").into()]).await
        });
    }
    let answers = buyers.join_all().await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1, "{answers:?}");
    for error in answers.iter().filter_map(|answer| answer.as_ref().err()) {
        assert_eq!(error.kind, ErrorKind::Conflict, "{error}");
        assert!(error.detail.contains("the coin is sold"), "{error}");
    }
    let buyers = keys.read("shop", "return redis.call('SMEMBERS', KEYS[1])", &["buyers"], vec![]).await;
    assert_eq!(
        buyers.expect("a key can be read"),
        [get(&*keys, "sold").await],
        "and it is the one who bought"
    );
}

pub async fn applications_do_not_see_one_another(world: &dyn World) {
    if !world.has_keys() {
        return;
    }
    let keys = shop(world.store());
    put(&*keys, "coin", "a").await;
    let found = keys.read("bank", GET, &["coin"], vec![]).await.expect("a key can be read");
    assert_eq!(found, [Cell::Null]);
    let names = keys.read("bank", "return { KEYS[1], key('note') }", &["coin"], vec![]).await;
    let names = names.expect("names are told");
    let [Cell::Text(passed), Cell::Text(made)] = &names[..] else { panic!("two names: {names:?}") };
    assert!(passed.ends_with(":app:bank:coin") && made.ends_with(":app:bank:note"), "{passed} {made}");
}

pub async fn names_beyond_the_applications_own_are_refused(world: &dyn World) {
    if !world.has_keys() {
        return;
    }
    let keys = shop(world.store());
    let long = "x".repeat(2_000);
    for name in ["", "{other}", "a}b", &long] {
        refused(keys.run("shop", PUT, &[name], vec!["a".into()]).await, ErrorKind::Invalid);
        refused(keys.read("shop", GET, &["coin", name], vec![]).await, ErrorKind::Invalid);
    }
    for application in ["", "shop:coin", "Shop", "{shop}"] {
        refused(keys.run(application, PUT, &["coin"], vec!["a".into()]).await, ErrorKind::Invalid);
    }
}

pub async fn a_script_that_is_wrong_is_refused_and_so_is_its_answer(world: &dyn World) {
    if !world.has_keys() {
        return;
    }
    let keys = shop(world.store());
    put(&*keys, "coin", "a").await;
    for script in [
        "retrun nothing",
        "redis.call('LPUSH', KEYS[1], 'a')",
        "redis.call('SELEKT')",
        "return { { 'a list' } }",
        "return { string.char(255) }",
    ] {
        refused(keys.run("shop", script, &["coin"], vec![]).await, ErrorKind::Invalid);
    }
    refused(
        keys.run("shop", "redis.call('SET', KEYS[1], ARGV[1])", &["b"], vec![Cell::Null]).await,
        ErrorKind::Invalid,
    );
    assert_eq!(get(&*keys, "coin").await, Cell::Text("a".into()));
    assert_eq!(get(&*keys, "b").await, Cell::Null);
}

pub async fn a_read_changes_nothing(world: &dyn World) {
    if !world.has_keys() {
        return;
    }
    let keys = shop(world.store());
    put(&*keys, "coin", "a").await;
    refused(keys.read("shop", PUT, &["coin"], vec!["b".into()]).await, ErrorKind::Invalid);
    assert_eq!(get(&*keys, "coin").await, Cell::Text("a".into()));
}

pub async fn a_sealed_store_is_read_and_not_changed(world: &dyn World) {
    if !world.has_keys() {
        return;
    }
    let Some(portable) = world.portable() else { return };
    let keys = shop(world.store());
    put(&*keys, "coin", "a").await;
    portable.seal(Some("bob")).await.expect("it is sealed");
    let error = refused(keys.run("shop", PUT, &["coin"], vec!["b".into()]).await, ErrorKind::Unavailable);
    assert!(error.detail.contains("sealed by bob"), "{error}");
    assert_eq!(get(&*keys, "coin").await, Cell::Text("a".into()));
    portable.seal(None).await.expect("the seal is lifted");
    put(&*keys, "coin", "b").await;
    assert_eq!(get(&*keys, "coin").await, Cell::Text("b".into()));
}

pub async fn the_store_itself_is_not_disturbed(world: &dyn World) {
    if !world.has_keys() {
        return;
    }
    let store = world.store();
    let keys = shop(store.clone());
    // Names of the store's own, which here are others.
    for name in ["meta", "queues", "lane:1"] {
        put(&*keys, name, "a").await;
    }
    append_one(&*store, event("chat", "k")).await;
    assert_eq!(verify(&*store).await.problems, Vec::<String>::new());
    drop((store, keys));
    append_one(&*world.reopen().await, event("chat", "k")).await;
}
