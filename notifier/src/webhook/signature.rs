//! Signatures by the Standard Webhooks specification, made and checked.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use countersign_kernel::time::Timestamp;
use reqwest::header::HeaderMap;

use crate::mac::{hmac_sha256, same};

/// The message's identity, the same for every attempt.
pub(super) const ID: &str = "webhook-id";
/// When the attempt was made, in seconds since the Unix epoch.
pub(super) const TIMESTAMP: &str = "webhook-timestamp";
/// The signatures, separated by blanks.
pub(super) const SIGNATURE: &str = "webhook-signature";

/// Why a text is no signing secret; the text itself is not repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SecretFault {
    /// It is not `whsec_` and base64.
    #[error("a webhook secret reads `whsec_` and then base64")]
    Form,
    /// It has too few octets to resist guessing, or more than the
    /// specification allows.
    #[error("a webhook secret has 24 to 64 octets, not {0}")]
    Length(usize),
}

/// A secret shared with one endpoint or sender. It does not print.
#[derive(Clone)]
pub struct WebhookSecret(Vec<u8>);

impl WebhookSecret {
    /// Reads `whsec_` followed by 24 to 64 octets in base64.
    ///
    /// # Errors
    /// The text has another form or length.
    pub fn parse(text: &str) -> Result<Self, SecretFault> {
        let encoded = text.trim().strip_prefix("whsec_").ok_or(SecretFault::Form)?;
        let octets = STANDARD.decode(encoded).map_err(|_| SecretFault::Form)?;
        if (24..=64).contains(&octets.len()) { Ok(Self(octets)) } else { Err(SecretFault::Length(octets.len())) }
    }

    fn code(&self, id: &str, seconds: &str, body: &[u8]) -> [u8; 32] {
        hmac_sha256(&self.0, &[id.as_bytes(), b".", seconds.as_bytes(), b".", body])
    }
}

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookSecret(…)")
    }
}

/// The value of `webhook-signature` for a message: `v1,` and the base64 of
/// HMAC-SHA256 over `id.seconds.body`, once per secret, separated by blanks.
/// `seconds` counts since the Unix epoch.
#[must_use]
pub fn sign(secrets: &[WebhookSecret], id: &str, seconds: i64, body: &[u8]) -> String {
    let seconds = seconds.to_string();
    let signatures = secrets.iter().map(|secret| format!("v1,{}", STANDARD.encode(secret.code(id, &seconds, body))));
    signatures.collect::<Vec<_>>().join(" ")
}

/// Why an incoming request is not accepted as genuine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignatureFault {
    /// A header is not there.
    #[error("the header `{0}` is missing")]
    Missing(&'static str),
    /// A header cannot be read.
    #[error("the header `{0}` cannot be read")]
    Unreadable(&'static str),
    /// The request was signed too long ago: perhaps a replay.
    #[error("the request was signed {} s ago, more than the {} s allowed", .by.as_secs(), .tolerance.as_secs())]
    TooOld {
        /// How long ago.
        by: Duration,
        /// What is allowed.
        tolerance: Duration,
    },
    /// The request is dated too far in the future: a clock is wrong.
    #[error("the request is dated {} s in the future, more than the {} s allowed", .by.as_secs(), .tolerance.as_secs())]
    TooNew {
        /// How far.
        by: Duration,
        /// What is allowed.
        tolerance: Duration,
    },
    /// None of the signatures is of a known version and fits.
    #[error("no signature fits: another secret, or a changed body")]
    NoMatch,
}

/// What is known of a request whose signature was found good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// The message's identity; a second message with it is a repetition.
    pub id: String,
    /// When it was signed, to the second.
    pub signed_at: Timestamp,
}

/// Checks an incoming request: that one of its `v1` signatures fits its id,
/// its timestamp and its `body` (the octets as received) under one of
/// `secrets`, and that it was signed within `tolerance` of `now`, before or
/// after. Five minutes are usual. Codes are compared in constant time.
///
/// # Errors
/// The first reason found; the time is looked at before the signatures.
pub fn verify(
    secrets: &[WebhookSecret],
    headers: &HeaderMap,
    body: &[u8],
    now: Timestamp,
    tolerance: Duration,
) -> Result<Received, SignatureFault> {
    let id = text(headers, ID)?;
    let seconds = text(headers, TIMESTAMP)?;
    let given = text(headers, SIGNATURE)?;
    let signed_at = instant(seconds).ok_or(SignatureFault::Unreadable(TIMESTAMP))?;
    let (by, ahead) = (now.since(signed_at), signed_at.since(now));
    if by > tolerance {
        return Err(SignatureFault::TooOld { by, tolerance });
    }
    if ahead > tolerance {
        return Err(SignatureFault::TooNew { by: ahead, tolerance });
    }
    let codes: Vec<_> = secrets.iter().map(|secret| secret.code(id, seconds, body)).collect();
    let fits = given
        .split(' ')
        .filter_map(|signature| signature.strip_prefix("v1,"))
        .filter_map(|encoded| STANDARD.decode(encoded).ok())
        .any(|code| codes.iter().any(|expected| same(expected, &code)));
    if fits { Ok(Received { id: id.to_owned(), signed_at }) } else { Err(SignatureFault::NoMatch) }
}

