//! Settings that can't be right stop the start, with one sentence.

use drainwell_tests::{Lease, lease};

async fn refused(cluster: &Lease, arguments: &[&str], in_words: &[&str]) {
    let (code, stderr) = cluster
        .service()
        .arguments(arguments)
        .refused()
        .await
        .unwrap();
    assert_eq!(code, 2, "{arguments:?}: {stderr}");
    for word in in_words {
        assert!(
            stderr.contains(word),
            "{arguments:?}: {word:?} is not in: {stderr}"
        );
    }
}

#[tokio::test]
async fn wrong_settings_are_named_with_what_would_be_right() {
    let cluster = lease().await;
    let again = ["--listen", "0.0.0.0:0"];
    refused(&cluster, &again, &["--listen"]).await;
    refused(&cluster, &["--context", "nowhere"], &["nowhere"]).await;
    refused(&cluster, &["--tick-hold", "x"], &["--tick-hold", "x"]).await;
    refused(&cluster, &["--verify", "maybe"], &["maybe", "required"]).await;
    refused(
        &cluster,
        &["--policy-file", "not-there.yaml"],
        &["not-there.yaml"],
    )
    .await;
    refused(&cluster, &["--unheard-of"], &["--unheard-of"]).await;
    let topic = "projects/p/topics/t";
    refused(
        &cluster,
        &["--pull", topic],
        &["--pull", topic, "subscriptions/NAME"],
    )
    .await;
    let policy = cluster.service().policy("windws: {}");
    let (code, stderr) = policy.refused().await.unwrap();
    assert!(
        code == 2 && stderr.contains("windws") && stderr.contains("line 1"),
        "{stderr}"
    );
    // No metadata server, and so no project for a bare name.
    let lost = cluster
        .service()
        .arguments(&["--pull", "notices"])
        .environment("GCE_METADATA_HOST", "127.0.0.1:1");
    let (code, stderr) = lost.refused().await.unwrap();
    assert!(
        code == 2 && stderr.contains("GOOGLE_CLOUD_PROJECT") && stderr.lines().count() == 1,
        "{stderr}"
    );
    let inline = cluster
        .service()
        .environment("DRAINWELL_POLICY", "force: sometimes");
    let (code, stderr) = inline.refused().await.unwrap();
    assert!(code == 2 && stderr.contains("DRAINWELL_POLICY"), "{stderr}");
    let both = cluster
        .service()
        .policy("force: never")
        .environment("DRAINWELL_POLICY", "{}");
    let (code, stderr) = both.refused().await.unwrap();
    assert!(code == 2 && stderr.contains("give one of them"), "{stderr}");
}
