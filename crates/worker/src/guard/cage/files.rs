//! Which files a command can open, by Landlock; and whom it can signal and connect to, where Landlock can tell.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus, NetPort,
    PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError,
    RulesetStatus, Scope,
};

use super::Cage;

/// The newest that is known here; a kernel that has less does what it can.
const NEWEST: ABI = ABI::V9;

/// Programs, libraries, fonts, and what drivers look up of the machine. No secrets are kept here.
const READ: [&str; 34] = [
    // Mapped to be shared by one who may write it, it would be memory that no limit counts.
    "/dev/zero",
    "/usr",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/bin",
    "/nix/store",
    "/gnu/store",
    "/run/opengl-driver",
    "/run/current-system/sw",
    "/etc/ld.so.cache",
    "/etc/fonts",
    "/etc/localtime",
    "/etc/OpenCL",
    "/etc/vulkan",
    "/etc/glvnd",
    "/etc/drirc",
    "/etc/nvidia",
    "/etc/ssl/openssl.cnf",
    "/var/cache/fontconfig",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/filesystems",
    "/proc/devices",
    "/proc/modules",
    "/proc/version",
    "/proc/driver",
    "/proc/sys/vm",
    "/sys/devices",
    "/sys/class",
    "/sys/dev",
    "/sys/bus",
];

/// Where programs of other makers are.
const OPTIONAL: [&str; 5] = ["/opt/cuda", "/opt/nvidia", "/opt/rocm", "/opt/intel", "/opt/amdgpu"];

const DEVICES: [&str; 5] = ["/dev/null", "/dev/random", "/dev/urandom", "/dev/dri", "/dev/kfd"];

/// Folders in variables that are passed on, with colons between.
const VARIABLES: [&str; 4] = ["LD_LIBRARY_PATH", "LIBVA_DRIVERS_PATH", "FONTCONFIG_PATH", "FONTCONFIG_FILE"];

/// What Landlock has taken on.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Kept {
    /// Of the kernel; zero without Landlock.
    pub abi: i32,
    pub files: bool,
    /// It can connect to the relay's port alone, and listen nowhere.
    pub ports: bool,
    /// It can signal nobody outside.
    pub signals: bool,
}

/// Restricts the calling process and all it becomes.
pub(super) fn restrict(cage: &Cage, program: Option<&Path>, is_script: bool) -> Kept {
    let restricted = ruleset(cage, program, is_script).and_then(RulesetCreated::restrict_self);
    let Ok(status) = restricted else { return Kept::default() };
    if status.ruleset == RulesetStatus::NotEnforced {
        return Kept::default();
    }
    let abi = match status.landlock {
        LandlockStatus::Available { effective_abi, kernel_abi } => kernel_abi.unwrap_or(effective_abi as i32),
        LandlockStatus::NotEnabled | LandlockStatus::NotImplemented => 0,
    };
    Kept { abi, files: abi >= 1, ports: abi >= 4, signals: abi >= 6 }
}

fn ruleset(cage: &Cage, program: Option<&Path>, is_script: bool) -> Result<RulesetCreated, RulesetError> {
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()?;
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let run = read | AccessFs::Execute;
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::ReadDir | AccessFs::IoctlDev;
    // No links, devices, pipes or sockets, which could lead a reader astray. No folders, and nothing that takes a file its
    // name: the guard counts what it finds.
    let mut write = read | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::MakeReg;
    if is_script {
        write |= AccessFs::MakeDir | AccessFs::RemoveFile | AccessFs::RemoveDir | AccessFs::Refer;
    }
    let fixed = READ.into_iter().chain(OPTIONAL).map(PathBuf::from);
    let named = VARIABLES.into_iter().filter_map(std::env::var_os);
    let named: Vec<PathBuf> =
        named.flat_map(|paths| std::env::split_paths(&paths).collect::<Vec<_>>()).collect();
    let programs = program.into_iter().flat_map(run_by);
    let own = PathBuf::from("/proc/self");

    let mut rules: Vec<(PathBuf, BitFlags<AccessFs>)> = Vec::new();
    let system = if is_script { run } else { read };
    rules.extend(fixed.map(|path| (path, system)));
    rules.extend(named.into_iter().chain(beside(program)).chain([own]).map(|path| (path, read)));
    rules.extend(cage.reads.iter().map(|path| (path.clone(), read)));
    rules.extend(programs.map(|path| (path, run)));
    rules.extend(devices().map(|path| (path, device)));
    rules.extend(cage.writes.iter().map(|path| (path.clone(), write)));
    let mut ruleset = rules.into_iter().try_fold(ruleset, allow)?;
    if let Some(port) = cage.port {
        ruleset = ruleset.add_rule(NetPort::new(port, AccessNet::ConnectTcp))?;
    }
    Ok(ruleset)
}

/// What is not there need not be opened.
fn allow(
    ruleset: RulesetCreated,
    (path, access): (PathBuf, BitFlags<AccessFs>),
) -> Result<RulesetCreated, RulesetError> {
    let Ok(opened) = PathFd::new(&path) else { return Ok(ruleset) };
    let access = if path.is_dir() { access } else { access & AccessFs::from_file(NEWEST) };
    ruleset.add_rule(PathBeneath::new(opened, access))
}

fn devices() -> impl Iterator<Item = PathBuf> {
    let all = std::fs::read_dir("/dev").into_iter().flatten().flatten();
    let of_nvidia = all.filter(|entry| entry.file_name().as_bytes().starts_with(b"nvidia"));
    DEVICES.into_iter().map(PathBuf::from).chain(of_nvidia.map(|entry| entry.path()))
}

/// The program and the loader it asks for.
fn run_by(program: &Path) -> Vec<PathBuf> {
    let program = program.canonicalize().unwrap_or_else(|_| program.into());
    let loader = loader(&program);
    [program].into_iter().chain(loader).collect()
}

/// The libraries of a program that was not installed with the system: `lib` next to its `bin`.
fn beside(program: Option<&Path>) -> Vec<PathBuf> {
    let real = program.and_then(|program| program.canonicalize().ok());
    let Some(above) = real.as_deref().and_then(Path::parent).and_then(Path::parent) else {
        return Vec::new();
    };
    ["lib", "lib64"].map(|name| above.join(name)).into()
}

/// What an ELF file of 64 bits names as its interpreter.
fn loader(program: &Path) -> Option<PathBuf> {
    const INTERPRETER: u32 = 3;
    let file = File::open(program).ok()?;
    let at = |offset: u64, length: usize| {
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, offset).ok().map(|()| bytes)
    };
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
    let header = at(0, 64).filter(|header| header.starts_with(b"\x7fELF\x02\x01"))?;
    let (start, size, count) = (number(&header[32..40]), number(&header[54..56]), number(&header[56..58]));
    let segments = (0..count).filter_map(|index| at(start.checked_add(index * size)?, 56));
    let segment = segments.into_iter().find(|segment| number(&segment[..4]) == u64::from(INTERPRETER))?;
    let (offset, length) = (number(&segment[8..16]), number(&segment[32..40]).min(4096));
    let name = at(offset, usize::try_from(length).ok()?)?;
    Some(PathBuf::from(OsStr::from_bytes(name.strip_suffix(b"\0")?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_names_its_loader() {
        let found = loader(Path::new("/proc/self/exe"));

        assert!(found.as_deref().is_none_or(Path::exists), "{found:?}");
        assert_eq!(loader(Path::new("/etc/passwd")), None);
    }
}
