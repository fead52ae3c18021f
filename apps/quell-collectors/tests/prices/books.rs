//! The book of prices by itself: what is stored, what replaces what, and what is never stored.

use quell::quell_core::clock::Timestamp;
use quell::quell_core::error::ErrorKind;
use quell::quell_core::event::{SourceName, Tenant};
use quell_collectors::book::{
    Book, Collected, Collection, Listing, NewPoint, OBSERVATIONS_MAX, POINTS_MAX, Point, PointFilter,
};
use quell_collectors::found::{Found, PriceType};
use quell_collectors::intake::{About, Intake};
use quell_collectors::money::{Currency, Money};
use quell_collectors::value::{Counted, Estimate, Valuation};

use crate::world::{Kind, World, intake, name, series};

fn found(title: &str, cents: i64) -> Found {
    Found {
        external_id: None,
        url: None,
        title: title.to_owned(),
        price: Money { cents, currency: Currency::USD },
        original: None,
        price_type: PriceType::Ask,
        date: None,
    }
}

fn point(key: &str, strength: u8, title: &str, cents: i64) -> NewPoint {
    NewPoint { key: key.to_owned(), found: found(title, cents), strength }
}

/// One collection of an intake from the market.
struct Trip<'a> {
    book: &'a Book,
    intake: &'a Intake,
    source: SourceName,
}

impl Trip<'_> {
    async fn store(
        &self,
        run: &str,
        token: u64,
        at: i64,
        points: &[NewPoint],
    ) -> Result<Collected, ErrorKind> {
        let collection = Collection {
            intake: self.intake,
            source: &self.source,
            run,
            token,
            at: Timestamp::from_millis(at),
            points,
            found: 9,
            unmatched: 2,
            skipped: 1,
            pages: 3,
            cached: false,
        };
        self.book.store(&collection).await.map_err(|error| error.kind)
    }

    async fn points(&self) -> Vec<Point> {
        let (tenant, intake) = (self.intake.tenant.clone(), self.intake.id.clone());
        let filter =
            PointFilter { tenant, intake, source: Some(self.source.clone()), cursor: None, limit: 1_000 };
        self.book.points(&filter).await.unwrap().items
    }

    /// Number, time and cents of all that one point was seen with, the oldest first.
    async fn observed(&self, key: &str) -> Vec<(u64, i64, i64)> {
        let (tenant, id) = (&self.intake.tenant, &self.intake.id);
        let seen = self.book.observations(tenant, id, &self.source, key).await.unwrap();
        seen.iter().rev().map(|one| (one.n, one.at.as_millis(), one.price.cents)).collect()
    }
}

async fn trip<'a>(world: &'a World, intake: &'a Intake) -> Trip<'a> {
    world.book.add(std::slice::from_ref(intake)).await.unwrap();
    Trip { book: &world.book, intake, source: name("market") }
}

async fn world(kind: Kind) -> World {
    World::with(kind, "").await
}

fn counts(stored: &Collected) -> (u64, u64, u64) {
    (stored.new, stored.replaced, stored.seen)
}

