//! How urgent a job is.

use serde::{Deserialize, Serialize};

/// 0 (background) to 10 (critical); 10 is served first, everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "i64", into = "i64")]
pub struct Priority(u8);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("priority {0} is out of range; 0 is background, 5 normal, 10 most urgent")]
pub struct OutOfRange(pub i64);

impl Priority {
    pub const NORMAL: Priority = Priority(5);

    pub const fn get(self) -> u8 {
        self.0
    }
}

impl Default for Priority {
    fn default() -> Self {
        Self::NORMAL
    }
}

impl TryFrom<i64> for Priority {
    type Error = OutOfRange;

    fn try_from(number: i64) -> Result<Self, OutOfRange> {
        match number {
            0..=10 => Ok(Priority(number as u8)),
            _ => Err(OutOfRange(number)),
        }
    }
}

impl From<Priority> for i64 {
    fn from(priority: Priority) -> i64 {
        priority.0.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_zero_to_ten() {
        assert_eq!(Priority::try_from(10).map(Priority::get), Ok(10));
        assert_eq!(Priority::try_from(11), Err(OutOfRange(11)));
        assert_eq!(Priority::try_from(-1), Err(OutOfRange(-1)));
    }
}
