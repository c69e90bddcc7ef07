//! Whose process is at the other end of a connection on this machine.

use std::net::{SocketAddr, SocketAddrV4};

/// Whether the process that holds `peer`'s end of a connection to `own` belongs to the user of this process. Only of IPv4:
/// no program of ours comes by another way.
#[cfg(target_os = "linux")]
pub(super) fn is_own_user(peer: SocketAddr, own: SocketAddr) -> bool {
    let (SocketAddr::V4(peer), SocketAddr::V4(own)) = (peer, own) else { return false };
    // SAFETY: takes nothing and cannot fail.
    let user = unsafe { libc::geteuid() };
    std::fs::read_to_string("/proc/net/tcp").is_ok_and(|table| holder(&table, peer, own) == Some(user))
}

/// Other systems have no such table; the path that cannot be guessed has to do.
#[cfg(not(target_os = "linux"))]
pub(super) fn is_own_user(_: SocketAddr, _: SocketAddr) -> bool {
    true
}

/// The user of the socket at `from` that is connected to `to`. A socket that its process has closed has no user.
fn holder(table: &str, from: SocketAddrV4, to: SocketAddrV4) -> Option<u32> {
    let (from, to) = (as_listed(from), as_listed(to));
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().take(10).collect();
        let is_it = fields.get(1) == Some(&from.as_str()) && fields.get(2) == Some(&to.as_str());
        let inode = fields.get(9).filter(|_| is_it)?;
        (*inode != "0").then(|| fields.get(7)?.parse().ok())?
    })
}

/// The address as the processor has it in memory, and the port.
fn as_listed(address: SocketAddrV4) -> String {
    format!("{:08X}:{:04X}", u32::from_ne_bytes(address.ip().octets()), address.port())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn the_user_of_the_other_end_is_found() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:1267 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 11 1 0 100\n\
            1: 0100007F:1267 0100007F:C350 01 00000000:00000000 00:00000000 00000000  1000        0 12 1 0 100\n\
            2: 0100007F:C350 0100007F:1267 01 00000000:00000000 00:00000000 00000000 65534        0 13 1 0 100\n\
            3: 0100007F:C351 0100007F:1267 06 00000000:00000000 00:00000000 00000000     0        0 0 1 0 100\n";
        let of =
            |port: u16| holder(table, ([127, 0, 0, 1], port).into_v4(), ([127, 0, 0, 1], 4711).into_v4());

        assert_eq!(of(50_000), Some(65534));
        assert_eq!(of(50_001), None, "closed: whose it was is no longer known");
        assert_eq!(of(50_002), None);
    }

    trait IntoV4 {
        fn into_v4(self) -> SocketAddrV4;
    }

    impl IntoV4 for ([u8; 4], u16) {
        fn into_v4(self) -> SocketAddrV4 {
            SocketAddrV4::new(self.0.into(), self.1)
        }
    }

    #[test]
    fn a_connection_of_this_process_is_its_users() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap();
        let connection = std::net::TcpStream::connect(own).unwrap();

        assert!(is_own_user(connection.local_addr().unwrap(), own));
    }
}
