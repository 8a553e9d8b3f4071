//! Signing what leaves the house and comes back: links, cookies, cursors.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use countersign_kernel::time::Timestamp;

use crate::clock;
use crate::mac::{hmac_sha256, same};

/// The fewest octets that a signing secret may have: those of the hash.
pub const MIN_SECRET: usize = 32;

const VERSION: u8 = 1;
const MAC: usize = 32;
const CONTEXT: &[u8] = b"countersign signed token v1";
/// Characters of the longest token that is looked at: what fits a cookie.
const LONGEST: usize = 4096;

/// Why a key set is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyFault {
    /// The secret of a key is too short to resist guessing.
    #[error("the signing secret `{kid}` has {octets} octets; at least {MIN_SECRET} random ones are needed")]
    Short {
        /// Which key.
        kid: String,
        /// How many octets it has.
        octets: usize,
    },
    /// A key's name is empty, longer than 64 octets, or used twice.
    #[error("`{0}` does not name a signing key: names are unique and have 1 to 64 octets")]
    Name(String),
}

#[derive(Clone)]
struct Key {
    kid: String,
    secret: Vec<u8>,
}

/// The secrets for signing, of which only the current one signs.
///
/// A signature names its key (`kid`), so that a new key can be introduced
/// while links made with an older one still work. The `epoch` counts restores
/// of the database: raising it makes everything signed before void at once,
/// because after a restore an old link may name what no longer is (R29).
#[derive(Clone)]
pub struct LinkKeys {
    current: Key,
    older: Vec<Key>,
    epoch: u32,
}

impl LinkKeys {
    /// Takes the secrets, each with its name: the `current` one signs and
    /// verifies, the `older` ones only verify.
    ///
    /// # Errors
    /// A secret is shorter than [`MIN_SECRET`] octets, or a name is empty, too
    /// long or used twice.
    pub fn new(current: (String, Vec<u8>), older: Vec<(String, Vec<u8>)>, epoch: u32) -> Result<Self, KeyFault> {
        let mut names = Vec::new();
        let mut check = |(kid, secret): (String, Vec<u8>)| {
            if kid.is_empty() || kid.len() > 64 || names.contains(&kid) {
                return Err(KeyFault::Name(kid));
            }
            if secret.len() < MIN_SECRET {
                return Err(KeyFault::Short { kid, octets: secret.len() });
            }
            names.push(kid.clone());
            Ok(Key { kid, secret })
        };
        let current = check(current)?;
        let older = older.into_iter().map(check).collect::<Result<_, _>>()?;
        Ok(Self { current, older, epoch })
    }

    fn find(&self, kid: &str) -> Option<&Key> {
        std::iter::once(&self.current).chain(&self.older).find(|key| key.kid == kid)
    }
}

impl fmt::Debug for LinkKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let older: Vec<_> = self.older.iter().map(|key| key.kid.as_str()).collect();
        f.debug_struct("LinkKeys")
            .field("current", &self.current.kid)
            .field("older", &older)
            .field("epoch", &self.epoch)
            .finish_non_exhaustive()
    }
}

/// Why a signed text is not accepted. Each says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkFault {
    /// It is not something that was signed here, or it was cut short.
    #[error("this link is incomplete or damaged: open it again from the message, and copy all of it")]
    Malformed,
    /// The signature does not fit the content.
    #[error("this link has been changed and is not valid: use the one in the message as it came")]
    Tampered,
    /// It was signed with a key that is no longer kept.
    #[error("this link was signed with a key that is no longer in use: sign in to see what waits")]
    UnknownKey,
    /// It dates from before the data were restored.
    #[error("this link dates from before a restore of the data and is void: sign in to see what waits")]
    Replaced,
    /// Its time is over.
    #[error("this link expired on {}: sign in to see whether the request still waits", clock::readable(*.at))]
    Expired {
        /// When it ceased to be valid.
        at: Timestamp,
    },
}

/// Signs octets for one purpose each, and checks them when they come back.
///
/// The purpose is part of what is signed: a page cursor is no session cookie,
/// although both are signed with the same key. The content is readable by
/// whoever holds the text; it is protected against change, not against
/// reading. A time limit, where one is needed, belongs into the content
/// ([`Links`](crate::Links) has one).
///
/// The text is URL-safe base64 without padding (RFC 4648, section 5) over
/// version, key name, epoch, content and HMAC-SHA256.
#[derive(Debug, Clone)]
pub struct Signer {
    keys: LinkKeys,
}

impl Signer {
    /// A signer with these keys.
    #[must_use]
    pub fn new(keys: LinkKeys) -> Self {
        Self { keys }
    }

