//! Recorded rows compared: one machine and device, ours against one baseline at a time.

use std::collections::BTreeMap;

use super::{
    super::{
        results::Record,
        stats::{Clock, geometric_mean},
    },
    is_ceiling, is_ours,
};

/// The order of baselines in tables; others follow by name.
const ORDER: [&str; 7] = [
    "burn",
    "torch",
    "torch.compile",
    "onnxruntime",
    "liger",
    "quack",
    "elementwise",
];

/// All rows of a machine's device.
pub(super) struct Section<'a> {
    pub machine: &'a str,
    pub device: &'a str,
    pub records: Vec<&'a Record>,
}

/// The sections of a table, newest first.
pub(super) fn sections(records: &[Record]) -> Vec<Section<'_>> {
    let mut sections: BTreeMap<(&str, &str), Vec<&Record>> = BTreeMap::new();
    for record in records {
        let key = (record.machine.as_str(), record.device.as_str());
        sections.entry(key).or_default().push(record);
    }
    let mut sections: Vec<Section> = sections
        .into_iter()
        .map(|((machine, device), records)| Section {
            machine,
            device,
            records,
        })
        .collect();
    // Stable: sections of one date stay in the order of their names.
    sections.sort_by(|one, other| other.newest().cmp(one.newest()));
    sections
}

/// Ours against one baseline, for one pass and type.
pub(super) struct Comparison<'a> {
    pub run: &'a Record,
    pub clock: Clock,
    /// Our speed divided by the baseline's, and our row. For a copy: our share of its bandwidth.
    pub ratios: Vec<(f64, &'a Record)>,
}

impl Comparison<'_> {
    pub(super) fn mean(&self) -> f64 {
        let ratios: Vec<f64> = self.ratios.iter().map(|(ratio, _)| *ratio).collect();
        geometric_mean(&ratios).unwrap_or(f64::NAN)
    }

    pub(super) fn worst(&self) -> (f64, &Record) {
        let least = |one: &&(f64, _), other: &&(f64, _)| one.0.total_cmp(&other.0);
        let worst = self.ratios.iter().min_by(least);
        worst.map_or((f64::NAN, self.run), |(ratio, record)| (*ratio, record))
    }
}

impl<'a> Section<'a> {
    pub(super) fn newest(&self) -> &'a str {
        let dates = self.records.iter().map(|record| record.date.as_str());
        dates.max().unwrap_or_default()
    }

    pub(super) fn is_on_gpu(&self) -> bool {
        self.records.iter().any(|record| record.is_on_gpu())
    }

    /// The clocks, the one to prefer first. A GPU's own clock leaves out what a caller spends
    /// between kernels.
    pub(super) fn clocks(&self) -> &'static [Clock] {
        match self.is_on_gpu() {
            true => &[Clock::Device, Clock::Wall],
            false => &[Clock::Wall, Clock::Device],
        }
    }

    /// The clocks of a line each, if there are several. On a GPU a caller waits for more than kernels.
    pub(super) fn lines(&self) -> &'static [&'static [Clock]] {
        match self.is_on_gpu() {
            true => &[&[Clock::Device], &[Clock::Wall], &[Clock::Replay]],
            false => &[&[Clock::Wall, Clock::Device]],
        }
    }

    /// The baselines, ceilings last.
    pub(super) fn baselines(&self) -> Vec<&'a str> {
        let names = self.records.iter().map(|record| record.provider.as_str());
        let mut names: Vec<&str> = names.filter(|name| *name != super::OURS).collect();
        let place = |name: &str| ORDER.iter().position(|known| *known == name);
        names.sort_by_key(|name| (is_ceiling(name), place(name).unwrap_or(ORDER.len()), *name));
        names.dedup();
        names
    }

    /// The types, the widest first.
    pub(super) fn dtypes(&self) -> Vec<&'a str> {
        let is_there = |dtype: &&str| self.records.iter().any(|record| record.dtype == *dtype);
        ["f64", "f32", "f16", "bf16"]
            .into_iter()
            .filter(is_there)
            .collect()
    }

    /// Ours against a baseline over the problems that `filter` takes, by the first of the clocks that has timed both.
    ///
    /// Takes the newest run that has at least half of the problems of the largest run. A run of a
    /// few shapes does not replace a whole suite.
    pub(super) fn comparison(
        &self,
        baseline: &str,
        pass: &str,
        dtype: &str,
        clocks: &[Clock],
        filter: impl Fn(&Record) -> bool,
    ) -> Option<Comparison<'a>> {
        let mut runs: Vec<(&str, Vec<&'a Record>)> = Vec::new();
        for &record in &self.records {
            let is_asked = record.pass == pass && record.dtype == dtype && filter(record);
            if !is_asked || !(is_ours(record) || record.provider == baseline) {
                continue;
            }
            match runs.iter_mut().find(|(run, _)| *run == record.run()) {
                Some((_, records)) => records.push(record),
                None => runs.push((record.run(), vec![record])),
            }
        }
        let mut compared: Vec<Comparison> = runs
            .iter()
            .filter_map(|(_, records)| compare(records, baseline, clocks))
            .collect();
        // Stable: of one date the later in the table is the newer.
        compared.sort_by(|one, other| one.run.date.cmp(&other.run.date));
        let most = compared.iter().map(|it| it.ratios.len()).max()?;
        compared.into_iter().rfind(|it| 2 * it.ratios.len() >= most)
    }
}

