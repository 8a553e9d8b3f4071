//! Links that stand for one person, one request and one content.

use std::time::Duration;

use countersign_kernel::ids::{InterruptId, ThreadId};
use countersign_kernel::ports::Notice;
use countersign_kernel::principal::Principal;
use countersign_kernel::time::Timestamp;

use crate::signer::{LinkFault, LinkKeys, Signer};

/// What a link is signed for; no other token of the same keys passes as one.
const PURPOSE: &str = "link";

/// What a link says: who may look at and decide which request, in which
/// wording, until when. It decides nothing by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkClaim {
    /// The case.
    pub thread: ThreadId,
    /// The pending point.
    pub interrupt: InterruptId,
    /// The person that whoever holds the link counts as.
    pub principal: Principal,
    /// The content hash of the request as the message showed it.
    pub content_hash: String,
    /// The last instant at which the link is valid.
    pub expires_at: Timestamp,
}

/// Makes and checks the links in messages.
///
/// The signature covers the claim, the key's name and the epoch, never the
/// URL: the server may move to another host or under a path prefix, and a
/// proxy may rewrite what it likes, without making links void (R29).
///
/// Whoever holds a link is the person it names. It must not appear in logs,
/// traces or `Referer` headers.
#[derive(Debug, Clone)]
pub struct Links {
    base_url: String,
    signer: Signer,
    valid_for: Duration,
}

impl Links {
    /// Links below `base_url` (scheme, host and, behind a proxy, the prefix;
    /// a slash at the end is dropped) that are valid for `valid_for` from the
    /// making of the message.
    #[must_use]
    pub fn new(base_url: impl Into<String>, keys: LinkKeys, valid_for: Duration) -> Self {
        Self { base_url: trimmed(base_url.into()), signer: Signer::new(keys), valid_for }
    }

    /// The claim that the message to `notice`'s recipient carries when it is
    /// made at `now`.
    ///
    /// The time runs from `now`, not from the asking, so that a message that
    /// comes late because of an outage still works. A deadline does not
    /// shorten it: the page then says what became of the request.
    #[must_use]
    pub fn claim(&self, notice: &Notice, now: Timestamp) -> LinkClaim {
        LinkClaim {
            thread: notice.thread.clone(),
            interrupt: notice.interrupt.clone(),
            principal: notice.recipient.principal.clone(),
            content_hash: notice.content_hash.clone(),
            expires_at: now.after(self.valid_for),
        }
    }

    /// The personal link, `{base_url}/d/{token}`. The same claim gives the
    /// same link as long as the key and the epoch stay.
    #[must_use]
    pub fn url(&self, claim: &LinkClaim) -> String {
        format!("{}/d/{}", self.base_url, self.signer.sign(PURPOSE, &encode(claim)))
    }

    /// Reads the token of a link that [`Links::url`] made, valid up to and
    /// including the claim's `expires_at`.
    ///
    /// # Errors
    /// The reason why the token is not accepted; its text tells the person
    /// what to do. Nothing of a token that is not genuine is reported.
    pub fn verify(&self, token: &str, now: Timestamp) -> Result<LinkClaim, LinkFault> {
        let content = self.signer.verify(PURPOSE, token)?;
        let claim = decode(&content).ok_or(LinkFault::Malformed)?;
        if now > claim.expires_at {
            return Err(LinkFault::Expired { at: claim.expires_at });
        }
        Ok(claim)
    }

    /// How long links are valid.
    #[must_use]
    pub fn valid_for(&self) -> Duration {
        self.valid_for
    }

    /// The signer with the same keys, for session cookies and page cursors;
    /// their purposes must differ from one another and from `link`.
    #[must_use]
    pub fn signer(&self) -> &Signer {
        &self.signer
    }
}

/// The page of a request, `{base_url}/interrupts/{id}`: it asks for a sign-in
/// and is safe to hand around.
#[must_use]
pub fn page_url(base_url: &str, interrupt: &InterruptId) -> String {
    format!("{}/interrupts/{interrupt}", base_url.trim_end_matches('/'))
}

