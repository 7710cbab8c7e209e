//! The table at the end, and what went wrong.

use std::{collections::BTreeSet, path::Path};

use super::{
    has_failed, is_slow,
    program::{Outcome, Source, Target},
    tools::Tools,
};
use crate::{style, table::terminal};

/// Failures of a target that are printed. Its folder has all of them.
const MOST_SHOWN: usize = 12;

/// Prints what went wrong, and a line for each target. Returns the number of failures.
pub(super) fn print(sources: &[Source], out: &Path, tools: &Tools) -> usize {
    sources.iter().for_each(print_local_memory);
    let targets: BTreeSet<Target> = sources.iter().map(|source| source.target).collect();
    for target in &targets {
        let of_target = sources.iter().filter(|source| source.target == *target);
        print_failures(of_target.collect(), out);
    }
    println!("\n{}", table(sources, tools));
    sources.iter().filter(|source| has_failed(source)).count()
}

/// A line for each target.
fn table(sources: &[Source], tools: &Tools) -> String {
    let lines = sources.chunk_by(|one, other| one.target == other.target);
    let lines = lines.map(|sources| {
        let target = sources[0].target;
        let variants: BTreeSet<&str> = sources
            .iter()
            .filter_map(|source| source.variant.as_deref())
            .collect();
        let count = |is_it: fn(&Source) -> bool| sources.iter().filter(|it| is_it(it)).count();
        let kernels: BTreeSet<_> = sources
            .iter()
            .map(|source| (&source.kernel, &source.strategy))
            .collect();
        let registers = sources.iter().filter_map(|source| source.resources);
        let most = registers.map(|resources| resources.registers).max();
        [
            target.to_string(),
            kernels.len().to_string(),
            sources.len().to_string(),
            count(|source| source.outcome == Outcome::Checked).to_string(),
            count(has_failed).to_string(),
            most.map_or_else(|| "-".to_owned(), |most| most.to_string()),
            tools.checker(target).unwrap_or("-").to_owned(),
            variants.into_iter().collect::<Vec<_>>().join(", "),
        ]
    });
    let header = [
        "target",
        "kernels",
        "sources",
        "checked",
        "failed",
        "most registers",
        "checker",
        "variants",
    ];
    terminal(header, lines, 1..6)
}

/// Names a kernel that keeps something in memory that should be in registers.
fn print_local_memory(source: &Source) {
    let Some(resources) = source.resources.filter(|it| it.uses_local_memory()) else {
        return;
    };
    let word = match is_slow(source) {
        true => style::bad("local memory, hot"),
        false => style::warning("local memory"),
    };
    anstream::println!(
        "{word} {}: {} registers, {} bytes of stack, {} bytes spilled, {} loaded back ({}, {})",
        source.file,
        resources.registers,
        resources.stack,
        resources.spill_stores,
        resources.spill_loads,
        source.case,
        source.knobs,
    );
}

fn print_failures(sources: Vec<&Source>, out: &Path) {
    let failures: Vec<(&Source, &str)> = sources
        .into_iter()
        .filter_map(|source| match &source.outcome {
            Outcome::Wrong(why) | Outcome::Refused(why) => Some((source, why.as_str())),
            Outcome::Generated | Outcome::Checked => None,
        })
        .collect();
    for (source, why) in failures.iter().take(MOST_SHOWN) {
        let lines = why.lines().filter(|line| !line.trim().is_empty());
        let lines: Vec<String> = lines.take(8).map(|line| format!("    {line}")).collect();
        anstream::println!(
            "{} {} ({}, {})\n{}",
            style::bad("failed"),
            out.join(&source.file).display(),
            source.case,
            source.knobs,
            lines.join("\n"),
        );
    }
    if failures.len() > MOST_SHOWN {
        println!("… and {} more", failures.len() - MOST_SHOWN);
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{program::tests::source, ptxas::Resources},
        *,
    };

    #[test]
    fn each_target_has_a_line_of_counts() {
        let sources = [
            source(Target::Ptx, "fold", Outcome::Checked),
            source(Target::Ptx, "blend", Outcome::Generated),
            source(Target::Wgsl, "fold", Outcome::Wrong("no".into())),
        ];
        let table = table(&sources, &Tools::find(&[], false));
        let row = |name: &str| {
            let line = table.lines().find(|line| line.contains(name)).unwrap();
            let cells = line.split_whitespace().skip(1).take(7);
            cells.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(row("ptx"), ["ptx", "2", "2", "1", "0", "-", "-"]);
        assert_eq!(row("wgsl"), ["wgsl", "1", "1", "0", "1", "-", "naga"]);
    }

    #[test]
    fn a_spill_fails_only_in_measured_kernels() {
        let mut spilled = source(Target::Ptx, "normalize", Outcome::Checked);
        spilled.resources = Some(Resources {
            spill_stores: 20,
            ..Resources::default()
        });
        assert!(!has_failed(&spilled));
        spilled.hot = true;
        assert!(has_failed(&spilled));
        // Four registers are too few to matter.
        spilled.resources = Some(Resources {
            stack: 16,
            spill_stores: 16,
            spill_loads: 48,
            ..Resources::default()
        });
        assert!(!has_failed(&spilled));
    }
}
