//! From which address a request comes: the connection's peer, or what a trusted proxy says in a header.

use axum::http::request::Parts;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// The address at the other end of the connection. The listener sets it.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub IpAddr);

/// An address, or all addresses that begin with the same bits: `192.0.2.7`, `10.0.0.0/8`, `fd00::/8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    fn contains(&self, address: IpAddr) -> bool {
        let prefix =
            |address: u128, width: u32| address.checked_shr(width - u32::from(self.bits)).unwrap_or(0);
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                prefix(u32::from(own).into(), 32) == prefix(u32::from(other).into(), 32)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => prefix(own.into(), 128) == prefix(other.into(), 128),
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not an IP address or a network such as 10.0.0.0/8");
        let (address, bits) = match text.trim().split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text.trim(), None),
        };
        let address = address.parse::<IpAddr>().map_err(|_| wrong())?.to_canonical();
        let width = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(width), str::parse::<u8>).map_err(|_| wrong())?;
        if bits > width { Err(wrong()) } else { Ok(Network { address, bits }) }
    }
}

/// Which peers are proxies, and where they say for whom they ask.
#[derive(Debug, Clone, Default)]
pub struct ClientAddresses {
    header: Option<String>,
    proxies: Vec<Network>,
}

impl ClientAddresses {
    pub fn new(header: Option<String>, proxies: Vec<Network>) -> Self {
        ClientAddresses { header, proxies }
    }

    /// Whether a peer is a proxy. With a header and no list of proxies, only this machine is: another machine could choose
    /// its own address by sending the header, and its connections would not count.
    pub fn is_proxy(&self, peer: IpAddr) -> bool {
        match self.proxies.as_slice() {
            [] => self.header.is_some() && peer.to_canonical().is_loopback(),
            proxies => proxies.iter().any(|proxy| proxy.contains(peer)),
        }
    }

    /// The client that a request is from.
    pub fn of(&self, parts: &Parts) -> IpAddr {
        let peer = parts.extensions.get::<Peer>().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.0);
        let header = self.header.as_ref().filter(|_| self.is_proxy(peer));
        let told = header.and_then(|name| parts.headers.get_all(name).iter().next_back());
        // The last entry is what our own proxy saw; a client may have written those before it.
        let told = told.and_then(|value| value.to_str().ok()?.rsplit(',').next()?.trim().parse().ok());
        client_of(told.unwrap_or(peer))
    }
}

/// Neighbours in IPv6 are one client: a household has more addresses than could be counted.
pub fn client_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from(u128::from(address) >> 64 << 64)),
        address => address,
    }
}

/// The networks that a client counts for, its own first, and how many times as much as one client each may have: whoever has
/// one network of IPv6 has many.
pub fn networks_of(client: IpAddr) -> impl Iterator<Item = (Network, usize)> {
    const WIDTHS: [(u8, usize); 3] = [(64, 1), (56, 2), (48, 4)];
    let of = move |(bits, times): (u8, usize)| match client {
        IpAddr::V4(_) => (Network { address: client, bits: 32 }, times),
        IpAddr::V6(address) => {
            let beside = 128 - u32::from(bits);
            let address = Ipv6Addr::from(u128::from(address) >> beside << beside);
            (Network { address: address.into(), bits }, times)
        }
    };
    let count = if client.is_ipv4() { 1 } else { WIDTHS.len() };
    WIDTHS.into_iter().take(count).map(of)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use axum::http::Request;

    fn from(addresses: &ClientAddresses, peer: &str, told: &str) -> String {
        let request = Request::builder().header("x-forwarded-for", told);
        let mut parts = request.body(()).unwrap().into_parts().0;
        parts.extensions.insert(Peer(peer.parse().unwrap()));
        addresses.of(&parts).to_string()
    }

    #[test]
    fn a_request_is_from_its_peer_or_from_where_the_proxy_says() {
        let direct = ClientAddresses::default();
        let proxied = ClientAddresses::new(Some("x-forwarded-for".into()), Vec::new());

        assert_eq!(from(&direct, "192.0.2.1", "198.51.100.7"), "192.0.2.1");
        assert_eq!(from(&direct, "::ffff:192.0.2.1", ""), "192.0.2.1");
        assert_eq!(from(&direct, "2001:db8:1:2:3:4:5:6", ""), "2001:db8:1:2::");
        assert_eq!(from(&proxied, "127.0.0.1", "203.0.113.9, 198.51.100.7"), "198.51.100.7");
        assert_eq!(from(&proxied, "127.0.0.1", "nonsense"), "127.0.0.1");
        assert_eq!(from(&proxied, "::1", "198.51.100.7"), "198.51.100.7");
        for other in ["192.0.2.1", "10.0.0.7", "192.168.0.7", "fd00::"] {
            assert_eq!(from(&proxied, other, "198.51.100.7"), other, "not a proxy");
        }
    }

    #[test]
    fn only_the_named_proxies_are_believed() {
        let proxies = ["192.0.2.0/24", "2001:db8::7"].map(|it| it.parse().unwrap()).to_vec();
        let named = ClientAddresses::new(Some("x-forwarded-for".into()), proxies);

        assert_eq!(from(&named, "192.0.2.200", "198.51.100.7"), "198.51.100.7");
        assert_eq!(from(&named, "::ffff:192.0.2.200", "198.51.100.7"), "198.51.100.7");
        assert_eq!(from(&named, "2001:db8::7", "198.51.100.7"), "198.51.100.7");
        assert_eq!(from(&named, "192.0.3.1", "198.51.100.7"), "192.0.3.1");
        assert_eq!(from(&named, "127.0.0.1", "198.51.100.7"), "127.0.0.1");
    }

    #[test]
    fn networks_are_read_or_refused() {
        for wrong in ["", "10.0.0.0/33", "::/129", "10.0.0/8", "host", "10.0.0.0/-1"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
        assert!("0.0.0.0/0".parse::<Network>().unwrap().contains("203.0.113.1".parse().unwrap()));
        assert!("::/0".parse::<Network>().unwrap().contains("2001:db8::1".parse().unwrap()));
    }
}
