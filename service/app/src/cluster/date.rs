//! How far this machine's clock is from the API server's, for those who run
//! where nobody keeps it right.

use jiff::fmt::rfc2822::DateTimeParser;
use jiff::{SignedDuration, Timestamp};
use kube::client::Body;

use super::{CALL_TIMEOUT, KubeCluster};
use crate::driver::ports::CallError;

/// The header `Date` has whole seconds, rounded down.
const SECOND: SignedDuration = SignedDuration::from_secs(1);

impl KubeCluster {
    /// By how much the server's clock is ahead of ours: zero when they agree as
    /// far as one cheap request can tell.
    ///
    /// # Errors
    /// When the server doesn't answer, or without a readable date.
    pub async fn ahead(&self) -> Result<SignedDuration, CallError> {
        let request = http::Request::get("/version")
            .body(Body::empty())
            .map_err(|e| CallError::unavailable(e.to_string()))?;
        let sent = Timestamp::now();
        let call = self.client.send(request);
        let answer = self.timed("get", CALL_TIMEOUT, call).await;
        let received = Timestamp::now();
        let answer = answer.map_err(|failure| failure.into_call_error("get /version", false))?;
        let date = answer
            .headers()
            .get(http::header::DATE)
            .and_then(|date| date.to_str().ok());
        let date = date.and_then(|date| DateTimeParser::new().parse_timestamp(date).ok());
        let date = date.ok_or_else(|| CallError::unavailable("its answers carry no date"))?;
        Ok(ahead(date, sent, received))
    }
}

/// The server wrote `date` at some moment between `sent` and `received`.
fn ahead(date: Timestamp, sent: Timestamp, received: Timestamp) -> SignedDuration {
    let since_sent = date.duration_since(sent);
    let since_received = date.duration_since(received);
    if since_received <= SignedDuration::ZERO && since_sent + SECOND > SignedDuration::ZERO {
        return SignedDuration::ZERO;
    }
    // The middle of what is possible.
    (since_sent + since_received + SECOND) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(1_760_000_000_000 + millis).unwrap()
    }

    #[test]
    fn a_clock_is_put_right_only_when_it_is_wrong() {
        // The date, when it was asked for and received, and the correction; in ms.
        let cases = [
            (0, 0, 20, 0),
            (0, 980, 999, 0),
            (0, 990, 1010, 0),
            (1000, 990, 1010, 0),
            (60_000, 0, 100, 60_450),
            (-3_600_000, 0, 100, -3_599_550),
        ];
        for (date, sent, received, expected) in cases {
            let ahead = ahead(at(date), at(sent), at(received));
            assert_eq!(ahead.as_millis(), expected, "{date} {sent} {received}");
        }
    }
}
