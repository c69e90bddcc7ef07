//! What a command may try to do to others. Played by this binary inside a cage.

use std::ffi::CString;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Error, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::{UnixDatagram, UnixStream};

/// Prints a list: for each attempt nothing, or why it failed.
pub fn play(args: &[&str]) {
    let told: Vec<Option<String>> =
        args.chunks(2).map(|pair| attempt(pair[0], pair[1]).err().map(|error| error.to_string())).collect();
    println!("{}", serde_json::to_string(&told).unwrap());
}

fn attempt(what: &str, whom: &str) -> io::Result<()> {
    let pid = whom.parse::<i32>().unwrap_or(-1);
    match what {
        "read" => File::open(whom)?.read_to_end(&mut Vec::new()).map(drop),
        "read-some" => File::open(whom)?.read_exact(&mut [0; 10]),
        "write" => OpenOptions::new().create(true).append(true).open(whom)?.write_all(b"x"),
        "list" => std::fs::read_dir(whom).map(drop),
        "chmod" => std::fs::set_permissions(whom, Permissions::from_mode(0o777)),
        "link" => symlink("/etc/passwd", whom),
        // SAFETY: the path is a C string that outlives the call.
        "truncate" => check(unsafe { libc::truncate(path(whom).as_ptr(), 0) }),
        "empty" => open(whom, libc::O_RDONLY | libc::O_TRUNC).map(drop),
        "empty-without-mode" => open(whom, libc::O_ACCMODE | libc::O_TRUNC).map(drop),
        "empty-newly" => open_newly(whom, libc::O_TRUNC),
        "reserve" => allocate(whom, 0),
        "reserve-secretly" => allocate(whom, libc::FALLOC_FL_KEEP_SIZE),
        "nameless-file" => open(whom, libc::O_TMPFILE | libc::O_RDWR).map(drop),
        "remove" => std::fs::remove_file(whom),
        "rename" => std::fs::rename(whom, format!("{whom}-2")),
        "second-name" => std::fs::hard_link(whom, format!("{whom}-2")),
        "folder" => std::fs::create_dir(whom),
        "private-memory" => map(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
        "shared-memory" => map(libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1),
        "growing-stack" => map(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_GROWSDOWN, -1),
        "shared-zeroes" => {
            let zeroes = open("/dev/zero", libc::O_RDWR)?;
            map(libc::MAP_SHARED, zeroes.as_raw_fd())
        }
        // SAFETY: the name is a C string.
        "nameless-memory" => check(unsafe { libc::memfd_create(c"hoard".as_ptr(), 0) }),
        // SAFETY: the child only exits.
        "fork" => unsafe {
            match libc::fork() {
                0 => libc::_exit(0),
                child => check(child),
            }
        },
        "run" => std::process::Command::new(whom).status().map(drop),
        "thread" => std::thread::Builder::new().spawn(|| {}).map(|thread| thread.join().unwrap()),
        // SAFETY: takes no pointers.
        "signal" => check(unsafe { libc::kill(pid, libc::SIGTERM) }),
        // SAFETY: takes no pointers.
        "signal-all" => check(unsafe { libc::kill(-1, libc::SIGTERM) }),
        // SAFETY: takes no pointers; the signal is ignored unless somebody cares.
        "signal-self" => check(unsafe { libc::raise(libc::SIGURG) }),
        "queue-signal" => {
            // SAFETY: all zeroes is a valid value.
            let value: libc::sigval = unsafe { std::mem::zeroed() };
            // SAFETY: takes no pointers that are followed.
            check(unsafe { libc::sigqueue(pid, libc::SIGTERM, value) })
        }
        "limit" => {
            let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            // SAFETY: the limit is only read, and the old one is not asked for.
            check(unsafe { libc::prlimit(pid, libc::RLIMIT_CPU, &raw const none, std::ptr::null_mut()) })
        }
        // SAFETY: attaches, and follows no pointers.
        "trace" => check_long(unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0, 0) }),
        "peek" => File::open(format!("/proc/{pid}/mem")).map(drop),
        "environment" => File::open(format!("/proc/{pid}/environ"))?.read_to_end(&mut Vec::new()).map(drop),
        // SAFETY: takes no pointers.
        "hold" => check_long(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) }),
        "fetch" => {
            let mut answer = String::new();
            TcpStream::connect(whom)?.take(10).read_to_string(&mut answer)?;
            if answer == "the source" { Ok(()) } else { Err(Error::other(answer)) }
        }
        "datagram" => UdpSocket::bind("127.0.0.1:0").map(drop),
        "stream-pair" => UnixStream::pair().map(drop),
        "log" => UnixDatagram::pair()?.0.send_to(b"forged", whom).map(drop),
        "local-socket" => UnixStream::connect(whom).map(drop),
        // SAFETY: takes no pointers.
        "netlink" => check(unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW, 0) }),
        // SAFETY: takes no pointers.
        "raw-socket" => check(unsafe { libc::socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP) }),
        "listen" => TcpListener::bind(format!("127.0.0.1:{whom}")).map(drop),
        other => panic!("no such attempt: {other}"),
    }
}

fn path(path: &str) -> CString {
    CString::new(path).unwrap()
}

/// With flags that `std` does not let pass.
fn open(whom: &str, flags: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: the path is a C string that outlives the call.
    let opened = unsafe { libc::open(path(whom).as_ptr(), flags, 0o600) };
    // SAFETY: the descriptor was opened a moment ago, and is nobody else's.
    check(opened).map(|()| unsafe { OwnedFd::from_raw_fd(opened) })
}

/// By the call whose flags no filter can see.
fn open_newly(whom: &str, flags: libc::c_int) -> io::Result<()> {
    let how = [flags as u64, 0, 0];
    let path = path(whom);
    // SAFETY: the path is a C string, and the call reads three numbers of `how`.
    check_long(unsafe {
        libc::syscall(libc::SYS_openat2, libc::AT_FDCWD, path.as_ptr(), how.as_ptr(), size_of_val(&how))
    })
}

fn allocate(whom: &str, mode: libc::c_int) -> io::Result<()> {
    let file = File::create(whom)?;
    // SAFETY: takes no pointers.
    check(unsafe { libc::fallocate(file.as_raw_fd(), mode, 0, 1 << 20) })
}

fn map(flags: libc::c_int, descriptor: libc::c_int) -> io::Result<()> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: asks for memory at no particular place, and does not use it.
    match unsafe { libc::mmap(std::ptr::null_mut(), 1 << 20, protection, flags, descriptor, 0) } {
        libc::MAP_FAILED => Err(Error::last_os_error()),
        _ => Ok(()),
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    check_long(result.into())
}

fn check_long(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(Error::last_os_error()) } else { Ok(()) }
}
