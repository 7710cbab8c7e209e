//! A description with data, run on a device and by the reference.

use std::sync::OnceLock;

use cubecl::client::Client;
use cubecl::server::Handle;
use cubenorm_core::{
    Activation, DType, Hardware, Layout, NormDesc, ResidualPlace, Statistics, StrategyChoice,
    TensorDesc, WrittenStatistics,
};
use cubenorm_kernels::{
    ForwardOutputs, ForwardTensors, LaunchError, launch_forward, launch_forward_within,
};
use cubenorm_reference::{Forward, Tensors, forward};

use crate::device::TestDevice;
use crate::guard::buffer;
use crate::tolerance;

pub use cubenorm_reference::{decode, encode, round};

/// A description and the values of its tensors, rounded to their dtypes.
#[derive(Debug, Clone)]
pub struct Case {
    /// The normalization.
    pub desc: NormDesc,
    pub(crate) input: Vec<f64>,
    pub(crate) residual: Option<Vec<f64>>,
    pub(crate) scale: Option<Vec<f64>>,
    pub(crate) bias: Option<Vec<f64>>,
    pub(crate) mean: Option<Vec<f64>>,
    pub(crate) variance: Option<Vec<f64>>,
    pub(crate) rotation: Option<Vec<f64>>,
    judged: Judged,
}

/// Results of the reference, and the [magnitudes](Case::magnitudes) that bound the error of each output: computed once
/// for all strategies. A clone starts without them, since its data may be changed.
#[derive(Debug, Default)]
struct Judged(OnceLock<(NormDesc, Forward, Magnitudes)>);

/// Magnitudes of each output: see [`Case::magnitudes`].
type Magnitudes = Vec<(f64, f64)>;

impl Clone for Judged {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// Reproducible noise in [-1, 1): a multiplicative hash of the position.
pub fn noise(seed: u64, position: usize) -> f64 {
    let mut x = (position as u64 + 1)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(seed.wrapping_mul(0xd1b5_4a32_d192_ed03));
    x ^= x >> 32;
    x = x.wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^= x >> 32;
    // 24 bits are exact in f32.
    ((x >> 40) as f64 / (1u64 << 23) as f64) - 1.0
}

/// All results of a launch, row-major.
pub fn download(client: &Client, outputs: ForwardOutputs) -> Actual {
    let download = |tensor: cubenorm_kernels::Tensor| {
        let flat = decode(
            tensor.desc.dtype,
            &client.read_one(tensor.handle).expect("the launch succeeds"),
        );
        row_major(&tensor.desc.layout, &flat)
    };
    Actual {
        output: download(outputs.output),
        sum: outputs.sum.map(download),
        statistics: outputs.statistics.map(download),
    }
}

impl Case {
    /// A description with random data: input around 0, scale around 1, variances positive.
    pub fn new(desc: NormDesc, seed: u64) -> Self {
        Self::with_input(desc, seed, |position| 2.0 * noise(seed, position))
    }

    /// A description with random parameters and `input` as a function of the buffer position.
    pub fn with_input(desc: NormDesc, seed: u64, input: impl Fn(usize) -> f64) -> Self {
        let fill = |tensor: &TensorDesc, value: &dyn Fn(usize) -> f64| {
            let elements = tensor.layout.checked_span().expect("a test fits");
            (0..elements)
                .map(|position| round(tensor.dtype, value(position)))
                .collect::<Vec<_>>()
        };
        let random = |salt: u64, offset: f64| {
            move |position: usize| offset + 0.5 * noise(seed ^ (salt << 32), position)
        };
        let optional = |tensor: &Option<TensorDesc>, salt, offset| {
            tensor.as_ref().map(|t| fill(t, &random(salt, offset)))
        };
        let (mean, variance) = match &desc.statistics {
            Statistics::Provided { mean, variance } => (
                Some(fill(mean, &random(4, 0.0))),
                Some(fill(variance, &random(5, 1.0))),
            ),
            Statistics::DynamicTanh { alpha } => (None, Some(fill(alpha, &random(5, 0.75)))),
            _ => (None, None),
        };
        Self {
            input: fill(&desc.input, &input),
            residual: optional(&desc.residual, 1, 0.0),
            scale: optional(&desc.scale, 2, 1.0),
            bias: optional(&desc.bias, 3, 0.0),
            mean,
            variance,
            rotation: (desc.rotation.as_ref()).map(|it| fill(&it.table, &random(6, 0.5))),
            judged: Judged::default(),
            desc,
        }
    }

