//! Policies of single tenants in a queue, which may change while a process runs.
//!
//! All copies of a queue's settings share them: whoever appends or claims next does so by what is in force then. An open
//! window and a running run keep what they began with, as the stores have it.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use quell_core::event::{AppendPolicy, Tenant};
use quell_core::store::RunPolicy;
use quell_core::window::WindowPolicy;

/// What holds for one tenant in place of its queue's policies.
#[derive(Debug, Clone, PartialEq)]
pub struct TenantPolicy {
    /// What is decided when an event of this tenant arrives.
    pub append: Arc<AppendPolicy>,
    /// What is decided when a lane of this tenant is claimed and when its run ends.
    pub run: Arc<RunPolicy>,
}

#[derive(Debug, Default, PartialEq)]
struct Policies {
    append: BTreeMap<Tenant, Arc<AppendPolicy>>,
    run: Arc<BTreeMap<Tenant, Arc<RunPolicy>>>,
}

/// The policies of tenants that have their own.
#[derive(Debug, Clone, Default)]
pub struct ByTenant(Arc<RwLock<Policies>>);

impl ByTenant {
    /// Puts these in force, in place of all before.
    pub fn set(&self, policies: BTreeMap<Tenant, TenantPolicy>) {
        let run = policies.iter().map(|(tenant, policy)| (tenant.clone(), policy.run.clone())).collect();
        let append = policies.into_iter().map(|(tenant, policy)| (tenant, policy.append)).collect();
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Policies { append, run: Arc::new(run) };
    }

    /// How events of this tenant are taken in, if it has its own way.
    pub fn append_policy(&self, tenant: &Tenant) -> Option<Arc<AppendPolicy>> {
        self.read(|policies| policies.append.get(tenant).cloned())
    }

    /// How runs are executed, for tenants that have their own way.
    pub fn run_policies(&self) -> Arc<BTreeMap<Tenant, Arc<RunPolicy>>> {
        self.read(|policies| policies.run.clone())
    }

    /// The windows of tenants that have their own, by name.
    pub fn windows(&self) -> Vec<(Tenant, WindowPolicy)> {
        let window = |(tenant, policy): (&Tenant, &Arc<AppendPolicy>)| (tenant.clone(), policy.window.policy);
        self.read(|policies| policies.append.iter().map(window).collect())
    }

    /// Whether no tenant has a policy of its own.
    pub fn is_empty(&self) -> bool {
        self.read(|policies| policies.append.is_empty())
    }

    fn read<T>(&self, what: impl FnOnce(&Policies) -> T) -> T {
        // Nothing can panic while it is written, and what was written last is whole.
        what(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl PartialEq for ByTenant {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.read(|ours| other.read(|theirs| ours == theirs))
    }
}
