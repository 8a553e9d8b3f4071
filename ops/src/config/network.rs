//! Addresses: what is listened on, what is believed, where people are sent.

use std::net::IpAddr;
use std::str::FromStr;

/// An address or a network of addresses: `10.0.0.7`, `10.0.0.0/8`, `fd00::/8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u32,
}

impl Network {
    /// Whether `address` is in the network. An IPv4 address written as IPv6
    /// (`::ffff:10.0.0.7`) is the IPv4 address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                same(own.to_bits().into(), other.to_bits().into(), 32 - self.prefix)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => same(own.to_bits(), other.to_bits(), 128 - self.prefix),
            _ => false,
        }
    }
}

fn same(a: u128, b: u128, host_bits: u32) -> bool {
    (a ^ b).checked_shr(host_bits).unwrap_or(0) == 0
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| format!("`{address}` is no IP address"))?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => bits,
            Some(prefix) => prefix
                .parse()
                .ok()
                .filter(|prefix| *prefix <= bits)
                .ok_or_else(|| format!("`/{prefix}` is not between /0 and /{bits}"))?,
        };
        Ok(Self { address, prefix })
    }
}

/// Checks an address that links start with, and cuts the slash at its end.
pub(super) fn base_url(text: &str) -> Result<String, String> {
    let url = reqwest::Url::parse(text).map_err(|error| error.to_string())?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err("it does not begin with http:// or https:// and a host".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("it contains a user name or password".to_owned());
    }
    if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
        return Err("it has something behind the host; the pages are at the root".to_owned());
    }
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn within(network: &str, address: &str) -> bool {
        network.parse::<Network>().expect("network").contains(address.parse().expect("address"))
    }

    #[test]
    fn networks_hold_their_addresses_only() {
        assert!(within("10.0.0.7", "10.0.0.7"));
        assert!(!within("10.0.0.7", "10.0.0.8"));
        assert!(within("10.0.0.0/8", "10.255.1.2"));
        assert!(within("10.0.0.0/8", "::ffff:10.1.2.3"));
        assert!(!within("10.0.0.0/8", "11.0.0.1"));
        assert!(within("0.0.0.0/0", "203.0.113.5"));
        assert!(!within("0.0.0.0/0", "2001:db8::1"));
        assert!(within("::/0", "2001:db8::1"));
        assert!(within("fd00::/8", "fd12::1"));
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for bad in ["proxy.example.com", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/", ""] {
            assert!(bad.parse::<Network>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_base_url_is_an_origin() {
        assert_eq!(base_url("https://a.example.com/"), Ok("https://a.example.com".to_owned()));
        assert_eq!(base_url("http://127.0.0.1:8420"), Ok("http://127.0.0.1:8420".to_owned()));
        for bad in ["a.example.com", "ftp://a", "https://a/b", "https://u:p@a", "https://a/?x"] {
            assert!(base_url(bad).is_err(), "{bad}");
        }
    }
}
