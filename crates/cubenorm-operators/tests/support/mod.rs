//! Host execution of programs in f64, and tensors for them.

#![allow(dead_code, reason = "each test file uses its own part of it")]

use cubenorm_core::{DType, Epsilon, Layout, TensorDesc, WrittenStatistics};
use cubenorm_operators::{Gradient, Lerp, Normalize, Program, Role, Slot, Step};
use cubenorm_reference::{BackwardTensors, Tensors, forward, gradient, operators};

/// All indices of a shape in row-major order.
pub(crate) fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    let mut all = vec![vec![]];
    for &size in shape {
        all = all
            .into_iter()
            .flat_map(|index: Vec<usize>| (0..size).map(move |i| [index.clone(), vec![i]].concat()))
            .collect();
    }
    all
}

fn address(layout: &Layout, index: &[usize]) -> usize {
    let steps = index.iter().zip(&layout.strides);
    steps.map(|(i, stride)| i * stride).sum()
}

/// Pseudo-random numbers from a seed.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x2545_f491_4f6c_dd1d)
    }

    fn next(&mut self) -> u64 {
        // xorshift64*, Vigna 2016.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }

    /// From 0 to below a bound.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub(crate) fn flag(&mut self) -> bool {
        self.below(2) == 1
    }

    /// From -2 to 2.
    pub(crate) fn number(&mut self) -> f64 {
        self.next() as f64 / (1u64 << 53) as f64 * 4.0 - 2.0
    }

    /// Sizes from 1 to 3, so that no rank makes a tensor large.
    pub(crate) fn shape(&mut self, rank: usize) -> Vec<usize> {
        (0..rank).map(|_| 1 + self.below(3)).collect()
    }

    /// Any subset of the dimensions, in any order.
    pub(crate) fn axes(&mut self, rank: usize) -> Vec<usize> {
        let mut axes: Vec<usize> = (0..rank).filter(|_| self.flag()).collect();
        for i in (1..axes.len()).rev() {
            axes.swap(i, self.below(i + 1));
        }
        axes
    }

    /// The shape with 1 for some of the sizes.
    pub(crate) fn broadcast(&mut self, shape: &[usize]) -> Vec<usize> {
        let keep = |&size: &usize| if self.flag() { size } else { 1 };
        shape.iter().map(keep).collect()
    }

    /// Strides of the dimensions in any order in memory, with gaps.
    pub(crate) fn strides(&mut self, shape: &[usize]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..shape.len()).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, self.below(i + 1));
        }
        let mut strides = vec![0; shape.len()];
        let mut next = 1 + self.below(2);
        for dim in order {
            strides[dim] = next;
            next = next * shape[dim] + self.below(2);
        }
        strides
    }
}

/// A tensor and its values.
#[derive(Debug, Clone)]
pub(crate) struct Tensor {
    pub layout: Layout,
    pub buffer: Vec<f64>,
}

impl Tensor {
    pub(crate) fn new(layout: Layout, random: &mut Random) -> Self {
        let span = layout.checked_span().unwrap();
        let buffer = (0..span).map(|_| random.number()).collect();
        Self { layout, buffer }
    }

    pub(crate) fn contiguous(shape: &[usize], random: &mut Random) -> Self {
        Self::new(Layout::contiguous(shape), random)
    }

    /// Strides in any order, sometimes with a 0.
    pub(crate) fn strided(shape: &[usize], random: &mut Random) -> Self {
        let mut strides = random.strides(shape);
        if random.flag() {
            let repeated = random.below(shape.len());
            strides[repeated] = 0;
        }
        Self::new(Layout::strided(shape, strides), random)
    }

    /// Values of at least 0, for variances.
    pub(crate) fn positive(mut self) -> Self {
        self.buffer.iter_mut().for_each(|x| *x = x.abs());
        self
    }

    pub(crate) fn shape(&self) -> &[usize] {
        &self.layout.shape
    }

    /// In core's terms.
    pub(crate) fn desc(&self, dtype: DType) -> TensorDesc {
        TensorDesc::new(self.layout.clone(), dtype)
    }

    /// In the reference's terms.
    pub(crate) fn numbers(&self, dtype: DType) -> operators::Tensor {
        operators::Tensor {
            desc: self.desc(dtype),
            buffer: self.buffer.clone(),
        }
    }
}

/// Buffers of a program after it has run.
pub(crate) struct Run<'a> {
    program: &'a Program,
    buffers: Vec<Vec<f64>>,
    written: Vec<bool>,
}

