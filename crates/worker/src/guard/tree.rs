//! The processes below a process, as `/proc` shows them.

use std::io;

/// Whether the process exists, is not dead and unreaped, and was not stopped by a signal or a debugger.
#[cfg(target_os = "linux")]
pub(crate) fn is_going(pid: i32) -> bool {
    stat(pid).is_some_and(|stat| !matches!(stat.state, 'T' | 't' | 'Z' | 'X'))
}

/// Whether the process exists. Without `/proc` a stopped one looks like any other.
#[cfg(not(target_os = "linux"))]
pub(crate) fn is_going(pid: i32) -> bool {
    // SAFETY: takes no pointers; signal 0 only asks.
    unsafe { libc::kill(pid, 0) == 0 }
}

/// What matters of `/proc/PID/stat`.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    state: char,
    parent: i32,
}

fn stat(pid: i32) -> Option<Stat> {
    parse(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// The name in parentheses is the program's to choose: it may hold spaces, parentheses and bytes that are no
/// text.
fn parse(stat: &[u8]) -> Option<Stat> {
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let mut fields = std::str::from_utf8(&stat[after_name..]).ok()?.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    Some(Stat { state, parent })
}

/// Parents come before their children, so that a supervisor dies before it can replace what it supervised.
pub(super) fn descendants(root: i32) -> Vec<i32> {
    let mut rest: Vec<(i32, i32)> = all().filter_map(|pid| Some((pid, stat(pid)?.parent))).collect();
    let mut found = vec![root];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(rest.extract_if(.., |process| process.1 == parent).map(|(pid, _)| pid));
        next += 1;
    }
    found.split_off(1)
}

fn all() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

pub(super) fn signal(pid: i32, signal: i32) {
    // SAFETY: takes no pointers.
    unsafe { libc::kill(pid, signal) };
}

/// Signals every descendant of the calling process.
#[cfg(target_os = "linux")]
pub(super) fn signal_all(_command: i32, number: i32) {
    for pid in descendants(std::process::id().cast_signed()) {
        signal(pid, number);
    }
}

/// Signals the command alone; the rest of its group is left to [`last_act`].
#[cfg(not(target_os = "linux"))]
pub(super) fn signal_all(command: i32, number: i32) {
    signal(command, number);
}

/// Makes the guard the parent of every orphan below it, and has the kernel wake it when the worker dies.
///
/// The kernel means the *thread* that started the guard, so a signal alone proves nothing: the guard looks
/// whether its parent has changed. The worker does its part and starts each guard from a thread that stays.
#[cfg(target_os = "linux")]
pub(super) fn adopt_orphans() -> io::Result<()> {
    // SAFETY: these options take integers, and one a string that lives for ever.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, c"vodmill-guard".as_ptr());
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGHUP);
        match libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Called by the command between fork and exec, for the case that the guard itself is killed.
#[cfg(target_os = "linux")]
pub(super) fn die_with_the_guard() -> io::Result<()> {
    // SAFETY: takes no pointers.
    match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The guard's end, after its report. On Linux nothing is left to do.
#[cfg(target_os = "linux")]
pub(super) fn last_act() {}

#[cfg(not(target_os = "linux"))]
pub(super) fn adopt_orphans() -> io::Result<()> {
    Ok(())
}

#[cfg(not(target_os = "linux"))]
pub(super) fn die_with_the_guard() -> io::Result<()> {
    Ok(())
}

/// Without `/proc` the group is the only handle on what the command left behind, and the guard is one of it.
#[cfg(not(target_os = "linux"))]
pub(super) fn last_act() {
    signal(0, libc::SIGKILL);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_full_of_tricks_does_not_mislead() {
        let tricky = parse(b"42 (a) Z 1 (\xff) T 7 42 42 0 -1");

        assert_eq!(tricky, Some(Stat { state: 'T', parent: 7 }));
        assert_eq!(parse(b"42 (cut off"), None);
        assert_eq!(parse(b"42 (cut off) S"), None);
    }
}
