//! The settings that say who may knock.

use std::net::SocketAddr;
use std::str::FromStr;

use anyhow::{anyhow, bail};
use clap::builder::BoolishValueParser;
use clap::{Args, ValueEnum};

use super::{is_secure, shown};
use crate::ingress::auth::{Auth, GOOGLE_KEYS, Rules};

/// Who checks the sender's identity token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// This service, by Google's keys
    Jwks,
    /// The platform in front of it, as Cloud Run with IAM does
    Iam,
    /// Nobody: only for a listener on loopback
    None,
}

/// Flags and environment of authentication.
#[derive(Debug, Clone, Args)]
pub(super) struct AuthArgs {
    /// Who checks the sender's identity token
    #[arg(
        long,
        env = "DRAINWELL_AUTH",
        value_enum,
        default_value = "jwks",
        value_name = "WHO"
    )]
    auth: Mode,

    /// Audience that tokens must be for; repeatable
    #[arg(
        long,
        env = "DRAINWELL_AUDIENCE",
        value_name = "URL",
        value_delimiter = ','
    )]
    audience: Vec<String>,

    /// Service account that may post notices; repeatable
    #[arg(
        long,
        env = "DRAINWELL_SENDER",
        value_name = "EMAIL",
        value_delimiter = ','
    )]
    sender: Vec<String>,

    /// Who else may see, but not post; repeatable
    #[arg(
        long,
        env = "DRAINWELL_VIEWER",
        value_name = "EMAIL|domain:DOMAIN",
        value_delimiter = ','
    )]
    viewer: Vec<String>,

    /// Where the keys of tokens are published
    #[arg(long, env = "DRAINWELL_JWKS_URL", value_name = "URL", default_value = GOOGLE_KEYS)]
    jwks_url: String,

    /// Allow `--auth none` on a listener that others can reach
    #[arg(long, env = "DRAINWELL_INSECURE", value_parser = BoolishValueParser::new())]
    insecure: bool,
}

impl AuthArgs {
    /// Checks the settings.
    ///
    /// # Errors
    /// One sentence that names the setting, its value and what would be right.
    pub(super) fn check(self, listen: SocketAddr) -> anyhow::Result<Auth> {
        let rules = Rules {
            audiences: given(self.audience).collect(),
            senders: parsed("--sender", "an e-mail address", self.sender)?,
            viewers: parsed(
                "--viewer",
                "an e-mail address, or domain:DOMAIN",
                self.viewer,
            )?,
            jwks_url: self.jwks_url,
        };
        let url: Result<http::Uri, _> = rules.jwks_url.parse();
        if !url.is_ok_and(|url| is_secure(&url)) {
            bail!(
                "--jwks-url {}: give https://HOST/PATH (http only on loopback)",
                shown(&rules.jwks_url)
            );
        }
        if self.auth == Mode::None {
            refuse_without_effect(&rules)?;
        }
        match self.auth {
            Mode::None if listen.ip().is_loopback() || self.insecure => Ok(Auth::None),
            Mode::None => bail!(
                "--auth none: with --listen {listen} anyone could have pods evicted; \
                 listen on 127.0.0.1, or add --insecure"
            ),
            Mode::Jwks if rules.audiences.is_empty() => bail!(
                "--auth jwks: add --audience URL, the audience of the tokens that come \
                 (of Pub/Sub push: that of the subscription, by default its endpoint)"
            ),
            Mode::Jwks | Mode::Iam if rules.senders.is_empty() => {
                let mode = if self.auth == Mode::Jwks {
                    "jwks"
                } else {
                    "iam"
                };
                bail!(
                    "--auth {mode}: add --sender EMAIL, the service account that \
                     Pub/Sub pushes as"
                )
            }
            Mode::Jwks => Ok(Auth::Jwks(rules)),
            Mode::Iam => Ok(Auth::Iam(rules)),
        }
    }
}

/// Whoever names who may knock believes that it is checked.
fn refuse_without_effect(rules: &Rules) -> anyhow::Result<()> {
    for (flag, given) in [
        ("--audience", !rules.audiences.is_empty()),
        ("--sender", !rules.senders.is_empty()),
        ("--viewer", !rules.viewers.is_empty()),
    ] {
        if given {
            bail!("--auth none: with {flag}, which nobody checks then; leave one of them out");
        }
    }
    Ok(())
}

/// An environment variable that is set to nothing has no value in it.
fn given(values: Vec<String>) -> impl Iterator<Item = String> {
    values.into_iter().filter(|value| !value.is_empty())
}

fn parsed<T: FromStr>(flag: &str, right: &str, values: Vec<String>) -> anyhow::Result<Vec<T>> {
    let parse = |value: String| {
        let parsed = value.parse();
        parsed.map_err(|_| anyhow!("{flag} {value}: not {right}"))
    };
    given(values).map(parse).collect()
}
