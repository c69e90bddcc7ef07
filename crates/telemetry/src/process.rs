//! What the kernel knows of this process, under the names that every Prometheus client uses. Linux tells it in `/proc`;
//! elsewhere there is nothing to show.

use crate::text::Text;

pub fn write(text: &mut Text) {
    text.family("vodmill_build_info", "gauge", "The version that runs, as a label.");
    text.sample("vodmill_build_info", [("version", env!("CARGO_PKG_VERSION"))], 1);
    if let Some(cpu) = cpu_seconds() {
        text.single(
            "process_cpu_seconds_total",
            "counter",
            "Processor time of this process without its encoders.",
            cpu,
        );
    }
    if let Some(bytes) = resident_bytes() {
        text.single(
            "process_resident_memory_bytes",
            "gauge",
            "Memory of this process without its encoders.",
            bytes,
        );
    }
    if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
        text.single(
            "process_open_fds",
            "gauge",
            "Files and connections this process has open.",
            files.count(),
        );
    }
}

/// In `/proc` a tick is a hundredth of a second on every Linux there is.
const TICKS: f64 = 100.0;

fn cpu_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The program's name stands in brackets and may hold anything.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS)
}

fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}