/// Runs a program on the inputs of its formal positions. Unread positions are ignored.
///
/// Checks the guarantees for a runner. Steps read inputs or earlier outputs, write other tensors,
/// and view buffers in their dtype and within their bounds.
pub(crate) fn run<'a>(program: &'a Program, inputs: &[(usize, &Tensor)]) -> Run<'a> {
    let mut run = Run {
        program,
        buffers: vec![],
        written: vec![],
    };
    for (number, tensor) in program.tensors.iter().enumerate() {
        let given = inputs
            .iter()
            .find(|(position, _)| *position == tensor.position);
        let buffer = match tensor.role {
            Role::Input => {
                assert_eq!(program.input_at(tensor.position), Some(Slot(number)));
                let (_, given) = given.unwrap_or_else(|| panic!("{} is not given", tensor.name));
                assert!(tensor.desc.fits(tensor.name, given.buffer.len()).is_ok());
                given.buffer.clone()
            }
            Role::Output => {
                assert_eq!(program.output_at(tensor.position), Some(Slot(number)));
                vec![f64::NAN; tensor.desc.layout.checked_span().unwrap()]
            }
            Role::Temporary => vec![f64::NAN; tensor.desc.layout.checked_span().unwrap()],
        };
        run.buffers.push(buffer);
        run.written.push(tensor.role == Role::Input);
    }
    for step in &program.steps {
        match step {
            Step::Normalize(step) => run.normalize(step),
            Step::Lerp(step) => run.lerp(step),
            Step::Gradient(step) => run.gradient(step),
        }
    }
    run
}

