//! A network namespace with nothing in it but, where there is a relay, a loopback device with one listener.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::close::check;

/// Moves the calling process into a namespace of its own; `None` where the system does not allow that. With a
/// `port`, that port of 127.0.0.1 leads to the listener that is returned.
pub(super) fn isolate(port: Option<u16>) -> io::Result<Option<Option<TcpListener>>> {
    if !enter() {
        return Ok(None);
    }
    let open = |port| {
        loopback_up()?;
        TcpListener::bind((Ipv4Addr::LOCALHOST, port))
    };
    port.map(open).transpose().map(Some)
}

/// Whoever is not root needs a user namespace first.
fn enter() -> bool {
    if unshare(libc::CLONE_NEWNET).is_ok() {
        return true;
    }
    // SAFETY: take no pointers and cannot fail.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    if unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET).is_err() {
        return false;
    }
    // Without them programs see an unknown user, which hardly matters; files stay open to them as before.
    let _ = std::fs::write("/proc/self/setgroups", "deny");
    let _ = std::fs::write("/proc/self/uid_map", format!("{user} {user} 1"));
    let _ = std::fs::write("/proc/self/gid_map", format!("{group} {group} 1"));
    true
}

fn unshare(what: libc::c_int) -> io::Result<()> {
    // SAFETY: takes no pointers.
    check(unsafe { libc::unshare(what) })
}

fn loopback_up() -> io::Result<()> {
    // SAFETY: takes no pointers.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is open, and nobody else's.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    // SAFETY: all zeroes is a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(b"lo") {
        *place = (*byte).cast_signed();
    }
    request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
    // SAFETY: `request` is a valid `ifreq` that outlives the call.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw mut request) })
}
