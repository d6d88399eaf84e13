//! Kubeconfigs that can't be used: refused in words, and without the secret.

use super::{ALONE, command, nowhere, run};

const SECRET: &str = "ey-secret";

/// Whether it is refused, with these words and without the secret or a panic.
fn refused(kubeconfig: &str, words: &str) {
    let (code, stderr) = run(command(kubeconfig, ALONE));
    assert_eq!(code, 2, "{kubeconfig}: {stderr}");
    assert!(stderr.contains(words), "{kubeconfig}: {stderr}");
    assert!(!stderr.contains(SECRET), "{kubeconfig}: {stderr}");
    assert!(!stderr.contains("panicked"), "{kubeconfig}: {stderr}");
}

#[test]
fn a_token_that_no_request_can_carry_is_refused_and_not_shown() {
    let words = "token has a line break";
    for end in ["\\n", "\\r", "\\n-more", "\\u0000", "\\u007f"] {
        let token = format!("{SECRET}{end}");
        refused(&nowhere(&format!(r#"{{"token": "{token}"}}"#)), words);
        let config = format!(r#"{{"id-token": "{token}"}}"#);
        let provider = format!(r#"{{"auth-provider": {{"name": "oidc", "config": {config}}}}}"#);
        refused(&nowhere(&provider), words);
    }
}

#[test]
fn a_token_of_a_plugin_that_no_request_can_carry_ends_the_start_in_words() {
    let token = format!(r#"{{"token": "{SECRET}\n-more"}}"#);
    let version = "client.authentication.k8s.io/v1";
    let credential =
        format!(r#"{{"apiVersion": "{version}", "kind": "ExecCredential", "status": {token}}}"#);
    let exec = serde_json::json!({"exec": {
        "apiVersion": version, "command": "/bin/echo", "args": [credential],
        "interactiveMode": "Never",
    }});
    let (code, stderr) = run(command(&nowhere(&exec.to_string()), ALONE));
    let words = "credentials are none that a request can carry";
    assert!(code == 2 && stderr.contains(words), "{code} {stderr}");
    assert!(!stderr.contains(SECRET), "{stderr}");
}

#[test]
fn what_is_no_kubeconfig_is_refused_with_its_line_and_without_its_content() {
    let torn = format!("users:\n- name: u\n  user:\n    token: {SECRET}\nmore\n");
    refused(&torn, "line 5");
    refused(&nowhere(&format!(r#"["{SECRET}"]"#)), "not a kubeconfig");
}
