//! Norms over several devices: the functions of [`distributed`](crate::distributed).

use std::fmt::Debug;
use std::sync::{Arc, Weak};

use burn::backend::ops::FloatTensorOps;
use burn::backend::{Dispatch, TensorMetadata};
use burn::tensor::{DType, Shape, Tensor};
use cubenorm_core::{NormError, WrittenStatistics};

use super::channels::{batch_axes, channels, statistics_dtype};
use super::{Call, expect_rank, expect_sizes, is_capturing, numbers};
use crate::distributed::{Collective, CollectiveError, SyncError};
use crate::ops::{
    BackwardOperands, BackwardSpec, Gradient, NormBackend, NormSpec, Optional, Passed, Reduction,
    Retrieved, View, attach, provided_pairs,
};

/// Results of [`sync_batch_norm_train`].
#[derive(Debug, Clone)]
pub struct SyncBatchNormTrain<const D: usize> {
    /// This member's part of the batch, normalized.
    pub output: Tensor<D>,
    /// The mean of each channel over the batches of all members, `[channels]`, of the input's dtype, or of f32 for an
    /// input of f16 or bf16. It has no gradient. 0 if all batches are empty.
    pub mean: Tensor<1>,
    /// The biased variance of each channel, of the same shape and dtype. It has no gradient.
    pub variance: Tensor<1>,
    /// The elements of each channel over the batches of all members, `[1]`, of the same dtype.
    pub count: Tensor<1>,
}

/// Normalizes each channel by its mean and biased variance over the batches of all members:
/// `y = (x - mean) / sqrt(variance + epsilon) * gamma + beta`.
///
/// Every member calls it with its own part of a batch: see [`distributed`](crate::distributed). The results equal
/// [`batch_norm_train`](crate::batch_norm_train) of the whole batch. The backward pass exchanges two sums per
/// channel. The gradients of `gamma` and `beta` are sums over this member's part.
///
/// Sources: [Batch Normalization](https://arxiv.org/abs/1502.03167), and Chan, Golub and LeVeque, Updating Formulae and a
/// Pairwise Algorithm for Computing Sample Variances (1979), for the merge.
///
/// # Shapes
///
/// - `input`, result: `[batch, channels, ...]`; the batch may be empty, and all members have the other sizes
/// - `gamma`, `beta`, mean and variance: `[channels]`
///
/// # Dtypes
///
/// As [`batch_norm_train`](crate::batch_norm_train), and all members have the same.
///
/// # Panics
///
/// If [`try_sync_batch_norm_train`] returns an error, with that message. `backward()` panics with the message of a
/// [`CollectiveError`].
///
/// # Example
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use burn::tensor::{Device, Tensor};
/// use cubenorm::distributed::{Collective, InProcess};
///
/// # #[cfg(feature = "flex")] {
/// // A group of one, as on a machine with a single device.
/// let member = InProcess::group(1, Duration::from_secs(10)).remove(0);
/// let member: Arc<dyn Collective> = Arc::new(member);
/// let x = Tensor::<2>::from_floats([[1.0], [3.0]], &Device::flex());
/// let result = cubenorm::sync_batch_norm_train(x, None, None, 0.0, &member);
/// assert_eq!(result.output.into_data().try_to_vec::<f32>().unwrap(), [-1.0, 1.0]);
/// # }
/// ```
pub fn sync_batch_norm_train<const D: usize>(
    input: Tensor<D>,
    gamma: impl Into<Option<Tensor<1>>>,
    beta: impl Into<Option<Tensor<1>>>,
    epsilon: f64,
    collective: &Arc<dyn Collective>,
) -> SyncBatchNormTrain<D> {
    or_panic(try_sync_batch_norm_train(
        input, gamma, beta, epsilon, collective,
    ))
}

