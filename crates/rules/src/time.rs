//! Time as the rules see it.

use serde::{Deserialize, Serialize};
use std::ops::{Add, Sub};

/// Milliseconds since the Unix epoch, by the database's clock. Also used for spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(pub i64);

impl Millis {
    pub const fn from_secs(secs: i64) -> Self {
        Millis(secs.saturating_mul(1000))
    }
}

impl Add for Millis {
    type Output = Millis;
    fn add(self, span: Millis) -> Millis {
        Millis(self.0.saturating_add(span.0))
    }
}

impl Sub for Millis {
    type Output = Millis;
    fn sub(self, other: Millis) -> Millis {
        Millis(self.0.saturating_sub(other.0))
    }
}
