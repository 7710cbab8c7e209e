//! `cargo xtask tune`: every candidate of a list of shapes, timed, and the tuner's choice.

use std::{
    fs::File,
    io::{ErrorKind, Read},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use cubenorm_problems::{
    Problem,
    protocol::{Candidate, Tuned},
};

use super::{
    bench::{progress, stats::geometric_mean},
    program::{MOST_IN_A_ROW, answers},
    selection::{Selected, Selection},
};
use crate::{exec::Cmd, style, table::terminal};

/// Tune the kernels for a list of shapes: each candidate with its time, and the choice.
///
/// For the pass `full` both passes are tuned, as a training step runs them. Choices are kept in
/// CubeCL's cache for later runs. The analytic plan is the one that runs without tuning. Times are
/// the device's own if it has a clock.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    selection: Selection,
    /// Start from nothing and write the choices to FILE, a bundle for an application (see `cubenorm::Tuning`);
    /// it has the kernels too on CUDA, ROCm, Metal and Vulkan
    #[arg(long, value_name = "FILE", requires = "device")]
    bundle: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some(bundle) = &args.bundle {
        ensure!(
            args.selection.named_devices() == 1,
            "a bundle is of one device: name it with --device"
        );
        check_bundle(bundle)?;
    }
    let Selected {
        devices,
        program,
        problems,
    } = args.selection.resolve(None)?;
    let bundle = args.bundle.as_ref().map(std::path::absolute).transpose()?;
    // A bundle is of one process.
    let most = if bundle.is_some() { 0 } else { MOST_IN_A_ROW };
    let mut failed = 0;
    for device in devices {
        let command = Cmd::new(program.to_string_lossy())
            .arg("tune")
            .args(&bundle)
            .env("BURN_DEVICE", device.name());
        anstream::println!("\n{}", style::heading(device));
        let bar = progress(problems.len() as u64);
        let mut tuned = Vec::new();
        let take = |problem: &Problem, answer: Result<Vec<Tuned>>| {
            bar.set_message(problem.to_string());
            bar.inc(1);
            bar.suspend(|| match answer {
                Ok(passes) => {
                    for pass in passes {
                        let title = format!(
                            "{} {} {} {}",
                            problem.op,
                            problem.tensor(),
                            problem.dtype,
                            pass.pass
                        );
                        anstream::println!("{}\n{}", style::heading(title), told(&pass));
                        tuned.push(pass);
                    }
                }
                Err(why) => {
                    failed += 1;
                    anstream::println!("{} {problem}: {why:#}", style::bad("failed"));
                }
            });
        };
        if let Err(why) = answers(&command, &problems, most, take) {
            failed += 1;
            let failed = style::bad("failed");
            bar.suspend(|| anstream::println!("{failed} {device}: {why:#}"));
        }
        bar.finish_and_clear();
        if let Some(summary) = summary(&tuned) {
            println!("{summary}");
        }
    }
    ensure!(failed == 0, "{failed} problems could not be tuned");
    if let Some(bundle) = &args.bundle {
        println!("bundle: {}", bundle.display());
    }
    Ok(())
}

/// Refuses, before anything is measured, to write over a file of another kind.
fn check_bundle(bundle: &Path) -> Result<()> {
    const DATABASE: &[u8] = b"SQLite format 3\0";
    let shown = bundle.display();
    let mut head = Vec::new();
    match File::open(bundle) {
        Ok(file) => {
            file.take(DATABASE.len() as u64)
                .read_to_end(&mut head)
                .with_context(|| format!("{shown} not read"))?;
            ensure!(
                head == DATABASE,
                "{shown} is there, and is no bundle; it is left as it is"
            );
            Ok(())
        }
        // It is made with its folder.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).with_context(|| format!("{shown} not read")),
    }
}

fn fastest(tuned: &Tuned) -> f64 {
    let times = tuned.candidates.iter().map(|candidate| candidate.time);
    times.fold(f64::INFINITY, f64::min)
}

fn time_of_chosen(tuned: &Tuned) -> Option<f64> {
    let mut candidates = tuned.candidates.iter();
    Some(candidates.find(|it| it.name == tuned.chosen)?.time)
}

