//! Curves: a series of figures as a small picture (SVG), for pages that are read in the repository.
//!
//! What grows goes to the right, by its logarithm; the figure goes up, from zero. Pictures carry no colours of a page: they are
//! readable on a light and on a dark one.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use anyhow::Context;

use crate::{Figure, Measured, grouped};

const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 200.0;
/// Room for the words on the left, above, on the right and below.
const LEFT: f64 = 70.0;
const TOP: f64 = 34.0;
const RIGHT: f64 = 24.0;
const BELOW: f64 = 30.0;

/// A picture for each workload whose figures have a size: its name, and the picture of its first unit of throughput.
pub fn curves(figures: &[Figure]) -> Vec<(String, String)> {
    let mut series: BTreeMap<&str, Vec<&Figure>> = BTreeMap::new();
    for figure in figures.iter().filter(|figure| figure.at.is_some()) {
        series.entry(figure.workload).or_default().push(figure);
    }
    let drawn = series.into_iter().filter_map(|(name, figures)| {
        let unit = figures.first()?.unit;
        let what = figures.first()?.what.split([',', '0', '1']).next()?.trim().to_owned();
        let begins = |figure: &&&Figure| figure.unit == unit && figure.what.starts_with(&what);
        let points: Vec<(f64, f64)> =
            figures.iter().filter(begins).filter_map(|figure| Some((figure.at?, figure.value))).collect();
        Some((name.to_owned(), draw(&format!("{name}: {what}, {unit}"), &points)?))
    });
    drawn.collect()
}

/// Writes them into a folder, each by the name of its series and of the store.
pub fn write_curves(folder: &Path, measured: &Measured) -> anyhow::Result<()> {
    for (name, picture) in curves(&measured.figures) {
        let file = folder.join(format!("{name}-{}.svg", measured.kind.name().to_lowercase()));
        std::fs::write(&file, picture).with_context(|| format!("{} cannot be written", file.display()))?;
    }
    Ok(())
}

/// Nothing for less than two points.
fn draw(title: &str, points: &[(f64, f64)]) -> Option<String> {
    // Nothing of what grows has no logarithm; it stands where one of it would.
    let right = |size: f64| size.max(1.0).log10();
    let (first, last) = (right(points.first()?.0), right(points.last()?.0));
    let most = points.iter().map(|point| point.1).fold(0.0, f64::max);
    if points.len() < 2 || last <= first || most <= 0.0 {
        return None;
    }
    let x = |size: f64| LEFT + (right(size) - first) / (last - first) * (WIDTH - LEFT - RIGHT);
    let y = |value: f64| HEIGHT - BELOW - value / most * (HEIGHT - TOP - BELOW);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"11\" fill=\"#777\">\n<text x=\"{LEFT}\" y=\"18\" font-size=\"13\">{title}</text>\n"
    );
    for share in [0.0, 0.5, 1.0] {
        let (height, value) = (y(most * share), grouped((most * share).round()));
        writeln!(
            svg,
            "<path d=\"M{LEFT} {height:.1}H{:.1}\" stroke=\"#777\" stroke-opacity=\".35\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            height + 4.0
        )
        .ok()?;
    }
    let line: Vec<String> =
        points.iter().map(|&(size, value)| format!("{:.1},{:.1}", x(size), y(value))).collect();
    writeln!(
        svg,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"#2f7ed8\" stroke-width=\"2\"/>",
        line.join(" ")
    )
    .ok()?;
    for &(size, value) in points {
        writeln!(
            svg,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"#2f7ed8\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            x(size),
            y(value),
            x(size),
            HEIGHT - 10.0,
            grouped(size)
        )
        .ok()?;
    }
    svg.push_str("</svg>\n");
    Some(svg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_is_one_picture_of_its_first_figure() {
        let mut figures = Vec::new();
        for (size, rate) in [(1_000, 30_000.0), (10_000, 28_000.0), (1_000_000, 27_000.0)] {
            let what = format!("append, claim beside {size} lanes");
            figures.push(Figure::new("growth-lanes", what, rate, "lanes/s").at(size));
            figures.push(Figure::new("growth-lanes", "start latency p99", 1.0, "ms").at(size));
        }
        figures.push(Figure::new("jobs", "drain", 1.0, "lanes/s"));
        let drawn = curves(&figures);
        assert_eq!(drawn.len(), 1);
        let (name, svg) = &drawn[0];
        assert_eq!(name, "growth-lanes");
        assert_eq!(svg.matches("<circle").count(), 3, "{svg}");
        assert!(
            svg.contains(">30,000<") && svg.contains(">1,000,000<") && svg.contains("append, lanes/s"),
            "{svg}"
        );
    }

    #[test]
    fn a_single_size_has_no_curve() {
        assert!(curves(&[Figure::new("growth-lanes", "append", 1.0, "lanes/s").at(1_000)]).is_empty());
    }
}
