//! How much work a worker takes: never more than fits on its machine.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use tracing::{info, warn};

use crate::machine;
use crate::memory::Budget;

const MIB: u64 = 1 << 20;

/// What must be there for work to be taken. Zero asks for nothing.
#[derive(Debug, Clone)]
pub struct Admission {
    /// What stays free on the disk of the work folder, in bytes. Default: 0.
    pub disk_reserve: u64,
    /// What a task may write there, in bytes. Default: 0.
    pub disk_per_task: u64,
    /// What a task needs of the memory that is free when it begins, in bytes. Default: 0.
    pub memory_per_task: u64,
    /// How many tasks may use hardware encoders at a time; most devices can open only so many sessions. Default: any
    /// number.
    pub encoder_sessions: Option<u32>,
    /// What encoders share; none is taken while one waits for it. Default: nothing is shared.
    pub memory: Option<Budget>,
    pub gauge: Gauge,
}

impl Default for Admission {
    fn default() -> Self {
        Admission {
            disk_reserve: 0,
            disk_per_task: 0,
            memory_per_task: 0,
            encoder_sessions: None,
            memory: None,
            gauge: Gauge::new(|folder| Room {
                disk: machine::disk_free(folder).ok(),
                memory: machine::memory_free(),
            }),
        }
    }
}

impl Admission {
    /// For a worker that shares its machine with others: 1 GiB of disk stays free, and a task is given a quarter of one,
    /// of disk and of memory each.
    pub fn considerate() -> Self {
        Admission {
            disk_reserve: 1024 * MIB,
            disk_per_task: 256 * MIB,
            memory_per_task: 256 * MIB,
            ..Self::default()
        }
    }

    /// How many more of `wanted` tasks may be taken, and if none, what is wanting.
    pub(crate) fn admit(&self, wanted: u32, at_work: AtWork, folder: &Path) -> Result<u32, Shortage> {
        let sessions = self.encoder_sessions.map_or(u32::MAX, |most| most.saturating_sub(at_work.encoding));
        if sessions == 0 {
            return Err(Shortage::Sessions { most: self.encoder_sessions.unwrap_or_default() });
        }
        if self.memory.as_ref().is_some_and(Budget::is_short) {
            return Err(Shortage::Encoders);
        }
        let room = if self.looks() || at_work.disk > 0 {
            (self.gauge.0)(folder)
        } else {
            Room::default()
        };
        let on_disk = self.fit_on_disk(room.disk, at_work)?;
        let in_memory = self.fit_in_memory(room.memory)?;
        Ok(wanted.min(sessions).min(on_disk).min(in_memory))
    }

    /// Whether it has to look at the machine.
    pub(crate) fn looks(&self) -> bool {
        self.disk_reserve > 0 || self.disk_per_task > 0 || self.memory_per_task > 0
    }

    pub(crate) fn disk_free(&self, folder: &Path) -> Option<u64> {
        (self.gauge.0)(folder).disk
    }

    /// Those at work may still write all they may.
    fn fit_on_disk(&self, free: Option<u64>, at_work: AtWork) -> Result<u32, Shortage> {
        let Some(free) = free else { return Ok(u32::MAX) };
        let running = self.disk_per_task.saturating_mul(at_work.running.into());
        let needed = self.disk_reserve.saturating_add(running);
        let fit = fit(free.checked_sub(needed), self.disk_per_task).filter(|_| free >= at_work.disk);
        let needed = needed.saturating_add(self.disk_per_task).max(at_work.disk);
        fit.ok_or(Shortage::Disk { free, needed })
    }

    /// Those at work have taken theirs.
    fn fit_in_memory(&self, free: Option<u64>) -> Result<u32, Shortage> {
        let Some(free) = free else { return Ok(u32::MAX) };
        fit(Some(free), self.memory_per_task).ok_or(Shortage::Memory { free, needed: self.memory_per_task })
    }
}

/// How often `each` is in what is left; none if not once.
fn fit(left: Option<u64>, each: u64) -> Option<u32> {
    let times = left?.checked_div(each).unwrap_or(u64::MAX);
    u32::try_from(times).map_or(Some(u32::MAX), |times| (times > 0).then_some(times))
}

/// What a worker is at already.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AtWork {
    pub running: u32,
    /// Of those, the ones that may use a hardware encoder.
    pub encoding: u32,
    /// What has to be free on the disk because less was not enough lately, in bytes.
    pub disk: u64,
}

