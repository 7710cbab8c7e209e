//! A backward pass with data, compared with central differences of the reference.

use std::collections::HashMap;
use std::sync::Mutex;

use cubenorm_core::{
    Activation, BackwardDesc, DType, Layout, NormDesc, Statistics, StrategyChoice, TensorDesc,
};
use cubenorm_kernels::{BackwardTensors, LaunchError, Tensor, launch_backward};
use cubenorm_reference::Forward;

use crate::case::{Case, decode, encode, noise, round, row_major};
use crate::device::TestDevice;
use crate::guard::buffer;
use crate::tolerance;

/// Compared elements of each gradient. One difference takes four evaluations of the reference.
const SAMPLES: usize = 12;

/// Step of the five-point stencil. Its order allows a long step; rounding dominates short ones.
const STEP: f64 = 3e-4;

/// A backward pass and the values of its tensors, rounded to their dtypes.
#[derive(Debug, Clone)]
pub struct BackwardCase {
    /// The backward pass.
    pub desc: BackwardDesc,
    forward: Case,
    output_gradient: Vec<f64>,
    sum_gradient: Option<Vec<f64>>,
    derivatives: Derivatives,
}

/// Derivatives by tensor and address: computed once for all strategies. A clone starts without them, since its data may be
/// changed.
#[derive(Debug, Default)]
struct Derivatives(Mutex<HashMap<(&'static str, usize), f64>>);

impl Derivatives {
    /// A derivative, from before or computed now.
    fn of(&self, tensor: &'static str, address: usize, compute: impl FnOnce() -> f64) -> f64 {
        let known = || self.0.lock().expect("no thread panics while it has it");
        let found = known().get(&(tensor, address)).copied();
        found.unwrap_or_else(|| {
            let derivative = compute();
            known().insert((tensor, address), derivative);
            derivative
        })
    }
}

impl Clone for Derivatives {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// Gradients of a device, row-major.
#[derive(Debug, Clone, PartialEq)]
pub struct ActualGradients {
    /// Gradient of the input.
    pub input: Option<Vec<f64>>,
    /// Gradient of the scale.
    pub scale: Option<Vec<f64>>,
    /// Gradient of the bias.
    pub bias: Option<Vec<f64>>,
    /// Gradient of the gate.
    pub gate: Option<Vec<f64>>,
}

impl BackwardCase {
    /// All gradients of a normalization, for random data.
    pub fn new(norm: NormDesc, seed: u64) -> Self {
        Self::of(BackwardDesc::new(norm), seed)
    }

    /// Like [`BackwardCase::new`], with `input` as a function of the buffer position.
    pub fn with_input(norm: NormDesc, seed: u64, input: impl Fn(usize) -> f64) -> Self {
        Self {
            forward: Case::with_input(norm.clone(), seed, input),
            ..Self::new(norm, seed)
        }
    }

    /// The gradients of a description, for random data.
    pub fn of(desc: BackwardDesc, seed: u64) -> Self {
        let random = |tensor: &TensorDesc, seed: u64| {
            let elements = tensor.layout.checked_span().expect("a test fits");
            let number = |position| round(tensor.dtype, noise(seed, position));
            (0..elements).map(number).collect()
        };
        let output_gradient = random(&desc.output_gradient, seed ^ 0xabcd);
        let of_sum = desc.sum_gradient.as_ref();
        let sum_gradient = of_sum.map(|tensor| random(tensor, seed ^ 0x5a5a));
        let mut forward = Case::new(desc.norm.clone(), seed);
        if matches!(
            desc.norm.statistics,
            Statistics::L1Norm | Statistics::L2Norm
        ) {
            // Central differences must not cross 0, where absolute values have a kink. An element
            // divided by its own norm has a jump there.
            let least = |x: f64| round(desc.norm.input.dtype, (4.0 * STEP).copysign(x));
            for x in forward.input.iter_mut().filter(|x| x.abs() < 4.0 * STEP) {
                *x = least(*x);
            }
        }
        Self {
            forward,
            output_gradient,
            sum_gradient,
            derivatives: Derivatives::default(),
            desc,
        }
    }

    /// Replaces dy by `gradient`, a function of the buffer position.
    pub fn with_output_gradient(mut self, gradient: impl Fn(usize) -> f64) -> Self {
        let dtype = self.desc.output_gradient.dtype;
        for (position, value) in self.output_gradient.iter_mut().enumerate() {
            *value = round(dtype, gradient(position));
        }
        self.derivatives = Derivatives::default();
        self
    }

    /// Gradients of a device.
    pub fn run(
        &self,
        device: &TestDevice,
        choice: StrategyChoice,
    ) -> Result<ActualGradients, LaunchError> {
        let client = &device.client;
        let upload = |dtype: DType, values: &[f64]| match values.is_empty() {
            true => client.empty(8),
            false => buffer(client, &encode(dtype, values)),
        };
        let norm = &self.desc.norm;
        let param = |tensor: &Option<TensorDesc>, values: &Option<Vec<f64>>| {
            Some(upload(tensor.as_ref()?.dtype, values.as_ref()?))
        };
        let saved = self.desc.saved.as_ref().map(|saved| {
            let values = self.saved();
            upload(saved.dtype, &values)
        });
        let tensors = BackwardTensors {
            saved: saved.filter(|_| self.desc.reads_saved()),
            scale: param(&norm.scale, &self.forward.scale),
            bias: param(&norm.bias, &self.forward.bias),
            sum_gradient: param(&self.desc.sum_gradient, &self.sum_gradient),
            gate: param(&norm.residual, &self.forward.residual),
            ..BackwardTensors::new(
                upload(norm.input.dtype, &self.forward.input),
                upload(self.desc.output_gradient.dtype, &self.output_gradient),
            )
        };
        let outputs = launch_backward(client, &self.desc, &tensors, choice)?;
        let download = |tensor: Tensor| {
            let bytes = client.read_one(tensor.handle).expect("the launch succeeds");
            row_major(&tensor.desc.layout, &decode(tensor.desc.dtype, &bytes))
        };
        Ok(ActualGradients {
            input: outputs.input.map(download),
            scale: outputs.scale.map(download),
            bias: outputs.bias.map(download),
            gate: outputs.gate.map(download),
        })
    }

    /// Pairs of mean and reciprocal deviation that the forward pass saves.
    fn saved(&self) -> Vec<f64> {
        let expected = self.forward.expected();
        let saved = self.desc.norm.statistics_desc();
        let pairs = self.forward.of_rows(&expected.mean);
        let rstds = self.forward.of_rows(&expected.rstd);
        let pairs = pairs.into_iter().zip(rstds);
        let numbers: Vec<f64> = match self.desc.provides_sums() {
            true => {
                let [sums, products] = self.means(&expected);
                let means = sums.into_iter().zip(products);
                pairs
                    .zip(means)
                    .flat_map(|((mean, rstd), (sum, product))| [mean, rstd, sum, product])
                    .collect()
            }
            false => pairs.flat_map(|(mean, rstd)| [mean, rstd]).collect(),
        };
        let stored = numbers.into_iter().map(|value| round(saved.dtype, value));
        stored.collect()
    }

    /// Means of `dy * scale`, and of its product with the normalized value, of each row.
    fn means(&self, expected: &Forward) -> [Vec<f64>; 2] {
        let norm = &self.desc.norm;
        assert_eq!(
            norm.activation,
            Activation::Identity,
            "it has no slope here"
        );
        let plain = |statistics| {
            let input = TensorDesc::contiguous(norm.input.shape(), DType::F64);
            NormDesc::new(input, norm.axes.clone(), statistics)
        };
        let mut scales = Case::with_input(plain(Statistics::None), 0, |_| 1.0);
        scales.desc.scale = norm.scale.clone();
        scales.scale = self.forward.scale.clone();
        let scales = scales.expected().output;
        let dy = row_major(&self.desc.output_gradient.layout, &self.output_gradient);
        let weighted: Vec<f64> = dy
            .iter()
            .zip(scales)
            .map(|(dy, scale)| dy * scale)
            .collect();
        let normalized = |at: usize| (expected.sum[at] - expected.mean[at]) * expected.rstd[at];
        let mean = |of: &dyn Fn(usize) -> f64| {
            let case = Case::with_input(plain(Statistics::Mean), 0, of);
            case.of_rows(&case.expected().mean)
        };
        [
            mean(&|at| weighted[at]),
            mean(&|at| weighted[at] * normalized(at)),
        ]
    }

    /// Derivative of `sum(dy * output)` with respect to one element of a tensor, at all positions
    /// that repeat the element.
    ///
    /// Each output is differentiated on its own. A difference of two sums would contain their
    /// roundoff, which grows with the sums.
    fn derivative(&self, of: impl Fn(&mut Case) -> &mut f64) -> f64 {
        let moved = |by: f64| {
            let mut case = self.forward.clone();
            *of(&mut case) += by;
            case.expected().output
        };
        let [far_below, below, above, far_above] =
            [-2.0, -1.0, 1.0, 2.0].map(|steps| moved(steps * STEP));
        let gradient = row_major(&self.desc.output_gradient.layout, &self.output_gradient);
        let rises = gradient.iter().enumerate().map(|(at, dy)| {
            let rise = 8.0 * (above[at] - below[at]) - (far_above[at] - far_below[at]);
            dy * rise
        });
        rises.sum::<f64>() / (12.0 * STEP)
    }

    /// Runs on a device and compares a sample of every gradient with central differences.
    pub fn check(&self, device: &TestDevice, choice: StrategyChoice) -> Result<(), String> {
        let at = format!("{} {choice:?} {:?}", device.name, self.desc);
        let actual = self
            .run(device, choice)
            .map_err(|error| format!("{at}: {error}"))?;
        self.compare(&actual)
            .map_err(|error| format!("{at}: {error}"))
    }

    fn compare(&self, actual: &ActualGradients) -> Result<(), String> {
        let norm = &self.desc.norm;
        let dtype = norm.input.dtype;
        let BackwardDesc {
            input_gradient,
            wants_scale,
            wants_bias,
            gate_gradient,
            ..
        } = &self.desc;
        let wanted = [
            ("input", actual.input.is_some(), input_gradient.is_some()),
            (
                "scale",
                actual.scale.is_some(),
                *wants_scale && norm.scale.is_some(),
            ),
            (
                "bias",
                actual.bias.is_some(),
                *wants_bias && norm.bias.is_some(),
            ),
            ("gate", actual.gate.is_some(), gate_gradient.is_some()),
        ];
        if let Some((what, ..)) = wanted.iter().find(|(_, is, should)| is != should) {
            return Err(format!(
                "{what} gradient: present but not requested, or requested but missing"
            ));
        }
        let expected = self.forward.expected();
        let largest = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
        let rstd = largest(&mut expected.rstd.iter().map(|x| x.abs()));
        let normalized = (expected.sum.iter())
            .zip(expected.mean.iter().zip(&expected.rstd))
            .map(|(x, (mean, rstd))| ((x - mean) * rstd).abs());
        let mut normalized = normalized;
        let normalized = largest(&mut normalized).max(1.0);
        let [alpha, beta] = norm.activation.parameters();
        // dy is at most 1, a scale without its offset at most 1.5. The parameters bound the slope.
        let steepest = (1.0 + alpha.abs()) * (1.0 + beta.abs());
        let elements = expected.sum.len();
        // As in `tolerance::bound`: `magnitude` bounds the terms of a sum before they cancel. The
        // stencil has a truncation error, and the roundoff of each element.
        let differences = 1e-8_f64.max(1e-12 * elements as f64);
        let stored = |dtype: DType, magnitude: f64, value: f64| {
            2.0 * tolerance::bound(norm.input.dtype.accumulation(), elements, magnitude, 0.0)
                + 1.01 * tolerance::unit_roundoff(dtype) * value.abs()
                + differences
        };
        let off = |magnitude, value| stored(dtype, magnitude, value);
        let through =
            (1.5 + norm.offset.value().abs()) * steepest * normalized * normalized * rstd.max(1.0);
        let added = self
            .desc
            .sum_gradient
            .as_ref()
            .zip(self.sum_gradient.as_ref());
        let added = added.map(|(tensor, values)| row_major(&tensor.layout, values));
        self.compare_one(
            "input",
            &actual.input,
            &norm.input,
            added.as_deref(),
            |value| off(through, value),
            |case, at| &mut case.input[at],
        )?;
        // A gate that is repeated has a gradient at each position.
        let gate = norm.residual.as_ref();
        if let Some(gate) = gate.filter(|gate| gate.shape() == norm.input.shape()) {
            let off = |value| stored(gate.dtype, through, value);
            self.compare_one("gate", &actual.gate, gate, None, off, |case, at| {
                &mut case.residual.as_mut().expect("described")[at]
            })?;
        }
        // A sum of n random terms grows like sqrt(n), a sum of n equal terms like n.
        let terms = match self.desc.output_gradient.layout.overlaps() {
            true => elements as f64,
            false => (elements as f64).sqrt().max(8.0),
        };
        let summed = steepest * normalized * terms;
        if let Some(scale) = &norm.scale {
            let off = |value| off(summed, value);
            self.compare_one("scale", &actual.scale, scale, None, off, |case, at| {
                &mut case.scale.as_mut().expect("described")[at]
            })?;
        }
        if let Some(bias) = &norm.bias {
            let off = |value| off(summed, value);
            self.compare_one("bias", &actual.bias, bias, None, off, |case, at| {
                &mut case.bias.as_mut().expect("described")[at]
            })?;
        }
        Ok(())
    }

    /// Compares with differences, plus what the description adds to them.
    fn compare_one(
        &self,
        name: &'static str,
        actual: &Option<Vec<f64>>,
        tensor: &TensorDesc,
        added: Option<&[f64]>,
        tolerance: impl Fn(f64) -> f64,
        element: impl Fn(&mut Case, usize) -> &mut f64,
    ) -> Result<(), String> {
        let Some(actual) = actual else { return Ok(()) };
        let layout = &tensor.layout;
        // The derivative of a repeated element is the sum over its positions, unlike the gradient
        // of the expanded tensor.
        if layout.overlaps() {
            return Ok(());
        }
        let strides = Layout::contiguous(layout.shape.clone()).strides;
        for position in samples(actual.len()) {
            let address = (0..layout.rank())
                .map(|dim| (position / strides[dim]) % layout.shape[dim] * layout.strides[dim])
                .sum();
            let derivative = || self.derivative(|case| element(case, address));
            let expected = self.derivatives.of(name, address, derivative)
                + added.map_or(0.0, |added| added[position]);
            let allowed = tolerance(expected);
            let agrees = (actual[position] - expected).abs() <= allowed;
            if !agrees {
                return Err(format!(
                    "{name} gradient[{position}] is {}, expected {expected} within {allowed:e}",
                    actual[position]
                ));
            }
        }
        Ok(())
    }
}

/// Positions to compare: the last one, and others that a power of 2 or 10 does not divide evenly, so that they are in
/// other columns.
fn samples(elements: usize) -> impl Iterator<Item = usize> {
    const STRIDE: usize = 7919;
    (0..elements.min(SAMPLES)).map(move |sample| match elements <= SAMPLES {
        true => sample,
        false => (elements - 1 + sample * STRIDE) % elements,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn difference_of_many_elements_agrees_with_its_formula() {
        let (rows, cols) = (2, 1024);
        let input = TensorDesc::contiguous([rows, cols], DType::F64);
        let bias = TensorDesc::contiguous([rows, 1], DType::F64);
        // Rows of one element: the normalized value is its sign.
        let norm = NormDesc::new(input, [], Statistics::L2Norm)
            .with_bias(bias)
            .with_activation(Activation::Silu);
        let mut desc = BackwardDesc::new(norm);
        // One repeated number, so that all roundings have the same sign.
        desc.output_gradient = TensorDesc::new(Layout::strided([rows, cols], [0, 0]), DType::F64);
        for seed in [8218390501008591634, 1, 2, 3] {
            let case = BackwardCase::of(desc.clone(), seed);
            let bias = case.forward.bias.as_ref().expect("described")[1];
            let slope = |x: f64| {
                let sigmoid = 1.0 / (1.0 + (-x).exp());
                sigmoid * (1.0 + x * (1.0 - sigmoid))
            };
            let positive = (case.forward.input[cols..].iter())
                .filter(|x| **x > 0.0)
                .count();
            let slopes =
                positive as f64 * slope(1.0 + bias) + (cols - positive) as f64 * slope(bias - 1.0);
            let formula = case.output_gradient[0] * slopes;
            let difference = case.derivative(|case| &mut case.bias.as_mut().expect("described")[1]);
            let error = (difference - formula).abs();
            println!("seed {seed}: formula {formula}, difference {difference}, off by {error:e}");
            assert!(
                error < 2e-9,
                "seed {seed}: {difference} for {formula}, off by {error:e}"
            );
        }
    }
}