/// The candidates of a pass, and what the analytic plan and the chosen one are.
fn told(tuned: &Tuned) -> String {
    let plan = |name: &str| {
        let named = tuned.candidates.iter().find(|it| it.name == name);
        named.map_or("", |candidate| &candidate.plan)
    };
    let analytic = tuned.candidates.first().map_or("", |it| &it.plan);
    let mut text = format!("{}\nanalytic plan: {analytic}", table(tuned));
    if plan(&tuned.chosen) != analytic {
        text += &format!("\nchosen: {}", plan(&tuned.chosen));
    }
    text
}

/// The candidates of a pass, fastest first.
fn table(tuned: &Tuned) -> String {
    let mut sorted: Vec<&Candidate> = tuned.candidates.iter().collect();
    sorted.sort_by(|a, b| a.time.total_cmp(&b.time));
    let rows = sorted.into_iter().map(|candidate| {
        let copy = tuned.copy.map_or("-".into(), |copy| {
            format!("{:.0} %", 100.0 * copy / candidate.time)
        });
        let chosen = match candidate.name == tuned.chosen {
            true => format!("chosen in {:.0} ms", tuned.took),
            false => String::new(),
        };
        [
            candidate.name.clone(),
            format!("{:.4}", candidate.time),
            format!("{:.2}", candidate.time / fastest(tuned)),
            copy,
            chosen,
        ]
    });
    terminal(
        ["candidate", "ms", "x fastest", "of a copy", ""],
        rows,
        1..4,
    )
}

/// Quality of the choices over all problems; `None` if there is no problem.
fn summary(tuned: &[Tuned]) -> Option<String> {
    let chosen = tuned
        .iter()
        .filter_map(|it| Some(time_of_chosen(it)? / fastest(it)));
    let analytic = tuned
        .iter()
        .filter_map(|it| Some(it.candidates.first()?.time / time_of_chosen(it)?));
    let (chosen, analytic): (Vec<f64>, Vec<f64>) = (chosen.collect(), analytic.collect());
    let line = |what: &str, ratios: &[f64]| {
        let worst = ratios.iter().copied().fold(f64::MIN, f64::max);
        let mean = geometric_mean(ratios)?;
        Some(format!(
            "{what}: {mean:.3} times in the geometric mean, {worst:.2} at worst"
        ))
    };
    Some(format!(
        "{}\n{}",
        line("chosen vs. the fastest candidate", &chosen)?,
        line("analytic plan vs. the chosen one", &analytic)?
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuned() -> Tuned {
        let candidate = |name: &str, time| Candidate {
            name: name.into(),
            plan: format!("plan of {name}"),
            time,
        };
        Tuned {
            pass: "forward".into(),
            copy: Some(1.0),
            candidates: vec![candidate("analytic", 4.0), candidate("cube units=256", 2.0)],
            chosen: "cube units=256".into(),
            took: 30.0,
        }
    }

    #[test]
    fn candidates_sort_by_time_and_mark_the_choice() {
        let text = table(&tuned());
        let rows: Vec<&str> = text.lines().filter(|line| line.contains(" %")).collect();
        assert!(rows[0].contains("cube units=256") && rows[0].contains("chosen in 30 ms"));
        assert!(
            rows[0].contains("50 %") && rows[1].contains("2.00"),
            "{text}"
        );
    }

    #[test]
    fn a_choice_other_than_analytic_is_printed() {
        let text = told(&tuned());
        assert!(text.contains("analytic plan: plan of analytic"), "{text}");
        assert!(text.contains("chosen: plan of cube units=256"), "{text}");
        let same = Tuned {
            chosen: "analytic".into(),
            ..tuned()
        };
        assert!(!told(&same).contains("chosen: "));
    }

    #[test]
    fn a_bundle_takes_no_other_files_place() {
        let folder = std::env::temp_dir().join(format!("cubenorm-bundle-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("it");
        check_bundle(&file).unwrap();
        std::fs::write(&file, "SQLite format 3\0and more").unwrap();
        check_bundle(&file).unwrap();
        std::fs::write(&file, "a letter").unwrap();
        let other = check_bundle(&file).unwrap_err().to_string();
        let under = check_bundle(&file.join("b")).unwrap_err().to_string();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(other.contains("no bundle") && under.contains("not read"));
    }

    #[test]
    fn choices_have_a_geometric_mean_and_a_worst() {
        let bad = Tuned {
            chosen: "analytic".into(),
            ..tuned()
        };
        let text = summary(&[tuned(), bad]).unwrap();
        assert!(
            text.contains("fastest candidate: 1.414 times in the geometric mean, 2.00 at worst")
        );
        assert_eq!(summary(&[]), None);
    }
}