/// The rows of one run, by the first clock that has timed both.
fn compare<'a>(records: &[&'a Record], baseline: &str, clocks: &[Clock]) -> Option<Comparison<'a>> {
    clocks.iter().find_map(|&clock| {
        let of = |is_asked: &dyn Fn(&Record) -> bool| -> BTreeMap<[&'a str; 5], &'a Record> {
            let all = records.iter().filter(|record| is_asked(record));
            all.filter(|record| record.time(clock).is_some())
                .map(|record| (record.problem(), *record))
                .collect()
        };
        let theirs = of(&|record| record.provider == baseline);
        let ratios: Vec<(f64, &Record)> = of(&is_ours)
            .into_iter()
            .filter_map(|(problem, ours)| {
                let theirs = theirs.get(&problem)?.time(clock)?;
                Some((theirs / ours.time(clock)?, ours))
            })
            .collect();
        let run = ratios.first()?.1;
        Some(Comparison { run, clock, ratios })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench::results::tests::recorded;

    const FULL: [&str; 8] = [
        "cubenorm rms_norm 1x4 f32 forward 1 4",
        "copy rms_norm 1x4 f32 forward 0.5 1",
        "cubenorm rms_norm 2x4 f32 forward 2 4",
        "copy rms_norm 2x4 f32 forward 2 2",
        "cubenorm rms_norm 3x4 f32 forward 2 4",
        "burn rms_norm 3x4 f32 forward 6 2",
        "cubenorm rms_norm 4x4 f32 forward 2 ",
        "copy rms_norm 4x4 f32 forward  9",
    ];

    #[test]
    fn ratios_pair_equal_problems_by_one_clock() {
        let rows = recorded("m", "cpu", "", &FULL);
        let sections = sections(&rows);
        let [section] = &sections[..] else {
            panic!("one section")
        };
        assert_eq!(section.baselines(), ["burn", "copy"]);
        let copy = section.comparison("copy", "forward", "f32", section.clocks(), |_| true);
        let copy = copy.unwrap();
        let ratios: Vec<f64> = copy.ratios.iter().map(|(ratio, _)| *ratio).collect();
        assert_eq!((copy.clock, ratios), (Clock::Wall, vec![0.5, 1.0]));
        assert!((copy.mean() - 0.5f64.sqrt()).abs() < 1e-12);
        assert_eq!(copy.worst().1.shape, "1x4");
        assert!(
            section
                .comparison("copy", "full", "f32", section.clocks(), |_| true)
                .is_none()
        );
    }

    #[test]
    fn a_gpu_is_compared_by_its_own_clock() {
        let rows = recorded("m", "cuda", "", &FULL);
        let sections = sections(&rows);
        let copy = sections[0].comparison("copy", "forward", "f32", sections[0].clocks(), |_| true);
        let copy = copy.unwrap();
        let ratios: Vec<f64> = copy.ratios.iter().map(|(ratio, _)| *ratio).collect();
        assert_eq!((copy.clock, ratios), (Clock::Device, vec![0.25, 0.5]));
    }

    #[test]
    fn a_small_run_does_not_replace_a_large_one() {
        let shapes = |count: usize| {
            let rows = (1..=count).flat_map(|rows| {
                ["cubenorm", "copy"].map(|name| format!("{name} rms_norm {rows}x4 f32 forward 1 "))
            });
            let rows: Vec<String> = rows.collect();
            let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
            recorded("m", "cpu", "", &rows)
        };
        let taken = |count: usize| {
            let mut newer = shapes(count);
            for row in &mut newer {
                row.id = format!("z{}", row.id);
                row.date = "2026-12-01T00:00Z".into();
            }
            let rows = [shapes(4), newer].concat();
            let sections = sections(&rows);
            let copy =
                sections[0].comparison("copy", "forward", "f32", sections[0].clocks(), |_| true);
            copy.unwrap().ratios.len()
        };
        assert_eq!([4, 3, 2, 1].map(taken), [4, 3, 2, 4]);
    }

    #[test]
    fn the_newest_section_is_first() {
        let mut rows = recorded("a", "cpu", "", &FULL);
        rows.extend(recorded("b", "cuda", "", &FULL));
        let first = |rows: &[Record]| sections(rows)[0].machine.to_owned();
        assert_eq!(first(&rows), "a");
        rows[9].date = "2026-12-01T00:00Z".into();
        assert_eq!(first(&rows), "b");
    }
}
