//! Forbidden addresses, in every way to write them: each is refused with its reason, and nobody is connected to.

use std::sync::Arc;

use quell_fetch::{Allow, Call, CallError, Guard, Http, HttpSettings, Refused, verdict};

use crate::forbidden::{FORBIDDEN_HOSTS, forbidden_urls, ip};
use crate::names::Names;
use crate::server::{Server, ok};

fn why_of(refused: &Refused) -> &'static str {
    match refused {
        Refused::Address { why, .. } | Refused::Name { why, .. } | Refused::Resolved { why, .. } => why,
        other => panic!("not a refused host: {other}"),
    }
}

/// What a client would reach if the guard let it: one port, on each family that this machine has.
async fn both_families() -> (Server, Option<Server>) {
    let four = Server::start("0.0.0.0:0", |_, _| ok("inside")).await;
    let at = format!("[::1]:{}", four.address.port());
    let free = std::net::TcpListener::bind(&at).is_ok();
    let six = if free { Some(Server::start(&at, |_, _| ok("inside")).await) } else { None };
    (four, six)
}

#[tokio::test]
async fn a_forbidden_host_is_refused_in_every_notation_and_nobody_is_connected_to() {
    let (four, six) = both_families().await;
    let port = four.address.port();
    let http = Http::new(Guard::default(), &HttpSettings::default()).unwrap();
    for (host, why) in FORBIDDEN_HOSTS {
        for url in [format!("http://{host}:{port}/"), format!("https://{host}:{port}/x?y#z")] {
            let refused = match http.call(Call::get(&url)).await {
                Err(CallError::Refused(refused)) => refused,
                other => panic!("{url}: {other:?}"),
            };
            assert_eq!(why_of(&refused), *why, "{url}");
        }
    }
    for (url, expected) in forbidden_urls() {
        assert_eq!(http.call(Call::get(url)).await, Err(CallError::Refused(expected)), "{url}");
    }
    assert!(FORBIDDEN_HOSTS.len() + forbidden_urls().len() >= 150);
    assert_eq!(four.connections() + six.as_ref().map_or(0, Server::connections), 0);

    // The counter counts: with an exception the very same addresses are reached.
    let open =
        Http::new(Guard::new(Allow::parse(["127.0.0.0/8", "::1/128"]).unwrap()), &HttpSettings::default());
    let reply = open.unwrap().call(Call::get(format!("http://0x7f.1:{port}/"))).await.unwrap();
    assert_eq!((reply.body.as_slice(), four.connections()), (b"inside".as_slice(), 1));
}

#[test]
fn public_addresses_are_allowed() {
    let public = [
        "1.1.1.1",
        "8.8.8.8",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "169.253.255.255",
        "169.255.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "192.0.1.0",
        "192.0.3.0",
        "192.167.255.255",
        "192.169.0.0",
        "198.17.255.255",
        "198.20.0.0",
        "203.0.112.255",
        "203.0.114.0",
        "223.255.255.255",
        "168.63.129.15",
        "2606:4700:4700::1111",
        "2001:4860:4860::8888",
        "2001:200::1",
        "2a00:1450:4001::1",
        "2003::1",
        "3ffd::1",
        "2620:4f:7fff::1",
    ];
    for text in public {
        assert_eq!(verdict(ip(text)), Ok(()), "{text}");
    }
    let guard = Guard::default();
    for url in [
        "http://example.com/",
        "https://EXAMPLE.com:8443/a?b",
        "http://93.184.215.14/",
        "http://[2606:4700:4700::1111]:8080/",
        "https://bücher.example/",
        "https://xn--bcher-kva.example/",
        "http://mylocalhost/",
        "http://localhost.example.com/",
        "http://example.com./",
        "http://10.example.com/",
    ] {
        assert!(guard.admit(url).is_ok_and(|admitted| !admitted.listed), "{url}");
    }
    assert_eq!(guard.admit("https://bücher.example/").unwrap().url.host_str(), Some("xn--bcher-kva.example"));
}

#[test]
fn a_url_that_is_too_long_is_not_read() {
    let url = format!("http://example.com/{}", "x".repeat(8192));
    assert_eq!(Guard::default().admit(&url), Err(Refused::TooLong(url.len())));
}

#[test]
fn https_can_be_demanded() {
    let guard = Guard::default().https_only();
    assert_eq!(guard.admit("http://example.com/"), Err(Refused::NotHttps));
    assert!(guard.admit("https://example.com/").is_ok());
}

#[test]
fn the_configuration_excepts_exact_targets_and_ranges() {
    let allow =
        Allow::parse(["LocalHost:3000", "127.0.0.1:80", "[::1]:8080", "10.1.2.3/8", "db.example:5432"])
            .unwrap();
    let guard = Guard::new(allow);
    let listed = |url: &str| guard.admit(url).map(|admitted| admitted.listed).ok();
    assert_eq!(listed("http://localhost:3000/x"), Some(true));
    assert_eq!(listed("http://LOCALHOST.:3000/x"), Some(true));
    assert_eq!(listed("http://127.0.0.1/"), Some(true), "the default port is a port");
    assert_eq!(listed("http://2130706433/"), Some(true), "the same address");
    assert_eq!(listed("http://[0::1]:8080/"), Some(true));
    assert_eq!(listed("http://db.example:5432/"), Some(true), "a port of another protocol, by name");
    assert_eq!(listed("http://10.9.9.9:8000/"), Some(false), "by its range, so its names are still judged");
    for url in [
        "http://localhost:3001/",
        "http://localhost/",
        "http://127.0.0.1:81/",
        "https://127.0.0.1/",
        "http://[::1]/",
        "http://11.0.0.1:5432/",
        "http://[::ffff:10.0.0.1]/",
    ] {
        assert_eq!(listed(url), None, "{url}");
    }
    for entry in
        ["", "localhost", "localhost:", "localhost:0", "localhost:99999", "10.0.0.0/33", "a b:80", "x/y:80"]
    {
        let told = Allow::parse([entry]).unwrap_err();
        assert!(told.to_string().starts_with(&format!("{entry:?} cannot be allowed")), "{told}");
    }
}

