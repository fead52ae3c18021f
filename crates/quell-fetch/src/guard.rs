//! Which addresses Quell may connect to when somebody else chose the URL.
//!
//! A URL that comes from an event, from the API or from a web page may point into our own network: at a database, at a
//! neighbour's admin page, at the cloud's metadata service. The guard decides on what is *connected to*, never on how
//! it is written:
//!
//! - [`Guard::admit`] reads the URL once, with the parser that the HTTP client uses, too. `2130706433`, `0x7f.1`,
//!   `0177.0.0.1` and full-width digits are one address by then, and a literal address is judged here.
//! - `GuardedNames` (`names.rs`) sits where the client turns a name into addresses. The client connects to what it returns, so a
//!   name that changes its mind between check and use changes nothing. One forbidden address refuses the name: a name
//!   with a public and a private face is a trick, or a mistake that should be seen.
//!
//! Redirects and proxies are switched off by the client (`call.rs`), as either would lead around this file.
//!
//! Exceptions come from the operator's configuration alone ([`Allow`]): exact `host:port` targets and address ranges, and
//! the literal addresses of the targets that are written there themselves ([`Guard::meaning`]).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use url::Url;

/// Longer URLs are refused: servers commonly stop at 8 KiB, and ours are written to logs and errors.
pub const URL_BYTES_MAX: usize = 8 * 1024;

/// Why an address may not be connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Forbidden {
    /// Completes the sentence "this address is …".
    pub why: &'static str,
}

/// Why a URL is not fetched. Always an error of whoever chose the URL, never a fault of the other side.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the text of each error says what its fields are")]
pub enum Refused {
    /// The text is none.
    #[error("not a URL: {0}")]
    Unreadable(String),
    /// So many bytes.
    #[error("the URL has {0} bytes; at most {URL_BYTES_MAX} are allowed")]
    TooLong(usize),
    /// Another protocol.
    #[error("only http and https are allowed, not {0}")]
    Scheme(String),
    /// The rules of this target want encryption.
    #[error("only https is allowed for this target")]
    NotHttps,
    /// They would stand in logs.
    #[error("a URL must not carry a user name or a password")]
    Credentials,
    /// What answers there speaks no HTTP.
    #[error("port {0} belongs to another protocol")]
    Port(u16),
    /// The address that is written in the URL is not of the public internet.
    #[error("{address} is not allowed: it is {why}")]
    Address { address: IpAddr, why: &'static str },
    /// The name means this machine, whatever a resolver says.
    #[error("{name} is not allowed: it is {why}")]
    Name { name: String, why: &'static str },
    /// The text leaves the address out: whoever chose the name must not learn what it means inside.
    #[error("{name} is not allowed: an address of it is {why}")]
    Resolved { name: String, address: IpAddr, why: &'static str },
}

/// Whether an address is one of the public internet's. The ranges are those of the IANA registries of special-purpose
/// addresses; for IPv6, everything outside the one block that is given out to hosts is forbidden, so that a range
/// registered tomorrow is forbidden today.
pub fn verdict(address: IpAddr) -> Result<(), Forbidden> {
    match address {
        IpAddr::V4(address) => judge(FORBIDDEN_V4, |net| net.contains(&address)),
        IpAddr::V6(address) => {
            judge(FORBIDDEN_V6, |net| net.contains(&address))?;
            if GLOBAL_UNICAST.contains(&address) {
                Ok(())
            } else {
                Err(Forbidden { why: "outside the global unicast block" })
            }
        }
    }
}

/// What the operator's configuration excepts: exact targets and address ranges.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allow {
    targets: Vec<(String, u16)>,
    ranges: Vec<IpNet>,
}

/// An entry of an allow list that cannot be read.
/// Why a text is no exception.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{entry:?} cannot be allowed: write host:port (\"intranet.example:8080\", \"[::1]:8080\") or a range (\"10.0.0.0/8\")"
)]
pub struct BadAllow {
    /// The text.
    pub entry: String,
}