fn trimmed(mut url: String) -> String {
    url.truncate(url.trim_end_matches('/').len());
    url
}

/// Expiry (8 octets), then interrupt, content hash, thread and principal, each
/// after its length (4 octets). Hexadecimal texts are packed: links are short
/// so that mail programs break them less.
fn encode(claim: &LinkClaim) -> Vec<u8> {
    let mut out = claim.expires_at.as_micros().to_be_bytes().to_vec();
    for text in [claim.interrupt.as_str(), &claim.content_hash] {
        match hex::decode(text) {
            Ok(octets) if hex::encode(&octets) == text => put(&mut out, b'h', &octets),
            _ => put(&mut out, b't', text.as_bytes()),
        }
    }
    put(&mut out, b't', claim.thread.as_str().as_bytes());
    put(&mut out, b't', claim.principal.as_str().as_bytes());
    out
}

fn put(out: &mut Vec<u8>, form: u8, octets: &[u8]) {
    out.push(form);
    // Longer than 4 GiB is no token that anybody verifies.
    out.extend_from_slice(&u32::try_from(octets.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(octets);
}

fn decode(content: &[u8]) -> Option<LinkClaim> {
    let (expires_at, mut rest) = content.split_first_chunk::<8>()?;
    let interrupt = InterruptId::parse(take(&mut rest)?).ok()?;
    let content_hash = take(&mut rest)?;
    let thread = ThreadId::parse(take(&mut rest)?).ok()?;
    let principal = Principal::try_from(take(&mut rest)?).ok()?;
    let expires_at = Timestamp::from_micros(i64::from_be_bytes(*expires_at));
    rest.is_empty().then_some(LinkClaim { thread, interrupt, principal, content_hash, expires_at })
}

fn take(rest: &mut &[u8]) -> Option<String> {
    let (form, tail) = rest.split_first()?;
    let (length, tail) = tail.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    let (octets, tail) = tail.split_at_checked(length)?;
    *rest = tail;
    match form {
        b'h' => Some(hex::encode(octets)),
        b't' => String::from_utf8(octets.to_vec()).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);
    const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

    fn keys(kid: &str, older: Vec<(String, Vec<u8>)>, epoch: u32) -> LinkKeys {
        LinkKeys::new((kid.to_owned(), secret(kid)), older, epoch).expect("good keys")
    }

    fn secret(kid: &str) -> Vec<u8> {
        format!("{kid}: a secret of more than 32 octets").into_bytes()
    }

    fn claim() -> LinkClaim {
        LinkClaim {
            thread: ThreadId::parse("invoice-2016_04:17.a").expect("id"),
            interrupt: InterruptId::parse("80fcfb93000000000000000000000abc").expect("id"),
            principal: Principal::person("anna@example.com"),
            content_hash: "9f".repeat(32),
            expires_at: NOW.after(WEEK),
        }
    }

    fn token(url: &str) -> &str {
        url.rsplit_once("/d/").expect("a link").1
    }

    #[test]
    fn a_link_comes_back_as_it_was() {
        let links = Links::new("https://ops.example.com/cs/", keys("k1", vec![], 0), WEEK);
        let url = links.url(&claim());
        assert!(url.starts_with("https://ops.example.com/cs/d/"), "{url}");
        assert!(url.len() < 300, "{} characters", url.len());
        assert_eq!(links.verify(token(&url), NOW), Ok(claim()));

        let odd = LinkClaim {
            content_hash: "ABC no hash ü".into(),
            principal: Principal::person("jörg@exämple.com"),
            ..claim()
        };
        assert_eq!(links.verify(token(&links.url(&odd)), NOW), Ok(odd));
    }

    #[test]
    fn another_host_or_prefix_leaves_links_valid() {
        let before = Links::new("http://localhost:8080", keys("k1", vec![], 0), WEEK);
        let after = Links::new("https://example.com/behind/proxy", keys("k1", vec![], 0), WEEK);
        assert_eq!(after.verify(token(&before.url(&claim())), NOW), Ok(claim()));
    }

    #[test]
    fn every_fault_has_its_name() {
        let links = Links::new("https://example.com", keys("k1", vec![], 0), WEEK);
        let url = links.url(&claim());
        let good = token(&url);

        for bad in ["", "x", "not base64!", &good[..20], &"A".repeat(5000)] {
            assert_eq!(links.verify(bad, NOW), Err(LinkFault::Malformed), "{bad}");
        }
        assert_eq!(links.verify(&good[..good.len() - 4], NOW), Err(LinkFault::Tampered));

        let rotated = Links::new("https://example.com", keys("k2", vec![("k1".into(), secret("k1"))], 0), WEEK);
        assert_eq!(rotated.verify(good, NOW), Ok(claim()));
        let dropped = Links::new("https://example.com", keys("k2", vec![], 0), WEEK);
        assert_eq!(dropped.verify(good, NOW), Err(LinkFault::UnknownKey));
        let restored = Links::new("https://example.com", keys("k1", vec![], 1), WEEK);
        assert_eq!(restored.verify(good, NOW), Err(LinkFault::Replaced));

        let at = claim().expires_at;
        assert_eq!(links.verify(good, at), Ok(claim()));
        let late = at.after(Duration::from_micros(1));
        let fault = links.verify(good, late).expect_err("expired");
        assert_eq!(fault, LinkFault::Expired { at });
        assert!(fault.to_string().contains("2027"), "{fault}");
        assert!(fault.to_string().contains("sign in"), "{fault}");
    }

    #[test]
    fn a_token_for_another_purpose_is_no_link() {
        let links = Links::new("https://example.com", keys("k1", vec![], 0), WEEK);
        let cookie = links.signer().sign("session", &encode(&claim()));
        assert_eq!(links.verify(&cookie, NOW), Err(LinkFault::Tampered));
    }

    #[test]
    fn the_plain_page_carries_no_token() {
        let url = page_url("https://example.com/cs/", &claim().interrupt);
        assert_eq!(url, "https://example.com/cs/interrupts/80fcfb93000000000000000000000abc");
    }

    proptest! {
        #[test]
        fn no_changed_token_is_accepted(
            position in any::<prop::sample::Index>(),
            replacement in "[A-Za-z0-9_=.-]|ü",
            kind in 0..3,
        ) {
            let links = Links::new("https://example.com", keys("k1", vec![], 0), WEEK);
            let url = links.url(&claim());
            let good = token(&url);
            let at = position.index(good.len());
            let changed = match kind {
                0 => format!("{}{replacement}{}", &good[..at], &good[at + 1..]),
                1 => format!("{}{}", &good[..at], &good[at + 1..]),
                _ => format!("{}{replacement}{}", &good[..at], &good[at..]),
            };
            prop_assume!(changed != good);
            prop_assert!(links.verify(&changed, NOW).is_err());
        }

        #[test]
        fn nothing_made_up_is_accepted_and_nothing_panics(text in ".{0,200}", octets in any::<Vec<u8>>()) {
            let links = Links::new("https://example.com", keys("k1", vec![], 0), WEEK);
            prop_assert!(links.verify(&text, NOW).is_err());
            let _ = decode(&octets);
        }

        #[test]
        fn every_claim_survives(
            thread in "[A-Za-z0-9_:-][A-Za-z0-9_.:-]{0,127}",
            interrupt in "[0-9a-f]{32}",
            address in "[a-z.]{1,64}@[a-z]{1,60}\\.example",
            content_hash in "[0-9a-fA-F]{0,64}|.{0,40}",
            micros in 0_i64..=i64::MAX,
        ) {
            let claim = LinkClaim {
                thread: ThreadId::parse(thread).expect("id"),
                interrupt: InterruptId::parse(interrupt).expect("id"),
                principal: Principal::person(&address),
                content_hash,
                expires_at: Timestamp::from_micros(micros),
            };
            prop_assert_eq!(decode(&encode(&claim)), Some(claim));
        }
    }
}