#[test]
fn an_address_that_the_operator_wrote_is_meant_with_its_port_and_nothing_else() {
    let guard = Guard::default();
    for url in [
        "http://127.0.0.1:8080/x",
        "http://2130706433:8080/",
        "http://localhost:3000/",
        "https://api.localhost/",
        "http://[::1]:9999/",
        "https://10.1.2.3/hook",
        "http://169.254.169.254/",
    ] {
        assert!(guard.admit(url).is_err(), "{url}");
        assert!(guard.meaning(url).admit(url).is_ok_and(|admitted| admitted.listed), "{url}");
    }
    let meant = guard.meaning("http://127.0.0.1:8080/x");
    for url in
        ["http://127.0.0.1:8081/", "https://127.0.0.1/", "http://127.0.0.2:8080/", "http://localhost:8080/"]
    {
        assert!(meant.admit(url).is_err(), "{url}");
    }
    // A name is judged when it is resolved, and a port of another protocol is listed or refused.
    let name = "http://shop.example/";
    assert!(guard.meaning(name).admit(name).is_ok_and(|admitted| !admitted.listed));
    let store = "http://127.0.0.1:6379/";
    assert_eq!(guard.meaning(store).admit(store), Err(Refused::Port(6379)));
    assert!(guard.meaning("no URL").admit("no URL").is_err());
}

#[test]
fn what_stays_on_this_machine_is_known() {
    let local = |url: &str| Guard::default().meaning(url).admit(url).unwrap().is_loopback();
    for url in [
        "http://127.0.0.1:8080/",
        "http://127.1/",
        "http://[::1]/",
        "http://LOCALHOST./",
        "http://a.localhost/",
    ] {
        assert!(local(url), "{url}");
    }
    for url in
        ["http://10.0.0.1/", "https://example.com/", "http://0.0.0.0/", "http://localhost.example.com/"]
    {
        assert!(!local(url), "{url}");
    }
}

fn http_with(names: Arc<Names>, allow: Allow) -> Http {
    Http::with_names(Guard::new(allow), &HttpSettings::default(), names).expect("the defaults are good")
}

#[tokio::test]
async fn a_name_that_changes_its_mind_reaches_nobody_inside() {
    let inside = Server::local(|_, _| ok("inside")).await;
    let port = inside.address.port();
    // The guard of this test allows one further loopback address, where nobody listens, as its public one.
    let names = Names::of("shop.example", &[&["127.9.9.9"], &["127.0.0.1"]]);
    let http = http_with(names.clone(), Allow::parse(["127.9.9.9/32"]).unwrap());
    let url = format!("http://shop.example:{port}/");
    assert!(matches!(http.call(Call::get(&url)).await, Err(CallError::Connect(_))), "public, nobody listens");
    let expected =
        Refused::Resolved { name: "shop.example".into(), address: ip("127.0.0.1"), why: "loopback" };
    assert_eq!(http.call(Call::get(&url)).await, Err(CallError::Refused(expected)));
    assert_eq!((names.asked(), inside.connections()), (2, 0), "asked once per connection");
}

#[tokio::test]
async fn a_name_with_a_public_and_a_private_address_is_refused() {
    let inside = Server::local(|_, _| ok("inside")).await;
    let port = inside.address.port();
    for addresses in
        [["1.1.1.1", "127.0.0.1"], ["127.0.0.1", "1.1.1.1"], ["2606:4700::1", "::ffff:127.0.0.1"]]
    {
        let http = http_with(Names::of("two.example", &[&addresses]), Allow::default());
        let answer = http.call(Call::get(format!("http://two.example:{port}/"))).await;
        assert!(matches!(answer, Err(CallError::Refused(Refused::Resolved { .. }))), "{answer:?}");
    }
    assert_eq!(inside.connections(), 0);
}

#[tokio::test]
async fn a_listed_target_is_reached_by_its_port_only() {
    let server = Server::local(|_, _| ok("hello")).await;
    let other = Server::local(|_, _| ok("other")).await;
    let names = Names::of("intranet.example", &[&["127.0.0.1"]]);
    let entry = format!("intranet.example:{}", server.address.port());
    let http = http_with(names, Allow::parse([entry.as_str()]).unwrap());
    let reply = http.call(Call::get(format!("http://{entry}/"))).await.unwrap();
    assert_eq!(reply.body, b"hello");
    let refused = http.call(Call::get(format!("http://intranet.example:{}/", other.address.port()))).await;
    assert!(matches!(refused, Err(CallError::Refused(Refused::Resolved { .. }))), "{refused:?}");
    assert_eq!((server.connections(), other.connections()), (1, 0));
}

#[tokio::test]
async fn a_name_without_an_address_is_a_failed_connection() {
    let http = http_with(Names::of("other.example", &[]), Allow::default());
    let answer = http.call(Call::get("http://nowhere.example/")).await;
    assert!(matches!(answer, Err(CallError::Connect(_))), "{answer:?}");
}
