//! A description with numbers: run on a device and held against the formulas.

use std::collections::BTreeMap;

use cubenorm_core::{DType, Layout, TensorDesc};
use cubenorm_models::{ExecuteError, Executor};
use cubenorm_operators::{Program, Slot};
use cubenorm_reference::operators::{Number, Tensor};
use cubenorm_tests::case::{decode, encode, noise, round};
use cubenorm_tests::estimate::{Estimate, Summation};

use super::description::{Description, Kind};

/// A description and all that decides on its numbers.
#[derive(Debug, Clone)]
pub struct Case {
    pub description: Description,
    /// What is normalized lies around this,
    pub offset: f64,
    /// at most this far from it.
    pub amplitude: f64,
    /// Elements that every buffer has beyond those that its tensor reaches.
    pub slack: usize,
    pub seed: u64,
}

/// What came of a case.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// Every element was compared.
    Agrees {
        elements: usize,
        /// Those about which the formulas say too little: 0 divided by 0, for one.
        loose: usize,
    },
    /// The device lacks what it takes.
    Skipped { reason: String },
}

impl Case {
    /// The numbers of an input, rounded to its dtype.
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

    /// Runs the operator on a device and compares every element of every output, and the gaps
    /// between them.
    ///
    /// # Errors
    ///
    /// What differs, in words.
    pub fn check(&self, device: &dyn Executor) -> Result<Outcome, String> {
        let program = self.description.lower().map_err(|error| {
            format!("the description is refused, which it should not be: {error}")
        })?;
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
            let actual = actual.ok_or_else(|| format!("{name} did not come back"))?;
            compare(&tensor.desc, &buffers[&slot], actual, expected)
                .map_err(|error| format!("{name}{error}"))?;
            elements += expected.len();
            loose += expected.iter().filter(|x| x.is_loose()).count();
        }
        Ok(Outcome::Agrees { elements, loose })
    }

    /// Not a number wherever the tensor has no element: whoever reads there shows it.
    fn input_buffer(&self, desc: &TensorDesc, numbers: &[f64]) -> Vec<u8> {
        let mut buffer = vec![f64::NAN; numbers.len() + self.slack];
        for address in addresses(&desc.layout) {
            buffer[address] = numbers[address];
        }
        encode(desc.dtype, &buffer)
    }

    /// Numbers that no operator comes to, each another one.
    fn output_buffer(&self, slot: Slot, desc: &TensorDesc) -> Vec<u8> {
        let span = desc.layout.checked_span().expect("it is small");
        let number = |at: usize| 1e4 * (2.0 + noise(slot.0 as u64, at));
        let numbers: Vec<f64> = (0..span + self.slack).map(number).collect();
        encode(desc.dtype, &numbers)
    }
}

/// A device may lack dtypes, but not the one of all DirectML tensors and most others.
fn skipped(program: &Program, reason: String) -> Result<Outcome, String> {
    let is_f32 = |tensor: &cubenorm_operators::ProgramTensor| tensor.desc.dtype == DType::F32;
    match program.tensors.iter().all(is_f32) {
        true => Err(format!("refused, although all of it is f32: {reason}")),
        false => Ok(Outcome::Skipped { reason }),
    }
}

/// Where a layout has its elements, in row-major order.
fn addresses(layout: &Layout) -> impl Iterator<Item = usize> {
    let strides = Layout::contiguous(layout.shape.clone()).strides;
    let elements = layout.checked_elements().expect("it is small");
    (0..elements).map(move |number| {
        (0..layout.rank())
            .map(|dim| number / strides[dim] % layout.shape[dim] * layout.strides[dim])
            .sum()
    })
}

/// Compares a buffer with what was there before and with what its elements should be.
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
