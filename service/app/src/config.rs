//! The settings of `serve`: parsed once, checked, then passed on as values.

mod auth;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::builder::BoolishValueParser;
use clap::{Args, ValueEnum};
use drainwell_core::policy::Policies;

use self::auth::AuthArgs;
use crate::ingress::auth::Auth;
use crate::intake::Verify;
use crate::pull::{PullArgs, PullConfig};

/// Flags and environment of `serve`.
#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    /// Address to listen on; PORT gives the port alone
    #[arg(long, env = "DRAINWELL_LISTEN")]
    listen: Option<SocketAddr>,

    /// Port to listen on, as Cloud Run sets it
    #[arg(long, env = "PORT", hide = true)]
    port: Option<u16>,

    /// Where clusters come from
    #[arg(
        long,
        env = "DRAINWELL_CLUSTERS",
        value_enum,
        default_value = "kubeconfig"
    )]
    clusters: Clusters,

    /// Context of the kubeconfig to serve; repeatable, by default the current one
    #[arg(long, env = "DRAINWELL_CONTEXT", value_delimiter = ',')]
    context: Vec<String>,

    #[command(flatten)]
    auth: AuthArgs,

    /// Whether Compute Engine must confirm a notice before a node is marked
    #[arg(long, env = "DRAINWELL_VERIFY", value_enum, default_value = "required")]
    verify: Verify,

    /// File with the policy; `DRAINWELL_POLICY` may hold the YAML itself
    #[arg(long, env = "DRAINWELL_POLICY_FILE")]
    policy_file: Option<PathBuf>,

    /// The policy itself, as YAML
    #[arg(long, env = "DRAINWELL_POLICY", hide = true, value_name = "YAML")]
    policy: Option<String>,

    /// How long one POST /tick may keep working
    #[arg(
        long,
        env = "DRAINWELL_TICK_HOLD",
        value_name = "SECONDS",
        default_value_t = 170
    )]
    #[arg(value_parser = clap::value_parser!(u64).range(0..=3600))]
    tick_hold: u64,

    /// Decide, log and report, but write nothing
    #[arg(long, env = "DRAINWELL_DRY_RUN", value_parser = BoolishValueParser::new())]
    dry_run: bool,

    /// Address of a second listener with /metrics alone and no authentication, for
    /// a scraper beside the service; on loopback
    #[arg(long, env = "DRAINWELL_METRICS_LISTEN", value_name = "ADDR")]
    metrics_listen: Option<SocketAddr>,

    #[command(flatten)]
    pull: PullArgs,

    /// Base URL of the Compute Engine API
    #[arg(long, env = "DRAINWELL_COMPUTE_ENDPOINT", default_value = crate::cloud::compute::GOOGLE)]
    compute_endpoint: String,

    /// Form of the log lines: json when stdout is no terminal
    #[arg(long, env = "DRAINWELL_LOG", value_enum)]
    pub log: Option<LogForm>,
}

/// Where clusters come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Clusters {
    /// Contexts of a kubeconfig.
    Kubeconfig,
}

/// Form of the log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogForm {
    /// As Cloud Logging parses them.
    Json,
    /// For people.
    Text,
}

/// The same, checked.
#[derive(Debug, Clone)]
pub struct Config {
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Where clusters come from.
    pub clusters: Clusters,
    /// Contexts of the kubeconfig.
    pub contexts: Vec<String>,
    /// Who checks senders.
    pub auth: Auth,
    /// Whether Compute must confirm.
    pub verify: Verify,
    /// The policies.
    pub policies: Policies,
    /// How long a tick may work.
    pub tick_hold: Duration,
    /// Write nothing.
    pub dry_run: bool,
    /// Where a scraper finds the metrics.
    pub metrics_listen: Option<SocketAddr>,
    /// What is pulled from.
    pub pull: PullConfig,
    /// Compute's API.
    pub compute_endpoint: String,
}