pub(crate) async fn an_intake_is_added_once_and_listed_by_page(kind: Kind) {
    let world = world(kind).await;
    let about = About { year: Some("1921".into()), mintmark: Some("D".into()), ..series("Morgan") };
    let all: Vec<Intake> = [("", "a1"), ("", "a2"), ("acme", "a1"), ("acme", "a3"), ("acme", "a4")]
        .map(|(tenant, id)| intake(tenant, id, about.clone()))
        .into();
    assert_eq!(world.book.add(&all).await.unwrap(), 5);
    let other = Intake { currency: Currency::new("EUR").unwrap(), ..all[0].clone() };
    assert_eq!(world.book.add(&[other]).await.unwrap(), 0, "what is known stays as it is");
    let none = Tenant::none();
    assert_eq!(world.book.intake(&none, "a1").await.unwrap().as_ref(), Some(&all[0]));
    assert_eq!(world.book.intake(&none, "a3").await.unwrap(), None, "it is another tenant's");
    let mut listing = Listing { limit: 2, ..Listing::default() };
    let mut listed = Vec::new();
    loop {
        let page = world.book.intakes(&listing).await.unwrap();
        assert!(page.items.len() <= 2);
        listed.extend(page.items);
        listing.cursor = page.next;
        if listing.cursor.is_none() {
            break;
        }
    }
    assert_eq!(listed, all);
    let tenant = Some(Tenant::new("acme").unwrap());
    let page = world.book.intakes(&Listing { tenant, cursor: None, limit: 3 }).await.unwrap();
    assert_eq!((page.items, page.next), (all[2..].to_vec(), None));
    let strange = Listing { cursor: Some("7".into()), ..Listing::default() };
    assert_eq!(world.book.intakes(&strange).await.unwrap_err().kind, ErrorKind::Invalid);
    let many = vec![all[0].clone(); 1_001];
    assert_eq!(world.book.add(&many).await.unwrap_err().kind, ErrorKind::Limit);
    assert_eq!(world.book.add(&[]).await.unwrap(), 0);
}

pub(crate) async fn a_removed_intake_takes_everything_with_it(kind: Kind) {
    let world = world(kind).await;
    let (one, other) = (intake("", "a", series("Morgan")), intake("", "b", series("Morgan")));
    for intake in [&one, &other] {
        trip(&world, intake).await.store("r", 1, 10, &[point("ext_1", 80, "x", 100)]).await.unwrap();
        let none = Valuation {
            currency: Currency::USD,
            estimate: None,
            counted: Counted::default(),
            other_currency: 0,
            as_of: Timestamp::from_millis(1),
        };
        assert!(world.book.put_valuation(intake, &none, "r", 1).await.unwrap());
    }
    let tenant = Tenant::none();
    assert!(world.book.remove(&tenant, "a").await.unwrap());
    assert!(!world.book.remove(&tenant, "a").await.unwrap());
    assert_eq!(world.book.intake(&tenant, "a").await.unwrap(), None);
    assert_eq!(world.book.valuation(&tenant, "a").await.unwrap(), None);
    assert_eq!(world.book.collected(&tenant, "a").await.unwrap(), []);
    // Made anew, it has nothing of what it was.
    let again = trip(&world, &one).await;
    assert_eq!((again.points().await, again.observed("ext_1").await), (vec![], vec![]));
    let left = trip(&world, &other).await;
    assert_eq!((left.points().await.len(), left.observed("ext_1").await.len()), (1, 1));
    assert!(world.book.valuation(&tenant, "b").await.unwrap().is_some());
    assert_eq!(world.book.collected(&tenant, "b").await.unwrap().len(), 1);
}

pub(crate) async fn only_a_strictly_better_match_replaces_a_point(kind: Kind) {
    let world = world(kind).await;
    let coin = intake("", "a", series("Morgan"));
    let trip = trip(&world, &coin).await;
    for key in ["hash_0123456789abcdef", "ext_7"] {
        let mut token = 0;
        let mut store = async |strength, title: &str, cents, at| {
            token += 1;
            let run = format!("{key}-{token}");
            trip.store(&run, token, at, &[point(key, strength, title, cents)]).await
        };
        assert_eq!(counts(&store(60, "first", 100, 10).await.unwrap()), (1, 0, 0));
        assert_eq!(counts(&store(60, "equal", 200, 20).await.unwrap()), (0, 0, 1));
        assert_eq!(counts(&store(59, "weaker", 300, 30).await.unwrap()), (0, 0, 1));
        let kept = trip.points().await.into_iter().find(|point| point.dedupe_key == key).unwrap();
        assert_eq!((kept.title.as_str(), kept.price.cents, kept.match_strength), ("first", 100, 60));
        assert_eq!((kept.first_seen_at.as_millis(), kept.last_seen_at.as_millis()), (10, 30));
        assert_eq!(counts(&store(61, "better", 400, 40).await.unwrap()), (0, 1, 0));
        let kept = trip.points().await.into_iter().find(|point| point.dedupe_key == key).unwrap();
        assert_eq!((kept.title.as_str(), kept.price.cents, kept.match_strength), ("better", 400, 61));
        assert_eq!((kept.first_seen_at.as_millis(), kept.last_seen_at.as_millis()), (10, 40));
        world.book.remove(&coin.tenant, &coin.id).await.unwrap();
        world.book.add(std::slice::from_ref(&coin)).await.unwrap();
    }
}

