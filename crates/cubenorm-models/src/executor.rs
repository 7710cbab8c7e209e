use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cubenorm_core::DType;
use cubenorm_operators::{Program, Slot};

/// Runs programs on one device.
pub trait Executor {
    /// What the device is chosen by: `wgpu`, `cpu`, `flex`.
    fn name(&self) -> &str;

    /// Runs a program `iterations` times, at least once, from the same buffers each time.
    ///
    /// `buffers` has one entry for each tensor of role input or output: raw little-endian bytes that
    /// hold at least what the tensor's layout spans. Those of an output are its contents before:
    /// where the layout leaves gaps, they stay.
    ///
    /// # Errors
    ///
    /// [`ExecuteError`].
    fn run(
        &self,
        program: &Program,
        buffers: &BTreeMap<Slot, Vec<u8>>,
        iterations: usize,
    ) -> Result<Run, ExecuteError>;
}

/// What running a program gave.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Run {
    /// The contents of each output's buffer afterwards, as long as they were before.
    pub outputs: BTreeMap<Slot, Vec<u8>>,
    /// How long each iteration took, as the host saw it.
    pub host_times: Vec<Duration>,
    /// How long each iteration took on the device; `None` where the device does not measure.
    pub device_times: Option<Vec<Duration>>,
}

/// Why a program did not run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExecuteError {
    /// The device lacks what the program needs.
    #[error("{0}")]
    Unsupported(String),
    /// Anything else.
    #[error("{0}")]
    Failed(String),
}

/// Whether everything is f32, which no device may lack: what a caller gives or wants, and what a
/// model asks to compute in between.
pub(crate) fn only_f32(program: &Program) -> bool {
    let tensors = program.tensors.iter();
    let dtypes: BTreeSet<DType> = tensors.map(|tensor| tensor.desc.dtype).collect();
    dtypes.iter().all(|&dtype| dtype == DType::F32)
}

/// Bytes that a tensor's layout spans; `None` where that exceeds a `usize`.
pub(crate) fn span_bytes(desc: &cubenorm_core::TensorDesc) -> Option<usize> {
    desc.layout.checked_span()?.checked_mul(desc.dtype.size())
}

/// Checks that an executor kept its promise: a buffer for each output, as long as before.
pub(crate) fn check_outputs(
    program: &Program,
    buffers: &BTreeMap<Slot, Vec<u8>>,
    run: &Run,
) -> Result<(), ExecuteError> {
    for (slot, tensor) in program.outputs() {
        let before = buffers.get(&slot).map(Vec::len);
        let after = run.outputs.get(&slot).map(Vec::len);
        if after.is_none() || after != before {
            return Err(ExecuteError::Failed(format!(
                "{} came back with {after:?} bytes: expected {before:?}",
                tensor.name
            )));
        }
    }
    Ok(())
}
