//! How much room a file system has.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

// The types differ from system to system.
#[allow(clippy::unnecessary_cast)]
/// All of it, and what is left for us, in bytes.
pub fn space(folder: &Path) -> io::Result<(u64, u64)> {
    let path = CString::new(folder.as_os_str().as_bytes())?;
    let mut found = std::mem::MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: the path ends with a zero and the structure is ours to fill.
    if unsafe { libc::statvfs(path.as_ptr(), found.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeroed at first, and filled by a call that succeeded.
    let found = unsafe { found.assume_init() };
    let block = u64::from(found.f_frsize as u32).max(1);
    Ok((block.saturating_mul(found.f_blocks as u64), block.saturating_mul(found.f_bavail as u64)))
}
