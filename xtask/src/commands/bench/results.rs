//! The recorded rows of the benchmark: one long table that only grows.

use std::{
    collections::BTreeSet,
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::Path,
};

use anyhow::{Context, Result, bail, ensure};
use cubenorm_problems::Pass;
use serde::{Deserialize, Serialize};
use strum::VariantNames as _;

use super::stats::Clock;
use crate::{device::Device, exec::workspace};

/// The table.
pub const FILE: &str = "benches/data/results.csv";

/// The columns of the table, in order. Rows that were measured elsewhere have all but the first.
pub const COLUMNS: [&str; 26] = [
    "id",
    "date",
    "commit",
    "machine",
    "driver",
    "burn",
    "cubecl",
    "command",
    "device",
    "runtime",
    "provider",
    "op",
    "shape",
    "layout",
    "dtype",
    "pass",
    "plan",
    "median_ms",
    "p20_ms",
    "p80_ms",
    "device_ms",
    "device_p20_ms",
    "device_p80_ms",
    "gb_per_s",
    "share_of_copy",
    "note",
];

/// One row: a provider's time for a problem, and its origin.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
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
}

impl Record {
    /// The run that the row belongs to: only rows of one run are compared.
    pub fn run(&self) -> &str {
        self.id.split_once('-').map_or(&self.id, |(run, _)| run)
    }

    /// Milliseconds by a clock.
    pub fn time(&self, clock: Clock) -> Option<f64> {
        match clock {
            Clock::Wall => self.median_ms,
            Clock::Device => self.device_ms,
        }
    }

    /// Everything that tells one problem from another.
    pub fn problem(&self) -> [&str; 5] {
        [&self.op, &self.shape, &self.layout, &self.dtype, &self.pass]
    }

    /// The shape, and the layout if it is not the usual one.
    pub fn tensor(&self) -> String {
        match self.layout.as_str() {
            "contiguous" => self.shape.clone(),
            other => format!("{} {other}", self.shape),
        }
    }

    /// Bytes of the input.
    pub fn input_bytes(&self) -> Option<usize> {
        let element = dtype_size(&self.dtype)?;
        let mut sizes = self.shape.split('x');
        sizes.try_fold(element, |bytes: usize, size| {
            bytes.checked_mul(size.parse().ok()?)
        })
    }

