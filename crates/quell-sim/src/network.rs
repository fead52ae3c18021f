//! The network between single processes and the store: who is cut off, and what happens between pull workers and their server.
//!
//! A worker process talks to the store itself. A pull worker talks to a server, which talks to the store: the server can be gone while
//! the store is well, and what stands between the two may deliver a request twice. Trouble that everybody has at once is the
//! weather of `world.rs`.

use crate::clock::Moment;
use crate::node::Node;
use crate::world::Who;

#[derive(Default)]
pub(crate) struct Network {
    /// Which process is cut off until when; only the answers to it, if so.
    cuts: Vec<(usize, Moment, bool)>,
    server_gone_until: Moment,
    /// By which item of the plan requests are repeated until when, and how many in a hundred.
    echo: Option<(usize, Moment, u64)>,
}

/// How a question fares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Open,
    /// There is nobody to take it.
    Refused,
    Lost,
    /// It arrives, and its answer does not.
    AnswerLost,
}

impl Network {
    pub(crate) fn cut(&mut self, node: usize, until: Moment, answers_only: bool) {
        self.cuts.push((node, until, answers_only));
    }

    pub(crate) fn lose_server(&mut self, until: Moment) {
        self.server_gone_until = self.server_gone_until.max(until);
    }

    pub(crate) fn repeat(&mut self, item: usize, until: Moment, percent: u64) {
        self.echo = Some((item, until, percent));
    }

    /// The item that has requests repeated now, and how many in a hundred.
    pub(crate) fn repeats(&self, now: Moment) -> Option<(usize, u64)> {
        self.echo.filter(|(_, until, _)| now < *until).map(|(item, _, percent)| (item, percent))
    }

    /// How a question of somebody fares that is sent now.
    pub(crate) fn way(&self, who: Who, now: Moment, nodes: &[Node]) -> Way {
        let (Who::Part { node, .. } | Who::Echo { node }) = who else { return Way::Open };
        if now < self.server_gone_until && nodes[node].is_puller() {
            return Way::Refused;
        }
        let cuts = self.cuts.iter().filter(|(cut, until, _)| *cut == node && now < *until);
        cuts.fold(Way::Open, |way, (.., answers_only)| match way {
            Way::Lost => Way::Lost,
            _ if *answers_only => Way::AnswerLost,
            _ => Way::Lost,
        })
    }
}
