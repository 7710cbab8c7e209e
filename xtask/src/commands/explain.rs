//! `cargo xtask explain`: the plan for a problem, and its reasons.

use std::{fs, slice};

use anyhow::{Context, Result, ensure};
use cubenorm_problems::protocol::Explained;

use super::{
    program::{MOST_IN_A_ROW, answers},
    selection::{Selected, Selection},
};
use crate::{
    exec::{Cmd, workspace},
    style,
};

/// Print the plan for a problem, and why: description, analytic plan, bytes moved, source, and a
/// tuner's candidates.
///
/// The device has to be there: plans depend on its properties, and each plan is launched once, so
/// that the runtime compiles it. The source is the one that the runtime hands to its driver, if it
/// tells. Otherwise it is CubeCL's own representation of the kernel.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    selection: Selection,
    /// Leave out the source of the kernels
    #[arg(long)]
    no_source: bool,
}

/// CubeCL's log of compiled sources.
const LOG: &str = "target/explain.log";

pub(crate) fn run(args: &Args) -> Result<()> {
    let Selected {
        devices,
        program,
        problems,
    } = args.selection.resolve(None)?;
    let log = workspace().join(LOG);
    let mut failed = 0;
    for device in devices {
        let command = Cmd::new(program.to_string_lossy())
            .arg("explain")
            .arg(&log)
            .env("BURN_DEVICE", device.name());
        // A process each: a process compiles, and logs, a kernel only once.
        for problem in &problems {
            // The last one's.
            let _ = fs::remove_file(&log);
            let mut answer = None;
            let one = slice::from_ref(problem);
            answers(&command, one, MOST_IN_A_ROW, |_, told| answer = Some(told))?;
            let title = style::heading(format_args!("{problem} on {device}"));
            anstream::println!("\n{title}");
            match answer.context("there was no answer").flatten() {
                Ok(explained) => {
                    println!("{}", text(&explained));
                    if !args.no_source {
                        let log = fs::read_to_string(&log).unwrap_or_default();
                        print_sources(&explained, &log);
                    }
                }
                Err(why) => {
                    failed += 1;
                    anstream::println!("{}: {why:#}", style::bad("failed"));
                }
            }
        }
    }
    // It may not be there.
    let _ = fs::remove_file(&log);
    ensure!(failed == 0, "{failed} problems have no plan");
    Ok(())
}

fn print_sources(explained: &Explained, log: &str) {
    let compiled = sources(log);
    let told: Vec<(&str, &str)> = match compiled.is_empty() {
        false => compiled,
        true => {
            let kernels = explained.kernels.iter();
            kernels.map(|it| ("CubeCL's own", it.as_str())).collect()
        }
    };
    for (place, (language, source)) in told.iter().enumerate() {
        let title = format_args!("kernel {} of {}, {language}", place + 1, told.len());
        anstream::println!("\n{}\n{}", style::heading(title), source.trim_end());
    }
}

/// Language and source of each kernel that a log of CubeCL's tells of.
fn sources(log: &str) -> Vec<(&str, &str)> {
    let told = log.split("[START_KERNEL_COMPILATION]").skip(1);
    told.filter_map(|kernel| {
        let (_, source) = kernel.split_once("\nsource:\n```")?;
        let (language, source) = source.split_once('\n')?;
        let (source, _) = source.rsplit_once("```\n[END_KERNEL_COMPILATION]")?;
        Some((language, source))
    })
    .collect()
}

fn text(explained: &Explained) -> String {
    let Explained {
        desc,
        plan,
        minimum,
        moved,
        reads_again,
        candidates,
        kernels: _,
    } = explained;
    let mib = |bytes: usize| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    let again = match reads_again {
        true => ", what is read again counted again: at best that comes out of a cache",
        false => "",
    };
    let share = 100.0 * *minimum as f64 / (*moved).max(1) as f64;
    format!(
        "description  {desc}\n\
         plan         {plan}, analytic: a tuner may choose another of the candidates\n\
         moves        {} of at least {}{again}\n\
         expected     {share:.0} % of a copy where nothing is cached, up to 100 % where all is\n\
         candidates   {}",
        mib(*moved),
        mib(*minimum),
        candidates.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_moved_are_compared_with_the_minimum() {
        let explained = Explained {
            desc: serde_json::json!({"axes": [1]}),
            plan: "unit: 1 cube".into(),
            minimum: 2 << 20,
            moved: 3 << 20,
            reads_again: true,
            candidates: vec!["analytic".into(), "rows=2".into()],
            kernels: vec!["it".into()],
        };
        let text = text(&explained);
        assert!(
            text.contains("3.0 MiB of at least 2.0 MiB, what is read again"),
            "{text}"
        );
        assert!(text.contains("67 % of a copy") && text.contains("analytic, rows=2"));
    }
    #[test]
    fn a_log_has_a_source_for_each_kernel() {
        let log = "[2026] [START_KERNEL_COMPILATION]\nname: a\nid: {\n}\nsource:\n```wgsl\nfn a() {}\n```\n\
            [END_KERNEL_COMPILATION]\nother\n[START_KERNEL_COMPILATION]\nsource:\n```\nb\n```\n\
            [END_KERNEL_COMPILATION]\n";
        assert_eq!(sources(log), [("wgsl", "fn a() {}\n"), ("", "b\n")]);
        assert!(sources("nothing was compiled").is_empty());
    }
}
