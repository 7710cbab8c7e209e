//! Random numbers that descriptions are built of.
//!
//! They are drawn independently of each other and fitted to each other afterwards, so that proptest
//! can make each of them smaller on its own: towards 1 dimension of size 1, packed, in f32, without
//! anything that is optional.

use cubenorm_core::{DType, Layout, MAX_RANK};
use cubenorm_operators::directml::FusedActivation;
use proptest::prelude::*;

/// Elements of most tensors, at most.
const FEW: usize = 2_000;

/// Elements of a tensor now and then.
const MANY: std::ops::Range<usize> = 2_000..50_000;

/// Tensors of one operator: inputs by position, then outputs by position.
const TENSORS: usize = 8;

/// The first output among the tensors.
pub const OUTPUTS: usize = 5;

#[derive(Debug, Clone)]
pub struct Genes {
    /// Which operator.
    pub operator: usize,
    pub sizes: Sizes,
    /// Which dimensions are reduced, and in which order they are listed.
    pub axes: [Option<u8>; MAX_RANK],
    pub layouts: [LayoutGenes; TENSORS],
    /// Which dimensions each input is repeated along.
    pub repeated: [[bool; MAX_RANK]; OUTPUTS],
    /// Leading dimensions that each input leaves out, of ONNX's.
    pub missing: [usize; OUTPUTS],
    /// Which optional tensors are given.
    pub given: [bool; 4],
    /// Which optional outputs are wanted.
    pub wanted: [bool; 5],
    /// Of the input, of parameters, of statistics, of what is computed in.
    pub dtypes: [DType; 4],
    /// Choices of the operator: versions, groups.
    pub numbers: [usize; 3],
    pub flags: [bool; 3],
    pub epsilon: f32,
    pub momentum: f32,
    pub activation: Option<FusedActivation>,
}

/// Sizes before they are fitted to a rank and to a number of elements.
#[derive(Debug, Clone)]
pub struct Sizes {
    rank: usize,
    sizes: [usize; MAX_RANK],
    /// The dimension that has its size first, where not all can have theirs.
    first: usize,
    /// Elements of a large tensor.
    many: Option<usize>,
    /// A dimension without elements, of ONNX's.
    empty: Option<usize>,
}

impl Sizes {
    /// A shape of a rank in a range.
    pub fn shape(&self, ranks: std::ops::RangeInclusive<usize>) -> Vec<usize> {
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

    /// The same, now and then without elements.
    pub fn shape_or_empty(&self, ranks: std::ops::RangeInclusive<usize>) -> Vec<usize> {
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

/// Strides before they are fitted to a shape.
#[derive(Debug, Clone)]
pub struct LayoutGenes {
    is_strided: bool,
    /// Dimensions with less are further out in memory; equal ones are in their own order.
    order: [u8; MAX_RANK],
    /// Elements left out after each dimension, in its own unit.
    gaps: [usize; MAX_RANK],
    /// Dimensions that are repeated by a stride of 0.
    repeats: [bool; MAX_RANK],
    /// Bytes that a tensor is said to have beyond those that it needs.
    pub slack: Option<u64>,
}

impl LayoutGenes {
    /// Strides of an input; `None` for a packed one.
    pub fn input(&self, shape: &[usize]) -> Option<Vec<usize>> {
        self.strides(shape, true)
    }

    /// Strides of an output, which reach no element twice; `None` for a packed one.
    pub fn output(&self, shape: &[usize]) -> Option<Vec<usize>> {
        self.strides(shape, false)
    }

    /// The layout of an input.
    pub fn layout(&self, shape: &[usize]) -> Layout {
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
                // A dimension of one index goes nowhere, whatever its stride.
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

/// Any of the sixteen, with parameters of its own: of any sign, but for a threshold below 0, by which
/// a number would be on both sides, and divisors of 0.
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

/// The dtype of a tensor: nearly always one that the device has.
fn dtype(on_device: &[DType]) -> impl Strategy<Value = DType> {
    prop_oneof![
        30 => prop::sample::select(on_device.to_vec()),
        1 => prop::sample::select(DType::ALL.to_vec()),
    ]
}

/// Random genes for a device that has these dtypes.
pub fn genes(operators: usize, on_device: &[DType]) -> impl Strategy<Value = Genes> {
    let axis = prop::option::of(0u8..8);
    // Where there is no variance, little is known of what a small epsilon leaves, and nothing without
    // one.
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
        // Parameters and statistics mostly have the input's.
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
    /// The dimensions of a rank that are reduced, in any order.
    pub fn axes(&self, rank: usize) -> Vec<usize> {
        let mut axes: Vec<usize> = (0..rank).filter(|&dim| self.axes[dim].is_some()).collect();
        axes.sort_by_key(|&dim| self.axes[dim]);
        axes
    }

    /// The shape with 1 for the dimensions that the input at a position is repeated along.
    pub fn broadcast(&self, position: usize, shape: &[usize]) -> Vec<usize> {
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

    /// The same, without some of the leading dimensions: any number of them, so that a scalar may be
    /// left.
    pub fn broadcast_any_rank(&self, position: usize, shape: &[usize]) -> Vec<usize> {
        let missing = self.missing[position].min(shape.len());
        self.broadcast(position, shape).split_off(missing)
    }
}
