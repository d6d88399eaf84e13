//! Variables that are set to nothing.

use super::{ALONE, command, nowhere, run};

/// The variables of `serve`, as its help names them, and those that it hides.
fn variables() -> Vec<String> {
    let help = command("", &["serve", "--help"]).output().unwrap().stdout;
    let help = String::from_utf8(help).unwrap();
    let named = help.split("[env: ").skip(1);
    let named = named.map(|rest| rest.split('=').next().unwrap().to_owned());
    let hidden = ["PORT", "DRAINWELL_POLICY", "RUST_LOG"];
    named.chain(hidden.map(str::to_owned)).collect()
}

#[test]
fn an_empty_variable_is_as_good_as_none() {
    let all = variables();
    assert!(all.len() > 10, "{all:?}");
    // It gets as far as the kubeconfig, and no setting was in its way.
    let far = "no usable kubeconfig";
    for variable in &all {
        // Only what isn't given as a flag is looked for in the environment.
        let bare: &[&str] = match variable.as_str() {
            "DRAINWELL_AUTH" => &["serve", "--insecure"],
            _ => &["serve", "--auth", "none", "--insecure"],
        };
        let mut empty = command("[", bare);
        empty.env(variable, "");
        let (code, stderr) = run(empty);
        let wanted = match variable.as_str() {
            // By default senders are checked, and that needs to know more.
            "DRAINWELL_AUTH" => "--audience",
            _ => far,
        };
        assert!(code == 2 && stderr.contains(wanted), "{variable}: {stderr}");
    }
    let mut empty = command("[", &["serve", "--auth", "none", "--listen", "127.0.0.1:0"]);
    empty.envs(all.iter().map(|variable| (variable, "")));
    let (code, stderr) = run(empty);
    assert!(code == 2 && stderr.contains(far), "{stderr}");
}

#[test]
fn an_empty_filter_of_the_log_is_none() {
    let mut quiet = command(&nowhere("{}"), ALONE);
    quiet.env("RUST_LOG", "");
    // It is found by the address that it logs, at INFO.
    let service = super::Service::start(quiet);
    assert_eq!(service.ask(super::HEALTH), "200");
}
