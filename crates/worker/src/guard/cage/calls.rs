//! Which system calls a command can make, by seccomp.
//!
//! What is not listed is allowed: codecs and GPU drivers use much of what there is. What is listed starts, signals,
//! inspects or hampers processes, changes what belongs to files outside (Landlock does not see a `chmod`, nor before Linux
//! 6.2 a `truncate`), takes memory or disk that no limit counts, reaches the network or the kernel's inner parts. Calls
//! newer than this list do not exist to the command.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, sock_filter,
};

pub(super) struct Rules {
    /// To a stream socket: the relay.
    pub may_connect: bool,
    /// A script cannot do without.
    pub may_start_programs: bool,
    /// Landlock sees to signals, thread by thread.
    pub is_scoped: bool,
}

/// `mseal`, of Linux 6.10. The numbers from 424 on are the same on every processor.
const LAST_KNOWN: u32 = 462;

/// Restricts the calling process and all it becomes.
pub(super) fn restrict(rules: &Rules) -> io::Result<()> {
    let programs = programs(rules).map_err(io::Error::other)?;
    programs.iter().try_for_each(|program| seccompiler::apply_filter(program).map_err(io::Error::other))
}

type Denied = BTreeMap<i64, Vec<SeccompRule>>;

fn programs(rules: &Rules) -> Result<Vec<BpfProgram>, seccompiler::Error> {
    let arch: TargetArch = std::env::consts::ARCH.try_into().map_err(seccompiler::Error::Backend)?;
    let filter = |denied: Denied, errno: libc::c_int| -> Result<BpfProgram, seccompiler::Error> {
        let action = SeccompAction::Errno(errno.cast_unsigned());
        let filter = SeccompFilter::new(denied, SeccompAction::Allow, action, arch)?;
        Ok(filter.try_into()?)
    };
    Ok(vec![filter(unknown(rules), libc::ENOSYS)?, filter(denied(rules)?, libc::EPERM)?, unknown_numbers()])
}

/// A library that finds one of these missing does without.
fn unknown(rules: &Rules) -> Denied {
    let mut calls = vec![
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
        libc::SYS_userfaultfd,
        libc::SYS_process_madvise,
        libc::SYS_process_mrelease,
        // Its flags are behind a pointer, where no filter can look.
        libc::SYS_openat2,
        // Files without a name, which are memory that no limit counts.
        libc::SYS_memfd_create,
        447, // memfd_secret
    ];
    if !rules.may_start_programs {
        // As `openat2`.
        calls.push(libc::SYS_clone3);
    }
    calls.into_iter().map(|call| (call, Vec::new())).collect()
}

/// Never, whatever the arguments.
const NEVER: &[i64] = &[
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_kcmp,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    libc::SYS_perf_event_open,
    libc::SYS_execveat,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    // Whose and how files are.
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    452, // fchmodat2
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    libc::SYS_truncate,
    // Takes room beyond the end of a file, and a whole disk at once.
    libc::SYS_fallocate,
    libc::SYS_mknodat,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_inotify_init1,
    // The network, from the other side.
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    // The system.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    443, // quotactl_fd
    libc::SYS_bpf,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
    libc::SYS_personality,
];

#[cfg(target_arch = "x86_64")]
const NEVER_HERE: &[i64] = &[
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
    libc::SYS_mknod,
    libc::SYS_inotify_init,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
    libc::SYS_kexec_file_load,
];
#[cfg(not(target_arch = "x86_64"))]
const NEVER_HERE: &[i64] = &[];

#[cfg(target_arch = "x86_64")]
const FORKS: &[i64] = &[libc::SYS_fork, libc::SYS_vfork];
#[cfg(not(target_arch = "x86_64"))]
const FORKS: &[i64] = &[];

/// No file loses its name while it is open, and no folder hides one: the guard counts what it finds.
const NAMES: &[i64] = &[libc::SYS_unlinkat, libc::SYS_renameat2, libc::SYS_linkat, libc::SYS_mkdirat];

#[cfg(target_arch = "x86_64")]
const NAMES_HERE: &[i64] = &[
    libc::SYS_unlink,
    libc::SYS_rmdir,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_link,
    libc::SYS_mkdir,
];
#[cfg(target_arch = "aarch64")]
const NAMES_HERE: &[i64] = &[libc::SYS_renameat];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const NAMES_HERE: &[i64] = &[];