    /// True if a GPU ran it, rather than a processor or a Vulkan driver for one.
    pub fn is_on_gpu(&self) -> bool {
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
        let is_text = |value: &Option<String>| value.as_ref().is_some_and(|it| !it.is_empty());
        let numbers = [
            ("median_ms", self.median_ms),
            ("p20_ms", self.p20_ms),
            ("p80_ms", self.p80_ms),
            ("device_ms", self.device_ms),
            ("device_p20_ms", self.device_p20_ms),
            ("device_p80_ms", self.device_p80_ms),
            ("gb_per_s", self.gb_per_s),
            ("share_of_copy", self.share_of_copy),
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
            has_time || is_text(&self.note),
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
pub fn read() -> Result<Vec<Record>> {
    let path = workspace().join(FILE);
    let text = fs::read_to_string(&path).with_context(|| format!("{FILE} not read"))?;
    parse(&text, FILE, &COLUMNS)
}

/// The rows of a file that was written elsewhere, which have no ids.
pub fn read_incoming(path: &Path) -> Result<Vec<Record>> {
    let source = path.display().to_string();
    let text = fs::read_to_string(path).with_context(|| format!("{source} not read"))?;
    parse(&text, &source, &COLUMNS[1..])
}

/// Appends rows to the table as one run; returns how many and the run's id.
pub fn append(rows: Vec<Record>) -> Result<(usize, String)> {
    let path = workspace().join(FILE);
    let text = fs::read_to_string(&path).with_context(|| format!("{FILE} not read"))?;
    let count = rows.len();
    let (text, run) = appended(&text, rows)?;
    fs::write(&path, text).with_context(|| format!("{FILE} not written"))?;
    Ok((count, run))
}

/// The text for rows that are not recorded yet: a file for [`read_incoming`].
pub fn incoming_text(rows: &[Record]) -> Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(&COLUMNS[1..])?;
    for line in lines(rows)? {
        writer.write_record(line.iter().skip(1))?;
    }
    Ok(String::from_utf8(writer.into_inner()?)?)
}

/// The rows as a JSON array; a shape is an array too.
pub fn json(rows: &[Record]) -> Result<String> {
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
/// If the header is another one, or a line holds no row; the error names the line.
pub fn parse(text: &str, source: &str, columns: &[&str]) -> Result<Vec<Record>> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers().context(source.to_owned())?.clone();
    if !header.iter().eq(columns.iter().copied()) {
        let found: Vec<&str> = header.iter().collect();
        bail!(
            "{source}: columns are {}: expected {}",
            found.join(","),
            columns.join(",")
        );
    }
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
fn appended(text: &str, mut rows: Vec<Record>) -> Result<(String, String)> {
    let taken = parse(text, FILE, &COLUMNS)?;
    let taken: BTreeSet<&str> = taken.iter().map(Record::run).collect();
    let run = new_run(&rows, &taken)?;
    let digits = rows.len().to_string().len();
    for (number, row) in rows.iter_mut().enumerate() {
        row.validate()?;
        row.id = format!("{run}-{:0digits$}", number + 1);
    }
    let mut writer = csv::WriterBuilder::new()
        .has_headers(false)
        .from_writer(Vec::new());
    for line in lines(&rows)? {
        writer.write_record(&line)?;
    }
    let lines = String::from_utf8(writer.into_inner()?)?;
    let end = if text.ends_with('\n') { "" } else { "\n" };
    Ok((format!("{text}{end}{lines}"), run))
}

/// The rows as lines of all columns.
fn lines(rows: &[Record]) -> Result<Vec<csv::StringRecord>> {
    let mut writer = csv::WriterBuilder::new()
        .has_headers(false)
        .from_writer(Vec::new());
    for row in rows {
        writer.serialize(row)?;
    }
    let text = writer.into_inner()?;
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .from_reader(text.as_slice());
    Ok(reader.records().collect::<Result<_, _>>()?)
}

/// Four letters and digits that no run of the table has.
fn new_run(rows: &[Record], taken: &BTreeSet<&str>) -> Result<String> {
    /// Crockford's digits: none is taken for another.
    const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
    const LENGTH: u32 = 4;
    let mut hasher = DefaultHasher::new();
    for line in lines(rows)? {
        line.iter().for_each(|field| field.hash(&mut hasher));
    }
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
pub mod tests {
    use super::*;

    /// A row of this origin.
    pub fn origin(machine: &str, device: &str, driver: &str) -> Record {
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
        let rows = recorded(&table("m", "cpu", "d", &ROWS));
        let rows: serde_json::Value = serde_json::from_str(&json(&rows).unwrap()).unwrap();
        assert_eq!(rows[0]["shape"], serde_json::json!([4, 8]));
        assert_eq!(
            (&rows[0]["op"], &rows[0]["median_ms"]),
            (&"rms_norm".into(), &1.5.into())
        );
        assert_eq!(rows[0]["note"], serde_json::Value::Null);
        assert_eq!(rows[0].as_object().unwrap().len(), COLUMNS.len());
    }

    /// A table with these rows, each `provider op shape dtype pass wall device`, on a machine of
    /// this name.
    pub fn table(machine: &str, device: &str, driver: &str, rows: &[&str]) -> String {
        let mut text = COLUMNS[1..].join(",") + "\n";
        for row in rows {
            let words: Vec<&str> = row.split(' ').collect();
            let [provider, op, shape, dtype, pass, wall, apart] = words[..] else {
                panic!("{row}")
            };
            text += &format!(
                "2026-11-28T14:10Z,abc,{machine},{driver},0.22.1,0.11.3,cargo xtask bench,{device},r,{provider},\
                 {op},{shape},contiguous,{dtype},{pass},,{wall},,,{apart},,,,,\n"
            );
        }
        text
    }

    /// The rows of such a table, recorded.
    pub fn recorded(text: &str) -> Vec<Record> {
        let rows = parse(text, "x.csv", &COLUMNS[1..]).unwrap();
        let (text, _) = appended(&(COLUMNS.join(",") + "\n"), rows).unwrap();
        parse(&text, FILE, &COLUMNS).unwrap()
    }

    const ROWS: [&str; 2] = [
        "cubenorm rms_norm 4x8 f32 forward 1.5 ",
        "copy rms_norm 4x8 f32 forward 1.25 ",
    ];

    #[test]
    fn appending_keeps_every_byte_before() {
        let empty = COLUMNS.join(",") + "\n";
        let rows = parse(&table("m", "cpu", "d", &ROWS), "x", &COLUMNS[1..]).unwrap();
        let (once, run) = appended(&empty, rows.clone()).unwrap();
        let (twice, other) = appended(&once, rows).unwrap();
        assert!(once.starts_with(&empty) && twice.starts_with(&once));
        assert_ne!(run, other);
        let all = parse(&twice, FILE, &COLUMNS).unwrap();
        let ids: BTreeSet<&str> = all.iter().map(|row| row.id.as_str()).collect();
        assert_eq!(ids.len(), 4);
        assert_eq!((all[1].run(), all[1].median_ms), (run.as_str(), Some(1.25)));
        assert_eq!(all[1].id, format!("{run}-2"));
    }

    #[test]
    fn incoming_rows_read_back() {
        let rows = parse(&table("m", "cpu", "", &ROWS), "x", &COLUMNS[1..]).unwrap();
        let rows: Vec<Record> = rows
            .into_iter()
            .map(|row| Record {
                machine: "a \"processor\", 2 cores".into(),
                ..row
            })
            .collect();
        let text = incoming_text(&rows).unwrap();
        assert_eq!(parse(&text, "x", &COLUMNS[1..]).unwrap(), rows);
    }

    #[test]
    fn bad_rows_name_file_line_and_field() {
        let told = |row: &str| {
            let text = table("m", "cpu", "d", &[ROWS[0], row]);
            let error = parse(&text, "x.csv", &COLUMNS[1..]).unwrap_err();
            format!("{error:#}")
        };
        assert_eq!(
            told("copy rms_norm 4x8 f32 forward -1 "),
            "x.csv, line 3: median_ms is -1: expected a number above 0"
        );
        for (row, expected) in [
            ("copy rms_norm 4by8 f32 forward 1 ", "shape is `4by8`"),
            ("copy rms_norm 4x8 int forward 1 ", "dtype is `int`"),
            ("copy rms_norm 4x8 f32 sideways 1 ", "pass is `sideways`"),
            (" rms_norm 4x8 f32 forward 1 ", "provider is empty"),
            ("copy rms_norm 4x8 f32 forward  ", "expected a time"),
            ("copy rms_norm 4x8 f32 forward one ", "line 3"),
        ] {
            let told = told(row);
            assert!(told.contains(expected), "{row}: {told}");
        }
        let error = parse("a,b\n", "x.csv", &COLUMNS).unwrap_err().to_string();
        assert!(
            error.starts_with("x.csv: columns are a,b: expected id,"),
            "{error}"
        );
    }

    #[test]
    fn a_cpu_vulkan_driver_is_no_gpu() {
        let on = |device: &str, driver: &str| {
            recorded(&table("m", device, driver, &ROWS))[0].is_on_gpu()
        };
        assert!(on("cuda", "") && on("vulkan", "radeon"));
        assert!(!on("wgpu", "lavapipe 22.3.6") && !on("cpu", "LLVM 23"));
    }

    #[test]
    fn the_table_in_the_repository_is_readable() {
        read().unwrap();
    }
}
