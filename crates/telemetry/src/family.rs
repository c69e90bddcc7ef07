//! A metric with its series, one for each combination of label values that was seen.

pub use crate::histogram::Histogram;
use crate::text::Text;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many series a family may have. Labels here are words of ours and few; should one be somebody else's after all,
/// what comes later is counted together as `other`.
const MAX_SERIES: usize = 1000;

/// Only grows.
pub struct Counter;

/// How much there is now.
pub struct Gauge;

/// What a family counts in each series.
pub trait Kind {
    const NAME: &'static str;
    type Value;

    fn fresh(&self) -> Self::Value;

    fn write(&self, text: &mut Text, name: &str, labels: Labels<'_>, value: &Self::Value);
}

impl Kind for Counter {
    const NAME: &'static str = "counter";
    type Value = f64;

    fn fresh(&self) -> f64 {
        0.0
    }

    fn write(&self, text: &mut Text, name: &str, labels: Labels<'_>, value: &f64) {
        text.sample(name, labels.pairs(), value);
    }
}

impl Kind for Gauge {
    const NAME: &'static str = "gauge";
    type Value = f64;

    fn fresh(&self) -> f64 {
        0.0
    }

    fn write(&self, text: &mut Text, name: &str, labels: Labels<'_>, value: &f64) {
        text.sample(name, labels.pairs(), value);
    }
}

/// The labels of one series.
#[derive(Clone, Copy)]
pub struct Labels<'a> {
    names: &'a [&'static str],
    values: &'a [String],
}

impl<'a> Labels<'a> {
    pub fn pairs(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.names.iter().copied().zip(self.values.iter().map(String::as_str))
    }
}

pub struct Family<K: Kind, const N: usize> {
    name: &'static str,
    help: &'static str,
    labels: [&'static str; N],
    kind: K,
    series: Mutex<BTreeMap<[String; N], K::Value>>,
}

impl<K: Kind, const N: usize> Family<K, N> {
    pub const fn new(name: &'static str, help: &'static str, labels: [&'static str; N], kind: K) -> Self {
        Family { name, help, labels, kind, series: Mutex::new(BTreeMap::new()) }
    }

    /// Shows the series before anything was counted in it: a rate needs something to rise from.
    pub fn expect(&self, values: [&str; N]) {
        self.with(values, |_, _| {});
    }

    fn with(&self, values: [&str; N], change: impl FnOnce(&K, &mut K::Value)) {
        let mut series = self.series();
        let mut key = values.map(str::to_owned);
        if series.len() >= MAX_SERIES && !series.contains_key(&key) {
            key = values.map(|_| "other".to_owned());
        }
        change(&self.kind, series.entry(key).or_insert_with(|| self.kind.fresh()));
    }

    fn series(&self) -> MutexGuard<'_, BTreeMap<[String; N], K::Value>> {
        self.series.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<const N: usize> Family<Counter, N> {
    pub fn add(&self, values: [&str; N], more: f64) {
        self.with(values, |_, value| *value += more);
    }

    pub fn count(&self, values: [&str; N]) {
        self.add(values, 1.0);
    }
}

impl<const N: usize> Family<Gauge, N> {
    pub fn set(&self, values: [&str; N], now: f64) {
        self.with(values, |_, value| *value = now);
    }
}

impl<const N: usize> Family<Histogram, N> {
    pub fn observe(&self, values: [&str; N], seen: f64) {
        self.with(values, |histogram, observed| histogram.observe(observed, seen));
    }
}

/// A family of any kind, to be shown.
pub trait Shown: Sync {
    fn write(&self, text: &mut Text);
}

impl<K: Kind + Sync, const N: usize> Shown for Family<K, N>
where
    K::Value: Send,
{
    fn write(&self, text: &mut Text) {
        text.family(self.name, K::NAME, self.help);
        if N == 0 {
            self.expect([""; N]);
        }
        for (values, value) in &*self.series() {
            self.kind.write(text, self.name, Labels { names: &self.labels, values }, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(family: &dyn Shown) -> String {
        let mut text = Text::default();
        family.write(&mut text);
        text.into_string()
    }

    #[test]
    fn what_never_happened_is_zero_and_not_absent() {
        let family = Family::new("a_total", "A.", [], Counter);

        assert!(shown(&family).ends_with("a_total 0\n"));
    }

    #[test]
    fn buckets_hold_all_that_is_below_their_bound() {
        let family = Family::new("a_seconds", "A.", ["x"], Histogram(&[0.5, 2.0]));

        for seen in [0.5, 1.0, 3.0] {
            family.observe(["y"], seen);
        }

        let text = shown(&family);
        for line in [
            "a_seconds_bucket{x=\"y\",le=\"0.5\"} 1",
            "a_seconds_bucket{x=\"y\",le=\"2\"} 2",
            "a_seconds_bucket{x=\"y\",le=\"+Inf\"} 3",
            "a_seconds_sum{x=\"y\"} 4.5",
            "a_seconds_count{x=\"y\"} 3",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn labels_that_somebody_else_chooses_do_not_grow_without_end() {
        let family = Family::new("a_total", "A.", ["x"], Counter);

        for n in 0..10 * MAX_SERIES {
            family.count([&n.to_string()]);
        }

        let text = shown(&family);
        assert_eq!(text.lines().count(), 2 + MAX_SERIES + 1);
        assert!(text.contains(&format!("a_total{{x=\"other\"}} {}\n", 9 * MAX_SERIES)), "{text}");
    }
}
