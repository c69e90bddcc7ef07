//! The figures as a picture, in SVG: speed-up over workers, both in powers of ten.

use super::Point;
use std::fmt::Write;

const SIDE: f64 = 480.0;
const MARGIN: f64 = 56.0;

pub fn svg(points: &[Point]) -> String {
    let largest = points.iter().map(|point| f64::from(point.workers)).fold(10.0, f64::max);
    let decades = largest.log10().ceil();
    let place = |value: f64| value.max(1.0).log10() / decades * SIDE;
    let at = |workers: f64, speedup: f64| (MARGIN + place(workers), MARGIN + SIDE - place(speedup));
    let mut drawn = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {0}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        SIDE + 2.0 * MARGIN
    );
    for power in 0..=decades as i32 {
        let value = 10f64.powi(power);
        let (x, y) = at(value, value);
        let _ = writeln!(
            drawn,
            "<path d=\"M{x} {MARGIN}V{0}M{MARGIN} {y}H{0}\" stroke=\"#ddd\"/>\n\
             <text x=\"{x}\" y=\"{1}\" text-anchor=\"middle\">{value}</text>\n\
             <text x=\"{2}\" y=\"{3}\" text-anchor=\"end\">{value} ×</text>",
            MARGIN + SIDE,
            MARGIN + SIDE + 20.0,
            MARGIN - 8.0,
            y + 4.0
        );
    }
    let mut line = |name: &str, color: &str, dashes: &str, row: f64, speedup: &dyn Fn(&Point) -> f64| {
        let places = points.iter().map(|point| at(point.workers.into(), speedup(point)));
        let path: Vec<String> = places.map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
        let _ = writeln!(
            drawn,
            "<path d=\"M{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\" stroke-dasharray=\"{dashes}\"/>\n\
             <text x=\"{}\" y=\"{}\" fill=\"{color}\">{name}</text>",
            path.join("L"),
            MARGIN + 12.0,
            MARGIN + 20.0 * row
        );
    };
    line("ideal", "#888", "4 4", 1.0, &|point| point.workers.into());
    line("nobody fails", "#2a7d3f", "none", 2.0, &|point| point.speedup(point.calm.seconds));
    line("some slow, some die", "#1f5fa8", "none", 3.0, &|point| point.speedup(point.rough.seconds));
    line("the same without hedging", "#b3372f", "2 3", 4.0, &|point| point.speedup(point.unhedged.seconds));
    let _ = writeln!(
        drawn,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">workers</text>\n</svg>",
        MARGIN + SIDE / 2.0,
        SIDE + 2.0 * MARGIN - 10.0
    );
    drawn
}