pub(crate) async fn a_changed_price_is_an_observation_and_no_second_point(kind: Kind) {
    let world = world(kind).await;
    let coin = intake("", "a", series("Morgan"));
    let trip = trip(&world, &coin).await;
    for (token, at, cents) in [(1, 10, 100), (2, 20, 100), (3, 30, 90), (4, 40, 100), (5, 50, 100)] {
        let points = [point("ext_7", 80, "x", cents), point("hash_7", 80, "x", cents)];
        trip.store(&format!("r{token}"), token, at, &points).await.unwrap();
    }
    let points = trip.points().await;
    assert_eq!(points.len(), 2);
    let named = points.iter().find(|point| point.dedupe_key == "ext_7").unwrap();
    assert_eq!(trip.observed("ext_7").await, [(1, 10, 100), (2, 30, 90), (3, 40, 100)]);
    assert_eq!((named.observations, named.price.cents, named.current().cents), (3, 100, 100));
    let hashed = points.iter().find(|point| point.dedupe_key == "hash_7").unwrap();
    assert_eq!((hashed.observations, hashed.latest), (0, None), "its price is part of its key");
    assert!(trip.observed("hash_7").await.is_empty());
    // Another currency is another price.
    let mut euros = point("ext_7", 70, "x", 100);
    euros.found.price.currency = Currency::new("EUR").unwrap();
    trip.store("r6", 6, 60, &[euros.clone()]).await.unwrap();
    let points = trip.points().await;
    let named = points.iter().find(|point| point.dedupe_key == "ext_7").unwrap();
    assert_eq!((named.price.currency, named.current()), (Currency::USD, euros.found.price));
    assert_eq!(named.observations, 4);
}

pub(crate) async fn nothing_seen_moves_back_in_time(kind: Kind) {
    let world = world(kind).await;
    let coin = intake("", "a", series("Morgan"));
    let trip = trip(&world, &coin).await;
    trip.store("r1", 1, 10, &[point("ext_7", 80, "x", 100)]).await.unwrap();
    trip.store("r2", 2, 50, &[point("ext_7", 80, "x", 100)]).await.unwrap();
    // A kept answer that is older than what is known by now.
    let stored = trip.store("r3", 3, 30, &[point("ext_7", 80, "x", 70)]).await.unwrap();
    assert_eq!(counts(&stored), (0, 0, 1));
    assert_eq!(trip.observed("ext_7").await, [(1, 10, 100)]);
    let kept = trip.points().await.remove(0);
    assert_eq!((kept.current().cents, kept.last_seen_at.as_millis()), (100, 50));
}

pub(crate) async fn a_stale_token_stores_nothing(kind: Kind) {
    let world = world(kind).await;
    let coin = intake("", "a", series("Morgan"));
    let trip = trip(&world, &coin).await;
    trip.store("r2", 7, 20, &[point("ext_7", 80, "x", 100)]).await.unwrap();
    let late = trip.store("r1", 6, 30, &[point("ext_7", 99, "y", 50), point("ext_8", 99, "z", 1)]).await;
    assert_eq!(late, Err(ErrorKind::Conflict));
    let points = trip.points().await;
    assert_eq!(points.len(), 1);
    assert_eq!((points[0].title.as_str(), points[0].last_seen_at.as_millis()), ("x", 20));
    assert_eq!(trip.observed("ext_7").await, [(1, 20, 100)]);
    let last = world.book.last_collected(None, 10).await.unwrap();
    assert_eq!((last.len(), last[0].run.as_str()), (1, "r2"));
    // Another source of the same intake has a lane of its own.
    let other = Trip { source: name("other"), ..trip };
    assert!(other.store("r1", 6, 30, &[point("ext_7", 80, "x", 100)]).await.is_ok());
}

