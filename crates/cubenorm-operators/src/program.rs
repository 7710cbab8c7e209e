use cubenorm_core::{BlendDesc, GradientDesc, NormDesc, TensorDesc};

/// What an operator lowers to: tensors, and the steps that compute the outputs from the inputs.
///
/// Most operators are one [`Step::Normalize`]. Statistics that an operator returns in tensors of
/// their own, running averages, and parameters of other dtypes take a [`Step::Blend`] each, over no
/// more elements than those have.
///
/// A step's description is a view: it may have another shape and other strides than the tensor whose
/// buffer it reads or writes (channels split into groups, every other element of the pairs of
/// statistics), but has its dtype and reaches no further.
#[derive(Debug, Clone, PartialEq)]
pub struct Program {
    /// Every tensor; a [`Slot`] is an index into it.
    pub tensors: Vec<ProgramTensor>,
    /// What is computed, in order.
    pub steps: Vec<Step>,
}

/// A tensor of a [`Program`]: an index into [`Program::tensors`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(pub usize);

/// Layout and role of a tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct ProgramTensor {
    /// The name that the operator's specification gives it: `ScaleTensor`, `InvStdDev`.
    pub name: &'static str,
    /// Who fills it.
    pub role: Role,
    /// Which formal input or output it is: for ONNX the position in the operator's list, for
    /// DirectML the position among its fields that are input tensors, or among those that are output
    /// tensors. Absent optional tensors count. A temporary tensor's number.
    pub position: usize,
    /// Layout and dtype.
    pub desc: TensorDesc,
}

/// Who fills a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// The caller.
    Input,
    /// A step; the caller wants it.
    Output,
    /// A step; another step reads it and nobody else.
    Temporary,
}

/// One computation.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// A normalization.
    Normalize(Box<Normalize>),
    /// An elementwise blend, copy or conversion of a small tensor.
    Blend(Box<Blend>),
    /// The way back through a normalization.
    Gradient(Box<Gradient>),
}

/// A gradient and the tensors that its description's tensors are. Those of scale and bias are written
/// contiguous, in the parameters' shapes and dtypes.
#[derive(Debug, Clone, PartialEq)]
pub struct Gradient {
    /// What to compute.
    pub desc: GradientDesc,
    /// What was normalized.
    pub input: Slot,
    /// The output's gradient.
    pub output_gradient: Slot,
    /// Pairs of mean and reciprocal deviation.
    pub saved: Option<Slot>,
    /// What was multiplied.
    pub scale: Option<Slot>,
    /// What was added; only an activation's slope reads it.
    pub bias: Option<Slot>,
    /// Where the input's gradient goes.
    pub input_gradient: Option<Slot>,
    /// Where the scale's goes.
    pub scale_gradient: Option<Slot>,
    /// Where the bias's goes.
    pub bias_gradient: Option<Slot>,
}

/// A normalization and the tensors that its description's tensors are.
#[derive(Debug, Clone, PartialEq)]
pub struct Normalize {
    /// What to compute. Its output is always described.
    pub desc: NormDesc,
    /// The tensor to normalize.
    pub input: Slot,
    /// What is added, first or last as the description says.
    pub residual: Option<Slot>,
    /// What is multiplied.
    pub scale: Option<Slot>,
    /// What is added after the scale.
    pub bias: Option<Slot>,
    /// Given means.
    pub mean: Option<Slot>,
    /// Given variances.
    pub variance: Option<Slot>,
    /// The result.
    pub output: Slot,
    /// `input + residual`, where the description writes it.
    pub sum: Option<Slot>,
    /// Pairs of statistics, where the description writes them.
    pub statistics: Option<Slot>,
}

/// A blend and the tensors that its description's tensors are.
#[derive(Debug, Clone, PartialEq)]
pub struct Blend {
    /// What to compute.
    pub desc: BlendDesc,
    /// What is blended in.
    pub input: Slot,
    /// What it is blended with.
    pub previous: Option<Slot>,
    /// The result.
    pub output: Slot,
}

impl Program {
    /// A tensor's name, role and layout.
    pub fn tensor(&self, slot: Slot) -> &ProgramTensor {
        &self.tensors[slot.0]
    }

    /// The tensors that the caller gives.
    pub fn inputs(&self) -> impl Iterator<Item = (Slot, &ProgramTensor)> {
        self.with_role(Role::Input)
    }

    /// The tensors that the caller wants.
    pub fn outputs(&self) -> impl Iterator<Item = (Slot, &ProgramTensor)> {
        self.with_role(Role::Output)
    }

    /// The tensors that one step hands to another.
    pub fn temporaries(&self) -> impl Iterator<Item = (Slot, &ProgramTensor)> {
        self.with_role(Role::Temporary)
    }

    /// The tensor for a formal input; `None` where the operator has none there, or the program does
    /// not read it.
    pub fn input_at(&self, position: usize) -> Option<Slot> {
        self.at(Role::Input, position)
    }

    /// The tensor of a formal output; `None` where the operator has none there, or nobody wants it.
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