    /// Results of the reference.
    pub fn expected(&self) -> Forward {
        forward(
            &self.desc,
            &Tensors {
                input: &self.input,
                residual: self.residual.as_deref(),
                scale: self.scale.as_deref(),
                bias: self.bias.as_deref(),
                mean: self.mean.as_deref(),
                variance: self.variance.as_deref(),
                rotation: self.rotation.as_deref(),
            },
        )
    }

    /// The factor of each normalized value, row-major: offset and scale.
    pub fn factors(&self) -> Vec<f64> {
        let mut ones = self.clone();
        ones.input.fill(1.0);
        ones.desc = NormDesc {
            statistics: Statistics::None,
            residual: None,
            bias: None,
            rounding: Default::default(),
            activation: Default::default(),
            ..self.desc.clone()
        };
        ones.expected().output
    }

    /// Results of a device: output, sum and statistics, row-major.
    pub fn run(&self, client: &Client, choice: StrategyChoice) -> Result<Actual, LaunchError> {
        let outputs = launch_forward(client, &self.desc, &self.tensors(client), choice)?;
        Ok(download(client, outputs))
    }

    /// Like [`Case::run`], but planned for `hardware`.
    pub fn run_within(
        &self,
        client: &Client,
        choice: StrategyChoice,
        hardware: &Hardware,
    ) -> Result<Actual, LaunchError> {
        let tensors = self.tensors(client);
        let outputs = launch_forward_within(client, &self.desc, &tensors, choice, hardware)?;
        Ok(download(client, outputs))
    }

    /// Uploads the tensors, with `elements` NaNs of padding after the input.
    ///
    /// Gaps that the input's layout skips are NaN as well.
    pub fn tensors_with_padding(&self, client: &Client, elements: usize) -> ForwardTensors {
        let Layout { shape, strides } = &self.desc.input.layout;
        let places = Layout::contiguous(shape.clone()).strides;
        let mut input = vec![f64::NAN; self.input.len() + elements];
        for position in 0..shape.iter().product() {
            let indices = places.iter().zip(shape);
            let indices = indices.map(|(place, size)| position / place % size);
            let address: usize = indices.zip(strides).map(|(index, by)| index * by).sum();
            input[address] = self.input[address];
        }
        let input = encode(self.desc.input.dtype, &input);
        ForwardTensors {
            input: buffer(client, &input),
            ..self.tensors(client)
        }
    }

    /// Uploads the tensors.
    pub fn tensors(&self, client: &Client) -> ForwardTensors {
        let upload = |dtype: DType, values: &[f64]| -> Handle {
            // Not every runtime can create an empty buffer. The placeholder is never read.
            match values.is_empty() {
                true => client.empty(dtype.size()),
                false => buffer(client, &encode(dtype, values)),
            }
        };
        let param = |tensor: Option<&TensorDesc>, values: &Option<Vec<f64>>| {
            Some(upload(tensor?.dtype, values.as_ref()?))
        };
        let [mean, variance] = self.desc.given();
        ForwardTensors {
            residual: param(self.desc.residual.as_ref(), &self.residual),
            scale: param(self.desc.scale.as_ref(), &self.scale),
            bias: param(self.desc.bias.as_ref(), &self.bias),
            mean: param(mean, &self.mean),
            variance: param(variance, &self.variance),
            rotation: param(
                self.desc.rotation.as_ref().map(|rotation| &rotation.table),
                &self.rotation,
            ),
            ..ForwardTensors::new(upload(self.desc.input.dtype, &self.input))
        }
    }

    /// Runs on a device and compares every element of every result with the reference.
    pub fn check(&self, device: &TestDevice, choice: StrategyChoice) -> Result<(), String> {
        let at = format!("{} {choice:?} {:?}", device.name, self.desc);
        let actual = self
            .run(&device.client, choice)
            .map_err(|error| format!("{at}: {error}"))?;
        self.compare(&actual)
            .map_err(|error| format!("{at}: {error}"))
    }

    /// Compares an output with the reference.
    pub fn compare_output(
        &self,
        client: &Client,
        desc: &TensorDesc,
        output: Handle,
    ) -> Result<(), String> {
        let output = match desc.layout.checked_elements() {
            Some(0) => Vec::new(),
            _ => {
                let bytes = client.read_one(output).expect("the launch succeeds");
                row_major(&desc.layout, &decode(desc.dtype, &bytes))
            }
        };
        self.compare(&Actual {
            output,
            sum: None,
            statistics: None,
        })
    }

