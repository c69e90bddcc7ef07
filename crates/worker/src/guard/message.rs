//! What the guard tells the worker over the lifeline, one JSON object a line: first [`Message::Started`], or
//! [`Message::Listening`] before it, and at the end [`Message::Ended`], or [`Message::NotStarted`] alone. A guard that falls silent without the
//! last word was killed.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use serde::{Deserialize, Serialize};

use super::usage::Usage;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Message {
    /// Comes with the descriptor of a listener: where the command finds the relay.
    Listening,
    Started {
        pid: i32,
    },
    NotStarted {
        errno: Option<i32>,
        reason: String,
    },
    Ended(Ended),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Ended {
    pub status: Status,
    pub usage: Usage,
    /// Descendants that SIGKILL did not end in time.
    pub survivors: usize,
    /// Which of its limits the guard found broken.
    #[serde(default)]
    pub exceeded: Option<Exceeded>,
}

/// A limit that the guard sees to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Exceeded {
    /// Of what its working directory holds.
    Folder,
    Memory,
    Threads,
}

/// Writes one line, and with it a descriptor.
pub(super) fn send(
    lifeline: BorrowedFd<'_>,
    message: &Message,
    descriptor: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let mut line = serde_json::to_vec(message).map_err(io::Error::other)?;
    line.push(b'\n');
    let mut control = Control::default();
    // SAFETY: all zeroes is a valid `msghdr`; some targets pad it, so it cannot be written as a literal.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    let mut content = IoSlice::new(&line);
    header.msg_iov = (&raw mut content).cast();
    header.msg_iovlen = 1;
    if let Some(descriptor) = descriptor {
        header.msg_control = (&raw mut control).cast();
        // SAFETY: `control` is large enough for one descriptor, and aligned for its header.
        unsafe {
            header.msg_controllen = libc::CMSG_SPACE(DESCRIPTOR) as _;
            let first = libc::CMSG_FIRSTHDR(&raw const header);
            (*first).cmsg_level = libc::SOL_SOCKET;
            (*first).cmsg_type = libc::SCM_RIGHTS;
            (*first).cmsg_len = libc::CMSG_LEN(DESCRIPTOR) as _;
            libc::CMSG_DATA(first).cast::<libc::c_int>().write_unaligned(descriptor.as_raw_fd());
        }
    }
    // SAFETY: everything the header leads to is alive until the call returns. A line is far shorter than what the socket
    // takes at once.
    let sent = unsafe { libc::sendmsg(lifeline.as_raw_fd(), &raw const header, 0) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Reads what has come, and takes the descriptors that came with it.
pub(crate) fn receive(
    lifeline: BorrowedFd<'_>,
    bytes: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> io::Result<usize> {
    let mut control = Control::default();
    // SAFETY: as in `send`.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    let mut content = IoSliceMut::new(bytes);
    header.msg_iov = (&raw mut content).cast();
    header.msg_iovlen = 1;
    header.msg_control = (&raw mut control).cast();
    header.msg_controllen = std::mem::size_of::<Control>() as _;
    // SAFETY: everything the header leads to is alive until the call returns, and as large as it says.
    let read = unsafe { libc::recvmsg(lifeline.as_raw_fd(), &raw mut header, CLOSE_ON_EXEC) };
    let read = usize::try_from(read).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel has written whole control messages; each of this kind holds descriptors that are ours now.
    unsafe {
        let mut next = libc::CMSG_FIRSTHDR(&raw const header);
        while let Some(found) = next.as_ref() {
            if (found.cmsg_level, found.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let data = libc::CMSG_DATA(next);
                let end = next.byte_add(found.cmsg_len as _).cast::<u8>();
                let count = (end as usize - data as usize) / std::mem::size_of::<libc::c_int>();
                for at in 0..count {
                    let descriptor = data.cast::<libc::c_int>().add(at).read_unaligned();
                    descriptors.push(OwnedFd::from_raw_fd(descriptor));
                }
            }
            next = libc::CMSG_NXTHDR(&raw const header, next);
        }
    }
    Ok(read)
}

#[cfg(target_os = "linux")]
const CLOSE_ON_EXEC: libc::c_int = libc::MSG_CMSG_CLOEXEC;
#[cfg(not(target_os = "linux"))]
const CLOSE_ON_EXEC: libc::c_int = 0;

const DESCRIPTOR: u32 = std::mem::size_of::<libc::c_int>() as u32;

/// Room for a descriptor and its header, and more.
#[repr(C, align(8))]
#[derive(Default)]
struct Control([u8; 32]);

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Code(i32),
    Signal(i32),
}

impl Status {
    pub(crate) fn of(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Code(code),
            (None, Some(signal)) => Self::Signal(signal),
            (None, None) => Self::Code(-1),
        }
    }

    pub fn is_success(self) -> bool {
        self == Self::Code(0)
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}
