//! The recorded rows of the benchmark: one long table that only grows.

use std::{
    collections::BTreeSet,
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::Path,
};

use anyhow::{Context, Result, ensure};
use cubenorm_problems::Pass;
use serde::{Deserialize, Serialize};
use strum::VariantNames as _;

use super::stats::Clock;
use crate::{device::Device, exec::workspace};

/// The table.
pub(crate) const FILE: &str = "benches/data/results.csv";

/// One row: a provider's time for a problem, and its origin. The fields are the columns, in order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// `RUN-NUMBER`; empty until the row is recorded, and never changed afterwards.
    #[serde(default)]
    pub id: String,
    /// Day and minute in UTC: `2026-11-28T14:10Z`.
    pub date: String,
    pub commit: String,
    /// The GPU, or the processor with its vector extension and number of cores.
    pub machine: String,
    pub driver: String,
    /// Burn's version; empty if the run has no Burn.
    pub burn: String,
    pub cubecl: String,
    /// The command that measured the row.
    pub command: String,
    pub device: String,
    pub runtime: String,
    pub provider: String,
    pub op: String,
    /// `2048x4096`.
    pub shape: String,
    pub layout: String,
    pub dtype: String,
    pub pass: String,
    pub plan: Option<String>,
    pub median_ms: Option<f64>,
    pub p20_ms: Option<f64>,
    pub p80_ms: Option<f64>,
    pub device_ms: Option<f64>,
    pub device_p20_ms: Option<f64>,
    pub device_p80_ms: Option<f64>,
    pub gb_per_s: Option<f64>,
    pub share_of_copy: Option<f64>,
    pub note: Option<String>,
    pub replay_ms: Option<f64>,
    pub replay_p20_ms: Option<f64>,
    pub replay_p80_ms: Option<f64>,
}

impl Record {
    /// The run that the row belongs to: only rows of one run are compared.
    pub(crate) fn run(&self) -> &str {
        self.id.split_once('-').map_or(&self.id, |(run, _)| run)
    }

    /// Milliseconds by a clock.
    pub(crate) fn time(&self, clock: Clock) -> Option<f64> {
        match clock {
            Clock::Wall => self.median_ms,
            Clock::Device => self.device_ms,
            Clock::Replay => self.replay_ms,
        }
    }

    /// Everything that tells one problem from another.
    pub(crate) fn problem(&self) -> [&str; 5] {
        [&self.op, &self.shape, &self.layout, &self.dtype, &self.pass]
    }

    /// The shape, and the layout if it is not the usual one.
    pub(crate) fn tensor(&self) -> String {
        match self.layout.as_str() {
            "contiguous" => self.shape.clone(),
            other => format!("{} {other}", self.shape),
        }
    }

    /// Bytes of the input.
    pub(crate) fn input_bytes(&self) -> Option<usize> {
        let element = dtype_size(&self.dtype)?;
        let mut sizes = self.shape.split('x');
        sizes.try_fold(element, |bytes: usize, size| {
            bytes.checked_mul(size.parse().ok()?)
        })
    }

    /// True if a GPU ran it, rather than a processor or a Vulkan driver for one.
    pub(crate) fn is_on_gpu(&self) -> bool {
        match self.device.parse() {
            Ok(Device::Cuda | Device::Rocm | Device::Metal) => true,
            Ok(Device::Wgpu | Device::Vulkan | Device::Webgpu) => {
                let is_cpu_vulkan = ["lavapipe", "swiftshader"];
                !is_cpu_vulkan
                    .iter()
                    .any(|name| self.driver.starts_with(name))
            }
            Ok(Device::Cpu | Device::Flex) | Err(_) => false,
        }
    }

