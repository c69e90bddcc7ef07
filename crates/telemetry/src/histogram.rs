//! How long things took, or how fast they were: counted in buckets.

use crate::family::{Kind, Labels};
use crate::text::Text;

/// The upper bounds of its buckets, ascending.
pub struct Histogram(pub &'static [f64]);

/// One series. The bucket of what is above all bounds is the last.
pub struct Observed {
    buckets: Vec<u64>,
    sum: f64,
}

impl Kind for Histogram {
    const NAME: &'static str = "histogram";
    type Value = Observed;

    fn fresh(&self) -> Observed {
        Observed { buckets: vec![0; self.0.len() + 1], sum: 0.0 }
    }

    fn write(&self, text: &mut Text, name: &str, labels: Labels<'_>, observed: &Observed) {
        let bucket = format!("{name}_bucket");
        let bounds = self.0.iter().map(ToString::to_string).chain(["+Inf".into()]);
        let mut below = 0;
        for (bound, count) in bounds.zip(&observed.buckets) {
            below += count;
            text.sample(&bucket, labels.pairs().chain([("le", bound.as_str())]), below);
        }
        text.sample(&format!("{name}_sum"), labels.pairs(), observed.sum);
        text.sample(&format!("{name}_count"), labels.pairs(), below);
    }
}

impl Histogram {
    pub(crate) fn observe(&self, observed: &mut Observed, value: f64) {
        let bucket = self.0.iter().position(|bound| value <= *bound).unwrap_or(self.0.len());
        observed.buckets[bucket] += 1;
        observed.sum += value;
    }
}
