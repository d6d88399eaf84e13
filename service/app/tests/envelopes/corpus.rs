//! The seeds for fuzzing: one request a file, header lines, an empty line, then
//! the body. Those that were written by hand say by their names what they are.

use std::path::Path;

use drainwell_app::ingress::envelope;
use drainwell_core::notice::Reading;

use super::forms::{NOW, Sent, time};

fn parse(raw: &[u8]) -> Sent {
    let gap = raw.windows(2).position(|pair| pair == b"\n\n");
    let (head, body) = match gap {
        Some(gap) => (&raw[..gap], &raw[gap + 2..]),
        None => (raw, &[][..]),
    };
    let mut sent = Sent::default();
    for line in head.split(|byte| *byte == b'\n') {
        let line = String::from_utf8_lossy(line);
        if let Some((name, value)) = line.split_once(": ") {
            sent = sent.header(name, value.trim());
        }
    }
    sent.body = body.to_vec();
    sent
}

#[test]
fn the_seeds_for_fuzzing_are_what_their_names_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/envelope");
    let (mut notices, mut others) = (0, 0);
    for file in std::fs::read_dir(folder).unwrap() {
        let file = file.unwrap();
        let name = file.file_name().into_string().unwrap();
        let kind = name.split_once('-').map_or("", |(kind, _)| kind);
        let sent = parse(&std::fs::read(file.path()).unwrap());
        let read = envelope::read(&sent.headers, &sent.body, time(NOW));
        let is = match &read {
            Ok(letter) if matches!(letter.reading, Reading::Notice(_)) => "notice",
            Ok(_) => "ignored",
            Err(_) => "fault",
        };
        if !["notice", "ignored", "fault"].contains(&kind) {
            continue; // Found by a fuzzer: that it was read is enough.
        }
        assert_eq!(is, kind, "{name}: {read:?}");
        *(if is == "notice" {
            &mut notices
        } else {
            &mut others
        }) += 1;
    }
    assert!(
        notices > 10 && others > 10,
        "{notices} notices, {others} others"
    );
}
