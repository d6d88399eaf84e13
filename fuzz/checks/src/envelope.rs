//! Any request as a notice: lines of headers, an empty line, a body.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use drainwell_app::ingress::envelope::{self, Fault, Letter};
use drainwell_core::notice::{Malformed, Reading};

use crate::node::t0;

/// Longest text of a request that may come into an answer or a log line.
const SAID_MAX: usize = 600;

/// It is understood, or the place of the fault is named; and what is told of
/// it is short and has no control characters.
pub fn check(data: &[u8]) -> &'static str {
    let end = data.windows(2).position(|pair| pair == b"\n\n");
    let Some((headers, body)) = end.map(|end| (headers(&data[..end]), &data[end + 2..])) else {
        return "no request";
    };
    let read = envelope::read(&headers, body, t0());
    assert_eq!(read, envelope::read(&headers, body, t0()));
    match read {
        Err(Fault::Malformed(fault)) => {
            is_said(&fault);
            "malformed"
        }
        Err(Fault::Unsupported(fault)) => {
            is_said(&fault);
            "unsupported"
        }
        Ok(letter) => {
            is_bounded(&letter);
            match letter.reading {
                Reading::Notice(_) | Reading::WakeUp(_) => "notice",
                Reading::LiveMigration | Reading::NotMaintenance => "not ours",
            }
        }
    }
}

fn headers(lines: &[u8]) -> HeaderMap {
    let lines = lines.split(|byte| *byte == b'\n');
    let pair = |line: &[u8]| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let name = HeaderName::from_bytes(&line[..colon]).ok()?;
        let value = line[colon + 1..].trim_ascii();
        Some((name, HeaderValue::from_bytes(value).ok()?))
    };
    lines.filter_map(pair).collect()
}

fn is_said(fault: &Malformed) {
    assert!(!fault.place.is_empty() && !fault.problem.is_empty());
    is_plain(&fault.to_string());
}

fn is_bounded(letter: &Letter) {
    let said = letter
        .id
        .iter()
        .chain(&letter.foreign)
        .chain(&letter.doubts);
    said.for_each(|text| is_plain(text));
}

fn is_plain(text: &str) {
    assert!(text.len() <= SAID_MAX, "{} bytes: {text}", text.len());
    assert!(!text.chars().any(char::is_control), "{text:?}");
}
