//! A disk of a few megabytes, which only programs that are started for it can see.

use std::ffi::CString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// In a mount namespace of its own, held by a process that does nothing; gone with it.
pub struct SmallDisk {
    holder: Child,
    at: PathBuf,
}

impl SmallDisk {
    /// Mounted on this folder.
    pub fn on(at: &Path, megabytes: u32) -> Self {
        let mut holder = Command::new("cat");
        let folder = CString::new(at.to_str().unwrap()).unwrap();
        let size = CString::new(format!("size={megabytes}m,mode=755")).unwrap();
        // SAFETY: between fork and exec only system calls are made, and small strings.
        unsafe { holder.pre_exec(move || mount_alone(&folder, &size)) };
        let holder = holder.stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        SmallDisk { holder: holder.expect("a mount namespace is needed for a small disk"), at: at.into() }
    }

    /// A program that sees it.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--target={}", self.holder.id())).arg("--mount");
        if !is_root() {
            command.args(["--user", "--preserve-credentials"]);
        }
        command.arg(program);
        command
    }

    /// The folder, as programs that do not see the disk can reach it.
    pub fn reached(&self) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.holder.id()));
        root.join(self.at.strip_prefix("/").unwrap())
    }

    /// Takes all the room there is, and what becomes free meanwhile is not taken.
    pub fn fill(&self) {
        let mut ballast = std::fs::File::create(self.ballast()).unwrap();
        let full = io::copy(&mut io::repeat(0), &mut ballast).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    }

    pub fn make_room(&self) {
        std::fs::remove_file(self.ballast()).unwrap();
    }

    fn ballast(&self) -> PathBuf {
        self.reached().join("ballast")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

pub fn is_root() -> bool {
    // SAFETY: cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Who is not root may mount in a user namespace of its own.
fn mount_alone(folder: &CString, size: &CString) -> io::Result<()> {
    if !is_root() {
        // SAFETY: cannot fail.
        let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
        // SAFETY: touches no memory.
        done(unsafe { libc::unshare(libc::CLONE_NEWUSER) })?;
        std::fs::write("/proc/self/setgroups", "deny")?;
        std::fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
        std::fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    }
    let (none, private) = (std::ptr::null(), libc::MS_REC | libc::MS_PRIVATE);
    // SAFETY: the strings outlive the calls.
    unsafe {
        done(libc::unshare(libc::CLONE_NEWNS))?;
        done(libc::mount(none, c"/".as_ptr(), none, private, none.cast()))?;
        done(libc::mount(c"disk".as_ptr(), folder.as_ptr(), c"tmpfs".as_ptr(), 0, size.as_ptr().cast()))
    }
}

fn done(result: i32) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
