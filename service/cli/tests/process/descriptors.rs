//! A service that runs out of file descriptors.

use std::io::Read as _;
use std::process::Command;

use super::{ALONE, HEALTH, Service, nowhere, with_kubeconfig};

/// A little more than it needs for itself.
const DESCRIPTORS: usize = 48;

#[test]
fn out_of_file_descriptors_it_makes_room_and_goes_on() {
    let mut limited = Command::new("/bin/sh");
    let script = format!("ulimit -n {DESCRIPTORS}; exec \"$@\"");
    limited.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_drainwell")]);
    let service = Service::start(with_kubeconfig(limited, &nowhere("{}"), ALONE));
    let mut idle: Vec<_> = (0..3 * DESCRIPTORS).map(|_| service.connect()).collect();
    // Behind all of these in the queue, and answered all the same.
    assert_eq!(service.ask(HEALTH), "200");
    // The first of them have made room.
    let mut byte = [0];
    assert!(idle[0].read(&mut byte).map_or(true, |read| read == 0));
    drop(idle);
    assert_eq!(service.ask(HEALTH), "200");
}
