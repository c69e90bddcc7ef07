//! Which rate the frames have: exact where they are even, typical where they are not.

use crate::ratio::Ratio;

/// What cameras, films and screens are made at, rising. Those above 60 are there to be halved.
#[rustfmt::skip]
const STANDARD: &[(u32, u32)] = &[
    (1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (6, 1), (8, 1), (10, 1), (12, 1), (25, 2), (15_000, 1001), (15, 1),
    (18, 1), (20, 1), (24_000, 1001), (24, 1), (25, 1), (30_000, 1001), (30, 1), (40, 1), (48_000, 1001), (48, 1),
    (50, 1), (60_000, 1001), (60, 1), (72, 1), (75, 1), (90, 1), (100, 1), (120_000, 1001), (120, 1), (144, 1),
    (200, 1), (240_000, 1001), (240, 1),
];

const FASTEST: Ratio = Ratio { num: 60, den: 1 };

/// For a single frame that gives no hint.
const USUAL: Ratio = Ratio { num: 25, den: 1 };

/// Rounding to whole ticks moves a time by less than one; a little more for the arithmetic.
const ROUNDING: f64 = 1.01;

/// How far from its slot a frame may be, in frames. Half a frame is where `fps` would choose another slot.
const HALF: f64 = 0.49;

/// The rate at which frame `i` lies on slot `i` for all frames, if there is one. In order of preference: a standard rate
/// exact to the precision of the timestamps (the claimed one where several are), the fraction of one whole step, a simple
/// fraction as exact, a standard rate with jitter, the average with jitter.
pub fn constant(times: &[f64], time_base: Ratio, claimed: &[Ratio]) -> Option<Ratio> {
    let steps = times.len().checked_sub(1).filter(|steps| *steps > 0)? as f64;
    let tick = time_base.to_f64();
    let span = *times.last()?;
    let mean = steps / (span * tick);
    let even: Vec<(Ratio, f64)> = standards()
        .filter(|rate| (rate.to_f64() / mean - 1.0).abs() * steps < 1.0)
        .filter_map(|rate| Some((rate, spread(times, 1.0 / (rate.to_f64() * tick))?)))
        .collect();

    let exact = || even.iter().filter(|(_, spread)| *spread <= ROUNDING);
    let claimed = claimed.iter().find(|claim| exact().any(|(rate, _)| rate == *claim)).copied();
    let nearest = |a: &&(Ratio, f64), b: &&(Ratio, f64)| a.1.total_cmp(&b.1);
    let standard = || Some(exact().min_by(nearest)?.0);
    let jittery = || Some(even.iter().min_by(nearest)?.0);
    let fraction = |slack_ticks: f64, most: f64| {
        let (low, high) = (steps / ((span + slack_ticks) * tick), steps / ((span - slack_ticks) * tick));
        let rate = Ratio::simplest_between(low, high)?;
        (spread(times, 1.0 / (rate.to_f64() * tick))? <= most).then_some(rate)
    };
    let stepped = || {
        let step = span / steps;
        spread(times, step)
            .filter(|spread| *spread == 0.0 && step.fract() == 0.0 && step <= f64::from(u32::MAX))?;
        Ratio::new(time_base.den, time_base.num.checked_mul(step as u32)?)
    };
    let simple = || [0.9, 0.4, 0.1].into_iter().find_map(|slack| fraction(slack, ROUNDING));
    let average = || fraction(0.1 * span / steps / steps, f64::MAX);
    claimed.or_else(standard).or_else(stepped).or_else(simple).or_else(jittery).or_else(average)
}

/// By how many ticks the frames stray from an even `step`, from the earliest to the latest; `None` when one of them
/// strays into the slot of another.
fn spread(times: &[f64], step: f64) -> Option<f64> {
    let mut bounds = (0.0_f64, 0.0_f64);
    for (number, time) in times.iter().enumerate() {
        let stray = time - number as f64 * step;
        if stray.abs() > HALF * step {
            return None;
        }
        bounds = (bounds.0.min(stray), bounds.1.max(stray));
    }
    Some(bounds.1 - bounds.0)
}

/// The standard rate for frames that are not even: the one within two hundredths of the typical rate, else the next
/// faster one, so that no frame has to go.
pub fn typical(times: &[f64], tick: f64) -> Ratio {
    match typical_interval(times) {
        Some(interval) => snap(1.0 / (interval * tick)),
        None => USUAL,
    }
}

/// The rate to show one frame at: that of its duration, else the claimed one, else 25.
pub fn of_one_frame(duration: Option<f64>, claimed: Option<Ratio>) -> Ratio {
    let is_usual = |rate: &f64| (4.9..=61.0).contains(rate);
    let lasting = duration.map(|seconds| 1.0 / seconds).filter(is_usual).map(snap);
    let claimed = claimed.filter(|rate| is_usual(&rate.to_f64()));
    within_limits(lasting.or(claimed).unwrap_or(USUAL))
}

/// From 1 to 60: halved until it is no more than 60.
pub fn within_limits(mut rate: Ratio) -> Ratio {
    while rate.to_f64() > FASTEST.to_f64() {
        let halved = if rate.num.is_multiple_of(2) {
            Ratio::new(rate.num / 2, rate.den)
        } else {
            Ratio::new(rate.num, rate.den.saturating_mul(2))
        };
        rate = halved.filter(|halved| halved.to_f64() < rate.to_f64()).unwrap_or(FASTEST);
    }
    if rate.to_f64() < 1.0 { Ratio::ONE } else { rate }
}

/// In ticks: the average of the intervals that are like the median, which evens out what rounding did to them.
pub fn typical_interval(times: &[f64]) -> Option<f64> {
    let mut sorted: Vec<f64> = intervals(times).collect();
    sorted.sort_by(f64::total_cmp);
    let median = *sorted.get(sorted.len() / 2)?;
    let alike = sorted.iter().filter(|interval| (0.75..=1.25).contains(&(**interval / median)));
    let (sum, count) = alike.fold((0.0, 0.0), |(sum, count), interval| (sum + interval, count + 1.0));
    Some(sum / count)
}

pub fn intervals(times: &[f64]) -> impl Iterator<Item = f64> {
    times.windows(2).map(|pair| pair[1] - pair[0])
}

fn snap(rate: f64) -> Ratio {
    let off = |standard: &Ratio| (standard.to_f64() / rate - 1.0).abs();
    let near = standards().filter(|standard| off(standard) <= 0.02).min_by(|a, b| off(a).total_cmp(&off(b)));
    near.or_else(|| standards().find(|standard| standard.to_f64() > rate)).unwrap_or(FASTEST)
}

fn standards() -> impl Iterator<Item = Ratio> {
    STANDARD.iter().filter_map(|(num, den)| Ratio::new(*num, *den))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(num: u32, den: u32) -> Ratio {
        Ratio::new(num, den).unwrap()
    }

    /// `count` frames at `rate`, rounded to ticks.
    fn rounded(count: u32, rate: Ratio, time_base: Ratio) -> Vec<f64> {
        (0..count).map(|i| (f64::from(i) / rate.to_f64() / time_base.to_f64()).round()).collect()
    }

    #[test]
    fn every_standard_rate_is_recognised_through_rounding() {
        for rate in standards().filter(|rate| rate.to_f64() <= 200.0) {
            for time_base in [ratio(1, 1000), ratio(1, 90_000), ratio(1, 12_800)] {
                let times = rounded(3000, rate, time_base);

                assert_eq!(constant(&times, time_base, &[]), Some(rate), "{rate} in {time_base}");
            }
        }
    }

    #[test]
    fn a_claim_settles_what_is_too_short_to_tell_and_nothing_else() {
        let (ms, film, thousand) = (ratio(1, 1000), ratio(24_000, 1001), ratio(1000, 1));
        let short = rounded(10, film, ms);
        let long = rounded(5000, film, ms);

        assert_eq!(constant(&short, ms, &[thousand, film]), Some(film));
        assert_eq!(constant(&short, ms, &[ratio(24, 1)]), Some(ratio(24, 1)));
        assert_eq!(constant(&long, ms, &[ratio(24, 1)]), Some(film));
    }

    #[test]
    fn an_unusual_even_rate_is_kept_as_the_fraction_it_is() {
        let camera = ratio(1, 2500);
        let times: Vec<f64> = (0..180).map(|i| f64::from(i) * 83.0).collect();

        assert_eq!(constant(&times, camera, &[]), Some(ratio(2500, 83)));
        assert_eq!(
            constant(&rounded(2000, ratio(47, 2), ratio(1, 1000)), ratio(1, 1000), &[]),
            Some(ratio(47, 2))
        );
    }

    #[test]
    fn jitter_below_half_a_frame_loses_no_frame() {
        let phone = ratio(1, 600);
        let jitter = [0.0, 3.0, -4.0, 1.0, 5.0, -2.0];
        let times: Vec<f64> = (0..600).map(|i| f64::from(i) * 20.0 + jitter[i as usize % 6]).collect();

        assert_eq!(constant(&times, phone, &[]), Some(ratio(30, 1)));

        let drifting: Vec<f64> =
            (0..6000).map(|i| (f64::from(i) * 20.03 + jitter[i as usize % 6]).round()).collect();
        let rate = constant(&drifting, phone, &[]).unwrap();
        assert!((rate.to_f64() - 600.0 / 20.03).abs() < 0.001, "{rate}");
    }

    #[test]
    fn a_dropped_frame_is_not_even() {
        let mut times = rounded(100, ratio(25, 1), ratio(1, 1000));
        times.remove(50);

        assert_eq!(constant(&times, ratio(1, 1000), &[]), None);
        assert_eq!(typical(&times, 0.001), ratio(25, 1));
    }

    #[test]
    fn typical_rates_are_standard_and_within_limits() {
        for (rate, expected) in [(30.3, 30), (37.0, 40), (0.1, 1), (61.0, 60), (999.0, 60), (5000.0, 60)] {
            assert_eq!(within_limits(snap(rate)), ratio(expected, 1), "{rate}");
        }
        assert_eq!(within_limits(ratio(120_000, 1001)), ratio(60_000, 1001));
        assert_eq!(
            within_limits(ratio(u32::MAX, 1)).to_f64().clamp(30.0, 60.0),
            within_limits(ratio(u32::MAX, 1)).to_f64()
        );
        assert_eq!(within_limits(ratio(1, 5)), Ratio::ONE);
    }
}