    /// # Errors
    ///
    /// If a field has a value that no row can have.
    fn validate(&self) -> Result<()> {
        let is_date = self.date.len() == "2026-11-28T14:10Z".len() && self.date.ends_with('Z');
        let filled = [
            ("commit", &self.commit),
            ("machine", &self.machine),
            ("cubecl", &self.cubecl),
            ("command", &self.command),
            ("provider", &self.provider),
            ("op", &self.op),
            ("layout", &self.layout),
        ];
        let numbers = [
            ("median_ms", self.median_ms),
            ("p20_ms", self.p20_ms),
            ("p80_ms", self.p80_ms),
            ("device_ms", self.device_ms),
            ("device_p20_ms", self.device_p20_ms),
            ("device_p80_ms", self.device_p80_ms),
            ("gb_per_s", self.gb_per_s),
            ("share_of_copy", self.share_of_copy),
            ("replay_ms", self.replay_ms),
            ("replay_p20_ms", self.replay_p20_ms),
            ("replay_p80_ms", self.replay_p80_ms),
        ];
        ensure!(
            is_date,
            "date is `{}`: expected the form 2026-11-28T14:10Z",
            self.date
        );
        for (name, value) in filled {
            ensure!(!value.is_empty(), "{name} is empty: expected a value");
        }
        self.device.parse::<Device>()?;
        ensure!(
            dtype_size(&self.dtype).is_some(),
            "dtype is `{}`: expected one of f32, f16, bf16, f64",
            self.dtype
        );
        ensure!(
            Pass::VARIANTS.contains(&self.pass.as_str()),
            "pass is `{}`: expected one of {}",
            self.pass,
            Pass::VARIANTS.join(", ")
        );
        ensure!(
            self.input_bytes().is_some(),
            "shape is `{}`: expected sizes such as 2048x4096",
            self.shape
        );
        for (name, value) in numbers {
            if let Some(value) = value {
                ensure!(
                    value.is_finite() && value > 0.0,
                    "{name} is {value}: expected a number above 0"
                );
            }
        }
        let has_time = self.median_ms.or(self.device_ms).is_some();
        ensure!(
            has_time || self.note.is_some(),
            "median_ms, device_ms and note are empty: expected a time or the reason for none"
        );
        Ok(())
    }
}

fn dtype_size(dtype: &str) -> Option<usize> {
    match dtype {
        "f64" => Some(8),
        "f32" => Some(4),
        "f16" | "bf16" => Some(2),
        _ => None,
    }
}

/// The rows of the table.
pub(crate) fn read() -> Result<Vec<Record>> {
    read_file(&workspace().join(FILE))
}

/// The rows of a file. Those that were measured elsewhere have no ids.
pub(crate) fn read_file(path: &Path) -> Result<Vec<Record>> {
    let shown = path.strip_prefix(workspace()).unwrap_or(path).display();
    let text = fs::read_to_string(path).with_context(|| format!("{shown} not read"))?;
    parse(&text, &shown.to_string())
}

/// Appends rows to the table as one run; returns how many and the run's id.
pub(crate) fn append(rows: Vec<Record>) -> Result<(usize, String)> {
    let path = workspace().join(FILE);
    let text = fs::read_to_string(&path).with_context(|| format!("{FILE} not read"))?;
    let count = rows.len();
    let (text, run) = appended(&text, rows)?;
    fs::write(&path, text).with_context(|| format!("{FILE} not written"))?;
    Ok((count, run))
}

/// The rows as CSV, with the columns first if `has_header`.
pub(crate) fn text(rows: &[Record], has_header: bool) -> Result<String> {
    let mut writer = csv::WriterBuilder::new()
        .has_headers(has_header)
        .from_writer(Vec::new());
    for row in rows {
        writer.serialize(row)?;
    }
    Ok(String::from_utf8(writer.into_inner()?)?)
}

/// The rows as a JSON array; a shape is an array too.
pub(crate) fn json(rows: &[Record]) -> Result<String> {
    let rows = rows.iter().map(|row| {
        let mut value = serde_json::to_value(row)?;
        let sizes = row.shape.split('x').map(str::parse::<usize>);
        value["shape"] = sizes.collect::<Result<Vec<usize>, _>>()?.into();
        Ok(value)
    });
    let rows: Vec<serde_json::Value> = rows.collect::<Result<_>>()?;
    Ok(serde_json::to_string_pretty(&rows)? + "\n")
}

