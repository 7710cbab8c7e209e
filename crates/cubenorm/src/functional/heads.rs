//! Norms of the heads of query and key, with a rotation.

use burn::backend::Dispatch;
use burn::nn::RotaryEncoding;
use burn::tensor::{DType, Int, Tensor, TensorCreationOptions, TensorData};
use cubenorm_core::{NormError, RotatedPairs};

use super::{Call, expect_sizes, or_panic};
use crate::NormOptions;
use crate::ops::{HeadOperands, HeadSpec, Heads, NormBackend, NormSpec, Reduction, dtype};

/// Options of [`qk_norm_with`] and [`qk_norm_rope`].
///
/// # Example
///
/// ```
/// use cubenorm::{HeadNormOptions, NormOptions};
///
/// // Gemma 3 and Qwen3-Next: the weight is stored as its difference from 1.
/// let options = HeadNormOptions::new(NormOptions::new().with_epsilon(1e-6).with_offset(1.0));
/// // ViT-22B and Chameleon: layer norm.
/// let layer = HeadNormOptions::default().with_mean(true);
/// # let _ = (options, layer);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct HeadNormOptions {
    norm: NormOptions,
    has_mean: bool,
}

impl HeadNormOptions {
    /// RMS norm with these options. An output dtype is not used.
    pub const fn new(norm: NormOptions) -> Self {
        Self {
            norm,
            has_mean: false,
        }
    }

    /// Sets whether the mean is subtracted: layer norm in place of RMS norm.
    pub const fn with_mean(mut self, has_mean: bool) -> Self {
        self.has_mean = has_mean;
        self
    }

    fn spec(&self, axis: usize) -> NormSpec {
        let reduction = match self.has_mean {
            true => Reduction::MeanVariance,
            false => Reduction::MeanSquare,
        };
        NormSpec {
            output_dtype: None,
            ..self.norm.spec(axis, reduction)
        }
    }
}

/// Cosines and sines of rotary position embedding, for [`qk_norm_rope`].
///
/// It has positions from 0 to [`positions`](Self::positions), and for each an angle per pair of elements.
///
/// Source: [RoFormer](https://arxiv.org/abs/2104.09864).
///
/// # Example
///
/// ```
/// use burn::tensor::Device;
/// use cubenorm::{RotatedPairs, Rope};
///
/// # #[cfg(feature = "flex")] {
/// let rope = Rope::new(4096, 64, 10_000.0, RotatedPairs::HalfSplit, &Device::flex());
/// assert_eq!((rope.positions(), rope.dim()), (4096, 64));
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Rope {
    /// `[positions + 1, 2 * dim]`: cosines, then sines. The last row is NaN.
    table: Tensor<2>,
    pairs: RotatedPairs,
}

impl Rope {
    /// The angles `position * theta^(-2 i / dim)` of pair `i`, computed in f64. The table is of `f32`, or of `f64` if the
    /// options say so.
    ///
    /// # Panics
    ///
    /// If [`try_new`](Self::try_new) returns an error, with that message.
    pub fn new(
        positions: usize,
        dim: usize,
        theta: f64,
        pairs: RotatedPairs,
        options: impl Into<TensorCreationOptions>,
    ) -> Self {
        or_panic(Self::try_new(positions, dim, theta, pairs, options))
    }

    /// [`new`](Self::new) as a [`Result`].
    ///
    /// # Errors
    ///
    /// [`NormError::Shape`] if `dim` is 0 or odd.
    pub fn try_new(
        positions: usize,
        dim: usize,
        theta: f64,
        pairs: RotatedPairs,
        options: impl Into<TensorCreationOptions>,
    ) -> Result<Self, NormError> {
        let frequencies: Vec<f64> = (0..dim / 2)
            .map(|pair| theta.powf(-2.0 * pair as f64 / dim as f64))
            .collect();
        let angles = (0..positions)
            .flat_map(|position| frequencies.iter().map(move |it| position as f64 * it));
        if dim == 0 || !dim.is_multiple_of(2) {
            return Err(wrong_dim(positions, dim));
        }
        let (cosines, sines): (Vec<f64>, Vec<f64>) =
            angles.map(|angle| (angle.cos(), angle.sin())).unzip();
        let TensorCreationOptions { device, dtype } = options.into();
        let options = (
            &device.without_autodiff(),
            dtype
                .filter(|dtype| *dtype == DType::F64)
                .unwrap_or(DType::F32),
        );
        let tensor = |numbers| {
            let data = TensorData::new(numbers, [positions, dim / 2]);
            Tensor::<2>::from_data(data, options)
        };
        Self::try_from_tables(tensor(cosines), tensor(sines), pairs)
    }

