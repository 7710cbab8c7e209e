//! Speed against each baseline: bars from 1 outward, problems below each other.

use std::ops::RangeInclusive;

use plotters::{
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use super::{
    super::{
        measure::Measurement,
        provider::{Baseline, Provider},
        stats::Clock,
        summary,
    },
    plot::{BLUE, FONT, GREY, ORANGE, PALE, PURPLE, Plot, undrawn},
};

/// Pixels: the width of the picture and of its margins, and the height of a bar and of the gap
/// below it.
const WIDTH: u32 = 1000;
const LABELS: u32 = 300;
const VALUES: u32 = 60;
const AXIS: u32 = 30;
const BAR: u32 = 15;
const GAP: u32 = 9;

/// The plot, if any baseline has a time.
pub fn plot(measurements: &[&Measurement]) -> anyhow::Result<Option<Plot>> {
    let mut baselines: Vec<Baseline> = Vec::new();
    let mut groups: Vec<(String, Vec<(Baseline, f64)>)> = Vec::new();
    for measurement in measurements {
        let mut bars = Vec::new();
        for measured in &measurement.providers {
            if let Provider::Baseline(baseline) = measured.provider
                && !measured.provider.is_ceiling()
                && let Some(ratio) = summary::ratio(measurement, measured.provider, Clock::Wall)
            {
                bars.push((baseline, ratio));
                if !baselines.contains(&baseline) {
                    baselines.push(baseline);
                }
            }
        }
        if !bars.is_empty() {
            let problem = &measurement.problem;
            groups.push((format!("{} {}", problem.op, problem.tensor()), bars));
        }
    }
    if groups.is_empty() {
        return Ok(None);
    }
    let mut svg = String::new();
    draw(&groups, &mut svg).map_err(undrawn)?;
    let legend = baselines.into_iter().map(|baseline| {
        (
            Provider::Baseline(baseline).name().to_owned(),
            color(baseline),
        )
    });
    Ok(Some(Plot {
        svg,
        legend: legend.collect(),
    }))
}

fn color(baseline: Baseline) -> RGBColor {
    match baseline {
        Baseline::Burn => ORANGE,
        Baseline::Torch => BLUE,
        Baseline::Onnxruntime => PURPLE,
        Baseline::Elementwise | Baseline::Probe => GREY,
    }
}

type Groups = [(String, Vec<(Baseline, f64)>)];

fn draw(groups: &Groups, svg: &mut String) -> Result<(), Box<dyn std::error::Error>> {
    let bars: u32 = groups.iter().map(|(_, bars)| bars.len() as u32).sum();
    let height = bars * BAR + (groups.len() as u32 + 1) * GAP;
    let root = SVGBackend::with_string(svg, (WIDTH, height + AXIS)).into_drawing_area();
    root.fill(&WHITE)?;
    let exponents = exponents(groups);
    let (least, most) = (f64::from(*exponents.start()), f64::from(*exponents.end()));
    let place = |ratio: f64| {
        let share = (ratio.log2() - least) / (most - least);
        (f64::from(LABELS) + share * f64::from(WIDTH - LABELS - VALUES)).round() as i32
    };

    let text = |color: &'static RGBColor, horizontal: HPos, vertical: VPos| {
        let style = TextStyle::from(FONT.into_font());
        style.color(color).pos(Pos::new(horizontal, vertical))
    };
    let bottom = height as i32;
    // Not every power of two, so that the labels of a wide range have room.
    let step = 1 + exponents.clone().count() as i32 / 12;
    for exponent in exponents.filter(|exponent| exponent % step == 0) {
        let x = place(f64::from(exponent).exp2());
        let line = if exponent == 0 { GREY } else { PALE };
        root.draw(&PathElement::new([(x, 0), (x, bottom)], line))?;
        let style = text(&GREY, HPos::Center, VPos::Top);
        root.draw_text(&tick(exponent), &style, (x, bottom + 5))?;
    }
    let mut y = GAP as i32;
    for (name, bars) in groups {
        let middle = y + (bars.len() as u32 * BAR / 2) as i32;
        let style = text(&BLACK, HPos::Right, VPos::Center);
        root.draw_text(name, &style, (LABELS as i32 - 10, middle))?;
        for &(baseline, ratio) in bars {
            let ends = [place(1.0), place(ratio)];
            let (left, right) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
            let corners = [(left, y + 1), (right.max(left + 1), y + BAR as i32 - 1)];
            root.draw(&Rectangle::new(corners, color(baseline).filled()))?;
            let value = format!("{ratio:.2}x");
            let style = text(&BLACK, HPos::Left, VPos::Center);
            root.draw_text(&value, &style, (right + 5, y + BAR as i32 / 2))?;
            y += BAR as i32;
        }
        y += GAP as i32;
    }
    root.present()?;
    Ok(())
}

/// Exponents of the powers of two around all ratios, with room beyond 1 on both sides.
fn exponents(groups: &Groups) -> RangeInclusive<i32> {
    let ratios = || {
        groups
            .iter()
            .flat_map(|(_, bars)| bars.iter().map(|bar| bar.1))
    };
    let least = ratios().fold(0.5, f64::min).log2().floor() as i32;
    let most = ratios().fold(2.0, f64::max).log2().ceil() as i32;
    least..=most
}

/// A power of two in few letters.
fn tick(exponent: i32) -> String {
    match exponent {
        -3.. => format!("{}x", f64::from(exponent).exp2()),
        _ => format!("1/{}x", f64::from(-exponent).exp2()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axis_holds_every_ratio_and_always_1() {
        let group = |ratio| [(String::new(), vec![(Baseline::Burn, ratio)])];
        assert_eq!(exponents(&group(1.2)), -1..=1);
        assert_eq!(exponents(&group(21.0)), -1..=5);
        assert_eq!(exponents(&group(0.04)), -5..=1);
        assert_eq!([-5, -2, 0, 4].map(tick), ["1/32x", "0.25x", "1x", "16x"]);
    }
}