/// # Errors
///
/// If a column is missing, or a line holds no row; the error names the line.
pub(crate) fn parse(text: &str, source: &str) -> Result<Vec<Record>> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers().context(source.to_owned())?.clone();
    let mut rows = Vec::new();
    for line in reader.records() {
        let line = line.with_context(|| source.to_owned())?;
        let number = line.position().map_or(0, csv::Position::line);
        let row = line.deserialize(Some(&header)).map_err(anyhow::Error::from);
        let row = row.and_then(|row: Record| row.validate().map(|()| row));
        rows.push(row.with_context(|| format!("{source}, line {number}"))?);
    }
    Ok(rows)
}

/// The table with rows after the others, which keep every byte.
fn appended(table: &str, mut rows: Vec<Record>) -> Result<(String, String)> {
    let taken = parse(table, FILE)?;
    let taken: BTreeSet<&str> = taken.iter().map(Record::run).collect();
    let run = new_run(&text(&rows, false)?, &taken)?;
    let digits = rows.len().to_string().len();
    for (number, row) in rows.iter_mut().enumerate() {
        row.validate()?;
        row.id = format!("{run}-{:0digits$}", number + 1);
    }
    let end = if table.ends_with('\n') { "" } else { "\n" };
    Ok((format!("{table}{end}{}", text(&rows, false)?), run))
}