    /// Compares every element of every result with the reference.
    pub fn compare(&self, actual: &Actual) -> Result<(), String> {
        let (desc, expected, magnitudes) = self.judged.0.get_or_init(|| {
            let expected = self.expected();
            let magnitudes = self.magnitudes(&expected);
            (self.desc.clone(), expected, magnitudes)
        });
        assert_eq!(desc, &self.desc, "clone a case to change it");
        let (dtype, output_dtype) = (self.desc.input.dtype, self.desc.output_dtype());
        let cols = self.cols();
        // Values out of the dtype's range are stored as infinity.
        let stored = |&value: &f64| match round(output_dtype, value) {
            rounded if rounded.is_infinite() => rounded,
            _ => value,
        };
        let output: Vec<f64> = expected.output.iter().map(stored).collect();
        compare("output", &actual.output, &output, |i| {
            let (magnitude, cancelled) = magnitudes[i];
            tolerance::bound(output_dtype, cols, magnitude, cancelled)
        })?;
        let wanted = [
            ("sum", actual.sum.is_some(), self.desc.writes_sum),
            (
                "statistics",
                actual.statistics.is_some(),
                self.desc.written_statistics.is_some(),
            ),
        ];
        if let Some((what, ..)) = wanted.iter().find(|(_, is, should)| is != should) {
            return Err(format!(
                "{what}: present but not requested, or requested but missing"
            ));
        }
        if let Some(sum) = &actual.sum {
            let stored = 1.01 * tolerance::unit_roundoff(dtype);
            compare("sum", sum, &expected.sum, |i| {
                stored * expected.sum[i].abs() + f64::MIN_POSITIVE
            })?;
        }
        if let Some(statistics) = &actual.statistics {
            let means = self.of_rows(&expected.mean);
            let rstds = self.of_rows(&expected.rstd);
            let variances = self.of_rows(&expected.variance);
            let actual_means: Vec<f64> = statistics.iter().copied().step_by(2).collect();
            let seconds: Vec<f64> = statistics.iter().copied().skip(1).step_by(2).collect();
            let accumulation = dtype.accumulation();
            let largest_sum = self.largest_sum(expected);
            compare("mean", &actual_means, &means, |i| {
                // Relative to the deviation. A much larger offset costs its own last digit.
                let deviation = 1.0 / rstds[i].max(1e-30);
                let offset = tolerance::bound(accumulation, cols, deviation, largest_sum);
                offset + 2.0 * tolerance::unit_roundoff(accumulation) * means[i].abs()
            })?;
            match self.desc.written_statistics {
                Some(WrittenStatistics::MeanVariance) => {
                    compare("variance", &seconds, &variances, |i| {
                        let cancelled = largest_sum * variances[i].sqrt();
                        tolerance::bound(accumulation, cols, variances[i], cancelled)
                            + f64::MIN_POSITIVE
                    })?;
                }
                _ => compare("rstd", &seconds, &rstds, |i| {
                    let rstd = rstds[i];
                    tolerance::bound(accumulation, cols, rstd, rstd * largest_sum * rstd)
                })?,
            }
        }
        Ok(())
    }

    fn cols(&self) -> usize {
        let shape = self.desc.input.shape();
        self.desc.axes.iter().map(|&axis| shape[axis]).product()
    }

    /// Largest `input + residual`, or gated input, whose rounding the deviations inherit; 0 without a residual.
    fn largest_sum(&self, expected: &Forward) -> f64 {
        let largest = |sum: &[f64]| sum.iter().map(|x| x.abs()).fold(0.0, f64::max);
        match (&self.desc.residual, self.desc.residual_place) {
            (Some(_), ResidualPlace::Input) => largest(&expected.sum),
            (Some(_), ResidualPlace::InputGate) => largest(&self.input) * largest_gate(&self.desc),
            _ => 0.0,
        }
    }