/// [`sync_batch_norm_train`] as a [`Result`].
///
/// # Errors
///
/// - [`SyncError::Norm`] as [`try_batch_norm_train`](crate::try_batch_norm_train), before anything is exchanged
/// - [`SyncError::Collective`] if the members did not exchange their statistics
pub fn try_sync_batch_norm_train<const D: usize>(
    input: Tensor<D>,
    gamma: impl Into<Option<Tensor<1>>>,
    beta: impl Into<Option<Tensor<1>>>,
    epsilon: f64,
    collective: &Arc<dyn Collective>,
) -> Result<SyncBatchNormTrain<D>, SyncError> {
    let (channels, view) = channels(&input)?;
    let (gamma, beta) = (gamma.into(), beta.into());
    expect_sizes(&gamma, &beta, channels)?;
    if channels == 0 {
        return Err(NormError::Shape {
            tensor: "input",
            shape: input.dims().to_vec(),
            expected: "[batch, channels, ...] with one channel or more".into(),
        }
        .into());
    }
    let spec = NormSpec {
        view: Some(view),
        ..NormSpec::new(batch_axes::<D>(), Reduction::MeanVariance, epsilon)
    };
    let call = SyncCall {
        input,
        params: [gamma, beta],
        spec,
        rows: channels,
        pair_dims: [channels].to_vec(),
        collective,
    };
    let Synced { output, merged } = call.run()?;
    Ok(SyncBatchNormTrain {
        output,
        mean: merged.mean,
        variance: merged.variance,
        count: merged.count,
    })
}

/// Statistics of [`norm_sharded`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShardedNorm {
    /// Mean and biased variance, as [`layer_norm`](crate::layer_norm).
    Layer,
    /// Mean square, as [`rms_norm`](crate::rms_norm).
    Rms,
}

/// [`layer_norm`](crate::layer_norm) or [`rms_norm`](crate::rms_norm) of rows whose parts are on different members, as
/// in tensor-parallel layers.
///
/// Every member calls it with its own part of all rows: see [`distributed`](crate::distributed). Two numbers per row are
/// exchanged forward and two backward; for RMS norm one and one.
///
/// # Shapes
///
/// - `input`, result: `[..., part]`; parts may differ between members and be 0, other sizes are the same
/// - `gamma`, `beta`: `[part]`, this member's; without them 1 and 0
///
/// # Dtypes
///
/// As [`layer_norm`](crate::layer_norm), and all members have the same.
///
/// # Panics
///
/// If [`try_norm_sharded`] returns an error, with that message. `backward()` panics with the message of a
/// [`CollectiveError`].
///
/// # Example
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use burn::tensor::{Device, Tensor};
/// use cubenorm::ShardedNorm;
/// use cubenorm::distributed::{Collective, InProcess};
///
/// # #[cfg(feature = "flex")] {
/// let members = InProcess::group(2, Duration::from_secs(10));
/// std::thread::scope(|scope| {
///     for (member, part) in members.into_iter().zip([[3.0, -3.0], [-3.0, 3.0]]) {
///         scope.spawn(move || {
///             let member: Arc<dyn Collective> = Arc::new(member);
///             let x = Tensor::<2>::from_floats([part], &Device::flex());
///             let y = cubenorm::norm_sharded(x, None, None, ShardedNorm::Rms, 0.0, &member);
///             let expected = part.map(|x: f32| x / 3.0);
///             assert_eq!(y.into_data().try_to_vec::<f32>().unwrap(), expected);
///         });
///     }
/// });
/// # }
/// ```
pub fn norm_sharded<const D: usize>(
    input: Tensor<D>,
    gamma: impl Into<Option<Tensor<1>>>,
    beta: impl Into<Option<Tensor<1>>>,
    norm: ShardedNorm,
    epsilon: f64,
    collective: &Arc<dyn Collective>,
) -> Tensor<D> {
    or_panic(try_norm_sharded(
        input, gamma, beta, norm, epsilon, collective,
    ))
}

/// [`norm_sharded`] as a [`Result`].
///
/// # Errors
///
/// - [`SyncError::Norm`] as [`try_layer_norm`](crate::try_layer_norm), before anything is exchanged
/// - [`SyncError::Collective`] if the members did not exchange their statistics
pub fn try_norm_sharded<const D: usize>(
    input: Tensor<D>,
    gamma: impl Into<Option<Tensor<1>>>,
    beta: impl Into<Option<Tensor<1>>>,
    norm: ShardedNorm,
    epsilon: f64,
    collective: &Arc<dyn Collective>,
) -> Result<Tensor<D>, SyncError> {
    expect_rank(&input, 1, "[..., part]")?;
    let shape = input.dims();
    let (gamma, beta) = (gamma.into(), beta.into());
    expect_sizes(&gamma, &beta, shape[D - 1])?;
    let mut pair_dims = shape.to_vec();
    pair_dims[D - 1] = 1;
    let rows = pair_dims
        .iter()
        .try_fold(1usize, |all, &size| all.checked_mul(size));
    let rows = rows.ok_or(NormError::TooLarge {
        tensor: "statistics",
        shape: pair_dims.clone(),
    })?;
    let reduction = match norm {
        ShardedNorm::Layer => Reduction::MeanVariance,
        ShardedNorm::Rms => Reduction::MeanSquare,
    };
    let call = SyncCall {
        input,
        params: [gamma, beta],
        spec: NormSpec::new([D - 1], reduction, epsilon),
        rows,
        pair_dims,
        collective,
    };
    Ok(call.run()?.output)
}