/// The one value of a header. Of two, somebody between might read another.
fn text<'a>(headers: &'a HeaderMap, name: &'static str) -> Result<&'a str, SignatureFault> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().ok_or(SignatureFault::Missing(name))?;
    match value.to_str() {
        Ok(text) if !text.is_empty() && values.next().is_none() => Ok(text),
        _ => Err(SignatureFault::Unreadable(name)),
    }
}

/// Whole seconds since the epoch, digits only.
fn instant(seconds: &str) -> Option<Timestamp> {
    if !seconds.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let seconds: i64 = seconds.parse().ok()?;
    seconds.checked_mul(1_000_000).map(Timestamp::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example that the implementations of the specification share.
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const MESSAGE: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const SECONDS: i64 = 1_614_265_330;
    const BODY: &[u8] = br#"{"test": 2432232314}"#;
    const EXPECTED: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
    const FIVE_MINUTES: Duration = Duration::from_secs(300);

    fn secret(text: &str) -> WebhookSecret {
        WebhookSecret::parse(text).expect("secret")
    }

    fn other() -> WebhookSecret {
        secret(&format!("whsec_{}", STANDARD.encode([9; 32])))
    }

    fn headers(signature: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(ID, MESSAGE.parse().expect("value"));
        headers.insert(TIMESTAMP, SECONDS.to_string().parse().expect("value"));
        headers.insert(SIGNATURE, signature.parse().expect("value"));
        headers
    }

    fn at(offset: i64) -> Timestamp {
        Timestamp::from_micros((SECONDS + offset) * 1_000_000)
    }

    fn check(headers: &HeaderMap, body: &[u8], now: Timestamp) -> Result<Received, SignatureFault> {
        verify(&[secret(SECRET)], headers, body, now, FIVE_MINUTES)
    }

    #[test]
    fn the_known_example_is_signed_and_verified() {
        assert_eq!(sign(&[secret(SECRET)], MESSAGE, SECONDS, BODY), EXPECTED);
        let received = check(&headers(EXPECTED), BODY, at(0)).expect("genuine");
        assert_eq!(received, Received { id: MESSAGE.into(), signed_at: at(0) });
    }

    #[test]
    fn either_secret_of_a_rotation_passes() {
        let both = sign(&[other(), secret(SECRET)], MESSAGE, SECONDS, BODY);
        assert_eq!(both.split(' ').count(), 2);
        assert!(check(&headers(&both), BODY, at(0)).is_ok());
        let old = sign(&[other()], MESSAGE, SECONDS, BODY);
        let knows_both = [secret(SECRET), other()];
        assert!(verify(&knows_both, &headers(&old), BODY, at(0), FIVE_MINUTES).is_ok());
        assert_eq!(check(&headers(&old), BODY, at(0)), Err(SignatureFault::NoMatch));
    }

    #[test]
    fn the_window_has_two_sides() {
        let good = headers(EXPECTED);
        // The signature lies ahead of the receiver's clock.
        assert!(check(&good, BODY, at(-4 * 60)).is_ok());
        assert!(check(&good, BODY, at(-5 * 60)).is_ok());
        assert!(matches!(check(&good, BODY, at(-10 * 60)), Err(SignatureFault::TooNew { .. })));
        // It lies behind.
        assert!(check(&good, BODY, at(4 * 60)).is_ok());
        let fault = check(&good, BODY, at(10 * 60)).expect_err("old");
        assert!(matches!(fault, SignatureFault::TooOld { .. }));
        assert!(fault.to_string().contains("600 s ago"), "{fault}");
    }

    #[test]
    fn every_refusal_has_its_name() {
        assert_eq!(check(&headers(EXPECTED), b"{}", at(0)), Err(SignatureFault::NoMatch));
        let v2 = EXPECTED.replace("v1,", "v2,");
        for odd in [&v2, "v1", "v1,", "v1,!!", ",", &EXPECTED[..30]] {
            assert_eq!(check(&headers(odd), BODY, at(0)), Err(SignatureFault::NoMatch), "{odd}");
        }
        for name in [ID, TIMESTAMP, SIGNATURE] {
            let mut without = headers(EXPECTED);
            without.remove(name);
            assert_eq!(check(&without, BODY, at(0)), Err(SignatureFault::Missing(name)));
            let mut twice = headers(EXPECTED);
            twice.append(name, "1".parse().expect("value"));
            assert_eq!(check(&twice, BODY, at(0)), Err(SignatureFault::Unreadable(name)));
        }
        for odd in ["-5", "+5", "1e9", "soon", "99999999999999999999", "9223372036854775807"] {
            let mut wrong = headers(EXPECTED);
            wrong.insert(TIMESTAMP, odd.parse().expect("value"));
            let expected = Err(SignatureFault::Unreadable(TIMESTAMP));
            assert_eq!(check(&wrong, BODY, at(0)), expected, "{odd}");
        }
    }

    #[test]
    fn secrets_are_checked_and_do_not_print() {
        assert!(matches!(WebhookSecret::parse("MfKQ9r8GKYqrTwjU"), Err(SecretFault::Form)));
        assert!(matches!(WebhookSecret::parse("whsec_%%%"), Err(SecretFault::Form)));
        assert!(matches!(WebhookSecret::parse("whsec_AAAA"), Err(SecretFault::Length(3))));
        assert_eq!(format!("{:?}", secret(SECRET)), "WebhookSecret(…)");
    }
}