/// The calls that open files, and which argument has the flags.
#[cfg(target_arch = "x86_64")]
const OPENS: &[(i64, u8)] = &[(libc::SYS_openat, 2), (libc::SYS_open, 1)];
#[cfg(not(target_arch = "x86_64"))]
const OPENS: &[(i64, u8)] = &[(libc::SYS_openat, 2)];

fn denied(rules: &Rules) -> Result<Denied, seccompiler::Error> {
    let mut denied: Denied = NEVER.iter().chain(NEVER_HERE).map(|call| (*call, Vec::new())).collect();
    if !rules.may_start_programs {
        denied.extend(FORKS.iter().map(|call| (*call, Vec::new())));
        denied.insert(libc::SYS_clone, vec![all([bits(0, libc::CLONE_THREAD as u64, 0)?])?]);
    }
    files(&mut denied, rules)?;
    memory(&mut denied)?;
    signals(&mut denied, rules)?;
    priorities(&mut denied)?;
    network(&mut denied, rules)?;
    descriptors(&mut denied)?;
    Ok(denied)
}

fn files(denied: &mut Denied, rules: &Rules) -> Result<(), seccompiler::Error> {
    if !rules.may_start_programs {
        denied.extend(NAMES.iter().chain(NAMES_HERE).map(|call| (*call, Vec::new())));
    }
    let (mode, truncate) = (libc::O_ACCMODE as u64, libc::O_TRUNC as u64);
    // `O_TMPFILE` is this bit and that of a folder.
    let nameless = (libc::O_TMPFILE & !libc::O_DIRECTORY) as u64;
    for (call, flags) in OPENS {
        // Whoever empties a file without opening it to write is not seen by Landlock before Linux 6.2.
        let without_writing = [libc::O_RDONLY as u64, mode];
        let empties = without_writing.map(|how| all([bits(*flags, mode | truncate, how | truncate)?]));
        let mut wrong = empties.into_iter().collect::<Result<Vec<_>, _>>()?;
        wrong.push(all([bits(*flags, nameless, nameless)?])?);
        denied.insert(*call, wrong);
    }
    Ok(())
}

/// What `RLIMIT_DATA` does not count: memory to share, and stacks that grow.
fn memory(denied: &mut Denied) -> Result<(), seccompiler::Error> {
    let shared = (libc::MAP_SHARED | libc::MAP_ANONYMOUS) as u64;
    let (of_kind, grows) = ((libc::MAP_TYPE | libc::MAP_ANONYMOUS) as u64, libc::MAP_GROWSDOWN as u64);
    denied.insert(libc::SYS_mmap, vec![all([bits(3, of_kind, shared)?])?, all([bits(3, grows, grows)?])?]);
    Ok(())
}

/// To itself alone.
fn signals(denied: &mut Denied, rules: &Rules) -> Result<(), seccompiler::Error> {
    if rules.may_start_programs && rules.is_scoped {
        return Ok(());
    }
    let own = u64::from(std::process::id());
    let mut calls =
        vec![libc::SYS_kill, libc::SYS_tgkill, libc::SYS_rt_sigqueueinfo, libc::SYS_rt_tgsigqueueinfo];
    if !rules.is_scoped {
        // It names a thread, and which are its own no filter can tell.
        calls.push(libc::SYS_tkill);
    }
    for call in calls {
        denied.insert(call, vec![all([differs(0, own)?])?]);
    }
    Ok(())
}

/// Limits and priorities of other processes of the same user.
fn priorities(denied: &mut Denied) -> Result<(), seccompiler::Error> {
    let own = u64::from(std::process::id());
    let others = || all([differs(0, 0)?, differs(0, own)?]);
    for call in [
        libc::SYS_prlimit64,
        libc::SYS_sched_setaffinity,
        libc::SYS_sched_setscheduler,
        libc::SYS_sched_setparam,
        libc::SYS_sched_setattr,
        libc::SYS_setpgid,
    ] {
        denied.insert(call, vec![others()?]);
    }
    let (process, of_io) = (u64::from(libc::PRIO_PROCESS), 1);
    denied.insert(libc::SYS_setpriority, vec![all([differs(0, process)?])?, all([differs(1, 0)?])?]);
    denied.insert(libc::SYS_ioprio_set, vec![all([differs(0, of_io)?])?, all([differs(1, 0)?])?]);
    Ok(())
}

