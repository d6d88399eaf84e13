//! A log that nobody reads.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use super::{ALONE, HEALTH, SOON, Service, command, nowhere};

/// Each is rejected, with a line of the log. A megabyte of them waits for its
/// reader; what is beyond that is lost.
const REQUESTS: usize = 4_000;
const BATCH: usize = 100;

const BAD: &str = "POST / HTTP/1.1\r\nhost: drainwell\r\ncontent-length: 1\r\n\r\n[";

fn send_all(service: &Service) {
    let mut stream = service.connect();
    let mut read = [0; 16 << 10];
    for _ in 0..REQUESTS / BATCH {
        stream.write_all(BAD.repeat(BATCH).as_bytes()).unwrap();
        let (mut answered, mut tail) = (0, Vec::new());
        while answered < BATCH {
            let length = stream.read(&mut read).unwrap();
            assert!(length > 0, "it has hung up after {answered} of {BATCH}");
            tail.extend_from_slice(&read[..length]);
            let text = String::from_utf8(tail.clone()).unwrap();
            answered = text.matches("HTTP/1.1 400").count();
        }
    }
}

#[test]
fn a_log_that_nobody_reads_holds_up_no_answer() {
    for form in ["json", "text"] {
        let arguments = [&ALONE[..ALONE.len() - 1], &[form]].concat();
        let mut service = Service::start(command(&nowhere("{}"), &arguments));
        send_all(&service);
        assert_eq!(service.ask(HEALTH), "200");
        // Now somebody reads: what was kept comes, and how much was not.
        let lines = service.lines();
        let (mut rejected, mut lost) = (0, 0);
        while rejected + lost < REQUESTS {
            let line = lines.recv_timeout(SOON).unwrap();
            rejected += usize::from(line.contains("Answered 400"));
            if let Some((before, _)) = line.split_once(" log lines were lost") {
                let digits = before.rsplit(|c: char| !c.is_ascii_digit()).next();
                lost += digits.unwrap().parse::<usize>().unwrap();
            }
        }
        assert!(rejected > 1000 && lost > 0, "{rejected} and {lost}");
        let (status, _) = service.terminate();
        let rest: Vec<_> = lines.iter().collect();
        let told = rest.iter().any(|line| line.contains("stopping"));
        assert!(status.success() && told, "{rest:?}");
    }
}

#[test]
fn a_log_that_nobody_reads_holds_up_no_end() {
    let mut service = Service::start(command(&nowhere("{}"), ALONE));
    send_all(&service);
    let (status, time) = service.terminate();
    assert!(
        status.success() && time < Duration::from_secs(8),
        "{time:?}"
    );
}
