//! What people and scripts see: tables, JSON and times.

use serde::Serialize;
use std::io::Write;
use wire::text::{printable, printable_cell, printable_json};

/// Prints one value as JSON, on one line.
pub fn json<T: Serialize>(value: &T) -> anyhow::Result<()> {
    raw_line(&printable_json(&serde_json::to_string(value)?));
    Ok(())
}

/// Prints a line. Whatever files, workers or servers say passes through here or [`text`], and cannot command a terminal.
pub fn line(text: &str) {
    raw_line(&printable(text));
}

/// Prints a line that may have colours, and only words of this program. A reader that has gone away (`| head`) ends the
/// program quietly.
pub fn raw_line(text: &str) {
    if writeln!(std::io::stdout(), "{text}").is_err() {
        std::process::exit(0);
    }
}

/// Prints a line on standard error.
pub fn error_line(text: &str) {
    // Nothing may be listening; that is no reason to end.
    let _ = std::io::stderr().write_all(format!("{}\n", printable(text)).as_bytes());
}

/// Text for a progress bar.
pub fn text(text: &str) -> String {
    printable_cell(text).into_owned()
}

/// Shows on standard output what must have been seen, in one piece.
pub fn show(text: &str) -> std::io::Result<()> {
    let mut to = std::io::stdout();
    to.write_all(format!("vodmill: {text}\n").as_bytes())?;
    to.flush()
}

/// Tells on standard error what is no answer, in one piece: whoever reads along never sees half a line.
pub fn tell(text: &str) {
    error_line(&format!("vodmill: {text}"));
}

/// Prints columns, each as wide as its widest cell.
pub fn table<const N: usize>(head: [&str; N], rows: &[[String; N]]) {
    let rows: Vec<[String; N]> =
        rows.iter().map(|row| std::array::from_fn(|column| text(&row[column]))).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([head[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let print = |cells: &[String; N]| {
        let padded: Vec<String> =
            cells.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        line(padded.join("  ").trim_end());
    };
    print(&head.map(|title| title.to_uppercase()));
    rows.iter().for_each(print);
}

/// JSON where asked for, a table otherwise.
pub fn listing<T: Serialize, const N: usize>(
    as_json: bool,
    values: &[T],
    head: [&str; N],
    row: impl Fn(&T) -> [String; N],
) -> anyhow::Result<()> {
    if as_json {
        return json(&values);
    }
    table(head, &values.iter().map(row).collect::<Vec<_>>());
    Ok(())
}

/// A time by its distance from a beginning.
pub fn since(at: i64, beginning: i64) -> String {
    format!("+{}.{:03}s", (at - beginning) / 1000, (at - beginning).rem_euclid(1000))
}

/// `12.3 MB`
pub fn size(bytes: i64) -> String {
    match bytes {
        ..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

/// How long ago, or until when, in the two largest units.
pub fn ago(at: i64, now: i64) -> String {
    let seconds = (now - at).max(0) / 1000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

pub fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".into(), |value| value.to_string())
}

/// A long text on one line.
pub fn short(text: &str, max: usize) -> String {
    let line = text.lines().next().unwrap_or_default();
    if line.chars().count() <= max {
        return line.into();
    }
    line.chars().take(max.saturating_sub(1)).chain(['…']).collect()
}
