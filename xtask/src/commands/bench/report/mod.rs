//! A run as a page that needs nothing but itself.

mod bars;
#[cfg(test)]
mod browser;
mod lengths;
mod map;
pub mod plot;

use std::fmt::{self, Display};

use super::{
    measure::Measurement,
    provider::Provider,
    stats::Clock,
    summary::{self, Ratios, Summary},
    survey::Survey,
    table,
};
use crate::device::Device;

const STYLE: &str = include_str!("style.css");

/// The page's contents.
pub struct Page<'a> {
    /// Facts about the run and the machine: names and values.
    pub facts: Vec<(&'static str, String)>,
    pub measurements: &'a [Measurement],
    pub summaries: &'a [Summary],
    pub surveys: &'a [Survey],
}

impl Page<'_> {
    /// The page as HTML.
    ///
    /// # Errors
    ///
    /// If a plot cannot be drawn.
    pub fn html(&self) -> anyhow::Result<String> {
        let mut body = String::new();
        body += "<h1>cubenorm and its baselines</h1>\n";
        body += &self.facts();
        body += &self.summary();
        for &device in &self.devices() {
            body += &format!("<h2 id=\"{device}\">On {device}</h2>\n");
            body += &self.bars(device)?;
            body += &self.rows(device);
            body += &self.plans(device);
            for survey in self.surveys.iter().filter(|s| s.device == device) {
                body += &strategies(survey)?;
            }
        }
        body += &self.lost();
        Ok(format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>cubenorm and its baselines</title>\n<style>\n{STYLE}</style>\n</head>\n\
             <body>\n<main>\n{body}</main>\n</body>\n</html>\n"
        ))
    }

    fn devices(&self) -> Vec<Device> {
        let mut devices: Vec<Device> = self.measurements.iter().map(|m| m.device).collect();
        devices.dedup();
        devices
    }

    fn of(&self, device: Device) -> impl Iterator<Item = &Measurement> {
        let all = self.measurements.iter();
        all.filter(move |measurement| measurement.device == device)
    }

    fn facts(&self) -> String {
        let mut facts = self.facts.clone();
        for device in self.devices() {
            let mut runtimes: Vec<String> = Vec::new();
            for measured in self.of(device).flat_map(|m| &m.providers) {
                let Ok(timed) = &measured.result else {
                    continue;
                };
                let line = format!("{} on {}", measured.provider, timed.about.runtime);
                if !runtimes.contains(&line) {
                    runtimes.push(line);
                }
            }
            facts.push(("providers", format!("{device}: {}", runtimes.join("; "))));
        }
        let lines = facts
            .iter()
            .map(|(name, value)| format!("<dt>{name}</dt><dd>{}</dd>\n", Escaped(value)));
        format!("<dl>\n{}</dl>\n", lines.collect::<String>())
    }

    fn summary(&self) -> String {
        let head = "<tr><th rowspan=\"2\">device</th><th rowspan=\"2\">pass</th>\
            <th rowspan=\"2\">type</th><th rowspan=\"2\">cubenorm is</th><th rowspan=\"2\">by clock</th>\
            <th colspan=\"4\">all problems</th><th colspan=\"3\">4 MiB and larger</th></tr>\n\
            <tr><th>problems</th><th>mean</th><th>worst</th><th>at</th>\
            <th>problems</th><th>mean</th><th>worst</th></tr>\n";
        let rows = self.summaries.iter().map(|summary| {
            let words = [
                summary.device.to_string(),
                summary.pass.clone(),
                summary.dtype.clone(),
                summary::unit(summary.against),
                summary.clock.name().to_owned(),
            ];
            let ratios = |of: Option<&Ratios>| {
                let problems = of.map_or(0, |ratios| ratios.problems);
                let [mean, worst] = [of.map(|r| r.mean), of.map(|r| r.worst)]
                    .map(|value| ratio(summary.against, value));
                [number(problems), mean, worst].concat()
            };
            let row = [
                words.map(word).concat(),
                ratios(Some(&summary.all)),
                word(&summary.all.at),
                ratios(summary.large.as_ref()),
            ];
            format!("<tr>{}</tr>\n", row.concat())
        });
        format!(
            "<h2>Summary</h2>\n<p>Means are geometric; <i>full</i> is forward and backward. Against a baseline \
             more is better. Against a copy of the bytes that the pass must move, less is better, and 1 is \
             the ceiling. <i>Wall</i> is a caller's time, <i>device</i> the kernels' time by the device's own \
             clock, if it has one. Everything else here is wall time.</p>\n\
             <table id=\"summary\">\n<thead>{head}</thead>\n<tbody>\n{}</tbody>\n</table>\n",
            rows.collect::<String>()
        )
    }

    /// A plot for each pass and type.
    fn bars(&self, device: Device) -> anyhow::Result<String> {
        let mut kinds: Vec<(&str, &str)> = Vec::new();
        for measurement in self.of(device) {
            let kind = (
                measurement.problem.pass.as_str(),
                measurement.problem.dtype.as_str(),
            );
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        let mut html = String::new();
        for (pass, dtype) in kinds {
            let alike: Vec<&Measurement> = self
                .of(device)
                .filter(|m| (m.problem.pass.as_str(), m.problem.dtype.as_str()) == (pass, dtype))
                .collect();
            if let Some(plot) = bars::plot(&alike)? {
                let title = format!("Speed against each baseline: {pass}, {dtype}");
                let note = "Bars to the right of 1: cubenorm is so many times faster; to the left: slower.";
                html += &figure(&title, note, &plot);
            }
        }
        Ok(html)
    }

    fn rows(&self, device: Device) -> String {
        let Some(first) = self.of(device).next() else {
            return String::new();
        };
        let providers: Vec<Provider> = first.providers.iter().map(|m| m.provider).collect();
        let mut head = ["op", "shape", "type", "pass"].map(heading).concat();
        for other in providers.iter().filter(|c| **c != Provider::Cubenorm) {
            head += &heading(summary::unit(*other));
        }
        let columns = table::columns(&self.of(device).collect::<Vec<_>>());
        for column in &columns {
            head += &heading(column.heading());
        }
        head += &heading("GB/s");
        let rows = self.of(device).map(|measurement| {
            let mut row = problem(measurement);
            for other in providers.iter().filter(|c| **c != Provider::Cubenorm) {
                row += &ratio(*other, summary::ratio(measurement, *other, Clock::Wall));
            }
            for column in &columns {
                row += &number(column.cell(measurement));
            }
            let ours = measurement.median(Provider::Cubenorm, Clock::Wall);
            let bytes = measurement.said(|about| about.bytes);
            let rate = ours.zip(bytes).map(|(ms, bytes)| {
                let rate = bytes as f64 / ms / 1e6;
                format!("{rate:.1}")
            });
            row += &number(rate.unwrap_or_else(|| "-".to_owned()));
            format!("<tr>{row}</tr>\n")
        });
        let title =
            "All times: medians, and half of the band that holds the middle 60 % of samples";
        folded(title, &head, &rows.collect::<String>())
    }

    /// The plans that cubenorm ran.
    fn plans(&self, device: Device) -> String {
        let rows = self.of(device).filter_map(|measurement| {
            let plan = measurement.of(Provider::Cubenorm)?.about.plan.as_deref()?;
            Some(format!("<tr>{}{}</tr>\n", problem(measurement), word(plan)))
        });
        let rows: String = rows.collect();
        let head = ["op", "shape", "type", "pass", "plan"]
            .map(heading)
            .concat();
        match rows.is_empty() {
            true => rows,
            false => folded("What cubenorm ran", &head, &rows),
        }
    }

    fn lost(&self) -> String {
        let items = table::lost(self.measurements)
            .into_iter()
            .map(|(provider, lost, problems)| {
                let (word, why) = lost.words();
                let line = format!("{provider}, {problems}: {word}: {why}");
                format!("<li>{}</li>\n", Escaped(&line))
            });
        let items: String = items.collect();
        match items.is_empty() {
            true => items,
            false => format!("<h2>Without a time</h2>\n<ul id=\"lost\">\n{items}</ul>\n"),
        }
    }
}

