//! The own project, from the metadata server.

use std::time::Duration;

use anyhow::{Context as _, ensure};

/// The metadata server is on the same host. Elsewhere nobody answers.
const TIMEOUT: Duration = Duration::from_secs(3);
/// More than any project id has.
const PROJECT_MAX: usize = 200;

/// Asks for the own project.
///
/// # Errors
/// When there is no metadata server.
pub(super) async fn ask() -> anyhow::Result<String> {
    // As Google's client libraries do.
    let host = std::env::var("GCE_METADATA_HOST").ok();
    let host = host.filter(|host| !host.is_empty());
    let host = host.as_deref().unwrap_or("metadata.google.internal");
    let url = format!("http://{host}/computeMetadata/v1/project/project-id");
    let http = reqwest::Client::builder()
        .no_proxy()
        .timeout(TIMEOUT)
        .build()?;
    let asked = http.get(url).header("metadata-flavor", "Google").send();
    let mut answer = asked
        .await
        .and_then(reqwest::Response::error_for_status)
        .context("no metadata server")?;
    let mut text = Vec::new();
    while let Some(part) = answer.chunk().await.context("no metadata server")? {
        text.extend_from_slice(&part);
        ensure!(text.len() <= PROJECT_MAX, "over {PROJECT_MAX} bytes");
    }
    Ok(String::from_utf8(text)?.trim().to_owned())
}