impl Allow {
    /// Reads the entries of a configuration: `host:port` or a range in CIDR notation.
    pub fn parse<T: AsRef<str>>(entries: impl IntoIterator<Item = T>) -> Result<Self, BadAllow> {
        let mut allow = Allow::default();
        for entry in entries {
            let entry = entry.as_ref().trim();
            let bad = || BadAllow { entry: entry.to_owned() };
            if entry.contains('/') {
                allow.ranges.push(entry.parse::<IpNet>().map_err(|_| bad())?.trunc());
            } else {
                allow.targets.push(target_of(entry).ok_or_else(bad)?);
            }
        }
        Ok(allow)
    }

    /// Exactly the host and the port of this URL, whatever its name resolves to: for an address that a person has typed.
    pub fn exactly(url: &str) -> Result<Self, Refused> {
        let url = Url::parse(url).map_err(|error| Refused::Unreadable(error.to_string()))?;
        Ok(Allow { targets: vec![target(&url)], ranges: Vec::new() })
    }

    fn has_range(&self, address: IpAddr) -> bool {
        self.ranges.iter().any(|net| net.contains(&address))
    }

    fn has_target(&self, host: &str, port: u16) -> bool {
        self.targets.iter().any(|(h, p)| h == host && *p == port)
    }
}

/// A URL that may be fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted {
    /// As it was read, once and for all.
    pub url: Url,
    /// The operator named exactly this target: whatever its name resolves to is meant.
    pub listed: bool,
}

impl Admitted {
    /// Whether what is sent there stays on this machine.
    pub fn is_loopback(&self) -> bool {
        let host = plain_host(&self.url);
        literal(&host).map_or_else(|| is_local_name(&host), |address| address.is_loopback())
    }
}

/// The judgement with the operator's exceptions. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Guard {
    allow: Arc<Allow>,
    https_only: bool,
}

impl Guard {
    /// With the operator's exceptions.
    pub fn new(allow: Allow) -> Self {
        Guard { allow: Arc::new(allow), https_only: false }
    }

    /// Also refuses plain http, for targets that are sent secrets.
    #[must_use]
    pub fn https_only(mut self) -> Self {
        self.https_only = true;
        self
    }

    /// For a URL that stands in the operator's own configuration: an address in it, or a name of this machine, is meant,
    /// with exactly this port. Any other name is still judged by what it resolves to, and a port of another protocol is
    /// still a mistake until it is listed.
    #[must_use]
    pub fn meaning(&self, url: &str) -> Guard {
        let Ok(url) = Url::parse(url) else { return self.clone() };
        let (host, port) = target(&url);
        let meant = literal(&host).is_some() || is_local_name(&host);
        if !meant || OTHER_PROTOCOLS.contains(&port) {
            return self.clone();
        }
        let mut allow = (*self.allow).clone();
        allow.targets.push((host, port));
        Guard { allow: Arc::new(allow), ..self.clone() }
    }

