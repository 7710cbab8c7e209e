use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::HostArray;
use crate::file;
use crate::npz;
use crate::verify::ExpectedError;
use crate::verify::compare::check_array;
use crate::verify::expected::OnnxTolerances;

const FILE: &str = "grads.npz";
/// Name of the given gradient.
const GIVEN: &str = "dY";
/// Names of the given and the expected gradients.
const NAMES: &[&str] = &[GIVEN, "dX", "dScale", "dBias"];

/// Data for the backward pass of a case: the gradient of the first output, and the expected
/// gradients.
#[derive(Debug)]
pub(crate) struct Gradients {
    /// `dY`.
    pub given: HostArray,
    expected: BTreeMap<&'static str, HostArray>,
}

impl Gradients {
    /// Files of a data set: one in its folder and, for the first set, one in the case's folder.
    pub(super) fn files(case: &Path, set: &Path, is_first: bool) -> Vec<PathBuf> {
        let of_case = is_first.then(|| case.join(FILE));
        let files = of_case.into_iter().chain([set.join(FILE)]);
        files.filter(|path| path.exists()).collect()
    }

    /// Reads a `grads.npz`.
    pub(super) fn read(path: &Path) -> Result<Self, ExpectedError> {
        let path_of = || path.to_owned();
        let bytes = file::read(path).map_err(|source| ExpectedError::Read {
            path: path_of(),
            source,
        })?;
        let arrays = npz::read(&bytes, NAMES);
        let mut expected = arrays.map_err(|source| ExpectedError::Npz {
            path: path_of(),
            source,
        })?;
        for array in expected.values_mut().filter(|array| array.shape.is_empty()) {
            // A scalar is read as one element, as for inputs.
            array.shape.push(1);
        }
        let given = expected.remove(GIVEN);
        let given = given.ok_or_else(|| ExpectedError::Missing {
            path: path_of(),
            name: GIVEN,
        })?;
        match expected.is_empty() {
            true => Err(ExpectedError::Nothing { path: path_of() }),
            false => Ok(Self { given, expected }),
        }
    }

    /// Compares the expected gradients by name.
    pub(super) fn check(
        &self,
        actual: &[(String, HostArray)],
        tolerances: &OnnxTolerances,
    ) -> Result<(), String> {
        for (&name, expected) in &self.expected {
            let found = actual.iter().find(|(actual, _)| actual == name);
            let (_, actual) = found.ok_or_else(|| {
                let has: Vec<&str> = actual.iter().map(|(name, _)| name.as_str()).collect();
                format!("there is no {name}: the operator has {}", has.join(", "))
            })?;
            let tolerance = tolerances.of_gradient(name, actual.element);
            check_array(actual, expected, tolerance)
                .map_err(|reason| format!("gradient {name:?}: {reason}"))?;
        }
        Ok(())
    }
}
