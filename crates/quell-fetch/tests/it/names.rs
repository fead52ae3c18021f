//! Names that mean what a test wants. The tests of everything that sends share them.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Answers each question for a name with the next of its answers, the last one for ever.
pub(crate) struct Names {
    answers: HashMap<String, Vec<Vec<SocketAddr>>>,
    asked: AtomicUsize,
}

impl Names {
    pub(crate) fn of(name: &str, answers: &[&[&str]]) -> Arc<Names> {
        let ip = |text: &&str| text.parse().expect("the addresses of tests are good ones");
        let answers = answers.iter().map(|texts| texts.iter().map(ip).collect()).collect();
        Names::all([(name.to_owned(), answers)])
    }

    /// Several names.
    pub(crate) fn all(names: impl IntoIterator<Item = (String, Vec<Vec<IpAddr>>)>) -> Arc<Names> {
        let socket = |address: IpAddr| SocketAddr::new(address, 0);
        let sockets = |addresses: Vec<IpAddr>| addresses.into_iter().map(socket).collect();
        let answers = names
            .into_iter()
            .map(|(name, answers)| (name, answers.into_iter().map(sockets).collect()))
            .collect();
        Arc::new(Names { answers, asked: AtomicUsize::new(0) })
    }

    /// How often it was asked.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
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
