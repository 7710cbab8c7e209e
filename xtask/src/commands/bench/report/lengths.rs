//! Throughput against row length: a line for each strategy, dots for the copy.

use plotters::prelude::*;

use super::{
    super::survey::Length,
    plot::{FONT, GREY, PALE, Plot, size, strategy, undrawn},
};

const SIZE: (u32, u32) = (1000, 420);
/// The candidate that runs without tuning. It is one of the others.
const ANALYTIC: &str = "analytic";

/// The plot, if there is any length.
pub fn plot(lengths: &[Length]) -> anyhow::Result<Option<Plot>> {
    if lengths.is_empty() {
        return Ok(None);
    }
    let mut names: Vec<&str> = Vec::new();
    for candidate in lengths.iter().flat_map(|length| &length.times.candidates) {
        if !names.contains(&candidate.name.as_str()) {
            names.push(&candidate.name);
        }
    }
    let mut svg = String::new();
    draw(lengths, &names, &mut svg).map_err(undrawn)?;
    let legend = names.iter().map(|name| match *name {
        ANALYTIC => ("analytic plan (circles)".to_owned(), BLACK),
        name => (name.to_owned(), strategy(name)),
    });
    Ok(Some(Plot {
        svg,
        legend: legend.chain([("copy".to_owned(), GREY)]).collect(),
    }))
}

fn draw(
    lengths: &[Length],
    names: &[&str],
    svg: &mut String,
) -> Result<(), Box<dyn std::error::Error>> {
    let exponent = |length: &Length| f64::from(length.columns.max(1).ilog2());
    let copy = |length: &Length| length.times.throughput(length.times.copy);
    let candidates = |length: &Length| {
        let times = length.times.candidates.iter();
        times
            .map(|c| length.times.throughput(c.time))
            .fold(0.0, f64::max)
    };
    let most = lengths
        .iter()
        .map(|length| copy(length).max(candidates(length)));
    let most = 1.08 * most.fold(f64::MIN_POSITIVE, f64::max);
    let first = lengths.iter().map(exponent).fold(f64::INFINITY, f64::min);
    let last = lengths.iter().map(exponent).fold(f64::MIN, f64::max);

    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(60)
        .build_cartesian_2d(first - 0.3..last + 0.3, 0.0..most)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(WHITE)
        .bold_line_style(PALE)
        .axis_style(GREY)
        .label_style(FONT)
        .x_labels(lengths.len().max(2))
        .x_label_formatter(&|exponent| match exponent.fract() == 0.0 {
            true => size(1 << *exponent as usize),
            false => String::new(),
        })
        .x_desc("elements of a row")
        .y_desc("GB/s")
        .draw()?;
    for &name in names {
        let points: Vec<(f64, f64)> = lengths
            .iter()
            .filter_map(|length| {
                let mut times = length.times.candidates.iter();
                let found = times.find(|candidate| candidate.name == name)?;
                Some((exponent(length), length.times.throughput(found.time)))
            })
            .collect();
        if name == ANALYTIC {
            let circles = points.iter().map(|&point| Circle::new(point, 7, BLACK));
            chart.draw_series(circles)?;
            continue;
        }
        let color = strategy(name);
        chart.draw_series(LineSeries::new(points.clone(), color.stroke_width(2)))?;
        let dots = points
            .into_iter()
            .map(|point| Circle::new(point, 3, color.filled()));
        chart.draw_series(dots)?;
    }
    let ceiling = lengths
        .iter()
        .map(|length| (exponent(length), copy(length)));
    chart.draw_series(DashedLineSeries::new(ceiling, 2, 4, GREY.stroke_width(2)))?;
    root.present()?;
    Ok(())
}