/// Four letters and digits that no run of the table has.
fn new_run(rows: &str, taken: &BTreeSet<&str>) -> Result<String> {
    /// Crockford's digits: none is taken for another.
    const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
    const LENGTH: u32 = 4;
    let mut hasher = DefaultHasher::new();
    rows.hash(&mut hasher);
    let first = hasher.finish() >> (u64::BITS - 5 * LENGTH);
    let all = 1_u64 << (5 * LENGTH);
    let id = |number: u64| -> String {
        let digit = |place: u32| DIGITS[(number >> (5 * place) & 31) as usize] as char;
        (0..LENGTH).rev().map(digit).collect()
    };
    let mut ids = (0..all).map(|next| id((first + next) % all));
    ids.find(|id| !taken.contains(id.as_str()))
        .with_context(|| format!("{FILE} has a run for every id"))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A row of this origin.
    pub(crate) fn origin(machine: &str, device: &str, driver: &str) -> Record {
        Record {
            date: "2026-11-28T14:10Z".into(),
            commit: "abc".into(),
            machine: machine.into(),
            driver: driver.into(),
            burn: "0.22.1".into(),
            cubecl: "0.11.3".into(),
            command: "cargo xtask bench".into(),
            device: device.into(),
            ..Record::default()
        }
    }

    #[test]
    fn a_shape_in_json_is_an_array() {
        let rows = recorded("m", "cpu", "d", &ROWS);
        let rows: serde_json::Value = serde_json::from_str(&json(&rows).unwrap()).unwrap();
        assert_eq!(rows[0]["shape"], serde_json::json!([4, 8]));
        assert_eq!(
            (&rows[0]["op"], &rows[0]["median_ms"]),
            (&"rms_norm".into(), &1.5.into())
        );
        assert_eq!(rows[0]["note"], serde_json::Value::Null);
    }

    /// Recorded rows of a device, each `provider op shape dtype pass wall device`.
    pub(crate) fn recorded(
        machine: &str,
        device: &str,
        driver: &str,
        rows: &[&str],
    ) -> Vec<Record> {
        let row = |text: &&str| {
            let words: Vec<&str> = text.split(' ').collect();
            let [provider, op, shape, dtype, pass, wall, apart] = words[..] else {
                panic!("{text}")
            };
            Record {
                runtime: "r".into(),
                provider: provider.into(),
                op: op.into(),
                shape: shape.into(),
                layout: "contiguous".into(),
                dtype: dtype.into(),
                pass: pass.into(),
                median_ms: wall.parse().ok(),
                device_ms: apart.parse().ok(),
                ..origin(machine, device, driver)
            }
        };
        let (table, _) = appended(&empty(), rows.iter().map(row).collect()).unwrap();
        parse(&table, FILE).unwrap()
    }

    /// A table without rows.
    fn empty() -> String {
        let row = text(&[Record::default()], true).unwrap();
        row.lines()
            .take(1)
            .map(|line| format!("{line}\n"))
            .collect()
    }

    const ROWS: [&str; 2] = [
        "cubenorm rms_norm 4x8 f32 forward 1.5 ",
        "copy rms_norm 4x8 f32 forward 1.25 ",
    ];

    #[test]
    fn appending_keeps_every_byte_before() {
        let rows = recorded("m", "cpu", "d", &ROWS);
        let (once, run) = appended(&empty(), rows.clone()).unwrap();
        let (twice, other) = appended(&once, rows).unwrap();
        assert!(once.starts_with(&empty()) && twice.starts_with(&once));
        assert_ne!(run, other);
        let all = parse(&twice, FILE).unwrap();
        let ids: BTreeSet<&str> = all.iter().map(|row| row.id.as_str()).collect();
        assert_eq!(ids.len(), 4);
        assert_eq!((all[1].run(), all[1].median_ms), (run.as_str(), Some(1.25)));
        assert_eq!(all[1].id, format!("{run}-2"));
    }

    #[test]
    fn rows_read_back_as_they_were_written() {
        let mut rows = recorded("a \"processor\", 2 cores", "cpu", "", &ROWS);
        rows[0].note = Some("no result: it, too".into());
        assert_eq!(parse(&text(&rows, true).unwrap(), "x").unwrap(), rows);
    }

    #[test]
    fn bad_rows_name_file_line_and_field() {
        let [good, _] = &recorded("m", "cpu", "d", &ROWS)[..] else {
            panic!("two rows");
        };
        let told = |spoil: fn(&mut Record)| {
            let mut bad = good.clone();
            spoil(&mut bad);
            let text = text(&[good.clone(), bad], true).unwrap();
            format!("{:#}", parse(&text, "x.csv").unwrap_err())
        };
        assert_eq!(
            told(|row| row.median_ms = Some(-1.0)),
            "x.csv, line 3: median_ms is -1: expected a number above 0"
        );
        type Case<'a> = (fn(&mut Record), &'a str);
        let cases: [Case; 6] = [
            (|row| row.shape = "4by8".into(), "shape is `4by8`"),
            (|row| row.dtype = "int".into(), "dtype is `int`"),
            (|row| row.pass = "sideways".into(), "pass is `sideways`"),
            (|row| row.provider.clear(), "provider is empty"),
            (|row| row.median_ms = None, "expected a time"),
            (|row| row.device = "abacus".into(), "`abacus`"),
        ];
        for (spoil, expected) in cases {
            let told = told(spoil);
            assert!(told.contains(expected), "{expected}: {told}");
        }
        let error = format!("{:#}", parse("a,b\n1,2\n", "x.csv").unwrap_err());
        assert!(
            error.contains("x.csv, line 2") && error.contains("`date`"),
            "{error}"
        );
    }

    #[test]
    fn a_cpu_vulkan_driver_is_no_gpu() {
        let on = |device: &str, driver: &str| recorded("m", device, driver, &ROWS)[0].is_on_gpu();
        assert!(on("cuda", "") && on("vulkan", "radeon"));
        assert!(!on("wgpu", "lavapipe 22.3.6") && !on("cpu", "LLVM 23"));
    }

    #[test]
    fn the_table_in_the_repository_is_readable() {
        read().unwrap();
        let table = fs::read_to_string(workspace().join(FILE)).unwrap();
        assert!(table.starts_with(&empty()), "the columns are the fields");
    }
}