pub(crate) async fn a_removed_intake_stores_nothing(kind: Kind) {
    let world = world(kind).await;
    let coin = intake("", "a", series("Morgan"));
    let trip = trip(&world, &coin).await;
    world.book.remove(&coin.tenant, &coin.id).await.unwrap();
    let points = [point("ext_7", 80, "x", 100)];
    assert_eq!(trip.store("r1", 1, 10, &points).await, Err(ErrorKind::Conflict));
    let anew = Intake { created_at: Timestamp::from_millis(5), ..coin.clone() };
    world.book.add(&[anew]).await.unwrap();
    assert_eq!(trip.store("r1", 1, 10, &points).await, Err(ErrorKind::Conflict), "it is another one");
    assert!(trip.points().await.is_empty());
    assert_eq!(world.book.last_collected(None, 10).await.unwrap(), []);
}

pub(crate) async fn a_collection_that_is_stored_twice_counts_once(kind: Kind) {
    let world = world(kind).await;
    let coin = intake("", "a", series("Morgan"));
    let trip = trip(&world, &coin).await;
    let known = [point("ext_1", 50, "a", 100), point("ext_2", 50, "b", 100)];
    trip.store("r1", 1, 10, &known).await.unwrap();
    let found = [
        point("ext_1", 60, "a", 110),
        point("ext_2", 50, "b", 100),
        point("ext_3", 50, "c", 100),
        point("hash_4", 50, "d", 100),
    ];
    let first = trip.store("r2", 2, 20, &found).await.unwrap();
    let (points, seen) = (trip.points().await, trip.observed("ext_1").await);
    let again = trip.store("r2", 3, 20, &found).await.unwrap();
    assert_eq!(counts(&first), (2, 1, 1));
    assert_eq!(first, again);
    assert_eq!((trip.points().await, trip.observed("ext_1").await), (points, seen));
    assert_eq!((first.found, first.unmatched, first.skipped, first.pages, first.cached), (9, 2, 1, 3, false));
    assert_eq!(world.book.collected(&coin.tenant, &coin.id).await.unwrap(), [first]);
}

