//! The scripts, and the calls that are made of them.

use redis::{Cmd, Script as Source};

macro_rules! script {
    ($name:literal) => {
        concat!(include_str!("../lua/base.lua"), now!(), include_str!(concat!("../lua/", $name, ".lua")))
    };
}

/// A script that a sealed store refuses.
macro_rules! guarded {
    ($name:literal) => {
        concat!(
            include_str!("../lua/base.lua"),
            now!(),
            include_str!("../lua/sealed.lua"),
            include_str!(concat!("../lua/", $name, ".lua"))
        )
    };
}

#[cfg(not(feature = "test-clock"))]
macro_rules! now {
    () => {
        include_str!("../lua/now.lua")
    };
}

#[cfg(feature = "test-clock")]
macro_rules! now {
    () => {
        include_str!("../lua/now_test.lua")
    };
}

/// The only script that is sent as text, see there.
pub(crate) const OPEN: &str = include_str!("../lua/open.lua");

/// In front of the scripts of applications: of those that change something, and of those that only read or belong to a copy.
pub(crate) const APPLICATION_RUNS: &str = guarded!("application");
pub(crate) const APPLICATION_READS: &str = script!("application");

/// A script that is called by its hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Script {
    Answers,
    Apply,
    Claimed,
    Count,
    Document,
    Documents,
    Due,
    Ends,
    Events,
    Expired,
    Find,
    Fires,
    Forget,
    /// For transactions; [`Script::ReadLanes`] is for reads.
    Lanes,
    /// For claims and sweeps; [`Script::ReadOutlook`] is for reads.
    Outlook,
    /// As [`Script::Apply`], on a sealed store too: for copies.
    Put,
    ReadLanes,
    ReadOutlook,
    Ready,
    Running,
    Take,
    Time,
}

/// All scripts, in the order of [`Script`].
const SOURCES: [&str; 22] = [
    guarded!("answers"),
    guarded!("apply"),
    guarded!("claimed"),
    script!("count"),
    guarded!("document"),
    guarded!("documents"),
    guarded!("due"),
    script!("ends"),
    script!("events"),
    guarded!("expired"),
    script!("find"),
    guarded!("fires"),
    guarded!("forget"),
    guarded!("lanes"),
    guarded!("outlook"),
    script!("apply"),
    script!("lanes"),
    script!("outlook"),
    guarded!("ready"),
    guarded!("running"),
    guarded!("take"),
    script!("time"),
];

pub(crate) struct Scripts {
    all: Vec<Source>,
}

impl Scripts {
    pub(crate) fn new() -> Self {
        Scripts { all: SOURCES.iter().map(|source| Source::new(source)).collect() }
    }

    pub(crate) fn sources() -> impl Iterator<Item = &'static str> {
        SOURCES.into_iter()
    }

    /// A call of this script; the arguments follow.
    pub(crate) fn call(&self, script: Script, meta: &str) -> Cmd {
        let mut call = redis::cmd("EVALSHA");
        call.arg(self.all[script as usize].get_hash()).arg(1).arg(meta);
        call
    }
}
