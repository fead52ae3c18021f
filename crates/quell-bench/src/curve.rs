//! Curves: series of figures as small pictures (SVG), for pages that are read in the repository.
//!
//! Each workload is one picture, with a panel for each of its figures one below the other: throughput, latency, memory. What grows
//! goes to the right, by its logarithm; the figure goes up, from zero. Pictures carry no colours of a page: they are readable on a
//! light and on a dark one.

use std::fmt::Write;
use std::path::Path;

use anyhow::Context;

use crate::{Figure, Measured, grouped};

const WIDTH: f64 = 520.0;
/// Of one panel.
const HEIGHT: f64 = 180.0;
/// Room for the words on the left, above, on the right and below.
const LEFT: f64 = 70.0;
const TOP: f64 = 34.0;
const RIGHT: f64 = 24.0;
const BELOW: f64 = 30.0;

/// One curve: what its figures have in common, and each as its size and its value.
struct Series<'f> {
    what: String,
    unit: &'f str,
    points: Vec<(f64, f64)>,
}

/// A picture for each workload whose figures have a size: its name, and the picture.
pub fn curves(figures: &[Figure]) -> Vec<(String, String)> {
    let mut names: Vec<&str> =
        figures.iter().filter(|figure| figure.at.is_some()).map(|figure| figure.workload).collect();
    names.dedup();
    let drawn = names.into_iter().filter_map(|name| {
        let of_name: Vec<&Figure> = figures.iter().filter(|figure| figure.workload == name).collect();
        Some((name.to_owned(), picture(name, &series(&of_name))?))
    });
    drawn.collect()
}

/// Figures whose names differ only from their size on belong together, in the order in which they first appear.
fn series<'f>(figures: &[&'f Figure]) -> Vec<Series<'f>> {
    let mut all: Vec<Series<'_>> = Vec::new();
    for figure in figures {
        let Some(size) = figure.at else { continue };
        let size_text = grouped(size);
        let before = figure.what.rsplit_once(&size_text).map_or(figure.what.as_str(), |(before, _)| before);
        let point = (size, figure.value);
        match all.iter_mut().find(|series| series.what == before && series.unit == figure.unit) {
            Some(series) => series.points.push(point),
            None => all.push(Series { what: before.to_owned(), unit: figure.unit, points: vec![point] }),
        }
    }
    all
}

/// The panels one below the other; nothing when none of them has a curve.
fn picture(name: &str, series: &[Series<'_>]) -> Option<String> {
    let panels: Vec<String> = series
        .iter()
        .filter_map(|series| draw(&format!("{}…, {}", series.what, series.unit), &series.points))
        .collect();
    if panels.is_empty() {
        return None;
    }
    let height = HEIGHT * panels.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"11\" fill=\"#777\">\n<title>{name}</title>\n"
    );
    for (n, panel) in panels.iter().enumerate() {
        let down = HEIGHT * n as f64;
        writeln!(svg, "<g transform=\"translate(0 {down})\">\n{panel}</g>").ok()?;
    }
    svg.push_str("</svg>\n");
    Some(svg)
}

/// Writes them into a folder, each by the name of its series and of the store.
pub fn write_curves(folder: &Path, measured: &Measured) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    for (name, picture) in curves(&measured.figures) {
        let file = folder.join(format!("{name}-{}.svg", measured.kind.name().to_lowercase()));
        std::fs::write(&file, picture).with_context(|| format!("{} cannot be written", file.display()))?;
    }
    Ok(())
}

/// One panel; nothing for less than two points.
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
    let mut svg = format!("<text x=\"{LEFT}\" y=\"18\" font-size=\"13\">{title}</text>\n");
    for share in [0.0, 0.5, 1.0] {
        let (height, value) = (y(most * share), label(most * share, most));
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
    Some(svg)
}

/// Whole numbers, and one decimal where these would all be the same.
fn label(value: f64, most: f64) -> String {
    if most < 10.0 { format!("{value:.1}") } else { grouped(value.round()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_is_one_picture_with_a_panel_for_each_of_its_figures() {
        let mut figures = Vec::new();
        for (size, rate) in [(1_000, 30_000.0), (10_000, 28_000.0), (1_000_000, 27_000.0)] {
            let what = |what: &str| format!("{what} beside {} lanes", grouped(size as f64));
            figures.push(Figure::new("growth-lanes", what("append, claim"), rate, "lanes/s").at(size));
            figures.push(Figure::new("growth-lanes", what("start latency p99"), 2.5, "ms").at(size));
        }
        figures.push(Figure::new("jobs", "drain", 1.0, "lanes/s"));
        let drawn = curves(&figures);
        assert_eq!(drawn.len(), 1);
        let (name, svg) = &drawn[0];
        assert_eq!(name, "growth-lanes");
        assert_eq!((svg.matches("<g ").count(), svg.matches("<circle").count()), (2, 6), "{svg}");
        for text in [">30,000<", ">1,000,000<", ">append, claim beside …, lanes/s<", ">2.5<"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
    }

    #[test]
    fn a_single_size_has_no_curve() {
        assert!(curves(&[Figure::new("growth-lanes", "append", 1.0, "lanes/s").at(1_000)]).is_empty());
    }
}
