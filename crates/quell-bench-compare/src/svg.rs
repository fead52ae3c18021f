//! Pictures of the figures: horizontal bars with the median as their length and the spread as a thin line over their end.
//!
//! Written by hand because it is a dozen rectangles; the colours are readable on white and on dark pages, and every bar has its figure
//! beside it as text, so nothing depends on the picture alone.

use crate::spread::{Spread, shown};

/// One picture: groups of bars on one scale.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    pub title: String,
    pub unit: String,
    pub groups: Vec<Group>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    pub title: String,
    pub bars: Vec<Bar>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Bar {
    pub label: String,
    pub ours: bool,
    /// Without one, the note stands in its place.
    pub spread: Option<Spread>,
    pub note: String,
}

const WIDTH: f64 = 860.0;
const LEFT: f64 = 210.0;
/// Room for the figure at the end of the longest bar.
const RIGHT: f64 = 210.0;
const ROW: f64 = 22.0;
const HEAD: f64 = 46.0;
const GROUP: f64 = 26.0;

/// The picture as a file.
#[must_use]
pub fn draw(chart: &Chart) -> String {
    let most = chart
        .groups
        .iter()
        .flat_map(|group| &group.bars)
        .filter_map(|bar| bar.spread.map(|spread| spread.most))
        .fold(0.0, f64::max);
    let scale = if most > 0.0 { (WIDTH - LEFT - RIGHT) / most } else { 0.0 };
    let rows: usize = chart.groups.iter().map(|group| group.bars.len()).sum();
    let height = HEAD + rows as f64 * ROW + chart.groups.len() as f64 * GROUP + 10.0;
    let mut body = String::new();
    text(&mut body, 12.0, 24.0, "h", "", &format!("{} ({})", chart.title, chart.unit));
    let mut y = HEAD;
    for group in &chart.groups {
        text(&mut body, 12.0, y + 16.0, "g", "", &group.title);
        y += GROUP;
        for bar in &group.bars {
            draw_bar(&mut body, bar, y, scale);
            y += ROW;
        }
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\">\n\
         <title>{}</title>\n\
         <style>text {{ font: 13px system-ui, sans-serif; fill: #24292f }} .h {{ font-size: 16px; font-weight: 600 }} .g {{ font-weight: 600 }} \
         .n {{ fill: #57606a }} .ours {{ fill: #1a7f64 }} .peer {{ fill: #8c959f }} .s {{ stroke: #24292f; stroke-width: 1.5 }} .b {{ fill: #ffffff }}</style>\n\
         <rect class=\"b\" width=\"{WIDTH}\" height=\"{height}\" rx=\"6\"/>\n{body}</svg>\n",
        escaped(&chart.title)
    )
}

fn draw_bar(body: &mut String, bar: &Bar, y: f64, scale: f64) {
    let middle = y + ROW / 2.0;
    text(body, LEFT - 8.0, middle + 4.5, "", "end", &bar.label);
    let Some(spread) = bar.spread else {
        text(body, LEFT + 4.0, middle + 4.5, "n", "", &bar.note);
        return;
    };
    let class = if bar.ours { "ours" } else { "peer" };
    let (end, from, to) = (spread.median * scale, LEFT + spread.least * scale, LEFT + spread.most * scale);
    // Never so short that nothing is there.
    let length = end.max(1.0);
    let (top, thick) = (y + 3.0, ROW - 6.0);
    body.push_str(&format!(
        "<rect class=\"{class}\" x=\"{LEFT:.1}\" y=\"{top:.1}\" width=\"{length:.1}\" height=\"{thick:.1}\"/>\n"
    ));
    body.push_str(&format!(
        "<line class=\"s\" x1=\"{from:.1}\" y1=\"{middle:.1}\" x2=\"{to:.1}\" y2=\"{middle:.1}\"/>\n"
    ));
    let note = if bar.note.is_empty() { String::new() } else { format!(" {}", bar.note) };
    text(body, to.max(LEFT + length) + 6.0, middle + 4.5, "", "", &format!("{}{note}", shown(spread.median)));
}

fn text(body: &mut String, x: f64, y: f64, class: &str, anchor: &str, said: &str) {
    let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
    let anchor = if anchor.is_empty() { String::new() } else { format!(" text-anchor=\"{anchor}\"") };
    body.push_str(&format!("<text x=\"{x:.1}\" y=\"{y:.1}\"{class}{anchor}>{}</text>\n", escaped(said)));
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart() -> Chart {
        let bar = |label: &str, ours, samples: &[f64]| Bar {
            label: label.to_owned(),
            ours,
            spread: Spread::of(samples.to_vec()),
            note: if samples.is_empty() { "no <debounce>".to_owned() } else { String::new() },
        };
        Chart {
            title: "Drain & more".to_owned(),
            unit: "events/s".to_owned(),
            groups: vec![Group {
                title: "SQLite".to_owned(),
                bars: vec![
                    bar("Quell", true, &[90.0, 100.0, 110.0]),
                    bar("huey", false, &[55.0]),
                    bar("x", false, &[]),
                ],
            }],
        }
    }

    #[test]
    fn bars_are_as_long_as_their_medians_and_the_longest_spread_fills_the_width() {
        let drawn = draw(&chart());
        let width = WIDTH - LEFT - RIGHT;
        assert!(
            drawn.contains(&format!(
                "class=\"ours\" x=\"210.0\" y=\"75.0\" width=\"{:.1}\"",
                width * 100.0 / 110.0
            )),
            "{drawn}"
        );
        assert!(drawn.contains(&format!("width=\"{:.1}\"", width * 0.5)), "{drawn}");
        assert!(drawn.contains(&format!("x2=\"{:.1}\"", LEFT + width)), "{drawn}");
    }

    #[test]
    fn what_is_missing_is_said_and_text_is_escaped() {
        let drawn = draw(&chart());
        assert!(drawn.contains("no &lt;debounce&gt;") && drawn.contains("Drain &amp; more"), "{drawn}");
        let opened = drawn.matches("<text").count();
        assert_eq!(opened, drawn.matches("</text>").count());
        assert!(drawn.starts_with("<svg ") && drawn.ends_with("</svg>\n"));
    }

    #[test]
    fn a_chart_of_nothing_is_still_a_picture() {
        let empty = Chart { title: "t".to_owned(), unit: "s".to_owned(), groups: Vec::new() };
        assert!(!draw(&empty).contains("NaN"));
    }
}
