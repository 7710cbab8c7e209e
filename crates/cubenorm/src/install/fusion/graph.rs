//! The data flow of a block: which operation makes a tensor, which operations read it, and whether it dies.

use std::collections::{HashMap, HashSet};

use burn::tensor::DType;
use burn_fusion::stream::ScalarId;
use burn_ir::{
    BaseOperationIr, BinaryOpIr, FloatOperationIr, NumericOperationIr, OperationIr, ScalarIr,
    ScalarOpIr, TensorId, TensorIr, TensorStatus, UnaryOpIr,
};

/// An operation on one tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unary {
    Sqrt,
    Recip,
    Neg,
    Exp,
    Log,
    Erf,
    Tanh,
    /// Elementwise, and in no pattern.
    Other,
}

/// An operation on a tensor and a number. The number is known when the optimization runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scalar {
    Add,
    Sub,
    Mul,
    Div,
    Pow,
    IsLower,
    IsLowerEqual,
    /// Elementwise, and in no pattern.
    Other,
}

/// An operation on two tensors, which broadcast to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    /// Elementwise, and in no pattern.
    Other,
}

/// A reduction that keeps its axes with a size of 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reduce {
    Mean,
    Sum,
}

/// An operation as patterns read it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Node<'a> {
    Cast(&'a TensorIr),
    Reshape(&'a TensorIr),
    Unary(Unary, &'a TensorIr),
    Scalar(Scalar, &'a TensorIr, ScalarId),
    Binary(Binary, &'a TensorIr, &'a TensorIr),
    Reduce(Reduce, &'a TensorIr, &'a [usize]),
    /// `value` where the mask is true, else the tensor.
    MaskFill {
        tensor: &'a TensorIr,
        mask: &'a TensorIr,
        value: ScalarId,
    },
    /// The elements of `value` where the mask is true, else the tensor's.
    MaskWhere {
        tensor: &'a TensorIr,
        mask: &'a TensorIr,
        value: &'a TensorIr,
    },
    /// A matrix product.
    Matmul,
    Drop,
    /// A tensor from the host, which is there already.
    Init,
    /// No pattern contains it.
    Other,
}

/// The position of a number in the block. A block replaces numbers by their positions.
fn scalar(scalar: &ScalarIr) -> ScalarId {
    match scalar {
        ScalarIr::UInt(value) => ScalarId { value: *value },
        // A block has positions only. No block has this one, so the match is dropped when it runs.
        _ => ScalarId { value: u64::MAX },
    }
}

impl<'a> Node<'a> {
    pub(super) fn of(operation: &'a OperationIr) -> Self {
        match operation {
            OperationIr::Drop(_) => Self::Drop,
            OperationIr::Init(_) => Self::Init,
            OperationIr::BaseFloat(base) => Self::of_base(base),
            OperationIr::Float(_, float) => Self::of_float(float),
            OperationIr::NumericFloat(_, numeric) => Self::of_numeric(numeric),
            _ => Self::Other,
        }
    }

    fn of_base(operation: &'a BaseOperationIr) -> Self {
        match operation {
            BaseOperationIr::Cast(desc) => Self::Cast(&desc.input),
            BaseOperationIr::Reshape(desc) => Self::Reshape(&desc.input),
            BaseOperationIr::MaskFill(desc) => Self::MaskFill {
                tensor: &desc.tensor,
                mask: &desc.mask,
                value: scalar(&desc.value),
            },
            BaseOperationIr::MaskWhere(desc) => Self::MaskWhere {
                tensor: &desc.tensor,
                mask: &desc.mask,
                value: &desc.value,
            },
            _ => Self::Other,
        }
    }

    fn of_float(operation: &'a FloatOperationIr) -> Self {
        let unary = |kind, desc: &'a UnaryOpIr| Self::Unary(kind, &desc.input);
        match operation {
            FloatOperationIr::Matmul(_) => Self::Matmul,
            FloatOperationIr::Sqrt(desc) => unary(Unary::Sqrt, desc),
            FloatOperationIr::Recip(desc) => unary(Unary::Recip, desc),
            FloatOperationIr::Exp(desc) => unary(Unary::Exp, desc),
            FloatOperationIr::Log(desc) => unary(Unary::Log, desc),
            FloatOperationIr::Erf(desc) => unary(Unary::Erf, desc),
            FloatOperationIr::Tanh(desc) => unary(Unary::Tanh, desc),
            FloatOperationIr::Log1p(desc)
            | FloatOperationIr::Cos(desc)
            | FloatOperationIr::Sin(desc) => unary(Unary::Other, desc),
            FloatOperationIr::PowfScalar(desc) => {
                Self::Scalar(Scalar::Pow, &desc.lhs, scalar(&desc.rhs))
            }
            FloatOperationIr::Powf(desc) => Self::Binary(Binary::Other, &desc.lhs, &desc.rhs),
            _ => Self::Other,
        }
    }

    fn of_numeric(operation: &'a NumericOperationIr) -> Self {
        let binary = |kind, desc: &'a BinaryOpIr| Self::Binary(kind, &desc.lhs, &desc.rhs);
        let with = |kind, desc: &'a ScalarOpIr| Self::Scalar(kind, &desc.lhs, scalar(&desc.rhs));
        match operation {
            NumericOperationIr::Add(desc) => binary(Binary::Add, desc),
            NumericOperationIr::Sub(desc) => binary(Binary::Sub, desc),
            NumericOperationIr::Mul(desc) => binary(Binary::Mul, desc),
            NumericOperationIr::Div(desc) => binary(Binary::Div, desc),
            NumericOperationIr::AddScalar(desc) => with(Scalar::Add, desc),
            NumericOperationIr::SubScalar(desc) => with(Scalar::Sub, desc),
            NumericOperationIr::MulScalar(desc) => with(Scalar::Mul, desc),
            NumericOperationIr::DivScalar(desc) => with(Scalar::Div, desc),
            NumericOperationIr::LowerElem(desc) => with(Scalar::IsLower, desc),
            NumericOperationIr::LowerEqualElem(desc) => with(Scalar::IsLowerEqual, desc),
            NumericOperationIr::GreaterElem(desc)
            | NumericOperationIr::GreaterEqualElem(desc)
            | NumericOperationIr::RemScalar(desc) => with(Scalar::Other, desc),
            NumericOperationIr::Clamp(desc) => {
                Self::Scalar(Scalar::Other, &desc.tensor, scalar(&desc.min))
            }
            NumericOperationIr::MeanDim(desc) => {
                Self::Reduce(Reduce::Mean, &desc.input, std::slice::from_ref(&desc.axis))
            }
            NumericOperationIr::SumDim(desc) => {
                Self::Reduce(Reduce::Sum, &desc.input, std::slice::from_ref(&desc.axis))
            }
            NumericOperationIr::SumDims(desc) => Self::Reduce(Reduce::Sum, &desc.input, &desc.axes),
            NumericOperationIr::Neg(desc) => Self::Unary(Unary::Neg, &desc.input),
            NumericOperationIr::Abs(desc) => Self::Unary(Unary::Other, &desc.input),
            _ => Self::Other,
        }
    }
}

/// True if a cast between these dtypes is looked through: the kernels compute both in f32.
fn is_computed_alike(from: DType, to: DType) -> bool {
    let in_f32 = |dtype| matches!(dtype, DType::F16 | DType::BF16 | DType::F32);
    from == to || in_f32(from) && in_f32(to)
}

/// True if a cast keeps every value.
fn keeps_values(from: DType, to: DType) -> bool {
    from == to || matches!(from, DType::F16 | DType::BF16) && to == DType::F32
}

/// The operations of a block as a graph.
pub(super) struct Graph<'a> {
    operations: &'a [OperationIr],
    nodes: Vec<Node<'a>>,
    outputs: Vec<Option<&'a TensorIr>>,
    made_by: HashMap<TensorId, usize>,
    read_by: HashMap<TensorId, Vec<usize>>,
    dead: HashSet<TensorId>,
    /// True for the operations of a norm that is found already.
    claimed: Vec<bool>,
}

impl<'a> Graph<'a> {
    pub(super) fn new(operations: &'a [OperationIr]) -> Self {
        let mut graph = Self {
            operations,
            nodes: operations.iter().map(Node::of).collect(),
            outputs: operations.iter().map(|op| op.outputs().next()).collect(),
            made_by: HashMap::new(),
            read_by: HashMap::new(),
            dead: HashSet::new(),
            claimed: vec![false; operations.len()],
        };
        for (at, operation) in operations.iter().enumerate() {
            for output in operation.outputs() {
                graph.made_by.insert(output.id, at);
            }
            for input in operation.inputs() {
                let readers = graph.read_by.entry(input.id).or_default();
                if readers.last() != Some(&at) {
                    readers.push(at);
                }
                if input.status == TensorStatus::ReadWrite {
                    graph.dead.insert(input.id);
                }
            }
        }
        graph
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Keeps other norms from the operations of one.
    pub(super) fn claim(&mut self, operations: &[usize]) {
        operations.iter().for_each(|&at| self.claimed[at] = true);
    }

    /// Takes back a claim.
    pub(super) fn release(&mut self, operations: &[usize]) {
        operations.iter().for_each(|&at| self.claimed[at] = false);
    }

    pub(super) fn is_claimed(&self, at: usize) -> bool {
        self.claimed[at]
    }

    pub(super) fn operation(&self, at: usize) -> &'a OperationIr {
        &self.operations[at]
    }

    pub(super) fn node(&self, at: usize) -> Node<'a> {
        self.nodes[at]
    }

    /// The only output of an operation.
    pub(super) fn output(&self, at: usize) -> Option<&'a TensorIr> {
        self.outputs[at]
    }

    /// The operation of the block that makes a tensor.
    pub(super) fn maker(&self, tensor: &TensorIr) -> Option<usize> {
        self.made_by.get(&tensor.id).copied()
    }

    /// The operation that makes a tensor, with its position. None for one of another norm: patterns end there.
    pub(super) fn made(&self, tensor: &TensorIr) -> Option<(usize, Node<'a>)> {
        let at = self.maker(tensor)?;
        (!self.claimed[at]).then(|| (at, self.nodes[at]))
    }

    /// The operations of the block that read a tensor, in order. A drop reads what it drops.
    pub(super) fn readers(&self, tensor: &TensorIr) -> &[usize] {
        self.read_by.get(&tensor.id).map_or(&[], Vec::as_slice)
    }

    /// The operations of the block that compute with a tensor.
    pub(super) fn users(&self, tensor: &TensorIr) -> impl Iterator<Item = usize> {
        let readers = self.readers(tensor).iter().copied();
        readers.filter(|&at| !matches!(self.nodes[at], Node::Drop))
    }

    /// True if no operation after the block reads a tensor.
    pub(super) fn is_dead(&self, tensor: &TensorIr) -> bool {
        self.dead.contains(&tensor.id)
    }

    /// Looks through casts and reshapes of a value whose rounding does not matter: a statistic, or a value on its way to
    /// the output. Returns the operations it looked through as well.
    pub(super) fn look_through(&self, tensor: &'a TensorIr) -> (&'a TensorIr, Vec<usize>) {
        self.look(tensor, is_computed_alike, true)
    }

    /// Looks through casts that keep every value, and through reshapes.
    pub(super) fn source(&self, tensor: &'a TensorIr) -> (&'a TensorIr, Vec<usize>) {
        self.look(tensor, keeps_values, true)
    }

    /// Looks through casts alone.
    pub(super) fn look_through_casts(&self, tensor: &'a TensorIr) -> (&'a TensorIr, Vec<usize>) {
        self.look(tensor, is_computed_alike, false)
    }

    fn look(
        &self,
        mut tensor: &'a TensorIr,
        is_allowed: impl Fn(DType, DType) -> bool,
        reshapes: bool,
    ) -> (&'a TensorIr, Vec<usize>) {
        let mut through = Vec::new();
        while let Some((at, node)) = self.made(tensor) {
            match node {
                Node::Cast(input) if is_allowed(input.dtype, tensor.dtype) => tensor = input,
                Node::Reshape(input) if reshapes => tensor = input,
                _ => break,
            }
            through.push(at);
        }
        (tensor, through)
    }

    /// True if two tensors hold the same elements in the same row-major order.
    pub(super) fn is_same(&self, a: &'a TensorIr, b: &'a TensorIr) -> bool {
        self.source(a).0.id == self.source(b).0.id
    }

    /// Name of an operation.
    pub(super) fn name(&self, at: usize) -> String {
        name(&self.operations[at])
    }
}

/// Name of an operation: that of the innermost variant.
pub(super) fn name(operation: &OperationIr) -> String {
    let debug = format!("{operation:?}");
    let mut parts = debug.split('(');
    let outer = parts.next().unwrap_or_default();
    if matches!(operation, OperationIr::Drop(_)) {
        return outer.to_owned();
    }
    let inner = parts.next().unwrap_or(outer);
    inner.rsplit(' ').next().unwrap_or(inner).to_owned()
}
