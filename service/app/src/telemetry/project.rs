//! Which project this process runs in, so that its lines name their traces in
//! full.

use std::time::Duration;

use super::trace;

/// The metadata server is on the same machine; without it, traces have their
/// bare ids.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Project ids have at most thirty characters, with an old domain prefix a
/// hundred at the most.
const PROJECT_MAX: usize = 100;

/// Learns it from `GOOGLE_CLOUD_PROJECT`, else from the metadata server where
/// there must be one: on Cloud Run (`K_SERVICE`, container runtime contract), or
/// where `GCE_METADATA_HOST` names it.
pub async fn learn() {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let host = variable("GCE_METADATA_HOST");
    let host = host.or_else(|| variable("K_SERVICE").map(|_| "metadata.google.internal".into()));
    let project = match (variable("GOOGLE_CLOUD_PROJECT"), host) {
        (Some(project), _) => Some(project),
        (None, Some(host)) => ask(&host).await,
        (None, None) => return,
    };
    match project.filter(|project| is_project(project)) {
        Some(project) => trace::set_project(&project),
        None => tracing::info!("The project isn't known: traces in the log have bare ids."),
    }
}

/// Asks a metadata server.
pub(crate) async fn ask(host: &str) -> Option<String> {
    let client = reqwest::Client::builder()
        .no_proxy()
        .timeout(TIMEOUT)
        .build();
    let url = format!("http://{host}/computeMetadata/v1/project/project-id");
    let request = client.ok()?.get(url).header("Metadata-Flavor", "Google");
    let mut answer = request.send().await.ok()?.error_for_status().ok()?;
    let mut text = Vec::new();
    while let Some(part) = answer.chunk().await.ok()? {
        text.extend_from_slice(&part);
        if text.len() > PROJECT_MAX {
            return None;
        }
    }
    Some(String::from_utf8(text).ok()?.trim().to_owned())
}

pub(crate) fn is_project(text: &str) -> bool {
    (1..=PROJECT_MAX).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b':'))
}