impl Run<'_> {
    /// Returns an output in row-major order.
    pub(crate) fn output(&self, position: usize) -> Vec<f64> {
        let slot = self.program.output_at(position).expect("it is wanted");
        assert!(self.written[slot.0], "no step writes output {position}");
        let layout = &self.program.tensor(slot).desc.layout;
        indices(&layout.shape)
            .iter()
            .map(|index| self.buffers[slot.0][address(layout, index)])
            .collect()
    }

    fn read(&self, slot: Slot, desc: &TensorDesc) -> &[f64] {
        let tensor = self.program.tensor(slot);
        assert!(self.written[slot.0], "{} is read before", tensor.name);
        self.check(slot, desc, 0);
        &self.buffers[slot.0]
    }

    fn check(&self, slot: Slot, desc: &TensorDesc, offset: usize) {
        let tensor = self.program.tensor(slot);
        assert_eq!(desc.dtype, tensor.desc.dtype, "{}", tensor.name);
        let room = self.buffers[slot.0].len().saturating_sub(offset);
        desc.fits(tensor.name, room).unwrap();
    }

    fn write(&mut self, slot: Slot, desc: &TensorDesc, values: &[f64]) {
        self.write_from(slot, desc, 0, values);
    }

    fn write_from(&mut self, slot: Slot, desc: &TensorDesc, offset: usize, values: &[f64]) {
        let tensor = self.program.tensor(slot);
        assert_ne!(tensor.role, Role::Input, "{} is written", tensor.name);
        let half_pairs = tensor.role == Role::Temporary;
        assert!(
            half_pairs || !self.written[slot.0],
            "{} is written twice",
            tensor.name
        );
        self.check(slot, desc, offset);
        let all = indices(desc.shape());
        assert_eq!(all.len(), values.len());
        for (index, &value) in all.iter().zip(values) {
            self.buffers[slot.0][offset + address(&desc.layout, index)] = value;
        }
        self.written[slot.0] = true;
    }

    fn normalize(&mut self, step: &Normalize) {
        let desc = &step.desc;
        desc.problem().unwrap();
        let (mean, variance) = match &desc.statistics {
            cubenorm_core::Statistics::Provided { mean, variance } => (Some(mean), Some(variance)),
            _ => (None, None),
        };
        let read = |slot: Option<Slot>, desc: Option<&TensorDesc>| {
            assert_eq!(slot.is_some(), desc.is_some());
            slot.map(|slot| self.read(slot, desc.unwrap()))
        };
        let result = forward(
            desc,
            &Tensors {
                input: self.read(step.input, &desc.input),
                residual: read(step.residual, desc.residual.as_ref()),
                scale: read(step.scale, desc.scale.as_ref()),
                bias: read(step.bias, desc.bias.as_ref()),
                mean: read(step.mean, mean),
                variance: read(step.variance, variance),
                ..Tensors::default()
            },
        );
        let output = desc.output.as_ref().expect("it is always described");
        self.write(step.output, output, &result.output);
        assert_eq!(step.sum.is_some(), desc.writes_sum);
        if let Some(sum) = step.sum {
            self.write(sum, output, &result.sum);
        }
        assert_eq!(step.statistics.is_some(), desc.written_statistics.is_some());
        let (Some(slot), Some(written)) = (step.statistics, desc.written_statistics) else {
            return;
        };
        let pairs = desc.statistics_desc();
        let rank = desc.input.layout.rank();
        let mut values = vec![f64::NAN; pairs.layout.checked_elements().unwrap()];
        for (number, index) in indices(desc.input.shape()).iter().enumerate() {
            let row: Vec<usize> = (0..rank)
                .map(|dim| {
                    if desc.axes.contains(&dim) {
                        0
                    } else {
                        index[dim]
                    }
                })
                .collect();
            let first = address(&pairs.layout, &row);
            values[first] = result.mean[number];
            let (rstd, variance) = (result.rstd[number], result.variance[number]);
            let others = match written {
                WrittenStatistics::MeanRstd => vec![rstd],
                WrittenStatistics::MeanVariance => vec![variance],
                WrittenStatistics::MeanRstdVariance => vec![rstd, variance],
                WrittenStatistics::Scale => unreachable!("operators are not quantised"),
            };
            values[first + 1..=first + others.len()].copy_from_slice(&others);
        }
        let flat = TensorDesc::contiguous([values.len()], pairs.dtype);
        self.write(slot, &flat, &values);
    }

    fn lerp(&mut self, step: &Lerp) {
        let desc = &step.desc;
        desc.validate().unwrap();
        let input = self.read(step.input, &desc.input);
        self.check(step.input, &desc.input, desc.input_offset);
        assert_eq!(step.previous.is_some(), desc.previous.is_some());
        let previous = step.previous.zip(desc.previous.as_ref());
        let previous = previous.map(|(slot, desc)| (self.read(slot, desc), desc));
        let values: Vec<f64> = indices(desc.output.shape())
            .iter()
            .map(|index| {
                let input = input[desc.input_offset + address(&desc.input.layout, index)];
                let input = match desc.deviation {
                    None => input,
                    Some(Epsilon::InsideSqrt(epsilon)) => 1.0 / (input + epsilon).sqrt(),
                    Some(Epsilon::AddedToDeviation(epsilon)) => 1.0 / (input.sqrt() + epsilon),
                };
                previous.map_or(input, |(buffer, previous)| {
                    let previous = buffer[address(&previous.layout, index)];
                    previous * desc.momentum + input * (1.0 - desc.momentum)
                })
            })
            .collect();
        self.write_from(step.output, &desc.output, desc.output_offset, &values);
    }

    fn gradient(&mut self, step: &Gradient) {
        let desc = &step.desc;
        desc.validate().unwrap();
        let norm = &desc.norm;
        let flat = |desc: &TensorDesc| {
            TensorDesc::contiguous([desc.layout.checked_span().unwrap()], desc.dtype)
        };
        let saved = step.saved.zip(desc.saved.as_ref());
        let scale = step.scale.zip(norm.scale.as_ref());
        let bias = step.bias.zip(norm.bias.as_ref());
        let result = gradient(
            desc,
            &BackwardTensors {
                input: self.read(step.input, &norm.input),
                output_gradient: self.read(step.output_gradient, &desc.output_gradient),
                saved: saved.map(|(slot, desc)| self.read(slot, &flat(desc))),
                scale: scale.map(|(slot, desc)| self.read(slot, desc)),
                bias: bias.map(|(slot, desc)| self.read(slot, desc)),
                ..BackwardTensors::default()
            },
        );
        if let (Some(slot), Some(desc)) = (step.input_gradient, &desc.input_gradient) {
            self.write(slot, desc, &result.input);
        }
        let params = [
            (step.scale_gradient, &norm.scale, result.scale),
            (step.bias_gradient, &norm.bias, result.bias),
        ];
        for (slot, param, values) in params {
            if let (Some(slot), Some(param)) = (slot, param) {
                let packed = TensorDesc::contiguous(param.shape(), param.dtype);
                self.write(slot, &packed, &values);
            }
        }
    }
}

/// Requires two lists of numbers to agree to the last digits of f64.
#[track_caller]
pub(crate) fn assert_close(actual: &[f64], expected: &[f64], what: impl std::fmt::Debug) {
    assert_eq!(actual.len(), expected.len(), "{what:?}");
    for (number, (actual, expected)) in actual.iter().zip(expected).enumerate() {
        let error = (actual - expected).abs();
        assert!(
            error <= 1e-9 * expected.abs().max(1.0),
            "element {number} is {actual}, expected {expected}: {what:?}"
        );
    }
}
