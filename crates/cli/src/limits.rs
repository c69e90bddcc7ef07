//! What the kernel lets this process have, and what others of the machine see of it.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Flags whose values are secret.
const SECRETS: [&str; 6] =
    ["--admin-secret", "--alert-webhook-secret", "--database-url", "--key", "--metrics-token", "--redis-url"];

/// Files and folders that are made from now on are for this user alone.
pub fn keep_files_private() {
    // SAFETY: sets a number of this process; no other thread makes files yet.
    unsafe {
        let before = libc::umask(0o077);
        libc::umask(before | 0o077);
    }
}

/// Warns when a secret is among the arguments, where every user of the machine can read it.
pub fn warn_of_secrets_in_arguments() {
    let is_secret = |argument: &str| {
        let (flag, value) = argument.split_once('=').unwrap_or((argument, ""));
        // A URL is secret where it has a password.
        SECRETS.contains(&flag).then_some((flag.to_owned(), value.to_owned()))
    };
    let arguments: Vec<String> =
        std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned()).collect();
    for (at, argument) in arguments.iter().enumerate() {
        let Some((flag, value)) = is_secret(argument) else { continue };
        let value = if value.is_empty() {
            arguments.get(at + 1).cloned().unwrap_or_default()
        } else {
            value
        };
        if !flag.ends_with("-url") || value.contains('@') {
            let variable = flag.trim_start_matches('-').replace('-', "_").to_uppercase();
            let variable = if variable == "KEY" { "WORKER_KEY".into() } else { variable };
            tracing::warn!(
                "{flag} is among the arguments of this process, which every user of this machine can read; use \
                 {flag}-file or VODMILL_{variable}"
            );
        }
    }
}

/// Warns of a file or folder that others of the machine can read.
pub fn warn_of_readers(path: &Path) {
    let found = std::fs::metadata(path).map(|found| found.permissions().mode() & 0o777);
    if let Ok(mode) = found
        && mode & 0o077 != 0
    {
        tracing::warn!(
            "other users of this machine may use {} (mode {mode:o}); run: chmod go= {}",
            path.display(),
            path.display()
        );
    }
}

/// Files that a connection needs at most: itself, and what it is sent.
const OF_A_CONNECTION: u64 = 2;

/// The database, workers, logs.
const OF_THE_REST: u64 = 256;

/// Raises the soft limit of open files to the hard one: the usual soft limit of 1024 is for programs that use `select`.
/// Commands that are started keep it. Warns if it is too low for so many connections.
pub fn raise_open_files(connections: usize) {
    match raise() {
        Ok(limit) => {
            let wanted = connections as u64 * OF_A_CONNECTION + OF_THE_REST;
            if limit < wanted {
                tracing::warn!(
                    "this process may have {limit} open files; {connections} connections can need {wanted}: raise \
                     the hard limit (LimitNOFILE= in systemd, ulimit -Hn), or lower max_connections"
                );
            }
        }
        Err(error) => tracing::warn!("cannot raise the limit of open files: {error}"),
    }
}

/// The limit that holds then.
fn raise() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointers are to a value that lives until the calls return.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) != 0 {
            return Err(io::Error::last_os_error());
        }
        if limit.rlim_cur < limit.rlim_max {
            limit.rlim_cur = limit.rlim_max;
            if libc::setrlimit(libc::RLIMIT_NOFILE, &limit) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
    }
    Ok(limit.rlim_cur)
}
