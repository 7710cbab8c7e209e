//! `cargo xtask explain`: what would run for a problem, and why.

use anyhow::{Result, ensure};
use serde::Deserialize;

use super::{
    program::{self, answers},
    selection::Selection,
};
use crate::{exec::Cmd, style};

/// Print what would run for a problem and why: description, plan, bytes moved, candidates.
///
/// Nothing is run, but the device has to be there: plans are made from what it reports.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    selection: Selection,
}

/// What the program says; `cubenorm_bench::tune` is the other side.
#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Explained {
    desc: serde_json::Value,
    plan: String,
    minimum: usize,
    moved: usize,
    reads_again: bool,
    candidates: Vec<String>,
}

pub fn run(args: &Args) -> Result<()> {
    let devices = args.selection.devices();
    let program = program::build(program::BENCH, &devices)?;
    let problems = args.selection.problems(&program, None)?;
    let mut failed = 0;
    for device in devices {
        let command = Cmd::new(program.to_string_lossy())
            .arg("explain")
            .env("BURN_DEVICE", device.name());
        answers(&command, &problems, |problem, answer: Result<Explained>| {
            anstream::println!(
                "\n{}",
                style::heading(format_args!("{problem} on {device}"))
            );
            match answer {
                Ok(explained) => println!("{}", text(&explained)),
                Err(why) => {
                    failed += 1;
                    anstream::println!("{}: {why:#}", style::bad("failed"));
                }
            }
        })?;
    }
    ensure!(failed == 0, "{failed} problems have no plan");
    Ok(())
}

fn text(explained: &Explained) -> String {
    let Explained {
        desc,
        plan,
        minimum,
        moved,
        reads_again,
        candidates,
    } = explained;
    let mib = |bytes: usize| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    let again = match reads_again {
        true => ", what is read again counted again: at best that comes out of a cache",
        false => "",
    };
    let share = 100.0 * *minimum as f64 / (*moved).max(1) as f64;
    format!(
        "description  {desc}\n\
         plan         {plan}\n\
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
    fn bytes_are_told_beside_the_least_that_must_move() {
        let explained = Explained {
            desc: serde_json::json!({"axes": [1]}),
            plan: "unit: 1 cube".into(),
            minimum: 2 << 20,
            moved: 3 << 20,
            reads_again: true,
            candidates: vec!["analytic".into(), "abreast=2".into()],
        };
        let text = text(&explained);
        assert!(
            text.contains("3.0 MiB of at least 2.0 MiB, what is read again"),
            "{text}"
        );
        assert!(text.contains("67 % of a copy") && text.contains("analytic, abreast=2"));
    }
}
