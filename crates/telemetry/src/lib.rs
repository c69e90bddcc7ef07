//! What a process tells about itself.
//!
//! | file | what is there |
//! | --- | --- |
//! | [`metrics`] | every figure that a process counts by itself, in one list |
//! | [`family`], `histogram` | what counts: series by labels, of which there can never be too many |
//! | [`text`] | how Prometheus reads it |
//! | `process` | what the kernel knows of this process |
//! | [`trace`] | how the context of a trace travels from upload to worker |
//!
//! Figures of the whole system (how much waits, which workers there are) are read from the database when somebody asks,
//! by the server. These here are of one process: a restart begins at zero, and Prometheus adds up several.
//!
//! To add one: a static in [`metrics`], its line in `ALL`, a call where it happens, a panel in
//! `deploy/grafana/vodmill.json`.

pub mod family;
mod histogram;
pub mod metrics;
mod process;
pub mod text;
pub mod trace;

pub use text::Text;

/// Everything this process has counted, and what the kernel says of it.
pub fn write(text: &mut Text) {
    for family in metrics::ALL {
        family.write(text);
    }
    process::write(text);
}