#[track_caller]
fn or_panic<T>(result: Result<T, SyncError>) -> T {
    result.unwrap_or_else(|error| panic!("{error}"))
}

/// A normalization by statistics of all members, before it runs.
struct SyncCall<'a, const D: usize> {
    input: Tensor<D>,
    params: [Option<Tensor<1>>; 2],
    /// The normalization of this member's elements alone.
    spec: NormSpec,
    /// Number of rows: a channel is one.
    rows: usize,
    /// Shape of one number per row, as the specification sees parameters or the input.
    pair_dims: Vec<usize>,
    collective: &'a Arc<dyn Collective>,
}

/// Results of a [`SyncCall`].
struct Synced<const D: usize> {
    output: Tensor<D>,
    merged: Merged,
}

/// Statistics of all members: one number per row, and one count.
#[derive(Debug, Clone)]
struct Merged {
    count: Tensor<1>,
    mean: Tensor<1>,
    variance: Tensor<1>,
}

impl<const D: usize> SyncCall<'_, D> {
    fn run(self) -> Result<Synced<D>, SyncError> {
        let rank = self.collective.rank();
        if is_capturing(&self.input.device()) {
            return Err(CollectiveError::Captured { rank }.into());
        }
        let [gamma, beta] = self.params.clone();
        // It checks both passes of this member's elements, which bind what the passes here bind.
        Call::new(self.input.clone(), self.local())
            .with_params(gamma, beta)
            .named_as_burn_does()
            .check()?;
        let merged = self.statistics()?;
        let output = self.normalized(&merged)?;
        let [mean, variance] = [&merged.mean, &merged.variance].map(|tensor| self.per_row(tensor));
        let pairs = provided_pairs::<Dispatch>(mean, variance, self.spec.epsilon);
        let gradient = SyncGradient {
            spec: self.spec.clone(),
            rows: self.rows,
            pairs: Pairs(pairs),
            merged: merged.clone(),
            params: self.params.each_ref().map(|param| {
                let param = param.as_ref()?;
                Some(param.dtype())
            }),
            collective: Arc::downgrade(self.collective),
        };
        Ok(Synced {
            output: attach(self.input, self.params, output, gradient),
            merged,
        })
    }

    /// The normalization of this member's elements with their statistics.
    fn local(&self) -> NormSpec {
        NormSpec {
            written_statistics: Some(WrittenStatistics::MeanVariance),
            ..self.spec.clone()
        }
    }

    /// Elements of this member in each row.
    fn count(&self) -> usize {
        let elements = self.input.shape().num_elements();
        elements.checked_div(self.rows).unwrap_or(0)
    }

    /// One number per row in the shape that it broadcasts from.
    fn per_row(&self, tensor: &Tensor<1>) -> burn::backend::DispatchTensor {
        let shape = match &self.spec.view {
            Some(View { params, .. }) => params.clone(),
            None => Shape::from(self.pair_dims.clone()),
        };
        Dispatch::float_reshape(tensor.clone().into_dispatch(), shape)
    }

    /// Reduces this member's elements, and merges the statistics of all members.
    fn statistics(&self) -> Result<Merged, SyncError> {
        let (device, rows) = (self.input.device().without_autodiff(), self.rows);
        let dtype = statistics_dtype(self.input.dtype());
        let count = self.count();
        let [mean, variance] = match count {
            0 => [(); 2].map(|()| Tensor::zeros([rows], (&device, dtype))),
            _ => {
                let input = self.input.clone().inner().into_dispatch();
                let spec = NormSpec {
                    writes_output: false,
                    ..self.local()
                };
                numbers(Dispatch::row_statistics(input, spec), [0, 1], [rows])
            }
        };
        let m2 = variance.mul_scalar(count as f64);
        let count = Tensor::<1>::full([1], count as f64, (&device, dtype));
        if rows == 0 {
            return Ok(Merged {
                count,
                mean,
                variance: m2,
            });
        }
        Ok(match self.spec.reduction {
            // Means of 0 are not sent.
            Reduction::MeanSquare => {
                let sums = self
                    .collective
                    .all_reduce(Tensor::cat(vec![count, m2], 0))?;
                let [count, m2] = [0..1, 1..1 + rows].map(|range| sums.clone().slice([range]));
                let variance = m2 / count.clone().clamp_min(1.0);
                Merged {
                    mean: variance.zeros_like(),
                    count,
                    variance,
                }
            }
            _ => {
                let own = Tensor::cat(vec![count, mean, m2], 0);
                merged(self.collective.all_gather(own)?, rows)
            }
        })
    }

    /// Normalizes this member's elements by the merged statistics.
    fn normalized(&self, merged: &Merged) -> Result<Tensor<D>, NormError> {
        let spec = NormSpec {
            reduction: Reduction::Provided,
            ..self.spec.clone()
        };
        let inner = |param: &Option<Tensor<1>>| param.clone().map(Tensor::inner);
        let [gamma, beta] = self.params.each_ref().map(inner);
        let mut call = Call::new(self.input.clone().inner(), spec)
            .with_params(gamma, beta)
            .named_as_burn_does();
        let dispatch = |tensor: &Tensor<1>| match &self.spec.view {
            Some(_) => tensor.clone().into_dispatch(),
            None => self.per_row(tensor),
        };
        call.mean = Some(dispatch(&merged.mean));
        call.variance = Some(dispatch(&merged.variance));
        Ok(call.run()?.output)
    }
}

