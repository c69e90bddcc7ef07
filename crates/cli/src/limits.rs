//! What the kernel lets this process have, and what others of the machine see of it.

use crate::settings::SECRETS;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

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
    let arguments: Vec<String> =
        std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned()).collect();
    for (at, argument) in arguments.iter().enumerate() {
        let (flag, value) = match argument.split_once('=') {
            Some((flag, value)) => (flag, Some(value)),
            None => (argument.as_str(), arguments.get(at + 1).map(String::as_str)),
        };
        if let Some(variable) = variable_of_secret(flag, value.unwrap_or_default()) {
            tracing::warn!(
                "{flag} is among the arguments of this process, which every user of this machine can read; use \
                 {flag}-file or VODMILL_{variable}"
            );
        }
    }
}

/// The variable to use instead of a flag with a secret value.
fn variable_of_secret(flag: &str, value: &str) -> Option<String> {
    let name = flag.strip_prefix("--")?.replace('-', "_");
    let has_secret = match name.as_str() {
        "key" => return Some("WORKER_KEY".into()),
        "database_url" | "redis_url" => value.contains('@') || value.contains("password="),
        name => SECRETS.contains(&name),
    };
    has_secret.then(|| name.to_uppercase())
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
