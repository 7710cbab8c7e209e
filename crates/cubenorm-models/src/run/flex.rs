//! Programs on Flex, Burn's own backend for the CPU. Its tensors are contiguous, so views are copied
//! in and out.

use std::collections::BTreeMap;
use std::time::Instant;

use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Flex, TensorMetadata};
use burn::tensor::{DType as BurnDType, TensorData, read_sync};
use cubenorm::ops::{NormBackend, NormSpec, Operands, Optional, Reduction};
use cubenorm_core::{BlendDesc, DType, Layout, Statistics, TensorDesc};
use cubenorm_operators::{Normalize, Program, Slot, Step};

use crate::executor::span_bytes;
use crate::{ExecuteError, Executor, HostArray, Run};

/// Flex, which is always there.
pub(super) struct FlexExecutor;

type Tensor = FloatTensor<Flex>;

impl Executor for FlexExecutor {
    fn name(&self) -> &str {
        "flex"
    }

    fn run(
        &self,
        program: &Program,
        buffers: &BTreeMap<Slot, Vec<u8>>,
        iterations: usize,
    ) -> Result<Run, ExecuteError> {
        let mut run = Run::default();
        for _ in 0..iterations.max(1) {
            let mut memory = Memory(buffers.clone());
            for (index, tensor) in program.tensors.iter().enumerate() {
                let bytes = span_bytes(&tensor.desc)
                    .ok_or_else(|| ExecuteError::Failed(format!("{} is too large", tensor.name)))?;
                memory
                    .0
                    .entry(Slot(index))
                    .or_insert_with(|| vec![0; bytes]);
            }
            let start = Instant::now();
            for step in &program.steps {
                match step {
                    Step::Normalize(step) => normalize(step, &mut memory)?,
                    Step::Blend(step) => {
                        blend(
                            &step.desc,
                            step.input,
                            step.previous,
                            step.output,
                            &mut memory,
                        )?;
                    }
                }
            }
            run.host_times.push(start.elapsed());
            run.outputs = program
                .outputs()
                .filter_map(|(slot, _)| Some((slot, memory.0.remove(&slot)?)))
                .collect();
        }
        Ok(run)
    }
}

/// The bytes of each tensor.
struct Memory(BTreeMap<Slot, Vec<u8>>);

/// Positions of a layout's elements in its buffer, in row-major order.
fn addresses(layout: &Layout) -> impl Iterator<Item = usize> {
    let strides = Layout::contiguous(layout.shape.clone()).strides;
    let elements = layout.checked_elements().unwrap_or(0);
    (0..elements).map(move |position| {
        (0..layout.rank())
            .map(|dim| (position / strides[dim]) % layout.shape[dim] * layout.strides[dim])
            .sum()
    })
}

fn short(tensor: &TensorDesc) -> ExecuteError {
    ExecuteError::Failed(format!(
        "a buffer is smaller than the view {:?} of it",
        tensor.layout
    ))
}

impl Memory {
    /// The elements of a view, one after another.
    fn gather(
        &self,
        slot: Slot,
        desc: &TensorDesc,
        offset: usize,
    ) -> Result<Vec<u8>, ExecuteError> {
        let size = desc.dtype.size();
        let buffer = self.0.get(&slot).ok_or_else(|| short(desc))?;
        let mut bytes = Vec::with_capacity(size * desc.layout.checked_elements().unwrap_or(0));
        for address in addresses(&desc.layout) {
            let at = (offset + address) * size;
            let element = buffer.get(at..at + size).ok_or_else(|| short(desc))?;
            bytes.extend_from_slice(element);
        }
        Ok(bytes)
    }

    /// Writes elements to a view.
    fn scatter(&mut self, slot: Slot, desc: &TensorDesc, bytes: &[u8]) -> Result<(), ExecuteError> {
        let size = desc.dtype.size();
        let buffer = self.0.get_mut(&slot).ok_or_else(|| short(desc))?;
        for (address, element) in addresses(&desc.layout).zip(bytes.chunks_exact(size)) {
            let at = address * size;
            let place = buffer.get_mut(at..at + size).ok_or_else(|| short(desc))?;
            place.copy_from_slice(element);
        }
        Ok(())
    }

    fn tensor(&self, slot: Slot, desc: &TensorDesc) -> Result<Tensor, ExecuteError> {
        let bytes = self.gather(slot, desc, 0)?;
        let shape = desc.shape().to_vec();
        let data = TensorData::from_bytes_vec(bytes, shape, burn_dtype(desc.dtype));
        Ok(Flex::float_from_data(data, &Default::default()))
    }
}

fn burn_dtype(dtype: DType) -> BurnDType {
    match dtype {
        DType::F16 => BurnDType::F16,
        DType::BF16 => BurnDType::BF16,
        DType::F32 => BurnDType::F32,
        DType::F64 => BurnDType::F64,
    }
}