    /// A table of cosines and sines per position and pair, `[positions, dim / 2]` each: for the scaled frequencies
    /// of Llama 3 and YaRN.
    ///
    /// # Panics
    ///
    /// If [`try_from_tables`](Self::try_from_tables) returns an error, with that message.
    pub fn from_tables(cosines: Tensor<2>, sines: Tensor<2>, pairs: RotatedPairs) -> Self {
        or_panic(Self::try_from_tables(cosines, sines, pairs))
    }

    /// [`from_tables`](Self::from_tables) as a [`Result`].
    ///
    /// # Errors
    ///
    /// [`NormError::Shape`] if the tables have no columns or differ in their shapes, and [`NormError::MixedDevices`] if
    /// they are on different devices.
    pub fn try_from_tables(
        cosines: Tensor<2>,
        sines: Tensor<2>,
        pairs: RotatedPairs,
    ) -> Result<Self, NormError> {
        let shape = cosines.dims();
        let [positions, half] = shape;
        if half == 0 {
            return Err(wrong_dim(positions, 0));
        }
        if sines.dims() != shape {
            return Err(NormError::Shape {
                tensor: "sines",
                shape: sines.dims().to_vec(),
                expected: format!("the cosines', {shape:?}"),
            });
        }
        let (cosines, sines) = (cosines.without_autodiff(), sines.without_autodiff());
        let device = cosines.device();
        if sines.device() != device {
            return Err(NormError::MixedDevices {
                tensor: "sines",
                expected: format!("{device:?}"),
                actual: format!("{:?}", sines.device()),
            });
        }
        let dtype = match cosines.dtype() {
            DType::F64 => DType::F64,
            _ => DType::F32,
        };
        // Each number belongs to both elements of a pair.
        let of_elements = |numbers: Tensor<2>| {
            let numbers = numbers.cast(dtype);
            match pairs {
                RotatedPairs::HalfSplit => Tensor::cat(vec![numbers.clone(), numbers], 1),
                RotatedPairs::Interleaved => {
                    let one: Tensor<3> = numbers.reshape([positions, half, 1]);
                    Tensor::cat(vec![one.clone(), one], 2).reshape([positions, 2 * half])
                }
            }
        };
        let numbers = Tensor::cat(vec![of_elements(cosines), of_elements(sines)], 1);
        let none = Tensor::full([1, 4 * half], f64::NAN, (&device, dtype));
        Ok(Self {
            table: Tensor::cat(vec![numbers, none], 0),
            pairs,
        })
    }

    /// The number of positions.
    pub fn positions(&self) -> usize {
        self.table.dims()[0] - 1
    }

    /// The number of rotated elements of a head.
    pub fn dim(&self) -> usize {
        self.table.dims()[1] / 2
    }

    /// The table of the tokens of a call, which broadcasts to `[batch, tokens, heads, d]`.
    fn table(
        &self,
        [batch, tokens]: [usize; 2],
        positions: Positions,
    ) -> Result<Tensor<4>, NormError> {
        let (there, numbers) = (self.positions(), self.table.dims()[1]);
        match positions {
            Positions::From(first) => {
                let end = first.checked_add(tokens).filter(|end| *end <= there);
                let Some(end) = end else {
                    return Err(NormError::Shape {
                        tensor: "rope",
                        shape: vec![there, self.dim()],
                        expected: format!("{tokens} positions or more from {first} on"),
                    });
                };
                let rows = self.table.clone().slice([first..end, 0..numbers]);
                Ok(rows.reshape([1, tokens, 1, numbers]))
            }
            Positions::Of(positions) => {
                let shape = positions.dims();
                if shape != [batch, tokens] {
                    return Err(NormError::Shape {
                        tensor: "positions",
                        shape: shape.to_vec(),
                        expected: format!("[{batch}, {tokens}], a position for each token"),
                    });
                }
                let outside = positions.clone().lower_elem(0);
                // The row of NaN.
                let none = there as i64;
                let positions = positions.clamp_max(none).mask_fill(outside, none);
                let rows = self
                    .table
                    .clone()
                    .select(0, positions.reshape([batch * tokens]));
                Ok(rows.reshape([batch, tokens, 1, numbers]))
            }
        }
    }
}