/// Merges the statistics of all members: a count, means and M2 in each row.
///
/// M2 of the union is the sum of the members' own, and of their counts times the squared distances of their means from the
/// common one (Chan, Golub, LeVeque).
fn merged(members: Tensor<2>, rows: usize) -> Merged {
    let [count, _] = members.dims();
    let columns = |from: usize, to: usize| members.clone().slice([0..count, from..to]);
    let counts = columns(0, 1);
    let (means, m2s) = (columns(1, 1 + rows), columns(1 + rows, 1 + 2 * rows));
    let total = counts.clone().sum_dim(0);
    // All batches may be empty.
    let divisor = total.clone().clamp_min(1.0);
    let weights = counts.clone() / divisor.clone();
    let rough = (means.clone() * weights.clone()).sum_dim(0);
    // The rounding error of the weighted mean of large means.
    let rest = ((means.clone() - rough.clone()) * weights).sum_dim(0);
    let mean = rough + rest;
    let distances = means - mean.clone();
    let m2 = (m2s + distances.clone() * distances * counts).sum_dim(0);
    Merged {
        count: total.reshape([1]),
        mean: mean.reshape([rows]),
        variance: (m2 / divisor).reshape([rows]),
    }
}

/// Pairs of mean and reciprocal deviation of each row.
#[derive(Debug, Clone)]
struct Pairs(burn::backend::DispatchTensor);

impl Pairs {
    /// The same with two more numbers per row.
    fn with_sums(&self, rows: usize, sums: [Tensor<1>; 2]) -> burn::backend::DispatchTensor {
        let mut shape = self.0.shape().to_vec();
        let flat = Dispatch::float_reshape(self.0.clone(), Shape::from(vec![rows, 2]));
        let mut columns = vec![Tensor::<2>::from_dispatch(flat)];
        columns.extend(sums.map(|sum| sum.reshape([rows, 1])));
        let four = Tensor::cat(columns, 1);
        if let Some(numbers) = shape.last_mut() {
            *numbers = 4;
        }
        Dispatch::float_reshape(four.into_dispatch(), Shape::from(shape))
    }
}

/// State of a backward pass.
#[derive(Debug, Clone)]
struct SyncGradient {
    spec: NormSpec,
    rows: usize,
    pairs: Pairs,
    merged: Merged,
    /// Dtypes of scale and bias.
    params: [Option<DType>; 2],
    /// Not owned: a graph that outlives a thread does not keep its member in the group.
    collective: Weak<dyn Collective>,
}

