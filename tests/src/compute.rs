//! Stands in for Compute Engine and for the metadata server, over HTTP on one
//! loopback port: instances with the fields that matter here, faults, counts.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

mod server;
mod vm;

pub use vm::{Maintenance, Vm};

/// The bearer token that the metadata server gives out and Compute accepts.
pub const TOKEN: &str = "access-token-of-the-stand-in";

/// What goes wrong with a request.
#[derive(Clone, Debug)]
pub enum Fault {
    /// This status, with Google's error body.
    Status(u16),
    /// The right answer, but only after this time.
    Slow(Duration),
    /// No answer, ever.
    Hang,
    /// Status 200 and a body that is no JSON.
    Garbage,
}

/// Which requests a fault or a count is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// Every request to Compute.
    All,
    /// `instances.get` of the VM with this name, by name or by id.
    Vm(String),
    /// Lists of instances.
    List,
    /// The metadata server's tokens.
    Token,
}

impl Target {
    /// The VM with this name.
    pub fn vm(name: &str) -> Self {
        Self::Vm(name.into())
    }
}

/// The stand-in, while it lives.
#[derive(Debug)]
pub struct Compute {
    address: SocketAddr,
    state: Shared,
    _tasks: JoinSet<()>,
}

#[derive(Clone, Debug, Default)]
struct Shared(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    vms: BTreeMap<String, Vm>,
    faults: BTreeMap<Target, Fault>,
    counts: BTreeMap<Target, usize>,
    requests: Vec<String>,
    page_size: Option<usize>,
}

impl Compute {
    /// Listens, with no VM yet.
    pub async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let state = Shared::default();
        let router = server::router(state.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            // It serves until it is dropped with the set of tasks.
            drop(axum::serve(listener, router).await);
        });
        Ok(Self {
            address,
            state,
            _tasks: tasks,
        })
    }

    /// `127.0.0.1:PORT`, for `GCE_METADATA_HOST`.
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// Base URL, for `--compute-endpoint`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Adds a VM, or replaces the one of that name.
    pub fn put(&self, vm: Vm) {
        self.state.lock().vms.insert(vm.name.clone(), vm);
    }

    /// Takes a VM away: Compute answers 404 from now on.
    pub fn remove(&self, name: &str) {
        self.state.lock().vms.remove(name);
    }

    /// The VM of that name, as it is now.
    pub fn vm(&self, name: &str) -> Vm {
        match self.state.lock().vms.get(name) {
            Some(vm) => vm.clone(),
            None => panic!("the stand-in has no VM {name}"),
        }
    }

    /// Changes a VM.
    pub fn change(&self, name: &str, change: impl FnOnce(&mut Vm)) {
        let mut vm = self.vm(name);
        change(&mut vm);
        self.put(vm);
    }

    /// Sets what Compute shows as the VM's upcoming maintenance.
    pub fn set_maintenance(&self, name: &str, maintenance: Maintenance) {
        self.change(name, |vm| vm.maintenance = maintenance);
    }

    /// Sets the VM's status: `RUNNING`, `REPAIRING`, `STOPPING`, …
    pub fn set_status(&self, name: &str, status: &str) {
        self.change(name, |vm| vm.status = status.into());
    }

    /// Lets requests to `target` go wrong until `heal`. A VM's own fault comes
    /// before one for all.
    pub fn fail(&self, target: Target, fault: Fault) {
        self.state.lock().faults.insert(target, fault);
    }

    /// Ends all faults. Requests that hang go on hanging.
    pub fn heal(&self) {
        self.state.lock().faults.clear();
    }

    /// How many requests to `target` there were.
    pub fn count(&self, target: &Target) -> usize {
        self.state
            .lock()
            .counts
            .get(target)
            .copied()
            .unwrap_or_default()
    }

    /// Path and query of every request so far, in order.
    pub fn requests(&self) -> Vec<String> {
        self.state.lock().requests.clone()
    }

    /// Lists answer with at most so many instances a page.
    pub fn set_page_size(&self, instances: usize) {
        self.state.lock().page_size = Some(instances);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request, and gives the fault that applies to it.
    fn note(&self, target: &Target) -> Option<Fault> {
        let mut state = self.lock();
        *state.counts.entry(target.clone()).or_default() += 1;
        let own = state.faults.get(target).cloned();
        if *target == Target::Token {
            return own;
        }
        *state.counts.entry(Target::All).or_default() += 1;
        own.or_else(|| state.faults.get(&Target::All).cloned())
    }

    fn find(&self, project: &str, zone: &str, name_or_id: &str) -> Option<Vm> {
        let state = self.lock();
        let mut vms = state.vms.values();
        let found = vms.find(|vm| {
            let known = vm.name == name_or_id || vm.id.to_string() == name_or_id;
            known && vm.project == project && vm.zone == zone
        });
        found.cloned()
    }

    /// One page of a project's instances (of one zone, or of all) from `start`
    /// on, and where the next page starts.
    fn page(
        &self,
        project: &str,
        zone: Option<&str>,
        start: usize,
        wanted: usize,
    ) -> (Vec<(String, Value)>, Option<usize>) {
        let state = self.lock();
        let size = state.page_size.unwrap_or(wanted).min(wanted);
        let here = |vm: &&Vm| vm.project == project && zone.is_none_or(|zone| vm.zone == zone);
        let vms: Vec<_> = state.vms.values().filter(here).collect();
        let page = vms.iter().skip(start).take(size);
        let page = page.map(|vm| (vm.zone.clone(), vm.resource())).collect();
        let next = start + size;
        (page, (next < vms.len()).then_some(next))
    }
}