/// The table of Burn's layer, whose pairs are interleaved.
impl From<&RotaryEncoding> for Rope {
    fn from(rotary: &RotaryEncoding) -> Self {
        let [positions, dim, _] = rotary.freq_complex.dims();
        let part = |which: usize| {
            let part = rotary
                .freq_complex
                .clone()
                .slice([0..positions, 0..dim, which..which + 1]);
            // Both elements of a pair have the same numbers.
            let pairs = part.reshape([positions, dim / 2, 2]);
            let first = pairs.slice([0..positions, 0..dim / 2, 0..1]);
            first.reshape([positions, dim / 2])
        };
        Self::from_tables(part(0), part(1), RotatedPairs::Interleaved)
    }
}

fn wrong_dim(positions: usize, dim: usize) -> NormError {
    NormError::Shape {
        tensor: "rope",
        shape: vec![positions, dim],
        expected: "an even number of rotated elements, 2 or more".to_owned(),
    }
}

/// Positions of the tokens of a call.
#[allow(
    clippy::large_enum_variant,
    reason = "one value per call: a box would be an allocation"
)]
#[derive(Debug, Clone)]
pub enum Positions {
    /// Token `t` of each sample has the position `first + t`.
    From(usize),
    /// Position of each token, `[batch, tokens]`. One more launch gathers the table. A position that the
    /// [`Rope`] does not have gives NaN: it is on the device, where no error can be returned.
    Of(Tensor<2, Int>),
}

impl From<usize> for Positions {
    fn from(first: usize) -> Self {
        Self::From(first)
    }
}

impl From<Tensor<2, Int>> for Positions {
    fn from(positions: Tensor<2, Int>) -> Self {
        Self::Of(positions)
    }
}

/// RMS norm of each head of query and key: `y = x / sqrt(mean(x^2) + epsilon) * gamma`, with the mean over the last axis.
///
/// If no gradient is tracked, one launch normalizes both. Its time on a GPU is mostly the host's for tensors of a few
/// tokens.
///
/// Source: [Scaling Vision Transformers to 22 Billion Parameters](https://arxiv.org/abs/2302.05442); Qwen3, OLMo 2 and
/// Gemma 3 have it as RMS norm.
///
/// # Shapes
///
/// - `query`, `key`, results: `[..., heads, d]`, each with its own number of heads, and of any layout: a view of a
///   joint projection is read in place
/// - `query_gamma`, `key_gamma`: `[d]`; without them the factor is 1
///
/// # Dtypes
///
/// As [`layer_norm`](crate::layer_norm).
///
/// # Panics
///
/// If [`try_qk_norm`] returns an error, with that message.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
///
/// # #[cfg(feature = "flex")] {
/// let device = Device::flex();
/// let q = Tensor::<4>::from_floats([[[[3.0, -3.0], [5.0, 5.0]]]], &device);
/// let k = Tensor::<4>::from_floats([[[[2.0, 2.0]]]], &device);
/// let gamma = Tensor::from_floats([2.0, 1.0], &device);
/// let (q, k) = cubenorm::qk_norm(q, k, gamma, None, 0.0);
/// assert_eq!(q.into_data().try_to_vec::<f32>().unwrap(), [2.0, -1.0, 2.0, 1.0]);
/// assert_eq!(k.into_data().try_to_vec::<f32>().unwrap(), [1.0, 1.0]);
/// # }
/// ```
pub fn qk_norm<const D: usize>(
    query: Tensor<D>,
    key: Tensor<D>,
    query_gamma: impl Into<Option<Tensor<1>>>,
    key_gamma: impl Into<Option<Tensor<1>>>,
    epsilon: f64,
) -> (Tensor<D>, Tensor<D>) {
    or_panic(try_qk_norm(query, key, query_gamma, key_gamma, epsilon))
}

/// [`qk_norm`] as a [`Result`].
///
/// # Errors
///
/// As [`try_layer_norm`](crate::try_layer_norm), with query or key in place of the input.
pub fn try_qk_norm<const D: usize>(
    query: Tensor<D>,
    key: Tensor<D>,
    query_gamma: impl Into<Option<Tensor<1>>>,
    key_gamma: impl Into<Option<Tensor<1>>>,
    epsilon: f64,
) -> Result<(Tensor<D>, Tensor<D>), NormError> {
    let options = HeadNormOptions::new(NormOptions::new().with_epsilon(epsilon));
    try_qk_norm_with(query, key, query_gamma, key_gamma, &options)
}

