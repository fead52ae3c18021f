//! Where names become addresses: the system's resolver, and the guard behind it.
//!
//! The client connects to what comes out of here and to nothing else, so what the guard has judged is what is connected to.

use std::net::SocketAddr;
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::guard::Guard;

/// A resolver whose answers have passed the guard.
pub struct GuardedNames {
    guard: Guard,
    names: Arc<dyn Resolve>,
}

impl GuardedNames {
    /// Judges what this resolver answers.
    pub fn new(guard: Guard, names: Arc<dyn Resolve>) -> Self {
        GuardedNames { guard, names }
    }
}

impl Resolve for GuardedNames {
    fn resolve(&self, name: Name) -> Resolving {
        let (guard, text) = (self.guard.clone(), name.as_str().to_owned());
        let asked = self.names.resolve(name);
        Box::pin(async move {
            let vetted = guard.resolved(&text, asked.await?.collect())?;
            Ok(Box::new(vetted.into_iter()) as Addrs)
        })
    }
}

/// The resolver of the operating system.
pub struct SystemNames;

impl Resolve for SystemNames {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            // Port 0 stands for the port of the URL.
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}