pub(crate) async fn those_who_write_at_once_take_turns(kind: Kind) {
    let world = world(kind).await;
    let coin = intake("", "a", series("Morgan"));
    world.book.add(std::slice::from_ref(&coin)).await.unwrap();
    let mut writers = tokio::task::JoinSet::new();
    for token in 1..=10 {
        for market in ["market", "other"] {
            let (book, coin) = (world.book.clone(), coin.clone());
            writers.spawn(async move {
                let trip = Trip { book: &book, intake: &coin, source: name(market) };
                let mut points: Vec<NewPoint> =
                    (0..20).map(|n| point(&format!("ext_{n}"), 80, "x", 100)).collect();
                // Not all in the same order, as pages are not.
                points.rotate_left(usize::try_from(token).unwrap());
                let at = i64::try_from(token).unwrap();
                trip.store(&format!("r{token}"), token, at, &points).await.map(drop)
            });
        }
        let (book, coin) = (world.book.clone(), coin.clone());
        writers.spawn(async move {
            let points = book.priced(&coin).await.map_err(|error| error.kind)?;
            let rules = quell_collectors::value::ValueRules::default();
            let made = quell_collectors::value::value(&points, coin.currency, &rules, coin.created_at);
            book.put_valuation(&coin, &made, "r", token).await.map(drop).map_err(|error| error.kind)
        });
    }
    while let Some(done) = writers.join_next().await {
        let done = done.unwrap();
        assert!(matches!(done, Ok(()) | Err(ErrorKind::Conflict)), "{done:?}");
    }
    for market in ["market", "other"] {
        let trip = Trip { book: &world.book, intake: &coin, source: name(market) };
        let points = trip.points().await;
        assert_eq!(points.len(), 20);
        assert!(
            points.iter().all(|point| point.last_seen_at.as_millis() == 10),
            "the newest has the last word"
        );
    }
    assert_eq!(world.book.duplicates().await.unwrap(), []);
    // Nothing is left behind by those who write while it is removed.
    let mut writers = tokio::task::JoinSet::new();
    for token in 11..=30 {
        let (book, coin) = (world.book.clone(), coin.clone());
        writers.spawn(async move {
            if token == 20 {
                assert!(book.remove(&coin.tenant, &coin.id).await.unwrap());
                return Ok(());
            }
            let trip = Trip { book: &book, intake: &coin, source: name("market") };
            trip.store("r", token, 20, &[point("ext_1", 80, "x", 100)]).await.map(drop)
        });
    }
    while let Some(done) = writers.join_next().await {
        assert!(matches!(done.unwrap(), Ok(()) | Err(ErrorKind::Conflict)));
    }
    let trip = trip(&world, &coin).await;
    assert_eq!((trip.points().await, trip.observed("ext_1").await), (vec![], vec![]));
    assert_eq!(world.book.last_collected(None, 10).await.unwrap(), []);
}

pub(crate) async fn points_and_observations_are_bounded(kind: Kind) {
    let world = world(kind).await;
    let coin = intake("", "a", series("Morgan"));
    let trip = trip(&world, &coin).await;
    let prices = i64::try_from(OBSERVATIONS_MAX).unwrap() + 3;
    for n in 1..=prices {
        let token = u64::try_from(n).unwrap();
        trip.store(&format!("r{n}"), token, n, &[point("ext_old", 80, "x", n)]).await.unwrap();
    }
    let seen = trip.observed("ext_old").await;
    assert_eq!((seen.len(), seen[0]), (OBSERVATIONS_MAX, (4, 4, 4)), "the latest are kept");
    let filled: Vec<NewPoint> =
        (0..POINTS_MAX).map(|n| point(&format!("hash_{n:04}"), 80, "x", 100)).collect();
    let stored = trip.store("many", 9_000, 10_000, &filled).await.unwrap();
    assert_eq!(usize::try_from(stored.new), Ok(POINTS_MAX));
    assert!(
        trip.observed("ext_old").await.is_empty(),
        "it was seen longest ago, and its prices went with it"
    );
    let valued = world.book.priced(&coin).await.unwrap();
    assert_eq!(valued.len(), POINTS_MAX);
}

pub(crate) async fn points_are_listed_by_page_the_last_seen_first(kind: Kind) {
    let world = world(kind).await;
    let coin = intake("", "a", series("Morgan"));
    let market = trip(&world, &coin).await;
    let points = |keys: &[&str]| -> Vec<NewPoint> { keys.iter().map(|key| point(key, 80, "x", 1)).collect() };
    market.store("r1", 1, 10, &points(&["ext_1", "ext_2", "ext_3"])).await.unwrap();
    market.store("r2", 2, 20, &points(&["ext_2"])).await.unwrap();
    let other = Trip { source: name("other"), ..trip(&world, &coin).await };
    other.store("r3", 1, 10, &points(&["ext_1"])).await.unwrap();
    let mut filter =
        PointFilter { tenant: Tenant::none(), intake: "a".into(), source: None, cursor: None, limit: 2 };
    let mut listed = Vec::new();
    loop {
        let page = world.book.points(&filter).await.unwrap();
        listed.extend(page.items.iter().map(|point| format!("{} {}", point.source, point.dedupe_key)));
        filter.cursor = page.next;
        if filter.cursor.is_none() {
            break;
        }
    }
    assert_eq!(listed, ["market ext_2", "market ext_1", "market ext_3", "other ext_1"]);
    assert_eq!(other.points().await.len(), 1, "of one source");
    let strange = PointFilter { cursor: Some("[1]".into()), ..filter };
    assert_eq!(world.book.points(&strange).await.unwrap_err().kind, ErrorKind::Invalid);
}