/// [`qk_norm`] with an offset of the weights, a rounding before them, or as layer norm.
///
/// # Shapes
///
/// As [`qk_norm`].
///
/// # Dtypes
///
/// As [`qk_norm`].
///
/// # Panics
///
/// If [`try_qk_norm_with`] returns an error, with that message.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use cubenorm::{HeadNormOptions, NormOptions};
///
/// # #[cfg(feature = "flex")] {
/// let device = Device::flex();
/// let q = Tensor::<2>::from_floats([[1.0, 3.0]], &device);
/// let k = Tensor::<2>::from_floats([[5.0, 1.0]], &device);
/// let norm = NormOptions::new().with_epsilon(0.0);
/// let options = HeadNormOptions::new(norm).with_mean(true);
/// let (q, k) = cubenorm::qk_norm_with(q, k, None, None, &options);
/// assert_eq!(q.into_data().try_to_vec::<f32>().unwrap(), [-1.0, 1.0]);
/// assert_eq!(k.into_data().try_to_vec::<f32>().unwrap(), [1.0, -1.0]);
/// # }
/// ```
pub fn qk_norm_with<const D: usize>(
    query: Tensor<D>,
    key: Tensor<D>,
    query_gamma: impl Into<Option<Tensor<1>>>,
    key_gamma: impl Into<Option<Tensor<1>>>,
    options: &HeadNormOptions,
) -> (Tensor<D>, Tensor<D>) {
    or_panic(try_qk_norm_with(
        query,
        key,
        query_gamma,
        key_gamma,
        options,
    ))
}

/// [`qk_norm_with`] as a [`Result`].
///
/// # Errors
///
/// As [`try_qk_norm`], and [`NormError::Offset`] for an offset that is not finite.
pub fn try_qk_norm_with<const D: usize>(
    query: Tensor<D>,
    key: Tensor<D>,
    query_gamma: impl Into<Option<Tensor<1>>>,
    key_gamma: impl Into<Option<Tensor<1>>>,
    options: &HeadNormOptions,
) -> Result<(Tensor<D>, Tensor<D>), NormError> {
    let gammas = [query_gamma.into(), key_gamma.into()];
    heads([query, key], gammas, None, options)
}

/// [`qk_norm_with`], and rotary position embedding of the results in the same launch:
///
/// ```text
/// n = x / sqrt(mean(x^2) + epsilon) * gamma
/// y = n * cos(angle) + turned(n) * sin(angle)
/// ```
///
/// `turned` exchanges the elements of each [pair](RotatedPairs) and negates the first. Elements from
/// [`dim`](Rope::dim) on are not rotated.
///
/// If a gradient is tracked, each norm is one operation, and so is the rotation of both. The backward pass turns the
/// gradients back with the same kernel.
///
/// # Shapes
///
/// - `query`, `key`, results: `[batch, tokens, heads, d]`, each with its own number of heads, and of any layout. Heads in
///   front of tokens are `swap_dims(1, 2)` away, before and after, without a copy.
/// - `query_gamma`, `key_gamma`: `[d]`; without them the factor is 1
///
/// # Dtypes
///
/// As [`qk_norm`]. The rotation is computed in the accumulation dtype, and the result rounded once.
///
/// # Panics
///
/// If [`try_qk_norm_rope`] returns an error, with that message.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use cubenorm::{HeadNormOptions, RotatedPairs, Rope};
///
/// # #[cfg(feature = "flex")] {
/// let device = Device::flex();
/// let rope = Rope::new(16, 2, 10_000.0, RotatedPairs::HalfSplit, &device);
/// let q = Tensor::<4>::from_floats([[[[3.0, -3.0]]]], &device);
/// let k = q.clone();
/// let options = HeadNormOptions::default();
/// // The first token is at position 0, which has the angle 0.
/// let (q, _) = cubenorm::qk_norm_rope(q, k, None, None, &rope, 0, &options);
/// let q = q.into_data().try_to_vec::<f32>().unwrap();
/// assert!((q[0] - 1.0).abs() < 1e-5 && (q[1] + 1.0).abs() < 1e-5);
/// # }
/// ```
pub fn qk_norm_rope(
    query: Tensor<4>,
    key: Tensor<4>,
    query_gamma: impl Into<Option<Tensor<1>>>,
    key_gamma: impl Into<Option<Tensor<1>>>,
    rope: &Rope,
    positions: impl Into<Positions>,
    options: &HeadNormOptions,
) -> (Tensor<4>, Tensor<4>) {
    or_panic(try_qk_norm_rope(
        query,
        key,
        query_gamma,
        key_gamma,
        rope,
        positions,
        options,
    ))
}

