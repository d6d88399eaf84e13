//! Which subscriptions are pulled from.

use anyhow::{Context as _, bail};
use clap::Args;
use http::uri::Authority;

use crate::config::shown;
use crate::telemetry::project::{ask, is_project};

/// Flags and environment.
#[derive(Debug, Clone, Args)]
pub struct PullArgs {
    /// Pub/Sub subscription to pull notices from: projects/PROJECT/subscriptions/NAME,
    /// or NAME alone in the own project; repeatable
    #[arg(
        long,
        env = "DRAINWELL_PULL",
        value_delimiter = ',',
        value_name = "SUBSCRIPTION"
    )]
    pull: Vec<String>,

    /// The own project, as Google's client libraries read it
    #[arg(long, env = "GOOGLE_CLOUD_PROJECT", hide = true)]
    google_cloud_project: Option<String>,

    /// HOST:PORT of an emulator, as Google's client libraries read it
    #[arg(long, env = "PUBSUB_EMULATOR_HOST", hide = true)]
    pubsub_emulator_host: Option<String>,
}

/// The same, checked.
#[derive(Debug, Clone, Default)]
pub struct PullConfig {
    names: Vec<Name>,
    project: Option<String>,
    emulator: Option<String>,
}

/// A subscription as it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Name {
    /// `projects/PROJECT/subscriptions/NAME`.
    Full(String),
    /// `NAME`, of the own project.
    Bare(String),
}

impl PullArgs {
    /// Checks the settings.
    ///
    /// # Errors
    /// One sentence that names the setting, its value and what would be right.
    pub fn check(self) -> anyhow::Result<PullConfig> {
        // A variable that is set to nothing is one that isn't set.
        let given = self.pull.iter().filter(|name| !name.is_empty());
        let names = given.map(|name| parse(name)).collect::<Result<_, _>>()?;
        let emulator = self.pubsub_emulator_host.filter(|host| !host.is_empty());
        if let Some(host) = emulator.as_deref().filter(|host| !is_host(host)) {
            bail!("PUBSUB_EMULATOR_HOST {}: give HOST:PORT", shown(host));
        }
        Ok(PullConfig {
            names,
            project: self.google_cloud_project.filter(|name| !name.is_empty()),
            emulator,
        })
    }
}

/// Ids of projects and subscriptions, by the resource names of the Pub/Sub API.
fn parse(name: &str) -> anyhow::Result<Name> {
    let parts: Vec<&str> = name.split('/').collect();
    match parts[..] {
        ["projects", project, "subscriptions", id] if is_project(project) && is_id(id) => {
            Ok(Name::Full(name.to_owned()))
        }
        [id] if is_id(id) => Ok(Name::Bare(id.to_owned())),
        _ => bail!(
            "--pull {name}: not the name of a subscription; \
             give projects/PROJECT/subscriptions/NAME, or NAME alone in the own project"
        ),
    }
}

/// `HOST:PORT`, and nothing before or after it.
fn is_host(text: &str) -> bool {
    let authority: Result<Authority, _> = text.parse();
    authority.is_ok_and(|a| {
        let port = a.port_u16().is_some_and(|port| port > 0);
        port && !a.host().is_empty() && !a.as_str().contains('@')
    })
}

fn is_id(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.~+%".contains(c);
    (3..=255).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(allowed)
}

impl PullConfig {
    /// Subscriptions by full name, at an emulator if one is given.
    #[must_use]
    pub fn of(subscriptions: &[&str], emulator: Option<&str>) -> Self {
        let full = |name: &&str| Name::Full((*name).to_owned());
        Self {
            names: subscriptions.iter().map(full).collect(),
            project: None,
            emulator: emulator.map(str::to_owned),
        }
    }

    /// One of the names, if there are any.
    #[must_use]
    pub fn first(&self) -> Option<&str> {
        self.names.first().map(|name| match name {
            Name::Full(name) | Name::Bare(name) => name.as_str(),
        })
    }

    /// Where the emulator is, if there is one.
    #[must_use]
    pub fn emulator(&self) -> Option<&str> {
        self.emulator.as_deref()
    }

    /// The full names, each once. Only for a bare one is the project needed.
    ///
    /// # Errors
    /// When a name is bare and nobody knows the project.
    pub async fn subscriptions(&self) -> anyhow::Result<Vec<String>> {
        let mut all = Vec::new();
        let mut own = self.project.clone();
        for name in &self.names {
            let full = match name {
                Name::Full(full) => full.clone(),
                Name::Bare(id) => {
                    let project = match own.take() {
                        Some(project) => project,
                        None => ask_metadata().await.with_context(|| {
                            format!(
                                "--pull {id}: its project isn't known; give \
                                 projects/PROJECT/subscriptions/{id}, or set GOOGLE_CLOUD_PROJECT"
                            )
                        })?,
                    };
                    if !is_project(&project) {
                        bail!("--pull {id}: the own project {project:?} is no project id");
                    }
                    format!("projects/{}/subscriptions/{id}", own.insert(project))
                }
            };
            if !all.contains(&full) {
                all.push(full);
            }
        }
        Ok(all)
    }
}

async fn ask_metadata() -> Option<String> {
    // As Google's client libraries do.
    let host = std::env::var("GCE_METADATA_HOST").ok();
    let host = host.filter(|host| !host.is_empty());
    ask(host.as_deref().unwrap_or("metadata.google.internal")).await
}

#[cfg(test)]
mod tests {
    use super::{Name, PullConfig, is_host, parse};

    #[test]
    fn names_are_full_or_bare_or_refused() {
        let full = "projects/my-project/subscriptions/drainwell.notices_1";
        assert_eq!(parse(full).unwrap(), Name::Full(full.to_owned()));
        assert_eq!(
            parse("drainwell").unwrap(),
            Name::Bare("drainwell".to_owned())
        );
        for wrong in [
            "",
            "ab",
            "1abc",
            "a b c",
            "projects/p/topics/abc",
            "projects//subscriptions/abc",
            "projects/p/subscriptions/",
            "projects/p/subscriptions/abc/more",
            "subscriptions/abc",
            "//pubsub.googleapis.com/projects/p/subscriptions/abc",
        ] {
            let error = parse(wrong).unwrap_err().to_string();
            assert!(error.contains(&format!("--pull {wrong}:")), "{error}");
        }
    }

    #[test]
    fn an_emulator_is_at_a_host_and_a_port() {
        for right in ["localhost:8085", "127.0.0.1:1", "[::1]:8085"] {
            assert!(is_host(right), "{right}");
        }
        for wrong in [
            "localhost",
            "http://localhost:8085",
            "localhost:8085/",
            "localhost:0",
            "localhost:99999",
            ":8085",
            "user:word@localhost:8085",
            "a b:1",
            "",
        ] {
            assert!(!is_host(wrong), "{wrong}");
        }
    }

    #[tokio::test]
    async fn bare_names_are_of_the_own_project_and_none_is_pulled_from_twice() {
        let bare = |id: &str| Name::Bare(id.to_owned());
        let config = PullConfig {
            names: vec![
                bare("abc"),
                Name::Full("projects/p/subscriptions/abc".into()),
                bare("abd"),
            ],
            project: Some("p".to_owned()),
            emulator: None,
        };
        let expected = [
            "projects/p/subscriptions/abc",
            "projects/p/subscriptions/abd",
        ];
        assert_eq!(config.subscriptions().await.unwrap(), expected);
    }
}
