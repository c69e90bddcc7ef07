//! The guard's command line: written by the worker, read by the guard.

use std::ffi::OsString;
use std::time::Duration;

use super::Limits;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Args {
    /// Between SIGTERM and SIGKILL when the guard is asked to end.
    pub grace: Duration,
    pub limits: Limits,
    pub command: Vec<OsString>,
}

impl Args {
    /// Reads `[--grace-ms N] [--memory-bytes N] [--cpu-seconds N] [--file-bytes N] -- PROGRAM [ARGS…]`.
    pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, String> {
        let mut args = args.into_iter();
        let mut parsed = Self { grace: Duration::ZERO, limits: Limits::default(), command: Vec::new() };
        while let Some(arg) = args.next() {
            let name = arg.to_string_lossy();
            let mut number = || number(&name, args.next());
            match &*name {
                "--" => {
                    parsed.command = args.collect();
                    break;
                }
                "--grace-ms" => parsed.grace = Duration::from_millis(number()?),
                "--memory-bytes" => parsed.limits.memory_bytes = Some(number()?),
                "--cpu-seconds" => parsed.limits.cpu_seconds = Some(number()?),
                "--file-bytes" => parsed.limits.file_bytes = Some(number()?),
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
        let Limits { memory_bytes, cpu_seconds, file_bytes } = self.limits;
        let grace_ms = u64::try_from(self.grace.as_millis()).unwrap_or(u64::MAX);
        let options = [
            ("--grace-ms", Some(grace_ms)),
            ("--memory-bytes", memory_bytes),
            ("--cpu-seconds", cpu_seconds),
            ("--file-bytes", file_bytes),
        ];
        let given =
            options.into_iter().filter_map(|(name, value)| Some([name.into(), value?.to_string().into()]));
        given.flatten().chain([OsString::from("--")]).chain(self.command.iter().cloned()).collect()
    }
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
        let limits = Limits { memory_bytes: Some(1 << 30), cpu_seconds: None, file_bytes: Some(7) };
        let command = vec!["sh".into(), "--".into(), "--grace-ms".into()];
        let args = Args { grace: Duration::from_millis(1500), limits, command };

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
    }
}
