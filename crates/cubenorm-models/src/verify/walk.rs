use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use walkdir::WalkDir;

/// Name of the folder whose cases must be refused.
const INVALID: &str = "invalid";
const MODEL: &str = "model.onnx";
const DATA_SET: &str = "test_data_set_";
const EXPECTED: &str = ".expected.json";

/// A test case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Case {
    /// A folder with `model.onnx`, an `.onnx` file, or the `.json` file of a model.
    pub path: PathBuf,
    /// Kind of the case.
    pub kind: Kind,
    /// True if it must be refused, because it is below a folder called `invalid`.
    pub must_be_refused: bool,
    /// Reason why it cannot run. It counts as a failure.
    pub broken: Option<String>,
}

/// Kind of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// An ONNX model.
    Onnx,
    /// A DxDispatch model.
    DxDispatch,
    /// A file or folder that cannot be read.
    Path,
}

/// Finds the cases in `paths`, files or folders, in the order of `paths` and then by name. Links
/// are followed, but not in cycles.
pub fn find_cases(paths: &[PathBuf]) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let mut seen = BTreeSet::new();
    for path in paths {
        let found = match path.is_file() {
            true => vec![given_file(path)],
            false => walk(path),
        };
        for case in found {
            if seen.insert(case.path.clone()) {
                cases.push(case);
            }
        }
    }
    cases
}

/// Case of a file that the user names. If it is not a case, that is a failure.
fn given_file(path: &Path) -> Case {
    let folder = path.parent().unwrap_or(Path::new(""));
    let name = name_of(path);
    if name == MODEL && has_data_sets(folder) {
        return folder_case(folder);
    }
    let kind = match name.rsplit_once('.') {
        Some((_, "onnx")) => Kind::Onnx,
        Some((_, "json")) => Kind::DxDispatch,
        _ => return broken(path, "it is neither a .json nor an .onnx file"),
    };
    case(path, kind)
}

fn walk(path: &Path) -> Vec<Case> {
    let mut cases = BTreeSet::new();
    for entry in WalkDir::new(path).follow_links(true).sort_by_file_name() {
        let entry = match entry {
            Ok(entry) => entry,
            // A cycle has no new files.
            Err(error) if error.loop_ancestor().is_some() => continue,
            Err(error) => {
                let path = error.path().unwrap_or(path).to_owned();
                cases.insert(broken(&path, &error.to_string()));
                continue;
            }
        };
        if entry.file_type().is_file() {
            cases.extend(found_file(entry.path()));
        }
    }
    cases.into_iter().collect()
}

/// Case that a file is or belongs to, if any.
fn found_file(path: &Path) -> Option<Case> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let name = name_of(path);
    if name == MODEL && (has_data_sets(folder) || is_invalid(path)) {
        return Some(folder_case(folder));
    }
    if let Some(stem) = name.strip_suffix(EXPECTED) {
        let model = folder.join(format!("{stem}.json"));
        let is_missing = !model.exists() && !is_invalid(path);
        return is_missing.then(|| broken(path, "there is no model with its name"));
    }
    if let Some(stem) = name.strip_suffix(".json") {
        let is_case = folder.join(format!("{stem}{EXPECTED}")).exists();
        let is_refused = is_invalid(path) && name != "cases.json";
        return (is_case || is_refused).then(|| case(path, Kind::DxDispatch));
    }
    let is_refused = is_invalid(path) && name.ends_with(".onnx");
    is_refused.then(|| case(path, Kind::Onnx))
}

fn folder_case(folder: &Path) -> Case {
    Case {
        must_be_refused: is_invalid(&folder.join(MODEL)),
        ..case(folder, Kind::Onnx)
    }
}

fn case(path: &Path, kind: Kind) -> Case {
    // Cases are passed between processes and reported as JSON.
    if path.to_str().is_none() {
        return broken(path, "its path is not UTF-8");
    }
    Case {
        path: path.to_owned(),
        kind,
        must_be_refused: is_invalid(path),
        broken: None,
    }
}

fn broken(path: &Path, reason: &str) -> Case {
    Case {
        path: path.to_owned(),
        kind: Kind::Path,
        must_be_refused: false,
        broken: Some(reason.to_owned()),
    }
}

fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// True if a parent folder is called `invalid`, even above the given path.
fn is_invalid(path: &Path) -> bool {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().unwrap_or(&path);
    folder.components().any(|part| part.as_os_str() == INVALID)
}

fn has_data_sets(folder: &Path) -> bool {
    !data_sets(folder).is_empty()
}

/// Folders of test data of an ONNX case, by their number.
pub(crate) fn data_sets(folder: &Path) -> Vec<PathBuf> {
    numbered(folder, DATA_SET, "")
        .into_iter()
        .map(|(_, path)| path)
        .filter(|path| path.is_dir())
        .collect()
}

/// Entries of a folder called `PREFIX` + number + `SUFFIX`, by the number.
pub(crate) fn numbered(folder: &Path, prefix: &str, suffix: &str) -> Vec<(u64, PathBuf)> {
    let folder = match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    };
    let Ok(entries) = folder.read_dir() else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = name_of(&path);
        let number = name
            .strip_prefix(prefix)
            .and_then(|n| n.strip_suffix(suffix));
        if let Some(Ok(number)) = number.map(str::parse) {
            found.push((number, path));
        }
    }
    found.sort_unstable();
    found
}
