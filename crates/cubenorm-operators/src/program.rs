use cubenorm_core::{BackwardDesc, LerpDesc, NormDesc, TensorDesc};

/// Result of lowering an operator: tensors, and the steps that compute the outputs from the inputs.
///
/// Most operators are one [`Step::Normalize`]. Statistics in separate outputs, moving averages and
/// parameters of other dtypes take a [`Step::Lerp`] each, over their own elements only.
///
/// A step's description is a view. Its shape and strides may differ from the tensor whose buffer it
/// reads or writes: channels split into groups, or every other element of the pairs of statistics.
/// It has the tensor's dtype and stays within the tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct Program {
    /// All tensors; a [`Slot`] is an index into them.
    pub tensors: Vec<ProgramTensor>,
    /// Computations, in order.
    pub steps: Vec<Step>,
}

/// A tensor of a [`Program`]: an index into [`Program::tensors`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(pub usize);

/// Layout and role of a tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct ProgramTensor {
    /// Name in the operator's specification: `ScaleTensor`, `InvStdDev`.
    pub name: &'static str,
    /// Source of its contents.
    pub role: Role,
    /// Position of the formal input or output. For ONNX it is the position in the operator's list.
    /// For DirectML it is the position among the fields of input or output tensors. Absent optional
    /// tensors count. A temporary tensor has a number.
    pub position: usize,
    /// Layout and dtype.
    pub desc: TensorDesc,
}

/// Source of a tensor's contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// The caller.
    Input,
    /// A step; the caller reads it.
    Output,
    /// A step; only another step reads it.
    Temporary,
}

/// A computation.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// A normalization.
    Normalize(Box<Normalize>),
    /// An elementwise blend, copy or conversion of a small tensor.
    Lerp(Box<Lerp>),
    /// Backward pass of a normalization.
    Gradient(Box<Gradient>),
}

/// A gradient and the slots of its description's tensors. The gradients of scale and bias are
/// contiguous, in the parameters' shapes and dtypes.
#[derive(Debug, Clone, PartialEq)]
pub struct Gradient {
    /// Description of the computation.
    pub desc: BackwardDesc,
    /// Input of the normalization.
    pub input: Slot,
    /// Gradient of the output, dL/dy.
    pub output_gradient: Slot,
    /// Pairs of mean and reciprocal deviation.
    pub saved: Option<Slot>,
    /// Scale.
    pub scale: Option<Slot>,
    /// Bias; only the slope of an activation reads it.
    pub bias: Option<Slot>,
    /// Gradient of the input.
    pub input_gradient: Option<Slot>,
    /// Gradient of the scale.
    pub scale_gradient: Option<Slot>,
    /// Gradient of the bias.
    pub bias_gradient: Option<Slot>,
}

/// A normalization and the slots of its description's tensors.
#[derive(Debug, Clone, PartialEq)]
pub struct Normalize {
    /// Description of the computation. It always describes its output.
    pub desc: NormDesc,
    /// Tensor to normalize.
    pub input: Slot,
    /// Residual, added first or last, as described.
    pub residual: Option<Slot>,
    /// Scale.
    pub scale: Option<Slot>,
    /// Bias.
    pub bias: Option<Slot>,
    /// Provided means.
    pub mean: Option<Slot>,
    /// Provided variances.
    pub variance: Option<Slot>,
    /// Result.
    pub output: Slot,
    /// `input + residual`, if described.
    pub sum: Option<Slot>,
    /// Pairs of statistics, if described.
    pub statistics: Option<Slot>,
}

/// A blend and the slots of its description's tensors.
#[derive(Debug, Clone, PartialEq)]
pub struct Lerp {
    /// Description of the computation.
    pub desc: LerpDesc,
    /// New value.
    pub input: Slot,
    /// Previous value.
    pub previous: Option<Slot>,
    /// Result.
    pub output: Slot,
}

impl Program {
    /// A tensor's name, role and layout.
    pub fn tensor(&self, slot: Slot) -> &ProgramTensor {
        &self.tensors[slot.0]
    }

    /// Tensors that the caller provides.
    pub fn inputs(&self) -> impl Iterator<Item = (Slot, &ProgramTensor)> {
        self.with_role(Role::Input)
    }

    /// Tensors that the caller reads.
    pub fn outputs(&self) -> impl Iterator<Item = (Slot, &ProgramTensor)> {
        self.with_role(Role::Output)
    }

    /// Tensors that one step passes to another.
    pub fn temporaries(&self) -> impl Iterator<Item = (Slot, &ProgramTensor)> {
        self.with_role(Role::Temporary)
    }

    /// Slot of a formal input; `None` if the operator does not have it or the program does not read
    /// it.
    pub fn input_at(&self, position: usize) -> Option<Slot> {
        self.at(Role::Input, position)
    }

    /// Slot of a formal output; `None` if the operator does not have it or it is not wanted.
    pub fn output_at(&self, position: usize) -> Option<Slot> {
        self.at(Role::Output, position)
    }

    fn at(&self, role: Role, position: usize) -> Option<Slot> {
        self.with_role(role)
            .find(|(_, tensor)| tensor.position == position)
            .map(|(slot, _)| slot)
    }

    fn with_role(&self, role: Role) -> impl Iterator<Item = (Slot, &ProgramTensor)> {
        let slots = self.tensors.iter().enumerate();
        slots
            .filter(move |(_, tensor)| tensor.role == role)
            .map(|(index, tensor)| (Slot(index), tensor))
    }
}
