//! Runs programs on Flex, Burn's own backend for the CPU. Its tensors are contiguous, so views are
//! copied in and out.

use std::collections::BTreeMap;
use std::time::Instant;

use burn::backend::Flex;
use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::FloatTensor;
use burn::tensor::{DType as BurnDType, TensorData, read_sync};
use cubenorm::ops::{
    BackwardOperands, BackwardSpec, NormBackend, NormSpec, Operands, Optional, Reduction,
};
use cubenorm_core::{DType, Epsilon, Layout, LerpDesc, NormDesc, Statistics, TensorDesc};
use cubenorm_operators::{Gradient, Normalize, Program, Slot, Step};

use crate::executor::span_bytes;
use crate::{ExecuteError, Executor, HostArray, Run};

/// Executor on Flex, which is always available.
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
                    Step::Lerp(step) => {
                        lerp(
                            &step.desc,
                            step.input,
                            step.previous,
                            step.output,
                            &mut memory,
                        )?;
                    }
                    Step::Gradient(step) => gradient(step, &mut memory)?,
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

/// Bytes of each tensor.
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
    /// Collects the elements of a view, in row-major order.
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
    fn scatter(
        &mut self,
        slot: Slot,
        desc: &TensorDesc,
        offset: usize,
        bytes: &[u8],
    ) -> Result<(), ExecuteError> {
        let size = desc.dtype.size();
        let buffer = self.0.get_mut(&slot).ok_or_else(|| short(desc))?;
        for (address, element) in addresses(&desc.layout).zip(bytes.chunks_exact(size)) {
            let at = (offset + address) * size;
            let place = buffer.get_mut(at..at + size).ok_or_else(|| short(desc))?;
            place.copy_from_slice(element);
        }
        Ok(())
    }

    fn tensor(&self, slot: Slot, desc: &TensorDesc) -> Result<Tensor, ExecuteError> {
        Ok(tensor(self.gather(slot, desc, 0)?, desc))
    }
}

fn tensor(bytes: Vec<u8>, desc: &TensorDesc) -> Tensor {
    let shape = desc.shape().to_vec();
    let data = TensorData::from_bytes_vec(bytes, shape, burn_dtype(desc.dtype));
    Flex::float_from_data(data, &Default::default())
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
    let [mean, variance] = desc.given();
    let operands = Operands::<Flex> {
        input: memory.tensor(step.input, &desc.input)?,
        residual: optional(step.residual, desc.residual.as_ref())?,
        scale: optional(step.scale, desc.scale.as_ref())?,
        bias: optional(step.bias, desc.bias.as_ref())?,
        mean: optional(step.mean, mean)?,
        variance: optional(step.variance, variance)?,
    };
    let outputs = Flex::normalize(operands, spec(desc));
    let layout = problem.output_layout;
    let like_output = TensorDesc::new(layout, desc.input.dtype);
    memory.scatter(step.output, &like_output, 0, &bytes(outputs.output)?)?;
    if let (Some(slot), Optional::Some(sum)) = (step.sum, outputs.sum) {
        memory.scatter(slot, &like_output, 0, &bytes(sum)?)?;
    }
    if let (Some(slot), Optional::Some(statistics)) = (step.statistics, outputs.statistics) {
        memory.scatter(slot, &desc.statistics_desc(), 0, &bytes(statistics)?)?;
    }
    Ok(())
}

/// All parts of a description except its tensors.
fn spec(desc: &NormDesc) -> NormSpec {
    let reduction = match &desc.statistics {
        Statistics::MeanVariance => Reduction::MeanVariance,
        Statistics::MeanSquare => Reduction::MeanSquare,
        Statistics::Mean => Reduction::Mean,
        Statistics::L1Norm => Reduction::L1Norm,
        Statistics::L2Norm => Reduction::L2Norm,
        Statistics::None => Reduction::None,
        Statistics::Provided { .. } => Reduction::Provided,
        Statistics::DynamicTanh { .. } => Reduction::DynamicTanh,
    };
    NormSpec {
        axes: desc.axes.as_slice().into(),
        reduction,
        epsilon: desc.epsilon,
        residual_place: desc.residual_place,
        offset: desc.offset,
        rounding: desc.rounding,
        activation: desc.activation,
        writes_output: desc.writes_output,
        writes_sum: desc.writes_sum,
        output_dtype: desc.output.as_ref().map(|output| output.dtype),
        written_statistics: desc.written_statistics,
        batch_invariant: false,
        view: None,
    }
}

