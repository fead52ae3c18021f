//! Names that mean what a test wants.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Answers each question for a name with the next of its answers, the last one for ever.
pub(crate) struct Names {
    answers: HashMap<&'static str, Vec<Vec<SocketAddr>>>,
    asked: AtomicUsize,
}

impl Names {
    /// How often it was asked.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    pub(crate) fn of(name: &'static str, answers: &[&[&str]]) -> Arc<Names> {
        let addresses = |texts: &&[&str]| {
            texts.iter().map(|t| SocketAddr::new(t.parse().expect("a good address"), 0)).collect()
        };
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
