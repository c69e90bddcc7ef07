//! The guard's command line: written by the worker, read by the guard.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::Limits;
use super::cage::Cage;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Args {
    /// Between SIGTERM and SIGKILL when the guard is asked to end.
    pub grace: Duration,
    pub limits: Limits,
    /// Without one the command may do whatever its user may.
    pub cage: Option<Cage>,
    pub command: Vec<OsString>,
}

impl Args {
    /// Reads `[--grace-ms N] [LIMITS] [--cage best-effort|require [--read PATH]… [--write PATH]… [--port N]] --
    /// PROGRAM [ARGS…]`; the limits are `--memory-bytes`, `--cpu-seconds`, `--file-bytes`, `--open-files`,
    /// `--folder-bytes` and `--threads`, each with a number.
    pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, String> {
        let mut args = args.into_iter();
        let mut parsed =
            Self { grace: Duration::ZERO, limits: Limits::default(), cage: None, command: Vec::new() };
        while let Some(arg) = args.next() {
            let name = arg.to_string_lossy();
            let mut number = || number(&name, args.next());
            let no_cage = || format!("`{name}` needs `--cage` before it");
            match &*name {
                "--" => {
                    parsed.command = args.collect();
                    break;
                }
                "--grace-ms" => parsed.grace = Duration::from_millis(number()?),
                "--memory-bytes" => parsed.limits.memory_bytes = Some(number()?),
                "--cpu-seconds" => parsed.limits.cpu_seconds = Some(number()?),
                "--file-bytes" => parsed.limits.file_bytes = Some(number()?),
                "--open-files" => parsed.limits.open_files = Some(number()?),
                "--folder-bytes" => parsed.limits.folder_bytes = Some(number()?),
                "--threads" => parsed.limits.threads = Some(number()?),
                "--cage" => parsed.cage = Some(cage(&name, args.next())?),
                "--read" => {
                    parsed.cage.as_mut().ok_or_else(no_cage)?.reads.push(path(&name, args.next())?);
                }
                "--write" => {
                    parsed.cage.as_mut().ok_or_else(no_cage)?.writes.push(path(&name, args.next())?);
                }
                "--port" => {
                    let port = u16::try_from(number()?).map_err(|_| format!("`{name}` needs a port"))?;
                    parsed.cage.as_mut().ok_or_else(no_cage)?.port = Some(port);
                }
                other => {
                    return Err(format!("unknown argument `{other}`; the program to run comes after `--`"));
                }
            }
        }
        if parsed.command.is_empty() {
            return Err("no program given; name it after `--`".into());
        }
        Ok(parsed)
    }

    /// The arguments from which [`Args::parse`] makes the same `Args`. The grace is always among them: a
    /// program that is no guard, such as a test binary, then refuses its arguments instead of running
    /// something.
    pub fn to_vec(&self) -> Vec<OsString> {
        let Limits { memory_bytes, cpu_seconds, file_bytes, open_files, folder_bytes, threads } = self.limits;
        let grace_ms = u64::try_from(self.grace.as_millis()).unwrap_or(u64::MAX);
        let options = [
            ("--grace-ms", Some(grace_ms)),
            ("--memory-bytes", memory_bytes),
            ("--cpu-seconds", cpu_seconds),
            ("--file-bytes", file_bytes),
            ("--open-files", open_files),
            ("--folder-bytes", folder_bytes),
            ("--threads", threads),
        ];
        let given =
            options.into_iter().filter_map(|(name, value)| Some([name.into(), value?.to_string().into()]));
        let caged = self.cage.iter().flat_map(caged);
        given
            .flatten()
            .chain(caged)
            .chain([OsString::from("--")])
            .chain(self.command.iter().cloned())
            .collect()
    }
}

fn caged(cage: &Cage) -> Vec<OsString> {
    let degree = if cage.is_required { REQUIRE } else { BEST_EFFORT };
    let mut args = vec!["--cage".into(), degree.into()];
    let paths = |name: &'static str, paths: &[PathBuf]| {
        let each = paths.iter().map(|path| [name.into(), path.into()]);
        each.collect::<Vec<[OsString; 2]>>().concat()
    };
    args.extend(paths("--read", &cage.reads));
    args.extend(paths("--write", &cage.writes));
    args.extend(cage.port.into_iter().flat_map(|port| ["--port".into(), port.to_string().into()]));
    args
}

const REQUIRE: &str = "require";
const BEST_EFFORT: &str = "best-effort";

fn cage(name: &str, value: Option<OsString>) -> Result<Cage, String> {
    let degree = value.unwrap_or_default();
    let cage = |is_required| Cage { is_required, ..Cage::default() };
    match degree.to_str() {
        Some(REQUIRE) => Ok(cage(true)),
        Some(BEST_EFFORT) => Ok(cage(false)),
        _ => Err(format!("`{name}` needs `{REQUIRE}` or `{BEST_EFFORT}`")),
    }
}

fn path(name: &str, value: Option<OsString>) -> Result<PathBuf, String> {
    value.map(PathBuf::from).ok_or_else(|| format!("`{name}` needs a path"))
}

fn number(name: &str, value: Option<OsString>) -> Result<u64, String> {
    let value = value.ok_or_else(|| format!("`{name}` needs a number"))?;
    let text = value.to_string_lossy();
    text.parse().map_err(|_| format!("`{name}` needs a whole number, not `{text}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_worker_writes_the_guard_reads() {
        let limits = Limits { memory_bytes: Some(1 << 30), threads: Some(7), ..Limits::default() };
        let cage = Cage {
            is_required: true,
            reads: vec!["--".into(), "/a b".into()],
            writes: vec!["/work".into()],
            port: Some(4711),
        };
        let command = vec!["sh".into(), "--".into(), "--grace-ms".into()];
        let args = Args { grace: Duration::from_millis(1500), limits, cage: Some(cage), command };

        assert_eq!(Args::parse(args.to_vec()), Ok(args));
    }

    #[test]
    fn wrong_arguments_are_named() {
        let refusal =
            |args: &[&str]| Args::parse(args.iter().map(OsString::from)).expect_err("wrong arguments");

        assert!(refusal(&["--grace-ms", "soon", "--", "ls"]).contains("not `soon`"));
        assert!(refusal(&["--grace-ms"]).contains("`--grace-ms` needs a number"));
        assert!(refusal(&["ls"]).contains("unknown argument `ls`"));
        assert!(refusal(&["--"]).contains("no program given"));
        assert!(refusal(&["--read", "/a"]).contains("`--cage` before"));
        assert!(refusal(&["--cage", "maybe"]).contains("`best-effort`"));
    }
}
