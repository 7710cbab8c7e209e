//! Random numbers from which descriptions are built.
//!
//! They are drawn independently and made consistent afterwards, so that proptest can shrink each
//! one alone: towards one dimension of size 1, packed, in f32, without optional tensors.

use cubenorm_core::{DType, Layout, MAX_RANK};
use cubenorm_operators::directml::FusedActivation;
use proptest::prelude::*;

/// Maximum elements of most tensors.
const FEW: usize = 2_000;

/// Elements of an occasional large tensor.
const MANY: std::ops::Range<usize> = 2_000..50_000;

/// Tensors of one operator: inputs by position, then outputs by position.
const TENSORS: usize = 8;

/// The first output among the tensors.
pub(crate) const OUTPUTS: usize = 5;

#[derive(Debug, Clone)]
pub(crate) struct Genes {
    /// Number of the operator.
    pub operator: usize,
    pub sizes: Sizes,
    /// Reduced dimensions, sorted by this number in the list of axes.
    pub axes: [Option<u8>; MAX_RANK],
    pub layouts: [LayoutGenes; TENSORS],
    /// Dimensions along which each input broadcasts.
    pub repeated: [[bool; MAX_RANK]; OUTPUTS],
    /// Leading dimensions that each ONNX input omits.
    pub missing: [usize; OUTPUTS],
    /// Flags of the optional inputs.
    pub given: [bool; 4],
    /// Flags of the requested optional outputs.
    pub wanted: [bool; 5],
    /// Dtypes of input, parameters, statistics and accumulation.
    pub dtypes: [DType; 4],
    /// Choices of the operator, such as version and groups.
    pub numbers: [usize; 3],
    pub flags: [bool; 3],
    pub epsilon: f32,
    pub momentum: f32,
    pub activation: Option<FusedActivation>,
}

/// Sizes before they are limited to a rank and a number of elements.
#[derive(Debug, Clone)]
pub(crate) struct Sizes {
    rank: usize,
    sizes: [usize; MAX_RANK],
    /// Dimension that gets its size first if the limit is too small for all.
    first: usize,
    /// Elements of a large tensor.
    many: Option<usize>,
    /// A dimension of size 0, for ONNX operators.
    empty: Option<usize>,
}

impl Sizes {
    /// A shape with a rank in this range.
    pub(crate) fn shape(&self, ranks: std::ops::RangeInclusive<usize>) -> Vec<usize> {
        let rank = self.rank.clamp(*ranks.start(), *ranks.end());
        let mut shape = vec![1; rank];
        let mut room = FEW;
        for dim in (0..rank).map(|dim| (self.first + dim) % rank) {
            shape[dim] = self.sizes[dim].min(room);
            room /= shape[dim];
        }
        if let Some(many) = self.many {
            let first = self.first % rank;
            shape[first] = 1;
            shape[first] = (many / shape.iter().product::<usize>()).max(1);
        }
        shape
    }

    /// Like [`Sizes::shape`], but sometimes without elements.
    pub(crate) fn shape_or_empty(&self, ranks: std::ops::RangeInclusive<usize>) -> Vec<usize> {
        let mut shape = self.shape(ranks);
        if let Some(empty) = self.empty {
            let rank = shape.len();
            shape[empty % rank] = 0;
        }
        shape
    }
}

fn sizes() -> impl Strategy<Value = Sizes> {
    let primes = vec![2usize, 3, 5, 7, 11, 13, 17, 31, 37, 61, 127, 257, 521, 1021];
    let powers = vec![2usize, 4, 8, 16, 32, 64, 128, 256, 1024];
    let size = prop_oneof![
        4 => 1usize..5,
        1 => Just(1),
        2 => prop::sample::select(primes),
        2 => prop::sample::select(powers),
        1 => 1usize..FEW,
    ];
    (
        1..=MAX_RANK,
        prop::array::uniform8(size),
        0..MAX_RANK,
        prop::option::weighted(0.05, MANY),
        prop::option::weighted(0.05, 0..MAX_RANK),
    )
        .prop_map(|(rank, sizes, first, many, empty)| Sizes {
            rank,
            sizes,
            first,
            many,
            empty,
        })
}

