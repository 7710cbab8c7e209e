//! Cases as files, for providers outside Rust.
//!
//! A folder has `cases.json`, a list of `Given`, and for each tensor of each a file of raw values,
//! little-endian. A provider called NAME writes its outputs in the same way to `NAME/CASE.bin`, or
//! why there is none to `NAME/CASE.txt`.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use cubenorm_reference::{decode, encode};
use serde::Serialize;

use super::{
    cases::{Case, Data, Suite},
    providers::compared,
};
use crate::protocol::Verdict;

/// A case as `cases.json` has it.
#[derive(Serialize)]
struct Given<'a> {
    /// Name of its files.
    name: String,
    #[serde(flatten)]
    case: &'a Case,
    epsilon: f64,
    /// The tensors in the folder, as `CASE.TENSOR.bin`; parameters have one dimension.
    tensors: Vec<&'static str>,
}

/// Writes the inputs of a suite to a folder.
pub fn export(suite: Suite, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("{} not made", folder.display()))?;
    let cases = suite.cases();
    let mut list = Vec::new();
    for case in &cases {
        let data = case.data();
        let mut given = Given {
            name: case.to_string(),
            case,
            epsilon: data.epsilon,
            tensors: Vec::new(),
        };
        for (tensor, values) in tensors(&data) {
            let path = folder.join(format!("{case}.{tensor}.bin"));
            write(&path, &encode(case.dtype, values))?;
            given.tensors.push(tensor);
        }
        list.push(given);
    }
    let list = serde_json::to_string_pretty(&list)?;
    write(&folder.join("cases.json"), list.as_bytes())
}

fn tensors(data: &Data) -> impl Iterator<Item = (&'static str, &Vec<f64>)> {
    let all = [
        ("input", Some(&data.input)),
        ("scale", data.scale.as_ref()),
        ("bias", data.bias.as_ref()),
        ("mean", data.mean.as_ref()),
        ("variance", data.variance.as_ref()),
    ];
    all.into_iter()
        .filter_map(|(name, values)| Some((name, values?)))
}

/// Compares what a provider wrote into a folder for a case.
pub fn judge(case: &Case, folder: &Path, provider: &str) -> Verdict {
    let output = folder.join(provider).join(format!("{case}.bin"));
    match fs::read(&output) {
        Ok(bytes) => compared(case, &case.data(), &decode(case.dtype, &bytes)),
        Err(_) => match fs::read_to_string(output.with_extension("txt")) {
            Ok(reason) => Verdict::Skipped(reason.trim().to_owned()),
            Err(_) => Verdict::Failed("it gave no output".to_owned()),
        },
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).with_context(|| format!("{} not written", path.display()))
}
