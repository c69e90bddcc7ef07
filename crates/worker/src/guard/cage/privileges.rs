//! No program that is run from here on has more rights than a plain user, except to read and write files that belong
//! to others: root may be asked to work on anybody's file, and which files those are is Landlock's matter.

use std::io;

use super::close::check;

const CAP_DAC_OVERRIDE: u32 = 1;
const CAP_DAC_READ_SEARCH: u32 = 2;
const KEPT: u32 = 1 << CAP_DAC_OVERRIDE | 1 << CAP_DAC_READ_SEARCH;

/// More than there are; the kernel says where they end.
const MOST_CAPABILITIES: libc::c_ulong = 64;

const VERSION_3: u32 = 0x2008_0522;

#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Data {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Takes effect at once, and for good.
pub(super) fn drop_all() -> io::Result<()> {
    // SAFETY: these options take integers.
    unsafe {
        check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
        libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
        for capability in (0..MOST_CAPABILITIES).filter(|at| *at >= 32 || KEPT & (1 << at) == 0) {
            // Fails where there is no such capability, and for users that could not gain it either.
            libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0);
        }
    }
    let mut header = Header { version: VERSION_3, pid: 0 };
    let mut data = [Data::default(); 2];
    // SAFETY: version 3 of the call reads the header and writes two `Data`.
    check_long(unsafe { libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr()) })?;
    let kept = data[0].permitted & KEPT;
    let data = [Data { effective: kept, permitted: kept, inheritable: 0 }, Data::default()];
    // SAFETY: version 3 of the call reads the header and two `Data`.
    check_long(unsafe { libc::syscall(libc::SYS_capset, &raw mut header, data.as_ptr()) })
}

fn check_long(result: libc::c_long) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
