//! A description with values, run on a device and compared with the formulas.

use std::collections::BTreeMap;

use cubenorm_core::{DType, Layout, TensorDesc};
use cubenorm_models::{ExecuteError, Executor};
use cubenorm_operators::{Program, Slot};
use cubenorm_reference::operators::{Number, Tensor};
use cubenorm_tests::case::{decode, encode, noise, round};
use cubenorm_tests::estimate::{Estimate, Summation};

use super::description::{Description, Kind};

/// A description and the parameters of its values.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub description: Description,
    /// Center of the normalized values.
    pub offset: f64,
    /// Largest distance of the normalized values from `offset`.
    pub amplitude: f64,
    /// Extra elements at the end of each buffer.
    pub slack: usize,
    pub seed: u64,
}

/// Outcome of a case.
#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    /// Every element was compared.
    Agrees {
        elements: usize,
        /// Elements whose bounds are too wide, for example after 0 / 0.
        loose: usize,
    },
    /// The device does not support the operator.
    Skipped { reason: String },
}

impl Case {
    /// Values of an input, rounded to its dtype.
    fn numbers(&self, position: usize, desc: &TensorDesc) -> Vec<f64> {
        let span = desc.layout.checked_span().expect("it is small");
        let random = |at: usize| noise(self.seed ^ ((position as u64) << 32), at);
        let number = |at: usize| match self.description.kind(position) {
            Kind::Tensor => self.offset + self.amplitude * random(at),
            Kind::Gradient | Kind::Scale | Kind::Bias => 2.0 * random(at),
            Kind::Mean => self.offset + random(at),
            Kind::Variance => 2.0 * random(at).abs(),
        };
        (0..span).map(|at| round(desc.dtype, number(at))).collect()
    }

    /// Runs the operator on a device and compares all elements and gaps of each output.
    ///
    /// # Errors
    ///
    /// The first difference.
    pub(crate) fn check(&self, device: &dyn Executor) -> Result<Outcome, String> {
        let program = self
            .description
            .lower()
            .map_err(|error| format!("the description was refused: {error}"))?;
        let descs = self.description.inputs();
        let numbers: Vec<Option<Vec<f64>>> = descs
            .iter()
            .enumerate()
            .map(|(position, desc)| Some(self.numbers(position, desc.as_ref()?)))
            .collect();

        let mut buffers = BTreeMap::new();
        for (slot, tensor) in program.inputs() {
            let desc = descs[tensor.position].as_ref().expect("it is given");
            let numbers = numbers[tensor.position].as_ref().expect("it is given");
            buffers.insert(slot, self.input_buffer(desc, numbers));
        }
        for (slot, tensor) in program.outputs() {
            buffers.insert(slot, self.output_buffer(slot, &tensor.desc));
        }
        let run = match device.run(&program, &buffers, 1) {
            Ok(run) => run,
            Err(ExecuteError::Unsupported(reason)) => return skipped(&program, reason),
            Err(error) => return Err(error.to_string()),
        };

        let computed_in = self.description.computed_in();
        let summation = match device.name() {
            "flex" => Summation::Serial,
            _ => Summation::Blocks,
        };
        let tensors: Vec<Option<Tensor<Estimate>>> = descs
            .iter()
            .zip(&numbers)
            .map(|(desc, numbers)| {
                let desc = desc.clone()?;
                let read = |&value: &f64| Estimate::read(value, desc.dtype, computed_in, summation);
                let buffer = numbers.as_ref()?.iter().map(read).collect();
                Some(Tensor { desc, buffer })
            })
            .collect();
        let tensors: Vec<Option<&Tensor<Estimate>>> = tensors.iter().map(Option::as_ref).collect();
        let expected = self.description.formula(&tensors);
        let (mut elements, mut loose) = (0, 0);
        for (slot, tensor) in program.outputs() {
            let name = tensor.name;
            let expected = expected[tensor.position].as_ref();
            let expected = expected.ok_or_else(|| format!("{name} has no formula"))?;
            let actual = run.outputs.get(&slot);
            let actual = actual.ok_or_else(|| format!("{name} is missing"))?;
            compare(&tensor.desc, &buffers[&slot], actual, expected)
                .map_err(|error| format!("{name}{error}"))?;
            elements += expected.len();
            loose += expected.iter().filter(|x| x.is_loose()).count();
        }
        Ok(Outcome::Agrees { elements, loose })
    }

    /// An input buffer with NaN in all gaps, which exposes reads of them.
    fn input_buffer(&self, desc: &TensorDesc, numbers: &[f64]) -> Vec<u8> {
        let mut buffer = vec![f64::NAN; numbers.len() + self.slack];
        for address in addresses(&desc.layout) {
            buffer[address] = numbers[address];
        }
        encode(desc.dtype, &buffer)
    }

    /// An output buffer of distinct values that no operator computes.
    fn output_buffer(&self, slot: Slot, desc: &TensorDesc) -> Vec<u8> {
        let span = desc.layout.checked_span().expect("it is small");
        let number = |at: usize| 1e4 * (2.0 + noise(slot.0 as u64, at));
        let numbers: Vec<f64> = (0..span + self.slack).map(number).collect();
        encode(desc.dtype, &numbers)
    }
}

/// A skipped case, or an error if all tensors are f32, which every device supports.
fn skipped(program: &Program, reason: String) -> Result<Outcome, String> {
    let is_f32 = |tensor: &cubenorm_operators::ProgramTensor| tensor.desc.dtype == DType::F32;
    match program.tensors.iter().all(is_f32) {
        true => Err(format!("refused, although all tensors are f32: {reason}")),
        false => Ok(Outcome::Skipped { reason }),
    }
}

/// Addresses of the elements of a layout, in row-major order.
fn addresses(layout: &Layout) -> impl Iterator<Item = usize> {
    let strides = Layout::contiguous(layout.shape.clone()).strides;
    let elements = layout.checked_elements().expect("it is small");
    (0..elements).map(move |number| {
        (0..layout.rank())
            .map(|dim| number / strides[dim] % layout.shape[dim] * layout.strides[dim])
            .sum()
    })
}

/// Compares the elements of a buffer with `expected`, and its gaps with `before`.
fn compare(
    desc: &TensorDesc,
    before: &[u8],
    after: &[u8],
    expected: &[Estimate],
) -> Result<(), String> {
    if before.len() != after.len() {
        let (before, after) = (before.len(), after.len());
        return Err(format!(" has {after} bytes, and had {before}"));
    }
    let size = desc.dtype.size();
    let mut is_gap = vec![true; after.len() / size];
    let values = decode(desc.dtype, after);
    let elements = desc.layout.checked_elements().expect("it is small");
    if elements != expected.len() {
        let expected = expected.len();
        return Err(format!(" has {elements} elements, expected {expected}"));
    }
    for (number, (address, expected)) in addresses(&desc.layout).zip(expected).enumerate() {
        is_gap[address] = false;
        if !expected.admits(values[address], desc.dtype) {
            return Err(format!(
                "[{number}] is {:e}, expected {:e} within {:e} before it is rounded to {}",
                values[address],
                expected.value(),
                expected.error(),
                desc.dtype,
            ));
        }
    }
    let gap = |&at: &usize| is_gap[at] && before[at * size..][..size] != after[at * size..][..size];
    match (0..is_gap.len()).find(gap) {
        None => Ok(()),
        Some(at) => Err(format!(
            " has no element at {at}, but {:e} was written there",
            values[at]
        )),
    }
}