    /// Magnitudes that bound the error of each output, as [`tolerance::bound`] takes them.
    ///
    /// The first adds up the absolute values of the final terms. The second adds up the terms that
    /// cancelled before.
    fn magnitudes(&self, expected: &Forward) -> Magnitudes {
        // A residual that is added last is a part like the bias. A gate is a factor of all parts, or belongs to the input.
        let place = self.desc.residual_place;
        let residual = self.desc.residual.clone();
        let without_bias = NormDesc {
            bias: None,
            residual: residual.clone().filter(|_| place.is_in_front()),
            activation: match place {
                ResidualPlace::InputGate => self.desc.activation,
                _ => Default::default(),
            },
            ..self.desc.clone()
        };
        let affine = NormDesc {
            bias: self.desc.bias.clone(),
            residual: residual.filter(|_| place != ResidualPlace::OutputGate),
            ..without_bias.clone()
        };
        let run = |desc: NormDesc| {
            let case = Self {
                desc,
                ..self.clone()
            };
            case.expected().output
        };
        let (scaled, shifted) = (run(without_bias), run(affine));
        let slope = match (&self.desc.residual, place) {
            (Some(_), ResidualPlace::InputGate) => 1.0,
            (Some(_), ResidualPlace::OutputGate) => largest_gate(&self.desc),
            _ => activation_slope(&self.desc),
        };
        let largest_sum = self.largest_sum(expected);
        // A rotated value is a sum of two parts.
        let of_rotation = self.desc.rotation.as_ref().map_or(0.0, |_| {
            let parts = run(NormDesc {
                rotation: None,
                ..self.desc.clone()
            });
            parts.iter().map(|x| x.abs()).fold(0.0, f64::max)
        });
        let least = self.least_magnitude() + of_rotation;
        (0..scaled.len())
            .map(|i| {
                let given = match self.desc.statistics {
                    Statistics::Provided { .. } => expected.mean[i].abs(),
                    _ => 0.0,
                };
                // Scales are at most 1.5, without their offset.
                let largest_scale = 1.5 + self.desc.offset.value().abs();
                let cancelled = largest_scale * (given + largest_sum) * expected.rstd[i];
                let magnitude = scaled[i].abs() + (shifted[i] - scaled[i]).abs() + least;
                (slope * magnitude, slope * cancelled)
            })
            .collect()
    }

    /// Lower bound of an output's magnitude, for the tolerance.
    ///
    /// It is 1 for normalized rows, whose elements are of that order. An Lp norm without activation
    /// leaves small outputs that are accurate to their own digits: the smallest normal number.
    fn least_magnitude(&self) -> f64 {
        let is_norm = matches!(
            self.desc.statistics,
            Statistics::L1Norm | Statistics::L2Norm
        );
        match is_norm && self.desc.activation == Activation::default() {
            true if self.desc.input.dtype == DType::F16 => 2f64.powi(-14),
            true => f64::from(f32::MIN_POSITIVE),
            false => 1.0,
        }
    }

    /// One number per row, in the order of the kept axes.
    pub(crate) fn of_rows(&self, of_elements: &[f64]) -> Vec<f64> {
        let shape = self.desc.input.shape();
        let strides = Layout::contiguous(shape).strides;
        let firsts = (0..of_elements.len()).filter(|position| {
            self.desc
                .axes
                .iter()
                .all(|&axis| (position / strides[axis]).is_multiple_of(shape[axis]))
        });
        firsts.map(|i| of_elements[i]).collect()
    }
}

/// Bound of the factor by which an activation magnifies an error, from its parameters.
fn activation_slope(desc: &NormDesc) -> f64 {
    let [alpha, beta] = desc.activation.parameters();
    (1.0 + alpha.abs()) * (1.0 + beta.abs())
}

/// Upper bound of a gate and of its rounding errors' factor: residuals are within [-1, 1).
fn largest_gate(desc: &NormDesc) -> f64 {
    2.0 * activation_slope(desc)
}

/// Results of a device, row-major.
#[derive(Debug, Clone, PartialEq)]
pub struct Actual {
    /// Normalized output.
    pub output: Vec<f64>,
    /// `input + residual`.
    pub sum: Option<Vec<f64>>,
    /// Two numbers per row, interleaved.
    pub statistics: Option<Vec<f64>>,
}

/// Reads a buffer through its layout, row-major.
pub(crate) fn row_major(layout: &Layout, flat: &[f64]) -> Vec<f64> {
    let strides = Layout::contiguous(layout.shape.clone()).strides;
    let elements = layout.checked_elements().expect("a test fits");
    (0..elements)
        .map(|position| {
            let address: usize = (0..layout.rank())
                .map(|dim| (position / strides[dim]) % layout.shape[dim] * layout.strides[dim])
                .sum();
            flat[address]
        })
        .collect()
}

fn compare(
    name: &str,
    actual: &[f64],
    expected: &[f64],
    tolerance: impl Fn(usize) -> f64,
) -> Result<(), String> {
    if actual.len() != expected.len() {
        let (actual, expected) = (actual.len(), expected.len());
        return Err(format!("{name} has {actual} elements, expected {expected}"));
    }
    for (i, (&actual, &expected)) in actual.iter().zip(expected).enumerate() {
        let tolerance = tolerance(i);
        let agrees = match expected.is_finite() {
            true => (actual - expected).abs() <= tolerance,
            false => actual == expected || (actual.is_nan() && expected.is_nan()),
        };
        if !agrees {
            return Err(format!(
                "{name}[{i}] is {actual}, expected {expected} within {tolerance:e}"
            ));
        }
    }
    Ok(())
}
