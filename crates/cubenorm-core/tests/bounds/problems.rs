//! Random descriptions: ranks, layouts, parameters, dtypes, and knobs of any value.

use cubenorm_core::{
    Activation, BackwardDesc, CODES_PER_WORD, CodeFormat, DType, Hardware, Knobs, Layout, NormDesc,
    Quantization, ResidualPlace, RotatedPairs, Rotation, StagingPreference, Statistics, Strategy,
    StrategyChoice, TensorDesc, WrittenStatistics, knobs as tuned_knobs,
};

/// Random numbers that a seed gives, the same everywhere (splitmix64).
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Self {
        // Mixed, as neighbouring seeds would give the same numbers one place further.
        let mut first = Self(seed);
        Self(first.next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// True once in `times`.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn one_of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }
}

/// A dimension: mostly small, so that addresses can be enumerated, or of any size that is left.
fn size(numbers: &mut Numbers, left: usize, is_large: bool) -> usize {
    let sizes: &[usize] = match is_large {
        false => &[
            1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 14, 16, 17, 20, 24, 28, 32, 33, 48, 49, 64, 96,
        ],
        true => &[
            1,
            2,
            3,
            7,
            8,
            14,
            16,
            31,
            32,
            49,
            56,
            64,
            96,
            112,
            128,
            160,
            197,
            256,
            320,
            384,
            512,
            768,
            1000,
            1021,
            1024,
            1536,
            2048,
            3072,
            4096,
            5120,
            8192,
            10_240,
            12_544,
            16_384,
            20_480,
            28_672,
            32_768,
            50_257,
            65_536,
            100_352,
            131_072,
            1 << 20,
            1 << 24,
            1 << 29,
            1 << 33,
        ],
    };
    numbers.one_of(sizes).min(left.max(1))
}

/// Elements of a problem whose addresses are enumerated, and of any problem.
pub(crate) const SMALL: usize = 1 << 12;
const LARGE: usize = 1 << 33;

fn shape(numbers: &mut Numbers) -> Vec<usize> {
    let is_large = numbers.once_in(2);
    let mut left = match is_large {
        true => LARGE,
        false => SMALL,
    };
    let rank = 1 + numbers.below(5);
    let mut shape: Vec<usize> = (0..rank)
        .map(|_| {
            let size = size(numbers, left, is_large);
            left /= size;
            size
        })
        .collect();
    let turn = numbers.below(rank);
    shape.rotate_left(turn);
    shape
}

/// A layout of a shape: contiguous, permuted, padded, expanded or sliced.
fn layout(numbers: &mut Numbers, shape: &[usize], may_repeat: bool) -> Layout {
    let rank = shape.len();
    let mut order: Vec<usize> = (0..rank).collect();
    match numbers.below(6) {
        0..3 => {}
        // Channels last.
        3 if rank > 2 => {
            let channels = order.remove(1);
            order.push(channels);
        }
        _ => {
            for i in (1..rank).rev() {
                order.swap(i, numbers.below(i + 1));
            }
        }
    }
    let padding = numbers.one_of(&[0, 0, 0, 0, 1, 4, 8, 16]);
    let mut strides = vec![1; rank];
    let mut next: usize = match numbers.once_in(16) {
        true => 2,
        false => 1,
    };
    for (place, &dim) in order.iter().rev().enumerate() {
        strides[dim] = next;
        next = next.saturating_mul(shape[dim]);
        if padding > 0 && place == 0 {
            next = next
                .saturating_add(padding)
                .next_multiple_of(padding.max(1));
        }
    }
    if may_repeat && numbers.once_in(8) {
        let dim = numbers.below(rank);
        strides[dim] = 0;
    }
    Layout::strided(shape, strides)
}

/// A tensor that broadcasts to a shape.
fn param(numbers: &mut Numbers, shape: &[usize], axes: &[usize], dtype: DType) -> TensorDesc {
    let rank = shape.len();
    let kind = numbers.below(4);
    let mut sizes: Vec<usize> = (0..rank)
        .map(|dim| {
            let keeps = match kind {
                // Like the rows, like the columns, of one channel dimension, of anything.
                0 => axes.contains(&dim),
                1 => !axes.contains(&dim),
                2 => dim == 1.min(rank - 1),
                _ => numbers.once_in(2),
            };
            if keeps { shape[dim] } else { 1 }
        })
        .collect();
    while sizes.len() > 1 && sizes[0] == 1 && numbers.once_in(2) {
        sizes.remove(0);
    }
    TensorDesc::new(layout(numbers, &sizes, true), dtype)
}

fn axes(numbers: &mut Numbers, rank: usize) -> Vec<usize> {
    let all: Vec<usize> = (0..rank).collect();
    match numbers.below(6) {
        0..2 => vec![rank - 1],
        2 => vec![1.min(rank - 1)],
        3 => all
            .into_iter()
            .filter(|&dim| dim != 1 || rank == 1)
            .collect(),
        4 => all.into_iter().skip(rank / 2).collect(),
        _ => {
            let picked: Vec<usize> = all.into_iter().filter(|_| numbers.once_in(2)).collect();
            if picked.is_empty() { vec![0] } else { picked }
        }
    }
}

/// A description of a normalization.
pub(crate) fn forward(numbers: &mut Numbers) -> NormDesc {
    let shape = shape(numbers);
    let dtype = numbers.one_of(&DType::ALL);
    let axes = axes(numbers, shape.len());
    let params = match numbers.once_in(2) {
        true => dtype,
        false => dtype.accumulation(),
    };
    let input = TensorDesc::new(layout(numbers, &shape, true), dtype);
    let statistics = match numbers.below(9) {
        0..3 => Statistics::MeanVariance,
        3..5 => Statistics::MeanSquare,
        5 => Statistics::Mean,
        6 => numbers.one_of(&[Statistics::L1Norm, Statistics::L2Norm]),
        7 => Statistics::None,
        _ => Statistics::Provided {
            mean: param(numbers, &shape, &axes, params),
            variance: param(numbers, &shape, &axes, params),
        },
    };
    let mut desc = NormDesc::new(input, axes.clone(), statistics);
    if numbers.once_in(2) {
        desc.scale = Some(param(numbers, &shape, &axes, params));
    }
    if numbers.once_in(3) {
        desc.bias = match &desc.scale {
            Some(scale) if numbers.once_in(2) => Some(scale.clone()),
            _ => Some(param(numbers, &shape, &axes, params)),
        };
    }
    let mixed = |numbers: &mut Numbers| {
        let other = numbers.one_of(&DType::ALL);
        let is_mixed = other.mixes_with(dtype) && numbers.once_in(4);
        if is_mixed { other } else { dtype }
    };
    if numbers.once_in(4) {
        let repeats = numbers.once_in(4);
        let dtype = mixed(numbers);
        let residual = match repeats {
            true => param(numbers, &shape, &axes, dtype),
            false => TensorDesc::new(layout(numbers, &shape, true), dtype),
        };
        desc.residual = Some(residual);
        if numbers.once_in(4) {
            desc.residual_place = ResidualPlace::Output;
        } else if numbers.once_in(4) {
            desc.residual_place = ResidualPlace::InputGate;
        } else if numbers.once_in(4) {
            desc.residual_place = ResidualPlace::OutputGate;
        }
    }
    desc.writes_sum = desc.residual_place == ResidualPlace::Input && numbers.once_in(4);
    if numbers.once_in(3) && desc.statistics_are_reduced() {
        desc.written_statistics = Some(WrittenStatistics::MeanRstd);
    }
    if numbers.once_in(4) {
        desc.activation = Activation::Relu;
    }
    let features = shape[shape.len() - 1];
    let turns_rows = desc.statistics_are_reduced() || desc.statistics == Statistics::None;
    if desc.axes == [shape.len() - 1]
        && turns_rows
        && features > 1
        && desc.activation == Activation::Identity
        && (desc.residual.is_none() || desc.residual_place == ResidualPlace::Input)
        && numbers.once_in(2)
    {
        let mut of_table = shape.clone();
        let rotated = 2 * (1 + numbers.below(features / 2));
        *of_table.last_mut().expect("it has a rank") = 2 * rotated;
        desc.rotation = Some(Rotation {
            table: TensorDesc::contiguous(of_table, dtype.accumulation()),
            pairs: numbers.one_of(&[RotatedPairs::HalfSplit, RotatedPairs::Interleaved]),
        });
    }
    if desc.axes == [shape.len() - 1]
        && desc.statistics_are_reduced()
        && features.is_multiple_of(CODES_PER_WORD)
        && desc.rotation.is_none()
        && numbers.once_in(2)
    {
        let mut of_rows = shape.clone();
        *of_rows.last_mut().expect("it has a rank") = 1;
        let given = TensorDesc::contiguous(of_rows, dtype.accumulation());
        return desc.with_quantization(Quantization {
            format: numbers.one_of(&CodeFormat::ALL),
            scale: numbers.once_in(3).then_some(given),
        });
    }
    if numbers.once_in(4) {
        let kept = layout(numbers, &shape, false);
        let dtype = mixed(numbers);
        desc.output = Some(TensorDesc::new(kept, dtype));
    }
    desc
}

/// A description of gradients.
pub(crate) fn backward(numbers: &mut Numbers) -> BackwardDesc {
    let mut norm = forward(numbers);
    if !norm.residual_place.is_gate() {
        norm.residual = None;
        norm.residual_place = ResidualPlace::Input;
    }
    norm.writes_sum = false;
    norm.output = None;
    norm.rotation = None;
    norm.quantization = None;
    let mut desc = BackwardDesc::new(norm);
    let shape = desc.norm.input.shape().to_vec();
    let dtype = desc.norm.input.dtype;
    if numbers.once_in(3) {
        let other = numbers.one_of(&DType::ALL);
        let of_output = if other.mixes_with(dtype) {
            other
        } else {
            dtype
        };
        desc.output_gradient = TensorDesc::new(layout(numbers, &shape, true), of_output);
    }
    if numbers.once_in(6) {
        (desc.input_gradient, desc.gate_gradient) = (None, None);
    }
    if numbers.once_in(6) {
        desc.gate_gradient = None;
    }
    if desc.input_gradient.is_some() && desc.gate_gradient.is_none() && numbers.once_in(4) {
        let dsum = layout(numbers, &shape, false);
        desc = desc.with_sum_gradient(TensorDesc::new(dsum, dtype));
    }
    let sums = desc.clone().with_provided_sums();
    if numbers.once_in(6) && sums.validate().is_ok() {
        desc = sums;
    }
    desc
}

trait Reduced {
    fn statistics_are_reduced(&self) -> bool;
}

impl Reduced for NormDesc {
    fn statistics_are_reduced(&self) -> bool {
        !matches!(
            self.statistics,
            Statistics::None | Statistics::Provided { .. }
        )
    }
}

/// Nothing decided, a candidate of the tuner's, or knobs of any value.
pub(crate) fn knobs(numbers: &mut Numbers, hardware: &Hardware) -> StrategyChoice {
    match numbers.below(4) {
        0..2 => StrategyChoice::Inferred,
        2 => numbers.one_of(&tuned_knobs(hardware)).into(),
        _ => any_knobs(numbers).into(),
    }
}

fn any_knobs(numbers: &mut Numbers) -> Knobs {
    const ANY: [usize; 20] = [
        0,
        1,
        2,
        3,
        4,
        5,
        7,
        8,
        16,
        31,
        32,
        33,
        64,
        100,
        256,
        1000,
        1024,
        65_536,
        1 << 31,
        usize::MAX,
    ];
    let mut maybe = |times: usize| {
        let value = numbers.one_of(&ANY);
        numbers.once_in(times).then_some(value)
    };
    let (plane, vector, units) = (maybe(3), maybe(3), maybe(2));
    let (rows_per_unit, splits, cluster_size) = (maybe(3), maybe(3), maybe(4));
    let planned_groups = maybe(4).map(|groups| groups.clamp(1, 1 << 20));
    let narrow = |value: Option<usize>| value.map(|it| it.min(u32::MAX as usize) as u32);
    Knobs {
        strategy: numbers.once_in(2).then(|| numbers.one_of(&Strategy::ALL)),
        plane_size: narrow(plane),
        vector,
        units: narrow(units),
        row: numbers.once_in(2).then(|| {
            numbers.one_of(&[
                StagingPreference::Reload,
                StagingPreference::Registers,
                StagingPreference::Shared,
                StagingPreference::Mixed,
            ])
        }),
        rows_per_unit,
        splits,
        cluster_size: narrow(cluster_size),
        dynamic: numbers.once_in(3).then(|| numbers.once_in(2)),
        planned_groups,
    }
}