impl<const D: usize> Gradient<D> for SyncGradient {
    fn backward(self, tensors: Retrieved<D>, wanted: [bool; 3]) -> Passed<D> {
        let passed = match self.spec.view {
            Some(_) => self.pass_channels(tensors, wanted),
            None => self.pass_rows(tensors, wanted),
        };
        // `Tensor::backward` returns no errors.
        passed.unwrap_or_else(|error| panic!("{error}"))
    }
}

impl SyncGradient {
    /// Backward pass of batch norm: the sums of each channel are the gradients of scale and bias.
    fn pass_channels<const D: usize>(
        self,
        tensors: Retrieved<D>,
        wanted: [bool; 3],
    ) -> Result<Passed<D>, CollectiveError> {
        let Retrieved { input, scale, dy } = tensors;
        let [products, sums] = self.sums(&input, &dy, [true; 2]);
        let [of_scale, of_bias] = self.params;
        let param = |sums: &Tensor<1>, dtype: Option<DType>, is_wanted: bool| {
            let dtype = dtype.filter(|_| is_wanted)?;
            Some(sums.clone().cast(dtype))
        };
        let dgamma = param(&products, of_scale, wanted[1]);
        let dbeta = param(&sums, of_bias, wanted[2]);
        let dx = match wanted[0] {
            true => {
                let sums = [sums, products];
                let means = self.means(sums, scale.as_ref())?;
                self.input_gradient(input, dy, scale, means)
            }
            false => None,
        };
        Ok(Passed {
            input: dx,
            scale: dgamma,
            bias: dbeta,
        })
    }

    /// Backward pass of rows: their sums are weighted by the scale, which changes along them.
    fn pass_rows<const D: usize>(
        self,
        tensors: Retrieved<D>,
        wanted: [bool; 3],
    ) -> Result<Passed<D>, CollectiveError> {
        let Retrieved { input, scale, dy } = tensors;
        let (of_scale, of_bias) = self.param_gradients(&input, &dy, scale.as_ref(), wanted);
        let dx = match wanted[0] {
            true => {
                let is_empty = input.shape().num_elements() == 0;
                let wdy = match &scale {
                    // Rounded to the dtype once, as dx is.
                    Some(scale) if !is_empty => {
                        let wide = statistics_dtype(dy.dtype());
                        let scale = scale.clone().cast(wide).unsqueeze::<D>();
                        (dy.clone().cast(wide) * scale).cast(dy.dtype())
                    }
                    _ => dy.clone(),
                };
                let has_mean = self.spec.reduction == Reduction::MeanVariance;
                let [products, sums] = self.sums(&input, &wdy, [true, has_mean]);
                let means = self.means([sums, products], None)?;
                self.input_gradient(input, dy, scale, means)
            }
            false => None,
        };
        Ok(Passed {
            input: dx,
            scale: of_scale,
            bias: of_bias,
        })
    }

    /// Sums of `dy * xhat` and of `dy` over this member's elements of each row; zeros where they are not wanted.
    fn sums<const D: usize>(
        &self,
        input: &Tensor<D>,
        dy: &Tensor<D>,
        [products, sums]: [bool; 2],
    ) -> [Tensor<1>; 2] {
        let zeros = || self.merged.mean.zeros_like();
        if input.shape().num_elements() == 0 {
            return [zeros(), zeros()];
        }
        // Only shape and dtype of a parameter matter for its gradient. The mean's dtype keeps all digits of the sums.
        let like = match &self.spec.view {
            Some(_) => self.merged.mean.clone().into_dispatch(),
            None => {
                let mut shape = self.pairs.0.shape().to_vec();
                shape.pop();
                let mean = self.merged.mean.clone().into_dispatch();
                Dispatch::float_reshape(mean, Shape::from(shape))
            }
        };
        let gradients = Dispatch::normalize_backward(
            BackwardOperands {
                input: input.clone().into_dispatch(),
                output_gradient: dy.clone().into_dispatch(),
                saved: Optional::Some(self.pairs.0.clone()),
                scale: Optional::Some(like.clone()),
                bias: Optional::Some(like),
                sum_gradient: Optional::None,
                gate: Optional::None,
            },
            BackwardSpec {
                norm: self.spec.clone(),
                wants_input: false,
                wants_scale: products,
                wants_bias: sums,
                wants_gate: false,
            },
        );
        [gradients.scale, gradients.bias].map(|sums| {
            let sums = sums.into_option();
            let flat = |sums| Dispatch::float_reshape(sums, Shape::from([self.rows]));
            sums.map_or_else(zeros, |sums| Tensor::from_dispatch(flat(sums)))
        })
    }

