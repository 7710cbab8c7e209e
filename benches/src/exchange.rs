//! A problem as files, for providers outside Rust.
//!
//! A folder holds the problem's data and gets the provider's result, as files of raw little-endian
//! float32 values. float32 holds each value of every type. So all providers have the same data and
//! the same reference.

use std::{fs, path::Path};

use anyhow::{Context, Result};

use crate::{
    check::{Outcome, check},
    problems::{Pass, Problem},
};

/// Writes `input.bin`, `gamma.bin` and `beta.bin`.
///
/// # Errors
///
/// If the problem is invalid, or a file cannot be written.
pub fn export(problem: &Problem, folder: &Path) -> Result<()> {
    problem.validate()?;
    fs::create_dir_all(folder).with_context(|| format!("{} not made", folder.display()))?;
    let data = problem.host_data();
    let tensors = [
        ("input.bin", data.input),
        ("gamma.bin", data.gamma),
        ("beta.bin", data.beta),
    ];
    for (name, values) in tensors {
        let path = folder.join(name);
        let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        fs::write(&path, bytes).with_context(|| format!("{} not written", path.display()))?;
    }
    Ok(())
}

/// Compares `output.bin`, and `gradient.bin` if the pass has one, with the reference.
///
/// # Errors
///
/// If a file is missing or a value is wrong.
pub fn judge(problem: &Problem, folder: &Path) -> Result<()> {
    problem.validate()?;
    let read = |name: &str| {
        let path = folder.join(name);
        let bytes = fs::read(&path).with_context(|| format!("{} not read", path.display()))?;
        let (values, _) = bytes.as_chunks::<4>();
        Ok::<_, anyhow::Error>(values.iter().map(|&x| f32::from_le_bytes(x)).collect())
    };
    let gradient = match problem.pass {
        Pass::Forward => None,
        Pass::Backward | Pass::Full => Some(read("gradient.bin")?),
    };
    let outcome = Outcome {
        output: read("output.bin")?,
        gradient,
        second: None,
    };
    check(problem, &problem.host_data(), &outcome)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problems::{DType, Op};

    #[test]
    fn exports_are_exact_and_wrong_results_refused() {
        let folder = std::env::temp_dir().join(format!("cubenorm-exchange-{}", std::process::id()));
        let problem = Problem {
            dtype: DType::F16,
            ..Problem::new(Op::RmsNorm, [2, 3])
        };
        export(&problem, &folder).unwrap();
        let input = fs::read(folder.join("input.bin")).unwrap();
        let first = problem.host_data().input[0];
        assert_eq!((input.len(), &input[..4]), (24, &first.to_le_bytes()[..]));

        let absent = judge(&problem, &folder).unwrap_err().to_string();
        assert!(absent.contains("output.bin not read"), "{absent}");
        fs::write(folder.join("output.bin"), &input).unwrap();
        let wrong = judge(&problem, &folder).unwrap_err().to_string();
        fs::remove_dir_all(&folder).unwrap();
        assert!(wrong.contains("of the output is"), "{wrong}");
    }
}