impl ServeArgs {
    /// Checks the settings.
    ///
    /// # Errors
    /// One sentence that names the setting, its value and what would be right.
    pub fn check(self) -> anyhow::Result<Config> {
        let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let listen = match (self.listen, self.port) {
            (Some(listen), _) => listen,
            (None, port) => SocketAddr::new(any, port.unwrap_or(8080)),
        };
        check_endpoint(&self.compute_endpoint)?;
        if let Some(address) = self.metrics_listen.filter(|a| !a.ip().is_loopback()) {
            bail!(
                "--metrics-listen {address}: nobody is asked who they are there; \
                 give 127.0.0.1:PORT"
            );
        }
        Ok(Config {
            listen,
            clusters: self.clusters,
            contexts: self.context,
            auth: self.auth.check(listen)?,
            verify: self.verify,
            policies: read_policies(self.policy_file, self.policy)?,
            tick_hold: Duration::from_secs(self.tick_hold),
            dry_run: self.dry_run,
            metrics_listen: self.metrics_listen,
            pull: self.pull.check()?,
            compute_endpoint: self.compute_endpoint,
        })
    }
}

/// Tokens are sent there: https, or http on loopback.
fn check_endpoint(endpoint: &str) -> anyhow::Result<()> {
    let url: http::Uri = endpoint
        .parse()
        .with_context(|| format!("--compute-endpoint {}: not a URL", shown(endpoint)))?;
    let bare = matches!(url.path(), "" | "/") && url.query().is_none();
    if !bare || !is_secure(&url) {
        bail!(
            "--compute-endpoint {}: give https://HOST without a path \
             (http only on loopback)",
            shown(endpoint)
        )
    }
    Ok(())
}

/// Whether nobody on the way can read or change what goes there and back, and
/// the URL may be shown.
fn is_secure(url: &http::Uri) -> bool {
    let host = url.host().unwrap_or_default();
    // What stands beside the host is a port that there is, or nothing.
    let beside = url.authority().is_some_and(|a| a.as_str() != host);
    if beside && url.port_u16().is_none_or(|port| port == 0) {
        return false;
    }
    if url.authority().is_some_and(|a| a.as_str().contains('@')) {
        return false;
    }
    let loopback = host == "localhost"
        || host
            .trim_matches(['[', ']'])
            .parse::<IpAddr>()
            .is_ok_and(|ip| ip.is_loopback());
    match url.scheme_str() {
        Some("https") => !host.is_empty(),
        Some("http") => loopback,
        _ => false,
    }
}

/// A URL as a message may show it: a password in it stays out of sight.
pub(crate) fn shown(url: &str) -> String {
    let begin = url.find("://").map_or(0, |scheme| scheme + 3);
    match url.rfind('@') {
        Some(at) if begin < at => format!("{}…{}", &url[..begin], &url[at..]),
        _ => url.to_owned(),
    }
}

/// Reads the policies from `--policy-file` or `DRAINWELL_POLICY`, if one of them
/// is given.
///
/// # Errors
/// One sentence that names the setting and what is wrong with it.
pub fn read_policies(file: Option<PathBuf>, inline: Option<String>) -> anyhow::Result<Policies> {
    let inline = inline.filter(|text| !text.is_empty());
    match (file, inline) {
        (Some(_), Some(_)) => {
            bail!("--policy-file and DRAINWELL_POLICY are both given: give one of them")
        }
        (Some(path), None) => {
            let text = std::fs::read_to_string(&path)
                .with_context(|| format!("--policy-file {}: can't be read", path.display()))?;
            Policies::from_yaml(&text)
                .with_context(|| format!("--policy-file {}: not a valid policy", path.display()))
        }
        (None, Some(text)) => {
            Policies::from_yaml(&text).context("DRAINWELL_POLICY: not a valid policy")
        }
        (None, None) => Ok(Policies::default()),
    }
}