fn network(denied: &mut Denied, rules: &Rules) -> Result<(), seccompiler::Error> {
    // One end of a pair that takes datagrams sends them to any socket that has a path, such as the system's log.
    denied.insert(libc::SYS_socketpair, no_streams(libc::AF_UNIX)?);
    if !rules.may_connect {
        for call in [libc::SYS_socket, libc::SYS_connect] {
            denied.insert(call, Vec::new());
        }
        return Ok(());
    }
    let mut wrong = no_streams(libc::AF_INET)?;
    // Other protocols are streams too, and pass by what Landlock says of ports.
    wrong.push(all([differs(2, 0)?, differs(2, libc::IPPROTO_TCP as u64)?])?);
    denied.insert(libc::SYS_socket, wrong);
    // It connects without `connect`.
    let fast_open = libc::MSG_FASTOPEN as u64;
    for (call, flags) in [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)] {
        denied.insert(call, vec![all([bits(flags, fast_open, fast_open)?])?]);
    }
    Ok(())
}

/// Sockets of another family, and of this one all but streams.
fn no_streams(family: libc::c_int) -> Result<Vec<SeccompRule>, seccompiler::Error> {
    let mut wrong = vec![all([differs(0, family as u64)?])?];
    for kind in [libc::SOCK_DGRAM, libc::SOCK_RAW, libc::SOCK_RDM, libc::SOCK_SEQPACKET, 6, 10] {
        wrong.push(all([bits(1, 0xf, kind as u64)?])?);
    }
    Ok(wrong)
}

/// A descriptor that signals whom it is told to, and terminals that take what is pushed into them.
fn descriptors(denied: &mut Denied) -> Result<(), seccompiler::Error> {
    const F_SETSIG: u64 = 10;
    const F_SETOWN_EX: u64 = 15;
    const OWNERS: [u64; 2] = [0x8901, 0x8902];
    const TERMINALS: [u64; 2] = [0x5412, 0x541c];
    let one_of = |values: &[u64]| -> Result<Vec<SeccompRule>, seccompiler::Error> {
        values.iter().map(|value| all([is(1, *value)?])).collect()
    };
    denied.insert(libc::SYS_fcntl, one_of(&[libc::F_SETOWN as u64, F_SETSIG, F_SETOWN_EX])?);
    denied.insert(libc::SYS_ioctl, one_of(&[OWNERS, TERMINALS].concat())?);
    Ok(())
}

/// A rule holds where all its conditions do; a call is denied where one of its rules holds.
fn all<const N: usize>(conditions: [SeccompCondition; N]) -> Result<SeccompRule, seccompiler::Error> {
    Ok(SeccompRule::new(conditions.into())?)
}

fn is(argument: u8, value: u64) -> Result<SeccompCondition, seccompiler::Error> {
    condition(argument, SeccompCmpOp::Eq, value)
}

fn differs(argument: u8, value: u64) -> Result<SeccompCondition, seccompiler::Error> {
    condition(argument, SeccompCmpOp::Ne, value)
}

fn bits(argument: u8, mask: u64, value: u64) -> Result<SeccompCondition, seccompiler::Error> {
    condition(argument, SeccompCmpOp::MaskedEq(mask), value)
}

/// The kernel looks at the lower half of such arguments only.
fn condition(
    argument: u8,
    operator: SeccompCmpOp,
    value: u64,
) -> Result<SeccompCondition, seccompiler::Error> {
    Ok(SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)?)
}

/// Numbers above all that are known, among them those of x86's third way to call the kernel.
fn unknown_numbers() -> BpfProgram {
    const LOAD: u16 = 0x20;
    const IS_GREATER: u16 = 0x25;
    const RETURN: u16 = 0x06;
    let statement = |code, k| sock_filter { code, jt: 0, jf: 0, k };
    vec![
        statement(LOAD, 0),
        sock_filter { code: IS_GREATER, jt: 0, jf: 1, k: LAST_KNOWN },
        statement(RETURN, libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned()),
        statement(RETURN, libc::SECCOMP_RET_ALLOW),
    ]
}
