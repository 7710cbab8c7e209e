//! The picture: the share of copy bandwidth on the newest GPU, ours and the baselines'.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::anyhow;
use plotters::{
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use super::{
    super::{
        results::Record,
        stats::{Clock, geometric_mean},
    },
    OURS,
    compare::{Section, sections},
    is_ceiling,
};

/// Colours that people who see colours differently tell apart (after Okabe and Ito).
const BLUE: RGBColor = RGBColor(0, 114, 178);
const SKY: RGBColor = RGBColor(86, 180, 233);
const GREY: RGBColor = RGBColor(110, 118, 129);
const PALE: RGBColor = RGBColor(225, 228, 232);
const FONT: &str = "sans-serif";
/// Pixels: the width of the picture and of its parts, and the height of lines and bars.
const WIDTH: u32 = 760;
const LABELS: u32 = 150;
const MARGIN: u32 = 40;
const TITLE: u32 = 44;
const AXIS: u32 = 30;
const BAR: u32 = 18;
const HEADING: u32 = 30;

const OPS: [&str; 2] = ["layer_norm", "rms_norm"];

/// The picture; a note in its place if no row can be drawn.
pub(super) fn svg(records: &[Record]) -> anyhow::Result<String> {
    let mut drawn = None;
    let sections = sections(records);
    let gpus = sections.iter().filter(|section| section.is_on_gpu());
    let others = sections.iter().filter(|section| !section.is_on_gpu());
    for section in gpus.chain(others) {
        let groups = groups(section);
        if !groups.is_empty() {
            drawn = Some((section, groups));
            break;
        }
    }
    let (title, groups) = match drawn {
        Some((section, groups)) => (
            format!(
                "Share of copy bandwidth, {} (geometric mean)",
                section.machine
            ),
            groups,
        ),
        None => ("No rows recorded yet".to_owned(), Vec::new()),
    };
    let mut svg = String::new();
    draw(&title, &groups, &mut svg)
        .map_err(|error| anyhow!("the picture is not drawn: {error}"))?;
    let label = title.replace('&', "&amp;").replace('"', "&quot;");
    let label = format!("<svg role=\"img\" aria-label=\"{label}\" ");
    Ok(svg.trim_end().replacen("<svg ", &label, 1) + "\n")
}

/// The bars of a norm and a pass.
#[derive(Debug, PartialEq)]
struct Group {
    title: String,
    bars: Vec<(String, f64)>,
}

/// The groups of a section. Each has the problems that all its providers have, so that the means
/// are comparable.
fn groups(section: &Section) -> Vec<Group> {
    let mut groups = Vec::new();
    for op in OPS {
        let [forward, backward] = ["forward", "backward"].map(|pass| group(section, op, pass));
        // Both passes together say nothing more if the backward pass has bars of its own.
        let full = backward.is_none().then(|| group(section, op, "full"));
        groups.extend([forward, backward, full.flatten()].into_iter().flatten());
    }
    groups
}

type Problem<'a> = [&'a str; 5];

fn group(section: &Section, op: &str, pass: &str) -> Option<Group> {
    let clock = section.clocks();
    let records: Vec<&Record> = section
        .records
        .iter()
        .copied()
        .filter(|record| record.op == op && record.pass == pass)
        .collect();
    // The newest row of each provider and problem, against the copy of its own run.
    let mut shares: BTreeMap<&str, BTreeMap<Problem, f64>> = BTreeMap::new();
    for record in &records {
        if is_drawn(&record.provider)
            && let Some(share) = clock
                .iter()
                .find_map(|&clock| share(&records, record, clock))
        {
            let of_provider = shares.entry(&record.provider).or_default();
            of_provider.insert(record.problem(), share);
        }
    }
    if shares.get(OURS)?.is_empty() {
        return None;
    }
    // A provider that has none of the others' problems is left out.
    let common = loop {
        let common = shares
            .values()
            .map(|of_provider| of_provider.keys().copied().collect::<BTreeSet<Problem>>())
            .reduce(|common, problems| &common & &problems)?;
        if !common.is_empty() {
            break common;
        }
        let others = shares.iter().filter(|(name, _)| **name != OURS);
        let (&least, _) = others.min_by_key(|(_, problems)| problems.len())?;
        shares.remove(least);
    };
    let baselines = section.baselines();
    let names = std::iter::once(OURS).chain(baselines);
    let bars = names.filter_map(|name| {
        let of_provider = shares.get(name)?;
        let shares: Vec<f64> = common
            .iter()
            .filter_map(|problem| of_provider.get(problem).copied())
            .collect();
        Some((name.to_owned(), geometric_mean(&shares)?))
    });
    let words = match op {
        "rms_norm" => "RMS norm",
        _ => "layer norm",
    };
    let dtypes: BTreeSet<&str> = common.iter().map(|[.., dtype, _]| *dtype).collect();
    let dtypes: Vec<&str> = dtypes.into_iter().collect();
    let shapes: BTreeSet<&str> = common.iter().map(|[_, shape, ..]| *shape).collect();
    let shapes = match shapes.len() {
        1 => "1 shape".to_owned(),
        count => format!("{count} shapes"),
    };
    Some(Group {
        title: format!("{words}, {pass}: {shapes}, {}", dtypes.join(", ")),
        bars: bars.collect(),
    })
}

/// True if a provider normalizes, by the plan that a user gets.
fn is_drawn(provider: &str) -> bool {
    !is_ceiling(provider) && provider != "elementwise" && !provider.contains(':')
}