/// [`qk_norm_rope`] as a [`Result`].
///
/// # Errors
///
/// As [`try_qk_norm_with`], and [`NormError::Shape`] if query and key differ in batch or tokens, if the rope has fewer
/// positions than tokens or rotates more elements than a head has, or if `positions` is not `[batch, tokens]`.
pub fn try_qk_norm_rope(
    query: Tensor<4>,
    key: Tensor<4>,
    query_gamma: impl Into<Option<Tensor<1>>>,
    key_gamma: impl Into<Option<Tensor<1>>>,
    rope: &Rope,
    positions: impl Into<Positions>,
    options: &HeadNormOptions,
) -> Result<(Tensor<4>, Tensor<4>), NormError> {
    let [batch, tokens, _, features] = query.dims();
    let of_key = key.dims();
    if of_key[..2] != [batch, tokens] {
        return Err(NormError::Shape {
            tensor: "key",
            shape: of_key.to_vec(),
            expected: format!("the query's batch and tokens, [{batch}, {tokens}, heads, d]"),
        });
    }
    if rope.dim() > features.min(of_key[3]) {
        return Err(NormError::Shape {
            tensor: "rope",
            shape: vec![rope.positions(), rope.dim()],
            expected: format!("{} rotated elements at most", features.min(of_key[3])),
        });
    }
    let expected = query.device().without_autodiff();
    let actual = rope.table.device();
    if actual != expected {
        return Err(NormError::MixedDevices {
            tensor: "rope",
            expected: format!("{expected:?}"),
            actual: format!("{actual:?}"),
        });
    }
    let table = rope.table([batch, tokens], positions.into())?;
    let gammas = [query_gamma.into(), key_gamma.into()];
    heads([query, key], gammas, Some((table, rope.pairs)), options)
}

fn heads<const D: usize>(
    [query, key]: [Tensor<D>; 2],
    gammas: [Option<Tensor<1>>; 2],
    rotation: Option<(Tensor<4>, RotatedPairs)>,
    options: &HeadNormOptions,
) -> Result<(Tensor<D>, Tensor<D>), NormError> {
    let spec = options.spec(D - 1);
    let names = [("query", "query_gamma"), ("key", "key_gamma")];
    let checked = [&query, &key].into_iter().zip(&gammas).zip(names);
    for ((input, gamma), (name, of_gamma)) in checked {
        super::expect_rank(input, 1, "[..., d]").map_err(|error| of_input(error, name))?;
        let features = input.dims()[D - 1];
        expect_sizes(gamma, &None, features).map_err(|error| of_scale(error, of_gamma))?;
        let mut call = Call::new(input.clone(), spec.clone());
        call = call.with_params(gamma.clone(), None);
        call.names[0] = of_gamma;
        call.check().map_err(|error| of_input(error, name))?;
    }
    let device = query.device();
    if key.device() != device {
        return Err(NormError::MixedDevices {
            tensor: "key",
            expected: format!("{device:?}"),
            actual: format!("{:?}", key.device()),
        });
    }
    if let (Some(of_query), Some(of_key)) = (dtype(query.dtype()), dtype(key.dtype()))
        && of_query != of_key
    {
        return Err(NormError::MixedDTypes {
            tensor: "key",
            expected: of_query.to_string(),
            actual: of_key,
            input: of_query,
        });
    }
    let pairs = rotation
        .as_ref()
        .map_or(RotatedPairs::HalfSplit, |(_, pairs)| *pairs);
    let table = rotation.map(|(table, _)| {
        let accumulation = match query.dtype() {
            DType::F64 => DType::F64,
            _ => DType::F32,
        };
        let table = table.cast(accumulation);
        match device.gradient_checkpointing_strategy() {
            Some(_) => table.to_device(&device),
            None => table,
        }
    });
    let [query_scale, key_scale] = gammas.map(|gamma| gamma.map(Tensor::into_dispatch).into());
    let Heads { query, key } = Dispatch::normalize_heads(
        HeadOperands {
            query: query.into_dispatch(),
            key: key.into_dispatch(),
            query_scale,
            key_scale,
            rotation: table.map(Tensor::into_dispatch).into(),
        },
        HeadSpec { norm: spec, pairs },
    );
    Ok((Tensor::from_dispatch(query), Tensor::from_dispatch(key)))
}

/// An error about the input in the caller's name of it.
fn of_input(mut error: NormError, name: &'static str) -> NormError {
    match &mut error {
        NormError::Rank { tensor, .. }
        | NormError::TooLarge { tensor, .. }
        | NormError::Shape { tensor, .. }
        | NormError::UnsupportedBackend { tensor, .. }
        | NormError::UnsupportedDType { tensor, .. }
            if *tensor == "input" =>
        {
            *tensor = name;
        }
        _ => {}
    }
    error
}

/// An error about gamma in the caller's name of it.
fn of_scale(mut error: NormError, name: &'static str) -> NormError {
    if let NormError::Shape { tensor, .. } = &mut error {
        *tensor = name;
    }
    error
}