fn bytes(tensor: Tensor) -> Result<Vec<u8>, ExecuteError> {
    let data = read_sync(Flex::float_into_data(tensor));
    let data = data.map_err(|error| ExecuteError::Failed(format!("{error:?}")))?;
    Ok(data.as_bytes().to_vec())
}

fn normalize(step: &Normalize, memory: &mut Memory) -> Result<(), ExecuteError> {
    let desc = &step.desc;
    // Checked as on every other device.
    let problem = desc
        .problem()
        .map_err(|error| ExecuteError::Failed(error.to_string()))?;
    if problem.is_empty() {
        return Ok(());
    }
    let optional = |slot: Option<Slot>, desc: Option<&TensorDesc>| match (slot, desc) {
        (Some(slot), Some(desc)) => memory.tensor(slot, desc).map(Optional::Some),
        _ => Ok(Optional::None),
    };
    let (reduction, mean, variance) = match &desc.statistics {
        Statistics::MeanVariance => (Reduction::MeanVariance, None, None),
        Statistics::MeanSquare => (Reduction::MeanSquare, None, None),
        Statistics::Mean => (Reduction::Mean, None, None),
        Statistics::L1Norm => (Reduction::L1Norm, None, None),
        Statistics::L2Norm => (Reduction::L2Norm, None, None),
        Statistics::None => (Reduction::None, None, None),
        Statistics::Given { mean, variance } => (Reduction::Given, Some(mean), Some(variance)),
    };
    let operands = Operands::<Flex> {
        input: memory.tensor(step.input, &desc.input)?,
        residual: optional(step.residual, desc.residual.as_ref())?,
        scale: optional(step.scale, desc.scale.as_ref())?,
        bias: optional(step.bias, desc.bias.as_ref())?,
        mean: optional(step.mean, mean)?,
        variance: optional(step.variance, variance)?,
    };
    let rank = operands.input.shape().num_dims();
    let spec = NormSpec {
        axes: desc
            .axes
            .iter()
            .copied()
            .filter(|&axis| axis < rank)
            .collect(),
        reduction,
        epsilon: desc.epsilon,
        residual_place: desc.residual_place,
        activation: desc.activation,
        writes_sum: desc.writes_sum,
        written_statistics: desc.written_statistics,
    };
    let outputs = Flex::normalize(operands, spec);
    let layout = problem.output_layout;
    let like_output = TensorDesc::new(layout, desc.input.dtype);
    memory.scatter(step.output, &like_output, &bytes(outputs.output)?)?;
    if let (Some(slot), Optional::Some(sum)) = (step.sum, outputs.sum) {
        memory.scatter(slot, &like_output, &bytes(sum)?)?;
    }
    if let (Some(slot), Optional::Some(statistics)) = (step.statistics, outputs.statistics) {
        memory.scatter(slot, &desc.statistics_desc(), &bytes(statistics)?)?;
    }
    Ok(())
}

/// A handful of numbers: computed here, in the dtype that the kernels compute in.
fn blend(
    desc: &BlendDesc,
    input: Slot,
    previous: Option<Slot>,
    output: Slot,
    memory: &mut Memory,
) -> Result<(), ExecuteError> {
    desc.validate()
        .map_err(|error| ExecuteError::Failed(error.to_string()))?;
    let rounds = |value: f64| match desc.accumulation() {
        DType::F64 => value,
        _ => f64::from(value as f32),
    };
    let read = |slot, tensor: &TensorDesc, offset| {
        let bytes = memory.gather(slot, tensor, offset)?;
        decode(tensor.dtype, &bytes)
    };
    let new = read(input, &desc.input, desc.input_offset)?;
    let old = match (previous, &desc.previous) {
        (Some(slot), Some(tensor)) => Some(read(slot, tensor, 0)?),
        _ => None,
    };
    let share = rounds(desc.momentum);
    let value = |i: usize| match &old {
        Some(old) => rounds(rounds(old[i] * share) + rounds(new[i] * rounds(1.0 - share))),
        None => new[i],
    };
    let values: Vec<f64> = (0..new.len()).map(value).collect();
    let encoded = HostArray::from_f64(desc.output.dtype, [values.len()], &values)
        .map_err(|error| ExecuteError::Failed(error.to_string()))?;
    memory.scatter(output, &desc.output, &encoded.bytes)
}

fn decode(dtype: DType, bytes: &[u8]) -> Result<Vec<f64>, ExecuteError> {
    let shape = [bytes.len() / dtype.size()];
    HostArray::new(dtype.into(), shape, bytes.to_vec())
        .and_then(|array| array.to_f64())
        .map_err(|error| ExecuteError::Failed(error.to_string()))
}