/// What is free, in bytes; none where it cannot be found out, and then nothing is asked of it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Room {
    pub disk: Option<u64>,
    pub memory: Option<u64>,
}

/// Looks how much room there is for work in a folder.
#[derive(Clone)]
pub struct Gauge(Arc<dyn Fn(&Path) -> Room + Send + Sync>);

impl Gauge {
    pub fn new(look: impl Fn(&Path) -> Room + Send + Sync + 'static) -> Self {
        Gauge(Arc::new(look))
    }
}

impl fmt::Debug for Gauge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gauge(…)")
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Shortage {
    #[error("{} MiB are free on the disk of the work folder, and {} are needed", free / MIB, needed / MIB)]
    Disk { free: u64, needed: u64 },
    #[error("{} MiB of memory are free, and {} are needed", free / MIB, needed / MIB)]
    Memory { free: u64, needed: u64 },
    #[error("an encoder waits for memory that others have; lower --slots, or give the machine more")]
    Encoders,
    #[error("all {most} encoder sessions are in use")]
    Sessions { most: u32 },
}

/// Says once that nothing fits, and once that something does again.
#[derive(Debug, Default)]
pub(crate) struct Door(Option<std::mem::Discriminant<Shortage>>);

impl Door {
    pub fn note(&mut self, admitted: &Result<u32, Shortage>) {
        let now = admitted.as_ref().err().map(std::mem::discriminant);
        if now == self.0 {
            return;
        }
        self.0 = now;
        match admitted {
            // As it is meant to be, and over when one of them ends.
            Err(shortage @ Shortage::Sessions { .. }) => info!("taking nothing new for now: {shortage}"),
            Err(shortage) => warn!("taking nothing new for now: {shortage}"),
            Ok(_) => info!("there is room for work again"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1024 * MIB;

    fn admitted(disk: u64, memory: u64, running: u32, encoding: u32) -> Result<u32, Shortage> {
        let admission = Admission {
            gauge: Gauge::new(move |_| Room { disk: Some(disk), memory: Some(memory) }),
            encoder_sessions: Some(2),
            ..Admission::considerate()
        };
        admission.admit(8, AtWork { running, encoding, disk: 0 }, Path::new("/"))
    }

    #[test]
    fn after_a_full_disk_more_has_to_be_free() {
        let admitted = |free: u64| {
            let gauge = Gauge::new(move |_| Room { disk: Some(free), memory: None });
            let admission = Admission { gauge, ..Admission::default() };
            admission.admit(8, AtWork { disk: GIB, ..AtWork::default() }, Path::new("/"))
        };

        assert_eq!(admitted(GIB), Ok(8));
        assert_eq!(admitted(GIB - 1), Err(Shortage::Disk { free: GIB - 1, needed: GIB }));
    }

    #[test]
    fn no_more_is_taken_than_fits() {
        assert_eq!(admitted(100 * GIB, 100 * GIB, 0, 0), Ok(2), "as many as there are sessions");
        assert_eq!(admitted(GIB + 256 * MIB, 100 * GIB, 0, 0), Ok(1));
        assert_eq!(admitted(100 * GIB, 256 * MIB, 0, 0), Ok(1));
        assert_eq!(admitted(100 * GIB, 100 * GIB, 1, 1), Ok(1));
    }

    #[test]
    fn what_is_wanting_is_told() {
        let (free, needed) = (GIB + 255 * MIB, GIB + 256 * MIB);
        assert_eq!(admitted(free, 100 * GIB, 0, 0), Err(Shortage::Disk { free, needed }));
        assert_eq!(
            admitted(needed, 100 * GIB, 1, 0),
            Err(Shortage::Disk { free: needed, needed: needed + 256 * MIB }),
            "the one at work may need its part yet"
        );
        assert_eq!(admitted(0, GIB, 0, 0), Err(Shortage::Disk { free: 0, needed }));
        assert_eq!(admitted(GIB * 9, 0, 0, 0), Err(Shortage::Memory { free: 0, needed: 256 * MIB }));
        assert_eq!(admitted(GIB * 9, GIB, 2, 2), Err(Shortage::Sessions { most: 2 }));
    }

    #[test]
    fn who_asks_for_nothing_is_given_everything() {
        assert_eq!(
            Admission::default().admit(8, AtWork { running: 9, encoding: 9, disk: 0 }, Path::new("/")),
            Ok(8)
        );
    }
}
