//! What a command sees of the worker's environment: a list of names, so that no key or password is among them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use super::Command;

/// Where programs and libraries are, and how GPU drivers are told about devices.
const ALWAYS: [&str; 25] = [
    "PATH",
    "LANG",
    "LANGUAGE",
    "TZ",
    "LD_LIBRARY_PATH",
    "FONTCONFIG_FILE",
    "FONTCONFIG_PATH",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
    "LIBVA_DRIVER_NAME",
    "LIBVA_DRIVERS_PATH",
    "LIBVA_MESSAGING_LEVEL",
    "VDPAU_DRIVER",
    "DRI_PRIME",
    "MESA_LOADER_DRIVER_OVERRIDE",
    "GPU_DEVICE_ORDINAL",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "ONEVPL_SEARCH_PATH",
    "MFX_HOME",
    "OCL_ICD_VENDORS",
    "MALLOC_ARENA_MAX",
    "SVT_LOG",
];

/// What programs of the user's expect besides.
const OUTSIDE: [&str; 6] = ["HOME", "USER", "LOGNAME", "SHELL", "TERM", "TMPDIR"];

/// The whole environment of `command`.
pub(super) fn environment(command: &Command) -> Vec<(OsString, OsString)> {
    let is_passed_on = |name: &OsStr| {
        let is_listed = |list: &[&str]| list.iter().any(|listed| name == *listed);
        name.as_bytes().starts_with(b"LC_")
            || is_listed(&ALWAYS)
            || (command.reach.is_none() && is_listed(&OUTSIDE))
    };
    let mut environment: Vec<_> = std::env::vars_os().filter(|(name, _)| is_passed_on(name)).collect();
    let writes = command.reach.iter().flat_map(|reach| &reach.writes).next();
    environment.extend(writes.map(|folder| ("TMPDIR".into(), folder.into())));
    environment.extend(command.env.iter().map(|(name, value)| (name.into(), value.into())));
    environment
}
