//! How far an ffmpeg is, by what it prints for `-progress`.

/// The frames it has encoded, where a line says so. Of all it prints, this alone grows only while work is done.
pub fn frame(line: &str) -> Option<u64> {
    line.strip_prefix("frame=")?.trim().parse().ok()
}

/// The time it has come to, in microseconds: for sound, which has no frames. Not yet known at first, or negative.
pub fn out_time_us(line: &str) -> Option<u64> {
    line.strip_prefix("out_time_us=")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_honest_numbers_are_taken() {
        assert_eq!(frame("frame=  42"), Some(42));
        assert_eq!(frame("fps=25"), None);
        assert_eq!(out_time_us("out_time_us=1500000"), Some(1_500_000));
        for unknown in ["out_time_us=N/A", "out_time_us=-21333", "out_time_ms=3"] {
            assert_eq!(out_time_us(unknown), None, "{unknown}");
        }
    }
}