    /// Judges a URL as far as it can be judged without asking for the addresses of a name.
    pub fn admit(&self, url: &str) -> Result<Admitted, Refused> {
        if url.len() > URL_BYTES_MAX {
            return Err(Refused::TooLong(url.len()));
        }
        let url = Url::parse(url).map_err(|error| Refused::Unreadable(error.to_string()))?;
        match url.scheme() {
            "https" => {}
            "http" if self.https_only => return Err(Refused::NotHttps),
            "http" => {}
            other => return Err(Refused::Scheme(other.to_owned())),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Refused::Credentials);
        }
        // Both schemes have a host and a default port; the parser would have refused the URL without them.
        let (host, port) = target(&url);
        if self.allow.has_target(&host, port) {
            return Ok(Admitted { url, listed: true });
        }
        if OTHER_PROTOCOLS.contains(&port) {
            return Err(Refused::Port(port));
        }
        match literal(&host) {
            Some(address) => {
                self.address(address).map_err(|Forbidden { why }| Refused::Address { address, why })?;
            }
            None => self.name(&host)?,
        }
        Ok(Admitted { url, listed: false })
    }

    /// [`verdict`], unless a range of the configuration allows the address.
    pub fn address(&self, address: IpAddr) -> Result<(), Forbidden> {
        if self.allow.has_range(address) { Ok(()) } else { verdict(address) }
    }

    /// Judges what a name resolved to: all of it, or nothing. No address at all is for the client to report.
    pub fn resolved(&self, name: &str, addresses: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, Refused> {
        for address in addresses.iter().map(SocketAddr::ip) {
            self.address(address).map_err(|Forbidden { why }| Refused::Resolved {
                name: name.to_owned(),
                address,
                why,
            })?;
        }
        Ok(addresses)
    }

    /// Names that mean this machine whatever a resolver says (RFC 6761) are refused before anybody is asked.
    fn name(&self, name: &str) -> Result<(), Refused> {
        if is_local_name(name) && !self.allow.has_range(IpAddr::V4(Ipv4Addr::LOCALHOST)) {
            return Err(Refused::Name { name: name.to_owned(), why: "a name of this machine" });
        }
        Ok(())
    }
}

fn judge<N>(table: &[(N, &'static str)], holds: impl Fn(&N) -> bool) -> Result<(), Forbidden> {
    match table.iter().find(|(net, _)| holds(net)) {
        Some((_, why)) => Err(Forbidden { why }),
        None => Ok(()),
    }
}

/// What is connected to. Another scheme than ours may have no port; nothing listens on 0.
fn target(url: &Url) -> (String, u16) {
    (plain_host(url), url.port_or_known_default().unwrap_or(0))
}

/// The host without the brackets of IPv6 and without the dot at the end, which means nothing to a connection.
fn plain_host(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.').to_owned()
}

/// The parser has already made one form of every way to write an address.
fn literal(host: &str) -> Option<IpAddr> {
    host.parse().ok()
}

fn is_local_name(name: &str) -> bool {
    LOCAL_NAMES.contains(&name) || name.ends_with(".localhost")
}

/// Normalises the host of an entry as the URL parser normalises that of a URL.
fn target_of(entry: &str) -> Option<(String, u16)> {
    let (host, port) = entry.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port != 0)?;
    let url = Url::parse(&format!("http://{host}/")).ok()?;
    let whole = url.path() == "/" && url.username().is_empty() && url.port().is_none();
    whole.then(|| (plain_host(&url), port))
}

const LOCAL_NAMES: &[&str] = &[
    "localhost",
    "localhost.localdomain",
    "localhost6",
    "localhost6.localdomain6",
    "ip6-localhost",
    "ip6-loopback",
];

/// Ports of protocols that a forged HTTP request can speak to, or be mistaken by. The first part are the ports that
/// browsers refuse for the same reason (the WHATWG list); then come stores and administration ports. An operator who
/// runs HTTP on one of them lists the target.
const OTHER_PROTOCOLS: &[u16] = &[
    0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103,
    104, 109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465, 512, 513, 514,
    515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993, 995, 1719, 1720, 1723,
    2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080,
    // Windows shares and remote desktops, Docker, databases, caches, queues and coordinators.
    445, 1433, 1521, 2181, 2375, 2376, 2379, 2380, 3306, 3389, 5432, 5672, 5900, 5984, 6379, 6380, 6443, 9042,
    9092, 9200, 9300, 10250, 11211, 26379, 27017,
];

const fn v4(a: u8, b: u8, c: u8, d: u8, length: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), length)
}

const fn v6(head: [u16; 4], length: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(head[0], head[1], head[2], head[3], 0, 0, 0, 0), length)
}

