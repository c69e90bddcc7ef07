//! Finds out what of the cage is in force on this machine, by trying what it forbids.

use std::fs::File;
use std::io;
use std::os::unix::process::parent_id;
use std::ptr;

use super::close::Closed;
use super::{Cage, Examined, Item};

/// Closes a cage around the calling process and tries the bars.
pub(in crate::guard) fn examine() -> io::Result<Examined> {
    let closed = Cage::default().close(&[] as &[&std::ffi::CStr])?;
    let items = vec![
        item("environment", true, "cleared but for a list of names", ""),
        item("files", opens_nothing_else(), &landlock(&closed), NO_LANDLOCK),
        item("processes", starts_nothing(), "seccomp", NO_SECCOMP),
        item("signals", signals_nobody(), &signals(&closed), NO_SECCOMP),
        item("inspection", inspects_nobody(), "seccomp", NO_SECCOMP),
        item("network", opens_nothing(), "seccomp: no sockets", NO_SECCOMP),
        relay(&closed),
        item("privileges", has_no_privileges(), "no_new_privs, no capabilities", "the kernel refuses prctl"),
        item("memory", has_bounded_memory(), "RLIMIT_DATA", "the kernel refuses setrlimit"),
    ];
    Ok(Examined { items })
}

const NO_LANDLOCK: &str = "Landlock is missing: it takes Linux 5.13 with `landlock` in CONFIG_LSM or `lsm=`, and a container \
                           whose seccomp profile lets it through";
const NO_SECCOMP: &str =
    "seccomp filters are missing: it takes CONFIG_SECCOMP_FILTER, on x86-64, aarch64 or riscv64";

fn item(name: &str, is_in_force: bool, how: &str, why_not: &str) -> Item {
    let detail = if is_in_force { how } else { why_not };
    Item { name: name.into(), is_in_force, detail: detail.into() }
}

fn landlock(closed: &Closed) -> String {
    format!("Landlock, version {} of its interface", closed.landlock.abi)
}

fn signals(closed: &Closed) -> String {
    if closed.landlock.signals {
        "seccomp, Landlock".into()
    } else {
        "seccomp".into()
    }
}

/// What a program sees of the network that reads its source through the worker.
fn relay(closed: &Closed) -> Item {
    let (is_in_force, detail) = if closed.has_namespace {
        (true, "a network namespace with nothing but the relay")
    } else if closed.landlock.ports {
        (
            true,
            "Landlock: one TCP port, of any address; no network namespace, as user namespaces are not allowed here",
        )
    } else {
        let both = "TCP to anywhere: neither network namespaces (allow user namespaces) nor Landlock's ports (Linux 6.7) are here";
        (false, both)
    };
    Item { name: "network of remote workers".into(), is_in_force, detail: detail.into() }
}

/// A file that it may read it must not write.
fn opens_nothing_else() -> bool {
    let is_refused = |error: io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    let written = File::options().write(true).open("/proc/self/comm");
    File::open("/etc/passwd").is_err_and(is_refused) && written.is_err_and(is_refused)
}

fn starts_nothing() -> bool {
    // SAFETY: the child, should there be one, only exits.
    unsafe {
        match libc::fork() {
            0 => libc::_exit(0),
            -1 => true,
            child => {
                libc::waitpid(child, ptr::null_mut(), 0);
                false
            }
        }
    }
}

fn signals_nobody() -> bool {
    // SAFETY: takes no pointers; signal 0 only asks.
    unsafe { libc::kill(parent_id().cast_signed(), 0) == -1 }
}

fn inspects_nobody() -> bool {
    let parent = libc::c_long::from(parent_id().cast_signed());
    // SAFETY: reads nothing into nowhere; refused before it looks at the pointers.
    unsafe {
        libc::syscall(
            libc::SYS_process_vm_readv,
            parent,
            ptr::null::<libc::iovec>(),
            0_i64,
            ptr::null::<libc::iovec>(),
            0_i64,
            0_i64,
        ) == -1
    }
}

fn opens_nothing() -> bool {
    // SAFETY: takes no pointers; the process is about to end, and the descriptors with it.
    let opens = |family| unsafe { libc::socket(family, libc::SOCK_STREAM, 0) >= 0 };
    ![libc::AF_INET, libc::AF_INET6, libc::AF_UNIX].into_iter().any(opens)
}

fn has_no_privileges() -> bool {
    // SAFETY: takes integers only.
    unsafe { libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 }
}

/// The last of all, for there is not much left to work with afterwards.
fn has_bounded_memory() -> bool {
    const LIMIT: u64 = 64 << 20;
    const MORE: usize = 128 << 20;
    let limits = super::super::Limits { memory_bytes: Some(LIMIT), ..Default::default() };
    if limits.apply().is_err() {
        return false;
    }
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: asks for memory at no particular place, and does not use it.
    unsafe { libc::mmap(ptr::null_mut(), MORE, protection, flags, -1, 0) == libc::MAP_FAILED }
}