fn gradient(step: &Gradient, memory: &mut Memory) -> Result<(), ExecuteError> {
    let desc = &step.desc;
    desc.validate()
        .map_err(|error| ExecuteError::Failed(error.to_string()))?;
    let norm = &desc.norm;
    let optional = |slot: Option<Slot>, desc: Option<&TensorDesc>| match (slot, desc) {
        (Some(slot), Some(desc)) => memory.tensor(slot, desc).map(Optional::Some),
        _ => Ok(Optional::None),
    };
    let scale = optional(step.scale, norm.scale.as_ref())?;
    // The values of the bias are read only for the slope of an activation. Its shape is always
    // read.
    let bias = match (step.bias, &norm.bias) {
        (None, Some(bias)) => {
            let elements = bias.layout.checked_elements().unwrap_or(0);
            let zeros = vec![0; elements * bias.dtype.size()];
            Optional::Some(tensor(zeros, bias))
        }
        (slot, bias) => optional(slot, bias.as_ref())?,
    };
    let gradients = Flex::normalize_backward(
        BackwardOperands::<Flex> {
            input: memory.tensor(step.input, &norm.input)?,
            output_gradient: memory.tensor(step.output_gradient, &desc.output_gradient)?,
            saved: optional(step.saved, desc.saved.as_ref())?,
            scale,
            bias,
            sum_gradient: Optional::None,
            gate: Optional::None,
        },
        BackwardSpec {
            norm: spec(norm),
            wants_input: desc.input_gradient.is_some(),
            wants_scale: desc.wants_scale,
            wants_bias: desc.wants_bias,
            wants_gate: false,
        },
    );
    let packed = |param: &Option<TensorDesc>| {
        let param = param.as_ref();
        param.map(|param| TensorDesc::contiguous(param.shape(), param.dtype))
    };
    let results = [
        (
            step.input_gradient,
            desc.input_gradient.clone(),
            gradients.input,
        ),
        (step.scale_gradient, packed(&norm.scale), gradients.scale),
        (step.bias_gradient, packed(&norm.bias), gradients.bias),
    ];
    for (slot, desc, tensor) in results {
        if let (Some(slot), Some(desc), Optional::Some(tensor)) = (slot, desc, tensor) {
            memory.scatter(slot, &desc, 0, &bytes(tensor)?)?;
        }
    }
    Ok(())
}

/// Few numbers: computed here, in the dtype that the kernels compute in.
fn lerp(
    desc: &LerpDesc,
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
    let taken = |value: f64| match desc.deviation {
        None => value,
        Some(Epsilon::InsideSqrt(epsilon)) => rounds(1.0 / (value + epsilon).sqrt()),
        Some(Epsilon::AddedToDeviation(epsilon)) => rounds(1.0 / (value.sqrt() + epsilon)),
    };
    let value = |i: usize| match &old {
        Some(old) => rounds(rounds(old[i] * share) + rounds(taken(new[i]) * rounds(1.0 - share))),
        None => taken(new[i]),
    };
    let values: Vec<f64> = (0..new.len()).map(value).collect();
    let encoded = HostArray::from_f64(desc.output.dtype, [values.len()], &values)
        .map_err(|error| ExecuteError::Failed(error.to_string()))?;
    memory.scatter(output, &desc.output, desc.output_offset, &encoded.bytes)
}

fn decode(dtype: DType, bytes: &[u8]) -> Result<Vec<f64>, ExecuteError> {
    let shape = [bytes.len() / dtype.size()];
    HostArray::new(dtype.into(), shape, bytes.to_vec())
        .and_then(|array| array.to_f64())
        .map_err(|error| ExecuteError::Failed(error.to_string()))
}
