//! Lists come in pages: `limit`, and `before`, the last of the page before.

use crate::problem::{Error, Result};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub fn limit(asked: Option<i64>) -> Result<i64> {
    match asked.unwrap_or(50) {
        limit @ 1..=1000 => Ok(limit),
        limit => Err(Error::Invalid(format!("limit is {limit}; it may be 1 to 1000"))),
    }
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Where the next page begins; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_before: Option<i64>,
}

impl<T> Page<T> {
    pub fn new(items: Vec<T>, limit: i64, id: impl Fn(&T) -> i64) -> Self {
        let is_full = items.len() as i64 >= limit;
        let next_before = items.last().map(id).filter(|_| is_full);
        Page { items, next_before }
    }
}
