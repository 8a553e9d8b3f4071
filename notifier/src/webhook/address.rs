//! Which addresses an endpoint may have.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// The endpoint's address is not a public one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the endpoint is on a private or reserved address; allow private addresses if that is meant")]
pub(super) struct NotPublic;

/// Looks names up and hands out only public addresses. The client connects to
/// what it is given, so the address that was checked is the one that is used,
/// whatever the name means a moment later.
pub(super) struct PublicOnly;

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let public: Vec<SocketAddr> = found.filter(|at| is_public(at.ip())).collect();
            if public.is_empty() {
                return Err(NotPublic.into());
            }
            Ok(Box::new(public.into_iter()) as Addrs)
        })
    }
}

/// Whether an address is reachable from everywhere, by the IANA registries of
/// special-purpose addresses (RFC 6890).
pub(super) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(v4: Ipv4Addr) -> bool {
    let special = match v4.octets() {
        // This network, private, loopback, link-local.
        [0 | 10 | 127, ..] | [169, 254, ..] | [192, 168, ..] => true,
        [172, 16..=31, ..] => true,
        // Shared between carriers and customers (RFC 6598).
        [100, 64..=127, ..] => true,
        // Protocol assignments, documentation, 6to4 relays, benchmarks.
        [192, 0, 0 | 2, _] | [192, 88, 99, _] | [198, 18..=19, ..] => true,
        [198, 51, 100, _] | [203, 0, 113, _] => true,
        // Multicast, reserved, broadcast.
        [224..=255, ..] => true,
        _ => false,
    };
    !special
}

fn is_public_v6(v6: Ipv6Addr) -> bool {
    let segments = v6.segments();
    let embedded = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match segments {
        // An IPv4 address in other clothes: mapped, and translated (RFC 6052).
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => embedded(high, low),
        // 6to4 (RFC 3056).
        [0x2002, high, low, ..] => embedded(high, low),
        // Protocol assignments (Teredo among them), documentation.
        [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => false,
        // Only 2000::/3 is given out for public use: this leaves out loopback,
        // unique local, link-local and multicast addresses.
        [0x2000..=0x3fff, ..] => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_pass() {
        let refused = [
            "127.0.0.1",
            "127.255.255.254",
            "0.0.0.0",
            "10.1.2.3",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "100.127.255.255",
            "192.0.2.1",
            "198.18.0.1",
            "203.0.113.9",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "fc00::1",
            "fd12:3456::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "2001:db8::1",
            "2001::1",
            "3fff::1",
        ];
        for text in refused {
            assert!(!is_public(text.parse().expect("address")), "{text}");
        }
        let allowed = [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "223.255.255.1",
            "2606:4700::1111",
            "2a00:1450::1",
            "::ffff:1.1.1.1",
            "64:ff9b::101:101",
            "2002:101:101::",
        ];
        for text in allowed {
            assert!(is_public(text.parse().expect("address")), "{text}");
        }
    }
}