/// Strides before they are adapted to a shape.
#[derive(Debug, Clone)]
pub(crate) struct LayoutGenes {
    is_strided: bool,
    /// Memory order of the dimensions, outermost first, stable for equal numbers.
    order: [u8; MAX_RANK],
    /// Gap after each dimension, in multiples of its stride.
    gaps: [usize; MAX_RANK],
    /// Dimensions of stride 0.
    repeats: [bool; MAX_RANK],
    /// Declared bytes of a tensor beyond the required ones.
    pub slack: Option<u64>,
}

impl LayoutGenes {
    /// Strides of an input; `None` for a packed one.
    pub(crate) fn input(&self, shape: &[usize]) -> Option<Vec<usize>> {
        self.strides(shape, true)
    }

    /// Strides of an output, without overlap; `None` for a packed one.
    pub(crate) fn output(&self, shape: &[usize]) -> Option<Vec<usize>> {
        self.strides(shape, false)
    }

    /// The layout of an input.
    pub(crate) fn layout(&self, shape: &[usize]) -> Layout {
        match self.input(shape) {
            Some(strides) => Layout::strided(shape, strides),
            None => Layout::contiguous(shape),
        }
    }

    fn strides(&self, shape: &[usize], may_repeat: bool) -> Option<Vec<usize>> {
        let mut order: Vec<usize> = (0..shape.len()).collect();
        order.sort_by_key(|&dim| self.order[dim]);
        let mut strides = vec![0; shape.len()];
        let mut next = 1;
        for &dim in order.iter().rev() {
            next *= 1 + self.gaps[dim];
            strides[dim] = match self.repeats[dim] {
                true if may_repeat => 0,
                // The stride of a dimension of size 1 is irrelevant.
                true if shape[dim] == 1 => self.gaps[dim],
                _ => next,
            };
            next *= shape[dim].max(1);
        }
        self.is_strided.then_some(strides)
    }
}

fn layout() -> impl Strategy<Value = LayoutGenes> {
    let gap = prop_oneof![8 => Just(0usize), 1 => 1usize..4];
    let order = prop_oneof![Just([0; MAX_RANK]), prop::array::uniform8(0u8..8)];
    (
        prop::bool::weighted(0.4),
        order,
        prop::array::uniform8(gap),
        prop::array::uniform8(prop::bool::weighted(0.1)),
        prop::option::weighted(0.1, 0u64..16),
    )
        .prop_map(|(is_strided, order, gaps, repeats, slack)| LayoutGenes {
            is_strided,
            order,
            gaps,
            repeats,
            slack,
        })
}

/// Any of the sixteen activations, with random parameters of any sign.
///
/// Thresholds are not negative, which would make branches overlap. Divisors are not 0.
fn activation() -> impl Strategy<Value = FusedActivation> {
    let parameter = || (-16i8..=16).prop_map(|eighths| f32::from(eighths) / 8.0);
    (0usize..16, parameter(), parameter()).prop_map(|(which, alpha, beta)| {
        use FusedActivation::*;
        // From 1/2 to 2 and -2 to -1/2, 1 for 0.
        let divisor = if alpha == 0.0 {
            1.0
        } else {
            alpha.abs().max(0.5).copysign(alpha)
        };
        match which {
            0 => Identity,
            1 => Relu,
            2 => LeakyRelu { alpha },
            3 => ThresholdedRelu { alpha },
            4 => Linear { alpha, beta },
            5 => HardSigmoid { alpha, beta },
            6 => Softsign,
            7 => Shrink {
                bias: alpha,
                threshold: beta.abs(),
            },
            8 => Sigmoid,
            9 => Tanh,
            10 => ScaledTanh { alpha, beta },
            11 => Elu { alpha },
            12 => ScaledElu { alpha, gamma: beta },
            13 => Celu { alpha: divisor },
            14 => Softplus { steepness: divisor },
            _ => ParametricSoftplus { alpha, beta },
        }
    })
}

