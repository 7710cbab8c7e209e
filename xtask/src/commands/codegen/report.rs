//! The table at the end, and what went wrong.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use super::{
    has_failed, is_slow,
    program::{Outcome, Source, Target},
    tools::Tools,
};
use crate::{style, table::terminal};

/// Failures of a target that are printed. Its folder has all of them.
const MOST_SHOWN: usize = 12;

/// Results of all sources.
pub struct Report<'a> {
    sources: &'a [Source],
    out: &'a Path,
    pub failed: usize,
}

/// Results of the sources of a cell.
#[derive(Clone, Copy, Default)]
struct Counts {
    all: usize,
    checked: usize,
    failed: usize,
}

impl Counts {
    fn add(&mut self, source: &Source) {
        self.all += 1;
        self.checked += usize::from(source.outcome == Outcome::Checked);
        self.failed += usize::from(has_failed(source));
    }

    fn mark(self) -> String {
        let Self {
            all,
            checked,
            failed,
        } = self;
        match (failed, checked) {
            _ if all == 0 => "-".to_owned(),
            (0, checked) if checked == all => format!("✓ {all}"),
            (0, 0) => format!("○ {all}"),
            (0, checked) => format!("✓ {checked} ○ {}", all - checked),
            (failed, _) => format!("✗ {failed}/{all}"),
        }
    }
}

impl<'a> Report<'a> {
    pub fn new(sources: &'a [Source], out: &'a Path) -> Self {
        Self {
            sources,
            out,
            failed: sources.iter().filter(|source| has_failed(source)).count(),
        }
    }

    pub fn print(&self, tools: &Tools) {
        self.print_local_memory();
        self.print_failures();
        println!("\n{}", self.table());
        println!(
            "✓ checked   ○ generated, not checked   ✗ failed   - not planned for this target\n"
        );
        for target in self.targets() {
            println!("{}", self.summary(target, tools));
        }
        let checked = self.counted(|_| true).checked;
        println!(
            "\n{} sources, {checked} checked, {} failed",
            self.sources.len(),
            self.failed
        );
    }

    fn targets(&self) -> BTreeSet<Target> {
        self.sources.iter().map(|source| source.target).collect()
    }

    /// Targets across, kernels down.
    fn table(&self) -> String {
        let targets = self.targets();
        let mut rows: BTreeMap<String, BTreeMap<Target, Counts>> = BTreeMap::new();
        for source in self.sources {
            let name = match &source.strategy {
                Some(strategy) => format!("{}, {strategy}", source.kernel),
                None => source.kernel.clone(),
            };
            let row = rows.entry(name).or_default();
            row.entry(source.target).or_default().add(source);
        }
        let header = ["kernel"]
            .into_iter()
            .chain(targets.iter().map(|target| target.name()));
        let rows = rows.iter().map(|(name, row)| {
            let cell = |target| row.get(target).copied().unwrap_or_default().mark();
            [name.clone()].into_iter().chain(targets.iter().map(cell))
        });
        terminal(header, rows, 1..usize::MAX)
    }

    fn counted(&self, of: impl Fn(&Source) -> bool) -> Counts {
        let mut counts = Counts::default();
        let matching = self.sources.iter().filter(|source| of(source));
        matching.for_each(|source| counts.add(source));
        counts
    }

    /// One line for a target.
    fn summary(&self, target: Target, tools: &Tools) -> String {
        let Counts {
            all,
            checked,
            failed,
        } = self.counted(|source| source.target == target);
        let variants: BTreeSet<&str> = self
            .sources
            .iter()
            .filter(|source| source.target == target)
            .filter_map(|source| source.variant.as_deref())
            .collect();
        let variants = variants.into_iter().collect::<Vec<_>>().join(", ");
        let variants = match variants.is_empty() {
            true => variants,
            false => format!(" ({variants})"),
        };
        let by = match (checked > 0 || failed > 0, tools.checker(target)) {
            (true, Some(checker)) => format!(" by {checker}"),
            _ => String::new(),
        };
        let failures = match failed {
            0 => String::new(),
            failed => format!(", {failed} failed"),
        };
        let registers = self
            .sources
            .iter()
            .filter(|source| source.target == target)
            .filter_map(|source| source.resources);
        let most = registers.map(|resources| resources.registers).max();
        let registers = most.map_or(String::new(), |most| format!(", {most} registers at most"));
        format!(
            "{target:<6}{all:>5} generated{variants}, {checked} checked{by}{failures}{registers}"
        )
    }

    /// Kernels that keep something in memory that should be in registers.
    fn print_local_memory(&self) {
        for source in self.sources {
            let Some(resources) = source.resources.filter(|it| it.uses_local_memory()) else {
                continue;
            };
            let word = match is_slow(source) {
                true => style::bad("local memory, hot"),
                false => style::warning("local memory"),
            };
            anstream::println!(
                "{word} {}: {} registers, {} bytes of stack, {} bytes spilled, {} loaded back \
                 ({}, {})",
                source.file,
                resources.registers,
                resources.stack,
                resources.spill_stores,
                resources.spill_loads,
                source.case,
                source.knobs,
            );
        }
    }

    fn print_failures(&self) {
        for target in self.targets() {
            let failures = self
                .sources
                .iter()
                .filter(|source| source.target == target)
                .filter_map(|source| Some((source, why(source)?)));
            let failures: Vec<_> = failures.collect();
            for (source, why) in failures.iter().take(MOST_SHOWN) {
                anstream::println!(
                    "{} {} ({}, {})\n{}",
                    style::bad("failed"),
                    self.out.join(&source.file).display(),
                    source.case,
                    source.knobs,
                    first_lines(why),
                );
            }
            if failures.len() > MOST_SHOWN {
                println!("… and {} more of {target}", failures.len() - MOST_SHOWN);
            }
        }
    }
}

/// The fault of a source itself.
fn why(source: &Source) -> Option<&str> {
    match &source.outcome {
        Outcome::Wrong(why) | Outcome::Refused(why) => Some(why),
        Outcome::Generated | Outcome::Checked => None,
    }
}

fn first_lines(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let lines: Vec<String> = lines.take(8).map(|line| format!("    {line}")).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::{
        super::{program::tests::source, ptxas::Resources},
        *,
    };

    #[test]
    fn the_table_has_a_mark_per_target_and_kernel() {
        let sources = [
            source(Target::Ptx, "fold", Outcome::Checked),
            source(Target::Ptx, "fold", Outcome::Checked),
            source(Target::Wgsl, "fold", Outcome::Wrong("no".into())),
            source(Target::Hip, "blend", Outcome::Generated),
        ];
        let report = Report::new(&sources, Path::new("out"));
        assert_eq!(report.failed, 1);
        let table = report.table();
        let row = |name: &str| {
            let line = table.lines().find(|line| line.contains(name)).unwrap();
            let cells = line.trim_matches('│').split("  ").map(str::trim);
            cells
                .filter(|c| !c.is_empty())
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(row("kernel"), ["kernel", "ptx", "hip", "wgsl"]);
        assert_eq!(row("blend"), ["blend, plane", "-", "○ 1", "-"]);
        assert_eq!(row("fold"), ["fold, plane", "✓ 2", "-", "✗ 1/1"]);
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
