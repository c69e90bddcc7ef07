//! What was found, where, and in a person's words.

use super::rule::{Level, Rule};
use serde::Serialize;
use std::collections::HashMap;

/// Of one rule, so many findings are told one by one; the rest are only counted.
const TOLD: usize = 10;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The rule's name, which does not change.
    pub rule: &'static str,
    pub level: Level,
    #[serde(flatten)]
    pub place: Place,
    /// What is wrong: what was found, and what was expected.
    pub message: String,
}

/// Where it is: as much of it as is known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Place {
    /// Relative to the folder.
    pub file: String,
    /// Counted from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// Counted from 1 within the playlist `file`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segment: Option<u64>,
}

impl Place {
    pub fn file(file: impl Into<String>) -> Self {
        Place { file: file.into(), line: None, segment: None }
    }

    pub fn line(file: impl Into<String>, line: u64) -> Self {
        Place { file: file.into(), line: Some(line), segment: None }
    }

    /// The segment at this index, counted from 0.
    pub fn segment(self, index: usize) -> Self {
        Place { segment: Some(index as u64 + 1), ..self }
    }
}

/// `video/index.m3u8:12 (segment 3)`.
impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        match self.segment {
            Some(segment) => write!(f, " (segment {segment})"),
            None => Ok(()),
        }
    }
}

/// Collects findings, and stays small whatever is thrown at it.
#[derive(Debug, Default)]
pub struct Findings {
    told: Vec<Finding>,
    counts: HashMap<&'static str, usize>,
    /// Whether the stream is our own, which has to keep what others only should.
    is_own: bool,
}

impl Findings {
    pub fn new(is_own: bool) -> Self {
        Findings { is_own, ..Findings::default() }
    }

    pub fn add(&mut self, rule: &Rule, place: Place, message: impl Into<String>) {
        self.add_as(rule.level, rule, place, message);
    }

    /// An error where the stream is our own.
    pub fn add_strictly(&mut self, rule: &Rule, place: Place, message: impl Into<String>) {
        let level = if self.is_own { Level::Error } else { rule.level };
        self.add_as(level, rule, place, message);
    }

    fn add_as(&mut self, level: Level, rule: &Rule, place: Place, message: impl Into<String>) {
        let count = self.counts.entry(rule.id).or_default();
        *count += 1;
        if *count <= TOLD {
            self.told.push(Finding { rule: rule.id, level, place, message: message.into() });
        }
    }

    /// Errors first, else in the order found. A last finding counts what was not told of a rule.
    pub fn finished(&self) -> Vec<Finding> {
        let mut all = self.told.clone();
        for (rule, count) in &self.counts {
            let last = all.iter_mut().rev().find(|finding| finding.rule == *rule);
            if let (Some(last), Some(more)) = (last, count.checked_sub(TOLD).filter(|more| *more > 0)) {
                last.message += &format!(" (and {more} more like this)");
            }
        }
        all.sort_by_key(|finding| finding.level);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::super::rule;
    use super::*;

    #[test]
    fn a_flood_is_counted_and_not_kept() {
        let mut findings = Findings::default();

        findings.add(&rule::INDEPENDENT, Place::file("b"), "is missing");
        for line in 0..5000 {
            findings.add(&rule::SYNTAX, Place::line("a", line), "is odd");
        }

        let all = findings.finished();
        assert_eq!(all.len(), TOLD + 1);
        assert_eq!(all[TOLD - 1].message, "is odd (and 4990 more like this)");
        assert_eq!(all[TOLD].rule, "apple.independent-segments");
    }
}