pub(crate) async fn a_value_is_replaced_by_later_claims_only(kind: Kind) {
    let world = world(kind).await;
    let (one, other) = (intake("", "a", series("Morgan")), intake("acme", "b", series("Morgan")));
    world.book.add(&[one.clone(), other.clone()]).await.unwrap();
    let made = |cents| Valuation {
        currency: Currency::USD,
        estimate: Some(Estimate { cents, low_cents: cents - 1, high_cents: cents + 1 }),
        counted: Counted { sold: 1, ask: 2, bid: 3 },
        other_currency: 4,
        as_of: Timestamp::from_millis(9),
    };
    assert!(world.book.put_valuation(&one, &made(100), "r2", 5).await.unwrap());
    assert!(!world.book.put_valuation(&one, &made(200), "r1", 4).await.unwrap(), "a stale one");
    let kept = world.book.valuation(&one.tenant, "a").await.unwrap().unwrap();
    assert_eq!((kept.valuation, kept.run.as_str()), (made(100), "r2"));
    assert!(world.book.put_valuation(&one, &made(300), "r3", 6).await.unwrap());
    let none = Valuation { estimate: None, ..made(0) };
    assert!(world.book.put_valuation(&other, &none, "r4", 1).await.unwrap());
    let first = world.book.valuations(&Listing { limit: 1, ..Listing::default() }).await.unwrap();
    let rest = world.book.valuations(&Listing { cursor: first.next, limit: 1, tenant: None }).await.unwrap();
    assert_eq!(first.items[0].valuation, made(300));
    assert_eq!((rest.items[0].valuation, rest.next), (none, None));
    world.book.remove(&one.tenant, "a").await.unwrap();
    assert!(!world.book.put_valuation(&one, &made(400), "r5", 9).await.unwrap(), "it was removed");
}

pub(crate) async fn texts_of_all_kinds_come_back_as_they_were(kind: Kind) {
    let world = world(kind).await;
    let coin = intake("ténant", "a.b-c_D", series("'; DROP TABLE prices_point; -- $1 ?1 🪙"));
    let trip = trip(&world, &coin).await;
    let found = Found {
        external_id: Some("v1|1|0\"'\\".into()),
        url: Some("http://x.example/ü?a=$1&quell.b=?2".into()),
        title: "🪙 ünï\n\t\"quoted\" \\ back \u{202e}right quell.prices".into(),
        price: Money { cents: 999_999_999_999_999, currency: Currency::USD },
        original: Some(Money { cents: 2_790, currency: Currency::new("GBP").unwrap() }),
        price_type: PriceType::Sold,
        date: Some(Timestamp::from_millis(-1)),
    };
    let new = NewPoint { key: "ext_v1|1|0\"'\\".into(), found: found.clone(), strength: 100 };
    trip.store("r1", (1 << 53) - 1, 10, std::slice::from_ref(&new)).await.unwrap();
    let kept = trip.points().await.remove(0);
    let back = Found {
        external_id: kept.external_id,
        url: kept.url,
        title: kept.title,
        price: kept.price,
        original: kept.original,
        price_type: kept.price_type,
        date: kept.date,
    };
    assert_eq!((kept.dedupe_key, back, kept.match_strength), (new.key, found, 100));
    assert_eq!(world.book.intake(&coin.tenant, &coin.id).await.unwrap(), Some(coin.clone()));
}