/// The time of a run's copy of the same problem by this one's.
fn share(records: &[&Record], record: &Record, clock: Clock) -> Option<f64> {
    let copy = |name: &str| {
        let mut all = records.iter();
        let copy = all.find(|other| {
            other.provider == name
                && other.run() == record.run()
                && other.problem() == record.problem()
        });
        copy?.time(clock)
    };
    Some(copy("copy").or_else(|| copy("probe"))? / record.time(clock)?)
}

fn draw(title: &str, groups: &[Group], svg: &mut String) -> Result<(), Box<dyn std::error::Error>> {
    let bars: u32 = groups.iter().map(|group| group.bars.len() as u32).sum();
    let bottom = TITLE + groups.len() as u32 * HEADING + bars * BAR;
    let height = if groups.is_empty() {
        TITLE
    } else {
        bottom + AXIS
    };
    let root = SVGBackend::with_string(svg, (WIDTH, height)).into_drawing_area();
    root.fill(&WHITE)?;
    let write = |text: &str, size: u32, color: &RGBColor, side: HPos, at: (i32, i32)| {
        let style = TextStyle::from((FONT, size).into_font()).color(color);
        root.draw_text(text, &style.pos(Pos::new(side, VPos::Center)), at)
    };
    let [heading, bar] = [HEADING as i32, BAR as i32];
    let mut y = TITLE as i32;
    write(title, 16, &BLACK, HPos::Left, (12, y / 2))?;
    let shares = groups.iter().flat_map(|group| &group.bars);
    // A norm may beat the copy by a little.
    let most = shares.map(|(_, share)| *share).fold(1.0, f64::max);
    let place = |share: f64| {
        let width = f64::from(WIDTH - LABELS - MARGIN);
        (f64::from(LABELS) + width * share / most).round() as i32
    };
    let percents = [0, 25, 50, 75, 100].into_iter();
    for percent in percents.filter(|_| !groups.is_empty()) {
        let x = place(f64::from(percent) / 100.0);
        let color = if percent == 100 { GREY } else { PALE };
        let line = [(x, y), (x, bottom as i32)];
        root.draw(&PathElement::new(line, color))?;
        let at = (x, (bottom + AXIS / 2) as i32);
        write(&format!("{percent} %"), 13, &GREY, HPos::Center, at)?;
    }
    for group in groups {
        write(
            &group.title,
            14,
            &BLACK,
            HPos::Left,
            (12, y + heading / 2 + 4),
        )?;
        y += heading;
        for (name, share) in &group.bars {
            let is_ours = name == OURS;
            let color = if is_ours { BLUE } else { SKY };
            let (end, middle) = (place(*share), y + bar / 2);
            let corners = [(place(0.0), y + 2), (end, y + bar - 2)];
            root.draw(&Rectangle::new(corners, color.filled()))?;
            write(name, 13, &BLACK, HPos::Right, (LABELS as i32 - 10, middle))?;
            // In the bar, or after one that is too short for it.
            let (x, side, color) = match *share > 0.15 {
                true => (end - 6, HPos::Right, if is_ours { &WHITE } else { &BLACK }),
                false => (end + 6, HPos::Left, &BLACK),
            };
            let value = format!("{:.0} %", 100.0 * share);
            write(&value, 13, color, side, (x, middle))?;
            y += bar;
        }
    }
    root.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench::results::tests::recorded;

    const ROWS: [&str; 9] = [
        "cubenorm rms_norm 1x4 f32 forward 9 2",
        "quack rms_norm 1x4 f32 forward 9 4",
        "copy rms_norm 1x4 f32 forward 9 1",
        "cubenorm rms_norm 2x4 f32 forward 9 1",
        "copy rms_norm 2x4 f32 forward 9 1",
        "liger rms_norm 3x4 f32 forward 9 1",
        "copy rms_norm 3x4 f32 forward 9 1",
        "cubenorm:analytic rms_norm 1x4 f32 forward 9 2",
        "cubenorm layer_norm 1x4 f32 forward 9 2",
    ];

    #[test]
    fn bars_are_means_over_shared_problems() {
        let rows = recorded("GPU", "cuda", "", &ROWS);
        let found = groups(&sections(&rows)[0]);
        // Layer norm has no copy; Liger has no problem in common with ours.
        assert_eq!(
            found,
            [Group {
                title: "RMS norm, forward: 1 shape, f32".into(),
                bars: vec![("cubenorm".into(), 0.5), ("quack".into(), 0.25)],
            }]
        );
    }

    #[test]
    fn the_newest_gpu_comes_before_a_newer_cpu() {
        let mut rows = recorded("A GPU", "cuda", "", &ROWS);
        rows.extend(recorded("A CPU", "cpu", "", &ROWS));
        rows[9].date = "2027-01-01T00:00Z".into();
        let picture = svg(&rows).unwrap();
        assert!(picture.contains("A GPU") && !picture.contains("A CPU"));
        assert_eq!(picture, svg(&rows).unwrap(), "deterministic");
        assert!(svg(&rows[9..]).unwrap().contains("A CPU"));
    }

    #[test]
    fn an_empty_table_makes_a_picture_that_says_so() {
        let picture = svg(&[]).unwrap();
        assert!(picture.contains("No rows recorded yet"), "{picture}");
        assert!(picture.starts_with("<svg role=\"img\" aria-label=\"No rows"));
    }
}