/// Smaller ranges stand before those that hold them, so that the reason is the closest one.
const FORBIDDEN_V4: &[(Ipv4Net, &str)] = &[
    (v4(169, 254, 169, 254, 32), "the metadata service of a cloud"),
    (v4(169, 254, 170, 2, 32), "the metadata service of a cloud"),
    (v4(100, 100, 100, 200, 32), "the metadata service of a cloud"),
    (v4(192, 0, 0, 192, 32), "the metadata service of a cloud"),
    // In public space, and still answers only the machines of that cloud.
    (v4(168, 63, 129, 16, 32), "the metadata service of a cloud"),
    (v4(0, 0, 0, 0, 8), "this host or this network"),
    (v4(10, 0, 0, 0, 8), "private"),
    (v4(100, 64, 0, 0, 10), "shared by customers of a carrier"),
    (v4(127, 0, 0, 0, 8), "loopback"),
    (v4(169, 254, 0, 0, 16), "link-local"),
    (v4(172, 16, 0, 0, 12), "private"),
    (v4(192, 0, 0, 0, 24), "reserved for protocols"),
    (v4(192, 0, 2, 0, 24), "for documentation"),
    (v4(192, 31, 196, 0, 24), "a sink for private names"),
    (v4(192, 52, 193, 0, 24), "a relay of multicast"),
    (v4(192, 88, 99, 0, 24), "a relay of 6to4"),
    (v4(192, 168, 0, 0, 16), "private"),
    (v4(192, 175, 48, 0, 24), "a sink for private names"),
    (v4(198, 18, 0, 0, 15), "for benchmarks"),
    (v4(198, 51, 100, 0, 24), "for documentation"),
    (v4(203, 0, 113, 0, 24), "for documentation"),
    (v4(224, 0, 0, 0, 4), "multicast"),
    (v4(255, 255, 255, 255, 32), "broadcast"),
    (v4(240, 0, 0, 0, 4), "reserved"),
];

/// The only part of IPv6 from which hosts get public addresses.
const GLOBAL_UNICAST: Ipv6Net = v6([0x2000, 0, 0, 0], 3);

/// Everything that carries an IPv4 address is forbidden as a whole: no public site is reached only that way, and each
/// of them is a second way to write a private address.
const FORBIDDEN_V6: &[(Ipv6Net, &str)] = &[
    (Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 128), "this host"),
    (Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128), "loopback"),
    (
        Ipv6Net::new_assert(Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96),
        "an IPv4 address in disguise (mapped)",
    ),
    (
        Ipv6Net::new_assert(Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, 0, 0), 96),
        "an IPv4 address in disguise (translated)",
    ),
    (v6([0, 0, 0, 0], 96), "an IPv4 address in disguise (compatible)"),
    (v6([0x64, 0xff9b, 0, 0], 96), "an IPv4 address in disguise (NAT64)"),
    (v6([0x64, 0xff9b, 1, 0], 48), "an IPv4 address in disguise (local NAT64)"),
    (v6([0x100, 0, 0, 0], 64), "a sink"),
    (v6([0x100, 0, 0, 1], 64), "a sink"),
    (v6([0x2001, 0, 0, 0], 32), "an IPv4 address in disguise (Teredo)"),
    (v6([0x2001, 2, 0, 0], 48), "for benchmarks"),
    (v6([0x2001, 0, 0, 0], 23), "reserved for protocols"),
    (v6([0x2001, 0xdb8, 0, 0], 32), "for documentation"),
    (v6([0x2002, 0, 0, 0], 16), "an IPv4 address in disguise (6to4)"),
    (v6([0x2620, 0x4f, 0x8000, 0], 48), "a sink for private names"),
    (v6([0x3ffe, 0, 0, 0], 16), "a withdrawn test network"),
    (v6([0x3fff, 0, 0, 0], 20), "for documentation"),
    (v6([0x5f00, 0, 0, 0], 16), "for segment routing"),
    (v6([0xfc00, 0, 0, 0], 7), "private"),
    (v6([0xfe80, 0, 0, 0], 10), "link-local"),
    (v6([0xfec0, 0, 0, 0], 10), "private (site-local)"),
    (v6([0xff00, 0, 0, 0], 8), "multicast"),
];
