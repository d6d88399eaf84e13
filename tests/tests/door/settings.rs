//! Settings of the door that can't be right stop the start, with one sentence.

use clap::Parser;
use drainwell_app::config::{Config, ServeArgs};
use drainwell_app::ingress::auth::{Auth, GOOGLE_KEYS};
use drainwell_tests::service::Setup;

use super::{AUDIENCE, SENDER};

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    serve: ServeArgs,
}

fn check(arguments: &str) -> anyhow::Result<Config> {
    let arguments = std::iter::once("serve").chain(arguments.split_whitespace());
    Cli::try_parse_from(arguments)?.serve.check()
}

#[test]
fn wrong_settings_are_named_with_what_would_be_right() {
    let jwks = format!("--audience {AUDIENCE} --sender {SENDER}");
    let cases = [
        ("", "--auth jwks: add --audience URL"),
        (
            &*format!("--audience {AUDIENCE}"),
            "--auth jwks: add --sender EMAIL",
        ),
        (
            &*format!("--sender {SENDER}"),
            "--auth jwks: add --audience URL",
        ),
        ("--auth iam", "--auth iam: add --sender EMAIL"),
        (
            "--auth iam --sender drainwell",
            "--sender drainwell: not an e-mail address",
        ),
        (
            "--auth iam --sender @example.com",
            "--sender @example.com: not",
        ),
        (
            "--auth iam --sender a@b@example.com",
            "--sender a@b@example.com: not",
        ),
        (
            "--auth iam --sender a@localhost",
            "--sender a@localhost: not",
        ),
        (
            "--auth iam --sender serviceAccount:a@b.c",
            "--sender serviceAccount:a@b.c: not",
        ),
        (
            &*format!("{jwks} --viewer example.com"),
            "--viewer example.com: not an e-mail",
        ),
        (
            &*format!("{jwks} --viewer domain:"),
            "--viewer domain:: not an e-mail address, or",
        ),
        (
            &*format!("{jwks} --viewer domain:*.com"),
            "--viewer domain:*.com: not",
        ),
        (
            &*format!("{jwks} --viewer domain:a@b.c"),
            "--viewer domain:a@b.c: not",
        ),
    ];
    refused(&cases);
}

#[test]
fn what_others_could_reach_or_read_is_refused() {
    let jwks = format!("--audience {AUDIENCE} --sender {SENDER}");
    let cases = [
        (
            "--auth none --insecure --compute-endpoint https://a:b@c.d",
            "--compute-endpoint https://…@c.d: give https://HOST",
        ),
        (
            &*format!("{jwks} --jwks-url http://example.com"),
            "--jwks-url http://example.com: give",
        ),
        (
            &*format!("{jwks} --jwks-url certs"),
            "--jwks-url certs: give https://HOST/PATH",
        ),
        (
            &*format!("{jwks} --jwks-url https://a:b@c.d/e"),
            "--jwks-url https://…@c.d/e: give https://HOST/PATH",
        ),
        (
            &*format!("{jwks} --jwks-url https://localhost:99999/"),
            "--jwks-url https://localhost:99999/: give https://HOST/PATH",
        ),
        ("--auth none", "listen on 127.0.0.1, or add --insecure"),
        (
            &*format!("--auth none --insecure --sender {SENDER}"),
            "--auth none: with --sender, which nobody checks then",
        ),
        (
            "--auth none --insecure --viewer domain:a.b",
            "--auth none: with --viewer, which",
        ),
        (
            "--auth none --insecure --audience a",
            "--auth none: with --audience, which",
        ),
        (
            "--auth none --insecure --metrics-listen 0.0.0.0:9090",
            "--metrics-listen 0.0.0.0:9090: nobody is asked who they are there; give",
        ),
    ];
    refused(&cases);
}

fn refused(cases: &[(&str, &str)]) {
    for (arguments, sentence) in cases {
        let error = format!("{:#}", check(arguments).expect_err(arguments));
        assert!(error.contains(sentence), "{arguments}: {error}");
        assert!(!error.contains('\n'), "{arguments}: {error}");
    }
}

#[test]
fn right_settings_are_understood() {
    let twice = format!("--audience {AUDIENCE},b --audience c --sender {SENDER},A@B.c,");
    let Auth::Jwks(rules) = check(&twice).unwrap().auth else {
        panic!("jwks is the default");
    };
    assert_eq!(rules.audiences, [AUDIENCE, "b", "c"]);
    assert_eq!(
        rules.senders,
        [SENDER.parse().unwrap(), "a@b.c".parse().unwrap()]
    );
    assert_eq!(rules.jwks_url, GOOGLE_KEYS);
    let iam = format!("--auth iam --sender {SENDER} --viewer domain:example.org,x@example.com");
    let Auth::Iam(rules) = check(&iam).unwrap().auth else {
        panic!("iam is iam");
    };
    assert_eq!((rules.audiences.len(), rules.viewers.len()), (0, 2));
    for none in ["--listen 127.0.0.1:0 --auth none", "--auth none --insecure"] {
        assert_eq!(check(none).unwrap().auth, Auth::None);
    }
}

#[tokio::test]
async fn the_start_is_refused_with_exit_code_2() {
    let setup = Setup::alone().unwrap().auth(&["--sender", SENDER]);
    let (code, stderr) = setup.refused().await.unwrap();
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("add --audience URL"), "{stderr}");
    let environment = Setup::alone().unwrap().environment("DRAINWELL_AUTH", "iam");
    let environment = environment.environment("DRAINWELL_SENDER", "nobody");
    let (code, stderr) = environment.refused().await.unwrap();
    assert_eq!(code, 2, "{stderr}");
    assert!(
        stderr.contains("--sender nobody: not an e-mail address"),
        "{stderr}"
    );
}

#[tokio::test]
async fn variables_of_others_that_cannot_be_right_stop_the_start_as_well() {
    for (name, value, sentence) in [
        ("RUST_LOG", "warnn", "RUST_LOG warnn: give a level"),
        (
            "RUST_LOG",
            "drainwell_app=loud",
            "RUST_LOG drainwell_app=loud: give",
        ),
        (
            "PUBSUB_EMULATOR_HOST",
            "u:secret@localhost:1",
            "PUBSUB_EMULATOR_HOST …@localhost:1: give HOST:PORT",
        ),
        (
            "PUBSUB_EMULATOR_HOST",
            "http://localhost:8085",
            "PUBSUB_EMULATOR_HOST http://localhost:8085: give HOST:PORT",
        ),
    ] {
        let setup = Setup::alone().unwrap().auth(&["--auth", "none"]);
        let setup = setup.environment(name, value);
        let (code, stderr) = setup.refused().await.unwrap();
        assert_eq!(code, 2, "{stderr}");
        assert!(stderr.contains(sentence), "{stderr}");
        assert!(!stderr.contains("secret"), "{stderr}");
    }
}
