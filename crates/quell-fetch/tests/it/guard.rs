//! Forbidden addresses, in every way to write them: each is refused with its reason, and nobody is connected to.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use quell_fetch::{Allow, Call, CallError, Guard, Http, HttpSettings, Refused, verdict};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::server::{Server, ok};

const META: &str = "the metadata service of a cloud";
const MAPPED: &str = "an IPv4 address in disguise (mapped)";
const COMPATIBLE: &str = "an IPv4 address in disguise (compatible)";
const NAT64: &str = "an IPv4 address in disguise (NAT64)";
const HERE: &str = "a name of this machine";

/// Host as written in a URL, and why it is refused.
const FORBIDDEN_HOSTS: &[(&str, &str)] = &[
    // Loopback and this host, in all notations that the URL standard knows.
    ("127.0.0.1", "loopback"),
    ("127.0.0.1.", "loopback"),
    ("127.1", "loopback"),
    ("127.0.1", "loopback"),
    ("127.255.255.254", "loopback"),
    ("127.127.127.127", "loopback"),
    ("2130706433", "loopback"),
    ("2130706433.", "loopback"),
    ("0x7f000001", "loopback"),
    ("0X7F000001", "loopback"),
    ("0x7f.1", "loopback"),
    ("0x7f.0.0.1", "loopback"),
    ("0x7f.0x0.0x0.0x1", "loopback"),
    ("0177.0.0.1", "loopback"),
    ("0177.1", "loopback"),
    ("017700000001", "loopback"),
    ("00000177.0.0.01", "loopback"),
    ("127.0x1", "loopback"),
    ("127.000.000.001", "loopback"),
    ("%31%32%37.0.0.1", "loopback"),
    ("127%2e0%2e0%2e1", "loopback"),
    ("１２７.０.０.１", "loopback"),
    ("127。0。0。1", "loopback"),
    ("①②⑦.⓪.⓪.①", "loopback"),
    ("0", "this host or this network"),
    ("0.0.0.0", "this host or this network"),
    ("0x0", "this host or this network"),
    ("00", "this host or this network"),
    ("0.1.2.3", "this host or this network"),
    // Names of this machine.
    ("localhost", HERE),
    ("localhost.", HERE),
    ("LOCALHOST", HERE),
    ("LocalHost", HERE),
    ("ｌｏｃａｌｈｏｓｔ", HERE),
    ("ⓛⓞⓒⓐⓛⓗⓞⓢⓣ", HERE),
    ("local%68ost", HERE),
    ("api.localhost", HERE),
    ("a.b.localhost.", HERE),
    ("localhost.localdomain", HERE),
    ("localhost6", HERE),
    ("ip6-localhost", HERE),
    ("ip6-loopback", HERE),
    // Private, shared and link-local networks.
    ("10.0.0.1", "private"),
    ("10.255.255.255", "private"),
    ("10.1", "private"),
    ("0xa000001", "private"),
    ("012.0.0.1", "private"),
    ("167772161", "private"),
    ("172.16.0.1", "private"),
    ("172.31.255.255", "private"),
    ("0xac100001", "private"),
    ("192.168.0.1", "private"),
    ("192.168.255.255", "private"),
    ("192.168.1", "private"),
    ("3232235521", "private"),
    ("0300.0250.0.1", "private"),
    ("100.64.0.1", "shared by customers of a carrier"),
    ("100.127.255.255", "shared by customers of a carrier"),
    ("169.254.0.1", "link-local"),
    ("169.254.255.255", "link-local"),
    // Metadata services.
    ("169.254.169.254", META),
    ("169.254.169.254.", META),
    ("2852039166", META),
    ("0xa9fea9fe", META),
    ("0251.0376.0251.0376", META),
    ("169.254.43518", META),
    ("169.16689662", META),
    ("169.254.170.2", META),
    ("100.100.100.200", META),
    ("192.0.0.192", META),
    ("168.63.129.16", META),
    // Reserved, documentation, benchmarks, multicast.
    ("192.0.0.1", "reserved for protocols"),
    ("192.0.2.1", "for documentation"),
    ("198.51.100.7", "for documentation"),
    ("203.0.113.9", "for documentation"),
    ("198.18.0.1", "for benchmarks"),
    ("198.19.255.255", "for benchmarks"),
    ("192.31.196.1", "a sink for private names"),
    ("192.175.48.1", "a sink for private names"),
    ("192.52.193.1", "a relay of multicast"),
    ("192.88.99.1", "a relay of 6to4"),
    ("224.0.0.1", "multicast"),
    ("239.255.255.255", "multicast"),
    ("240.0.0.1", "reserved"),
    ("254.255.255.255", "reserved"),
    ("255.255.255.255", "broadcast"),
    ("4294967295", "broadcast"),
    // IPv6.
    ("[::]", "this host"),
    ("[::1]", "loopback"),
    ("[0:0:0:0:0:0:0:1]", "loopback"),
    ("[0000:0000:0000:0000:0000:0000:0000:0001]", "loopback"),
    ("[::0.0.0.1]", "loopback"),
    ("[::ffff:127.0.0.1]", MAPPED),
    ("[::ffff:7f00:1]", MAPPED),
    ("[::FFFF:127.0.0.1]", MAPPED),
    ("[0:0:0:0:0:ffff:7f00:1]", MAPPED),
    ("[::ffff:10.0.0.1]", MAPPED),
    ("[::ffff:169.254.169.254]", MAPPED),
    ("[::ffff:a9fe:a9fe]", MAPPED),
    ("[::ffff:8.8.8.8]", MAPPED),
    ("[::127.0.0.1]", COMPATIBLE),
    ("[::7f00:1]", COMPATIBLE),
    ("[::169.254.169.254]", COMPATIBLE),
    ("[::ffff:0:127.0.0.1]", "an IPv4 address in disguise (translated)"),
    ("[64:ff9b::127.0.0.1]", NAT64),
    ("[64:ff9b::7f00:1]", NAT64),
    ("[64:ff9b::a9fe:a9fe]", NAT64),
    ("[64:ff9b:1::1]", "an IPv4 address in disguise (local NAT64)"),
    ("[2002:7f00:1::]", "an IPv4 address in disguise (6to4)"),
    ("[2002:a9fe:a9fe::1]", "an IPv4 address in disguise (6to4)"),
    ("[2002:c0a8:101::1]", "an IPv4 address in disguise (6to4)"),
    ("[2001::1]", "an IPv4 address in disguise (Teredo)"),
    ("[2001:0:7f00:1::80ff:fffe]", "an IPv4 address in disguise (Teredo)"),
    ("[2001:2::1]", "for benchmarks"),
    ("[2001:10::1]", "reserved for protocols"),
    ("[2001:20::1]", "reserved for protocols"),
    ("[2001:db8::1]", "for documentation"),
    ("[3fff::1]", "for documentation"),
    ("[3ffe::1]", "a withdrawn test network"),
    ("[2620:4f:8000::1]", "a sink for private names"),
    ("[5f00::1]", "for segment routing"),
    ("[100::1]", "a sink"),
    ("[100:0:0:1::1]", "a sink"),
    ("[fc00::1]", "private"),
    ("[fd00::1]", "private"),
    ("[fd00:ec2::254]", "private"),
    ("[fdff:ffff::1]", "private"),
    ("[fe80::1]", "link-local"),
    ("[febf::1]", "link-local"),
    ("[fec0::1]", "private (site-local)"),
    ("[ff02::1]", "multicast"),
    ("[ff0e::1]", "multicast"),
    ("[4000::1]", "outside the global unicast block"),
    ("[1::1]", "outside the global unicast block"),
    ("[8000::1]", "outside the global unicast block"),
];