fn strategies(survey: &Survey) -> anyhow::Result<String> {
    let mut html = String::new();
    if let Some(plot) = lengths::plot(&survey.lengths)? {
        let title = format!("Throughput of each strategy on {}", survey.device);
        let note = "A layer norm of 2^22 float32 elements (16 MiB), forward, cut into rows of each length. \
                    The dotted line is a copy of the same bytes.";
        html += &figure(&title, note, &plot);
    }
    html += "<div class=\"maps\">\n";
    for map in &survey.maps {
        if let Some(plot) = map::plot(map)? {
            let title = format!("Strategy without tuning on {}: {}", survey.device, map.pass);
            let note = "What a layer norm in float32 takes for each number of rows and columns.";
            html += &figure(&title, note, &plot);
        }
    }
    html += "</div>\n";
    Ok(html)
}

/// A picture with the words that belong to it.
fn figure(title: &str, note: &str, plot: &plot::Plot) -> String {
    let legend = plot.legend.iter().map(|(name, color)| {
        let plotters::style::RGBColor(red, green, blue) = color;
        let style = format!("background:rgb({red},{green},{blue})");
        format!("<li><span style=\"{style}\"></span>{}</li>", Escaped(name))
    });
    let picture = format!("<svg role=\"img\" aria-label=\"{}\" ", Escaped(title));
    format!(
        "<figure>\n<h3>{}</h3>\n<ul class=\"legend\">{}</ul>\n{}\n<figcaption>{}</figcaption>\n</figure>\n",
        Escaped(title),
        legend.collect::<String>(),
        plot.svg.trim_end().replacen("<svg ", &picture, 1),
        Escaped(note),
    )
}

fn heading(text: impl Display) -> String {
    format!("<th>{}</th>", Escaped(text))
}

fn word(text: impl Display) -> String {
    format!("<td>{}</td>", Escaped(text))
}

fn number(text: impl Display) -> String {
    format!("<td class=\"number\">{}</td>", Escaped(text))
}

/// The first cells of a problem's row.
fn problem(measurement: &Measurement) -> String {
    let problem = &measurement.problem;
    let words = [
        &problem.op,
        &problem.tensor(),
        &problem.dtype,
        &problem.pass,
    ];
    words.map(word).concat()
}

/// A ratio against a provider, marked if ours is the slower one.
fn ratio(against: Provider, ratio: Option<f64>) -> String {
    let Some(ratio) = ratio else {
        return number("-");
    };
    let is_slower = !against.is_ceiling() && ratio < 1.0;
    let class = if is_slower { "number slower" } else { "number" };
    format!("<td class=\"{class}\">{}</td>", table::times(ratio))
}

/// A table that opens at a click.
fn folded(title: &str, head: &str, rows: &str) -> String {
    format!(
        "<details>\n<summary>{title}</summary>\n<div class=\"wide\"><table>\n<thead><tr>{head}</tr></thead>\n\
         <tbody>\n{rows}</tbody>\n</table></div>\n</details>\n"
    )
}

/// Text that is no markup.
struct Escaped<T>(T);

impl<T: Display> Display for Escaped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.to_string();
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        f.write_str(&text.replace('>', "&gt;").replace('"', "&quot;"))
    }
}
