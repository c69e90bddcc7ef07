//! Figures: a measured value beside the limit measured in the same run.

use crate::output;
use serde_json::{Map, Value, json};
use std::time::Duration;

#[derive(Debug, Clone)]
pub struct Figure {
    /// Stays the same from version to version, for scripts.
    pub key: String,
    pub name: String,
    pub value: f64,
    pub unit: &'static str,
    pub raw: Option<Limit>,
}

/// What the engine alone comes to, in the figure's unit.
#[derive(Debug, Clone)]
pub struct Limit {
    pub name: String,
    pub value: f64,
}

impl Figure {
    pub fn new(key: impl Into<String>, name: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Figure { key: key.into(), name: name.into(), value, unit, raw: None }
    }

    pub fn beside(self, name: impl Into<String>, value: f64) -> Self {
        Figure { raw: Some(Limit { name: name.into(), value }), ..self }
    }

    fn ratio(&self) -> Option<f64> {
        self.raw.as_ref().map(|raw| self.value / raw.value)
    }

    fn row(&self) -> [String; 6] {
        let (limit, raw) = match &self.raw {
            Some(raw) => (number(raw.value), raw.name.clone()),
            None => Default::default(),
        };
        let ratio = self.ratio().map(|ratio| format!("{} ×", number(ratio))).unwrap_or_default();
        [self.name.clone(), number(self.value), self.unit.into(), limit, ratio, raw]
    }

    fn json(&self) -> Value {
        let raw = self.raw.as_ref();
        json!({
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "raw": raw.map(|raw| raw.value),
            "raw_name": raw.map(|raw| &raw.name),
            "ratio": self.ratio(),
        })
    }
}

pub fn print(figures: &[Figure]) {
    let mut rows: Vec<[String; 6]> = figures.iter().map(Figure::row).collect();
    for column in [1, 3, 4] {
        align_right(&mut rows, column);
    }
    output::table(["measure", "value", "unit", "raw", "ratio", "the raw limit is"], &rows);
}

pub fn print_json(engine: &str, figures: &[Figure]) -> anyhow::Result<()> {
    let figures: Map<String, Value> =
        figures.iter().map(|figure| (figure.key.clone(), figure.json())).collect();
    output::json(&json!({ "engine": engine, "figures": figures }))
}

fn align_right(rows: &mut [[String; 6]], column: usize) {
    let width = rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    for row in rows {
        row[column] = format!("{:>width$}", row[column]);
    }
}

/// Three digits that matter, thousands set apart.
fn number(value: f64) -> String {
    match value {
        value if !value.is_finite() => "-".into(),
        value if value.abs() >= 1000.0 => {
            let whole = format!("{value:.0}");
            let (head, tail) = whole.split_at(whole.len() - 3);
            match head.len() {
                0..4 => format!("{head},{tail}"),
                _ => format!("{},{},{tail}", &head[..head.len() - 3], &head[head.len() - 3..]),
            }
        }
        value if value.abs() >= 100.0 => format!("{value:.0}"),
        value if value.abs() >= 10.0 => format!("{value:.1}"),
        value if value.abs() >= 0.1 => format!("{value:.2}"),
        value => format!("{value:.3}"),
    }
}

/// The value below which `share` of the sample lies; the nearest one that was measured.
pub fn quantile(sample: &[f64], share: f64) -> f64 {
    let mut sorted = sample.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or(f64::NAN)
}

pub fn median(sample: &[f64]) -> f64 {
    quantile(sample, 0.5)
}

pub fn ms(span: Duration) -> f64 {
    span.as_secs_f64() * 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_readable() {
        let shown = [0.0123, 0.5, 12.34, 123.4, 1234.5, 1_234_567.0].map(number);

        assert_eq!(shown, ["0.012", "0.50", "12.3", "123", "1,234", "1,234,567"]);
    }

    #[test]
    fn quantiles_are_values_that_were_measured() {
        let sample = [5.0, 1.0, 3.0, 2.0, 4.0];

        assert_eq!([0.0, 0.5, 0.99].map(|share| quantile(&sample, share)), [1.0, 3.0, 5.0]);
        assert!(quantile(&[], 0.5).is_nan());
    }
}
