//! What envelopes are made of: JSON, base64, times, and ids for the log.

use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use drainwell_core::notice::Malformed;
use jiff::Timestamp;
use serde_json::{Map, Value};

pub(super) type Object = Map<String, Value>;

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Ids and types go to the log, and a sender chooses them.
const SHORT: usize = 64;

/// Parses JSON. Of a key that is there twice, the last value counts; nesting
/// over 128 levels is refused, numbers that no `u64` can hold lose digits.
pub(super) fn json(bytes: &[u8], place: &str) -> Result<Value, Malformed> {
    serde_json::from_slice(bytes).map_err(|e| Malformed::at(place, format!("no JSON: {e}")))
}

/// The same, and it has to be an object.
pub(super) fn object(bytes: &[u8], place: &str) -> Result<Object, Malformed> {
    let Value::Object(object) = json(bytes, place)? else {
        return Err(Malformed::at(place, "not a JSON object"));
    };
    Ok(object)
}

/// Decodes base64 as proto3 JSON has it: either alphabet, with padding or
/// without. Line breaks, as command line tools make them, do no harm.
pub(super) fn base64(text: &str, place: &str) -> Result<Vec<u8>, Malformed> {
    let plain = text.bytes().filter(|b| !b.is_ascii_whitespace());
    let plain: Vec<u8> = plain
        .map(|b| match b {
            b'-' => b'+',
            b'_' => b'/',
            other => other,
        })
        .collect();
    let decoded = BASE64.decode(plain);
    decoded.map_err(|e| Malformed::at(place, format!("no base64: {e}")))
}

/// A time that is useful but not needed.
pub(super) fn time(text: &str, place: &str, doubts: &mut Vec<String>) -> Option<Timestamp> {
    let time = text.parse().ok();
    if time.is_none() {
        doubts.push(format!("{place}: not an RFC 3339 time"));
    }
    time
}

/// A text of the sender's, fit for the log.
pub(super) fn short(text: &str) -> Option<String> {
    let short: String = text
        .chars()
        .filter(char::is_ascii_graphic)
        .take(SHORT)
        .collect();
    Some(short).filter(|short| !short.is_empty())
}