    /// Signs `content` for `purpose` with the current key.
    #[must_use]
    pub fn sign(&self, purpose: &str, content: &[u8]) -> String {
        let key = &self.keys.current;
        let mut out = Vec::with_capacity(1 + 1 + key.kid.len() + 4 + content.len() + MAC);
        out.push(VERSION);
        // `LinkKeys::new` allows no name of more than 64 octets.
        out.push(u8::try_from(key.kid.len()).unwrap_or(u8::MAX));
        out.extend_from_slice(key.kid.as_bytes());
        out.extend_from_slice(&self.keys.epoch.to_be_bytes());
        out.extend_from_slice(content);
        let code = code(key, purpose, &out);
        out.extend_from_slice(&code);
        URL_SAFE_NO_PAD.encode(out)
    }

    /// Checks a text that [`Signer::sign`] made for the same purpose, and
    /// returns its content.
    ///
    /// # Errors
    /// [`LinkFault::Malformed`], [`LinkFault::UnknownKey`],
    /// [`LinkFault::Tampered`] (also for another purpose) or
    /// [`LinkFault::Replaced`], in this order of checks; never
    /// [`LinkFault::Expired`].
    pub fn verify(&self, purpose: &str, token: &str) -> Result<Vec<u8>, LinkFault> {
        if token.len() > LONGEST {
            return Err(LinkFault::Malformed);
        }
        let octets = URL_SAFE_NO_PAD.decode(token).map_err(|_| LinkFault::Malformed)?;
        let (signed, given) = octets.split_last_chunk::<MAC>().ok_or(LinkFault::Malformed)?;
        let (kid, rest) = match signed {
            [VERSION, length, rest @ ..] => rest.split_at_checked(usize::from(*length)).ok_or(LinkFault::Malformed)?,
            _ => return Err(LinkFault::Malformed),
        };
        let (epoch, content) = rest.split_first_chunk::<4>().ok_or(LinkFault::Malformed)?;
        let kid = std::str::from_utf8(kid).map_err(|_| LinkFault::Malformed)?;
        let key = self.keys.find(kid).ok_or(LinkFault::UnknownKey)?;
        if !same(&code(key, purpose, signed), given) {
            return Err(LinkFault::Tampered);
        }
        if u32::from_be_bytes(*epoch) != self.keys.epoch {
            return Err(LinkFault::Replaced);
        }
        Ok(content.to_vec())
    }
}

/// The code over a purpose and the rest. The purpose's length goes first, so
/// that no purpose and content together read as another pair.
fn code(key: &Key, purpose: &str, signed: &[u8]) -> [u8; MAC] {
    let length = (purpose.len() as u64).to_be_bytes();
    hmac_sha256(&key.secret, &[CONTEXT, &length, purpose.as_bytes(), signed])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(current: &str, older: &[&str], epoch: u32) -> LinkKeys {
        let key = |kid: &str| (kid.to_owned(), format!("{kid:-<40}").into_bytes());
        LinkKeys::new(key(current), older.iter().map(|kid| key(kid)).collect(), epoch).expect("good keys")
    }

    #[test]
    fn what_was_signed_comes_back_for_the_same_purpose_only() {
        let signer = Signer::new(keys("a", &[], 0));
        let token = signer.sign("cursor", b"17");
        assert_eq!(signer.verify("cursor", &token).as_deref(), Ok(&b"17"[..]));
        assert_eq!(signer.verify("session", &token), Err(LinkFault::Tampered));
        // The border between purpose and content cannot be moved.
        assert_eq!(signer.verify("cursor1", &signer.sign("cursor", b"1")), Err(LinkFault::Tampered));
    }

    #[test]
    fn an_older_key_still_verifies_and_a_dropped_one_does_not() {
        let token = Signer::new(keys("a", &[], 0)).sign("cursor", b"17");
        assert!(Signer::new(keys("b", &["a"], 0)).verify("cursor", &token).is_ok());
        assert_eq!(Signer::new(keys("b", &[], 0)).verify("cursor", &token), Err(LinkFault::UnknownKey));
        assert_eq!(Signer::new(keys("a", &[], 1)).verify("cursor", &token), Err(LinkFault::Replaced));
    }

    #[test]
    fn bad_keys_are_refused_and_secrets_do_not_print() {
        let good = || ("a".to_owned(), b"correct horse battery staple 0123".to_vec());
        let short = ("b".to_owned(), vec![1; 31]);
        assert!(matches!(LinkKeys::new(good(), vec![short], 0), Err(KeyFault::Short { octets: 31, .. })));
        assert!(matches!(LinkKeys::new(good(), vec![good()], 0), Err(KeyFault::Name(_))));
        let nameless = (String::new(), vec![1; 32]);
        assert!(matches!(LinkKeys::new(nameless, vec![], 0), Err(KeyFault::Name(_))));

        let keys = LinkKeys::new(good(), vec![], 3).expect("good");
        let printed = format!("{keys:?} {:?}", Signer::new(keys.clone()));
        assert!(printed.contains("\"a\"") && !printed.contains("horse"), "{printed}");
        assert!(!printed.contains("99, 111"), "{printed}");
    }
}
