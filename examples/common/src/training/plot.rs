use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use plotters::prelude::*;

use super::trainer::Run;
use crate::Norms;

const SIZE: (u32, u32) = (800, 450);

/// Writes the loss curves of these runs as an SVG picture.
///
/// # Errors
///
/// If the file cannot be written.
pub fn plot(title: &str, runs: &[&Run], path: &Path) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create the folder {}", folder.display()))?;
    }
    let mut picture = String::new();
    draw(title, runs, &mut picture).map_err(|error| anyhow!("cannot draw the plot: {error}"))?;
    fs::write(path, picture).with_context(|| format!("cannot write {}", path.display()))
}

/// Burn's curve is broad and pale, so that an equal curve on top of it is visible.
fn style(norms: Norms) -> ShapeStyle {
    match norms {
        Norms::Burn => RGBColor(240, 150, 90).stroke_width(5),
        Norms::Cubenorm => RGBColor(30, 70, 160).stroke_width(1),
    }
}

fn draw(
    title: &str,
    runs: &[&Run],
    picture: &mut String,
) -> Result<(), Box<dyn std::error::Error>> {
    let losses = || runs.iter().flat_map(|run| run.losses.iter().copied());
    let finite = losses().filter(|loss| loss.is_finite());
    let highest = finite.fold(f32::MIN_POSITIVE, f32::max);
    let steps = runs.iter().map(|run| run.losses.len()).max().unwrap_or(0);

    let root = SVGBackend::with_string(picture, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 20))
        .margin(15)
        .x_label_area_size(40)
        .y_label_area_size(55)
        .build_cartesian_2d(0..steps.max(1), 0.0..highest * 1.05)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc("step")
        .y_desc("loss")
        .draw()?;
    for run in runs {
        let style = style(run.norms);
        let points = run.losses.iter().copied().enumerate();
        // Only finite losses can be drawn.
        let points = points.filter(|(_, loss)| loss.is_finite());
        chart
            .draw_series(LineSeries::new(points, style))?
            .label(run.norms.to_string())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
    }
    chart
        .configure_series_labels()
        .background_style(WHITE)
        .border_style(BLACK)
        .draw()?;
    root.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(norms: Norms, losses: Vec<f32>) -> Run {
        Run {
            norms,
            losses,
            epochs: Vec::new(),
            memory: None,
        }
    }

    #[test]
    fn plot_has_a_line_per_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/losses.svg");
        let burn = run(Norms::Burn, vec![2.0, 1.5, f32::NAN, 1.0]);
        let cubenorm = run(Norms::Cubenorm, vec![2.0, 1.4, 1.2, 0.9]);
        plot("losses", &[&burn, &cubenorm], &path).unwrap();

        let picture = fs::read_to_string(path).unwrap();
        for text in ["burn", "cubenorm", "losses", "step", "#F0965A", "#1E46A0"] {
            assert!(picture.contains(text), "{text}: {picture}");
        }
    }

    #[test]
    fn empty_runs_are_drawn() {
        let mut picture = String::new();
        draw("empty", &[&run(Norms::Burn, Vec::new())], &mut picture).unwrap();
        assert!(picture.contains("</svg>"));
    }
}
