use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cubenorm_core::DType;
use cubenorm_operators::{Program, Slot};

/// Runs programs on one device.
pub trait Executor {
    /// Name that selects the device: `wgpu`, `cpu`, `flex`.
    fn name(&self) -> &str;

    /// Runs a program `iterations` times, at least once, from the same buffers each time.
    ///
    /// `buffers` has one entry for each input and output tensor: raw little-endian bytes that cover
    /// the tensor's layout. The bytes of an output are its previous contents, which stay in the
    /// gaps of its layout.
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

/// Result of running a program.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Run {
    /// Contents of each output's buffer, with the same length as before.
    pub outputs: BTreeMap<Slot, Vec<u8>>,
    /// Host time of each iteration.
    pub host_times: Vec<Duration>,
    /// Device time of each iteration; `None` if the device does not measure it.
    pub device_times: Option<Vec<Duration>>,
}

/// Error of running a program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExecuteError {
    /// The device lacks a feature of the program.
    #[error("{0}")]
    Unsupported(String),
    /// Any other cause.
    #[error("{0}")]
    Failed(String),
}

/// True if all tensors of a program are f32, temporaries included. Every device has to support f32.
pub(crate) fn only_f32(program: &Program) -> bool {
    let tensors = program.tensors.iter();
    let dtypes: BTreeSet<DType> = tensors.map(|tensor| tensor.desc.dtype).collect();
    dtypes.iter().all(|&dtype| dtype == DType::F32)
}

/// Bytes that a tensor's layout spans; `None` if they exceed a `usize`.
pub(crate) fn span_bytes(desc: &cubenorm_core::TensorDesc) -> Option<usize> {
    desc.layout.checked_span()?.checked_mul(desc.dtype.size())
}

/// Checks that an executor returned a buffer for each output, with the same length as before.
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