/// Whole URLs that are refused whatever their host is, and how.
fn forbidden_urls() -> Vec<(&'static str, Refused)> {
    let scheme = |text: &str| Refused::Scheme(text.to_owned());
    let unreadable = |text: &str| Refused::Unreadable(text.to_owned());
    vec![
        ("file:///etc/passwd", scheme("file")),
        ("FILE:///etc/passwd", scheme("file")),
        ("ftp://example.com/", scheme("ftp")),
        ("gopher://example.com:70/_x", scheme("gopher")),
        ("unix:/var/run/docker.sock", scheme("unix")),
        ("data:text/plain,x", scheme("data")),
        ("javascript:alert(1)", scheme("javascript")),
        ("ws://example.com/", scheme("ws")),
        ("dict://example.com:11211/", scheme("dict")),
        ("http://user@example.com/", Refused::Credentials),
        ("http://user:pass@example.com/", Refused::Credentials),
        ("http://:pass@example.com/", Refused::Credentials),
        ("http://example.com@127.0.0.1/", Refused::Credentials),
        ("http://127.0.0.1#@example.com/", Refused::Address { address: ip("127.0.0.1"), why: "loopback" }),
        ("http://127.0.0.1\\@example.com/", Refused::Address { address: ip("127.0.0.1"), why: "loopback" }),
        ("http:127.0.0.1/", Refused::Address { address: ip("127.0.0.1"), why: "loopback" }),
        ("http:\\\\127.0.0.1/", Refused::Address { address: ip("127.0.0.1"), why: "loopback" }),
        ("  http://127.0.0.1/", Refused::Address { address: ip("127.0.0.1"), why: "loopback" }),
        ("ht\ntp://127.0.0.1/", Refused::Address { address: ip("127.0.0.1"), why: "loopback" }),
        ("http://example.com:22/", Refused::Port(22)),
        ("http://example.com:25/", Refused::Port(25)),
        ("http://example.com:6379/", Refused::Port(6379)),
        ("http://example.com:5432/", Refused::Port(5432)),
        ("https://example.com:11211/", Refused::Port(11211)),
        ("http://example.com:0/", Refused::Port(0)),
        ("http://[fe80::1%25eth0]/", unreadable("invalid IPv6 address")),
        ("http://[::1%lo]/", unreadable("invalid IPv6 address")),
        ("http://[::1/", unreadable("invalid IPv6 address")),
        ("http://[v1.fe80::a]/", unreadable("invalid IPv6 address")),
        ("http://127.0.0.1:99999/", unreadable("invalid port number")),
        ("http://256.0.0.1/", unreadable("invalid IPv4 address")),
        ("http://127.0.0.0.1/", unreadable("invalid IPv4 address")),
        ("http://0x7g.1/", unreadable("invalid IPv4 address")),
        ("http://exa mple.com/", unreadable("invalid international domain name")),
        ("http:///", unreadable("empty host")),
        ("//127.0.0.1/", unreadable("relative URL without a base")),
        ("127.0.0.1", unreadable("relative URL without a base")),
        ("", unreadable("relative URL without a base")),
    ]
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("the addresses of tests are good ones")
}

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

/// Answers each question for a name with the next of its answers, the last one for ever.
pub(crate) struct Names {
    answers: HashMap<&'static str, Vec<Vec<SocketAddr>>>,
    asked: AtomicUsize,
}

impl Names {
    pub(crate) fn of(name: &'static str, answers: &[&[&str]]) -> Arc<Names> {
        let addresses = |texts: &&[&str]| texts.iter().map(|t| SocketAddr::new(ip(t), 0)).collect();
        let answers = HashMap::from([(name, answers.iter().map(addresses).collect())]);
        Arc::new(Names { answers, asked: AtomicUsize::new(0) })
    }
}

impl Resolve for Names {
    fn resolve(&self, name: Name) -> Resolving {
        let turn = self.asked.fetch_add(1, Ordering::SeqCst);
        let answers = self.answers.get(name.as_str()).cloned().unwrap_or_default();
        Box::pin(async move {
            let last = answers.len().saturating_sub(1);
            let found = answers.get(turn.min(last)).cloned().unwrap_or_default();
            Ok(Box::new(found.into_iter()) as Addrs)
        })
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
    assert_eq!(
        (names.asked.load(Ordering::SeqCst), inside.connections()),
        (2, 0),
        "asked once per connection"
    );
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