    /// Means of both sums over the elements of all members, weighted by the scale of their row.
    fn means(
        &self,
        sums: [Tensor<1>; 2],
        scale: Option<&Tensor<1>>,
    ) -> Result<[Tensor<1>; 2], CollectiveError> {
        if self.rows == 0 {
            return Ok(sums);
        }
        let Some(collective) = self.collective.upgrade() else {
            return Err(CollectiveError::Dropped);
        };
        let [sums, products] = sums;
        let rows = self.rows;
        let weigh = |sums: Tensor<1>| {
            let means = sums / self.merged.count.clone().clamp_min(1.0);
            match scale {
                Some(scale) => means * scale.clone().cast(self.merged.mean.dtype()),
                None => means,
            }
        };
        Ok(match self.spec.reduction {
            // Its gradient has no term of the plain sum.
            Reduction::MeanSquare => [sums, weigh(collective.all_reduce(products)?)],
            _ => {
                let both = collective.all_reduce(Tensor::cat(vec![sums, products], 0))?;
                [0..rows, rows..2 * rows].map(|range| weigh(both.clone().slice([range])))
            }
        })
    }

    /// Gradient of the input by the sums of all members.
    fn input_gradient<const D: usize>(
        &self,
        input: Tensor<D>,
        dy: Tensor<D>,
        scale: Option<Tensor<1>>,
        means: [Tensor<1>; 2],
    ) -> Option<Tensor<D>> {
        if input.shape().num_elements() == 0 {
            return Some(input.zeros_like());
        }
        let saved = self.pairs.with_sums(self.rows, means);
        let gradients = Dispatch::normalize_backward(
            BackwardOperands {
                input: input.into_dispatch(),
                output_gradient: dy.into_dispatch(),
                saved: Optional::Some(saved),
                scale: scale.map(Tensor::into_dispatch).into(),
                bias: Optional::None,
                sum_gradient: Optional::None,
                gate: Optional::None,
            },
            BackwardSpec {
                norm: self.spec.clone(),
                wants_input: true,
                wants_scale: false,
                wants_bias: false,
                wants_gate: false,
            },
        );
        gradients.input.into_option().map(Tensor::from_dispatch)
    }

    /// Gradients of scale and bias that change along a row.
    fn param_gradients<const D: usize>(
        &self,
        input: &Tensor<D>,
        dy: &Tensor<D>,
        scale: Option<&Tensor<1>>,
        [_, wants_scale, wants_bias]: [bool; 3],
    ) -> (Option<Tensor<1>>, Option<Tensor<1>>) {
        if !wants_scale && !wants_bias {
            return (None, None);
        }
        let part = input.dims()[D - 1];
        let device = input.device();
        if input.shape().num_elements() == 0 {
            let [of_scale, of_bias] = self.params;
            let zeros = |dtype: Option<DType>, is_wanted: bool| {
                let dtype = dtype.filter(|_| is_wanted)?;
                Some(Tensor::zeros([part], (&device, dtype)))
            };
            return (zeros(of_scale, wants_scale), zeros(of_bias, wants_bias));
        }
        // Only shape and dtype of the bias matter for its gradient.
        let bias = self.params[1]
            .map(|dtype| Tensor::<1>::zeros([part], (&device, dtype)).into_dispatch());
        let gradients = Dispatch::normalize_backward(
            BackwardOperands {
                input: input.clone().into_dispatch(),
                output_gradient: dy.clone().into_dispatch(),
                saved: Optional::Some(self.pairs.0.clone()),
                scale: scale.cloned().map(Tensor::into_dispatch).into(),
                bias: bias.into(),
                sum_gradient: Optional::None,
                gate: Optional::None,
            },
            BackwardSpec {
                norm: self.spec.clone(),
                wants_input: false,
                wants_scale,
                wants_bias,
                wants_gate: false,
            },
        );
        let [scale, bias] = [gradients.scale, gradients.bias]
            .map(|gradient| gradient.into_option().map(Tensor::from_dispatch));
        (scale, bias)
    }
}