/// Dtype of a tensor, nearly always one that the device supports.
fn dtype(on_device: &[DType]) -> impl Strategy<Value = DType> {
    prop_oneof![
        30 => prop::sample::select(on_device.to_vec()),
        1 => prop::sample::select(DType::ALL.to_vec()),
    ]
}

/// Random genes for a device with these dtypes.
pub(crate) fn genes(operators: usize, on_device: &[DType]) -> impl Strategy<Value = Genes> {
    let axis = prop::option::of(0u8..8);
    // Without variance, a small epsilon gives loose bounds, and epsilon 0 none.
    let epsilon = prop_oneof![
        16 => prop::sample::select(vec![1e-5f32, 1e-3, 0.1]),
        2 => Just(1e-12f32),
        1 => Just(0.0f32),
    ];
    let momentum = prop::sample::select(vec![0.9f32, 0.5, 0.1, 0.0, 1.0]);
    let d = || dtype(on_device);
    let shapes = (
        0..operators,
        sizes(),
        prop::array::uniform8(axis),
        [(); TENSORS].map(|()| layout()),
        [(); OUTPUTS].map(|()| prop::array::uniform8(any::<bool>())),
        [(); OUTPUTS].map(|()| prop_oneof![2 => Just(0), 1 => 0..=MAX_RANK]),
    );
    let choices = (
        [(); 4].map(|()| any::<bool>()),
        [(); 5].map(|()| any::<bool>()),
        // Parameters and statistics mostly have the dtype of the input.
        (
            d(),
            prop::option::weighted(0.3, d()),
            prop::option::weighted(0.3, d()),
            d(),
        ),
        [(); 3].map(|()| 0usize..12),
        [(); 3].map(|()| any::<bool>()),
        epsilon,
        momentum,
        prop::option::of(activation()),
    );
    (shapes, choices).prop_map(|(shapes, choices)| {
        let (operator, sizes, axes, layouts, repeated, missing) = shapes;
        let (given, wanted, dtypes, numbers, flags, epsilon, momentum, activation) = choices;
        let (x, parameters, statistics, computed_in) = dtypes;
        Genes {
            operator,
            sizes,
            axes,
            layouts,
            repeated,
            missing,
            given,
            wanted,
            dtypes: [
                x,
                parameters.unwrap_or(x),
                statistics.unwrap_or(x),
                computed_in,
            ],
            numbers,
            flags,
            epsilon,
            momentum,
            activation,
        }
    })
}

impl Genes {
    /// Reduced dimensions for a rank, in any order.
    pub(crate) fn axes(&self, rank: usize) -> Vec<usize> {
        let mut axes: Vec<usize> = (0..rank).filter(|&dim| self.axes[dim].is_some()).collect();
        axes.sort_by_key(|&dim| self.axes[dim]);
        axes
    }

    /// The shape with 1 for the dimensions along which the input at a position broadcasts.
    pub(crate) fn broadcast(&self, position: usize, shape: &[usize]) -> Vec<usize> {
        let sizes = shape.iter().enumerate();
        sizes
            .map(|(dim, &size)| {
                if self.repeated[position][dim] {
                    1
                } else {
                    size
                }
            })
            .collect()
    }

    /// Like [`Genes::broadcast`], but without some leading dimensions, down to a scalar.
    pub(crate) fn broadcast_any_rank(&self, position: usize, shape: &[usize]) -> Vec<usize> {
        let missing = self.missing[position].min(shape.len());
        self.broadcast(position, shape).split_off(missing)
    }
}
