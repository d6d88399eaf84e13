//! The counters and histograms behind `GET /metrics`. There is no global
//! registry: whoever counts is given this value. Label values come from closed
//! lists, or from the policy (tiers).

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

/// The media type of the text that [`Metrics::text`] writes.
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A notice is marked within a second; one that had to come again, within
/// minutes.
const TO_MARK_S: [f64; 10] = [0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0];
/// From a node without pods to GPU's full hour.
const DRAIN_S: [f64; 10] = [
    1.0, 5.0, 15.0, 60.0, 120.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0,
];
/// Below zero: the drain ended after its deadline.
const MARGIN_S: [f64; 11] = [
    -60.0, 0.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 900.0, 1800.0, 3600.0,
];
const PASS_S: [f64; 8] = [0.005, 0.02, 0.1, 0.3, 1.0, 2.0, 5.0, 15.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Notice {
    source: &'static str,
    phase: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Pod {
    tier: String,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Call {
    api: &'static str,
    verb: &'static str,
    code: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ended {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Phase {
    phase: &'static str,
}

type Seconds<L> = Family<L, Histogram, fn() -> Histogram>;

/// Everything that is counted. Clones count together.
#[derive(Debug, Clone)]
pub struct Metrics {
    notices: Family<Notice, Counter>,
    to_mark: Histogram,
    maintenances: Family<Phase, Gauge>,
    pods: Family<Pod, Counter>,
    drains: Seconds<Ended>,
    margin: Histogram,
    shortened: Counter,
    events_dropped: Counter,
    calls: Family<Call, Counter>,
    passes: Histogram,
    queued: Gauge,
    registry: Arc<Registry>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            notices: Family::default(),
            to_mark: Histogram::new(TO_MARK_S),
            maintenances: Family::default(),
            pods: Family::default(),
            drains: Family::new_with_constructor(|| Histogram::new(DRAIN_S)),
            margin: Histogram::new(MARGIN_S),
            shortened: Counter::default(),
            events_dropped: Counter::default(),
            calls: Family::default(),
            passes: Histogram::new(PASS_S),
            queued: Gauge::default(),
            registry: Arc::default(),
        };
        metrics.registry = Arc::new(metrics.register());
        metrics
    }
}

impl Metrics {
    fn register(&self) -> Registry {
        let mut all = Registry::with_prefix("drainwell");
        all.register("notices", "Notices taken in", self.notices.clone());
        all.register(
            "time_to_mark_seconds",
            "From an entry's timestamp to the durable mark",
            self.to_mark.clone(),
        );
        all.register(
            "maintenances",
            "Maintenances under way or recorded",
            self.maintenances.clone(),
        );
        all.register("pods", "What became of pods", self.pods.clone());
        all.register(
            "drain_seconds",
            "From the mark until no pod was left, or until the host stopped",
            self.drains.clone(),
        );
        all.register(
            "deadline_margin_seconds",
            "Time left to the deadline when no pod was left",
            self.margin.clone(),
        );
        all.register(
            "grace_shortened",
            "Pods whose grace the deadline has cut",
            self.shortened.clone(),
        );
        all.register(
            "events_dropped",
            "Kubernetes Events that were not written",
            self.events_dropped.clone(),
        );
        all.register("api_requests", "Calls by their answer", self.calls.clone());
        all.register("pass_seconds", "Length of passes", self.passes.clone());
        all.register(
            "queue_depth",
            "Calls on pods that are under way, and Events that wait",
            self.queued.clone(),
        );
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        all.register("build", "The running release", version);
        all
    }

    /// A notice, and what became of it.
    pub fn notice(&self, source: &'static str, phase: &'static str, outcome: &'static str) {
        let labels = Notice {
            source,
            phase,
            outcome,
        };
        self.notices.get_or_create(&labels).inc();
    }

    /// A node was marked, this long after the entry that told of it.
    pub fn marked_after(&self, seconds: f64) {
        self.to_mark.observe(seconds);
    }

    /// A pod was `evicted`, `blocked`, `forced`, `skipped` or is `gone`.
    pub fn pod(&self, tier: &str, result: &'static str) {
        let tier = tier.to_owned();
        self.pods.get_or_create(&Pod { tier, result }).inc();
    }

    /// No pod is left, with so much time to the deadline.
    pub fn drained(&self, seconds: f64, left: f64) {
        let result = "completed";
        self.drains
            .get_or_create(&Ended { result })
            .observe(seconds);
        self.margin.observe(left);
    }

    /// A maintenance ended with pods that had not gone.
    pub fn not_drained(&self, seconds: f64) {
        let result = "incomplete";
        self.drains
            .get_or_create(&Ended { result })
            .observe(seconds);
    }

    /// The deadline has cut a pod's grace.
    pub fn grace_shortened(&self) {
        self.shortened.inc();
    }

    /// An Event was not written.
    pub fn event_dropped(&self) {
        self.events_dropped.inc();
    }

    /// A call and its answer; `None` when there was none.
    pub fn call(&self, api: &'static str, verb: &'static str, code: Option<u16>) {
        let code = code.map_or_else(|| "none".to_owned(), |code| code.to_string());
        self.calls.get_or_create(&Call { api, verb, code }).inc();
    }

    /// A pass took so long.
    pub fn pass(&self, seconds: f64) {
        self.passes.observe(seconds);
    }

    /// How many maintenances are in each phase now.
    pub fn set_maintenances(&self, phases: [(&'static str, usize); 3]) {
        for (phase, count) in phases {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.maintenances.get_or_create(&Phase { phase }).set(count);
        }
    }

    /// So many more (or fewer) calls on pods are under way, or Events wait.
    pub fn queued(&self, more: i64) {
        self.queued.inc_by(more);
    }

    /// All of it as `OpenMetrics` text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        if encode(&mut text, &self.registry).is_err() {
            tracing::error!("The metrics could not be written as text.");
        }
        text
    }
}
