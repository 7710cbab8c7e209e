//! Calls that passed their check: a warm call is checked by one look-up, without an allocation.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use burn::backend::{DispatchAutodiffContext, DispatchTensor, DispatchTensorKind, TensorMetadata};
use burn::tensor::{DType, Shape};
use cubecl::Device;
use cubenorm_core::{CodeFormat, NormError};
use cubenorm_kernels::PlanCache;

use super::call::{Call, is_tracked};
use crate::ops::NormSpec;

/// Calls that passed their check. A refusal is found again by the check itself.
static CHECKED: PlanCache<Key, ()> = PlanCache::new();

/// Everything of a tensor that a check depends on.
#[derive(Debug, Clone, PartialEq)]
struct Seen {
    device: Device,
    autodiff: DispatchAutodiffContext,
    is_tracked: bool,
    dtype: DType,
    shape: Shape,
}

impl Seen {
    fn of(tensor: &DispatchTensor) -> Option<Self> {
        Some(Self {
            device: device(&tensor.kind)?,
            autodiff: tensor.autodiff,
            is_tracked: is_tracked(tensor),
            dtype: tensor.dtype(),
            shape: tensor.shape(),
        })
    }
}

impl Hash for Seen {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Tensors of a call mostly share their device and autodiff.
        self.is_tracked.hash(state);
        self.dtype.hash(state);
        self.shape.hash(state);
    }
}

/// Device of a tensor of a CubeCL runtime.
fn device(kind: &DispatchTensorKind) -> Option<Device> {
    match kind {
        DispatchTensorKind::Cube(tensor) => Some(tensor.device()),
        DispatchTensorKind::Autodiff(inner) => device(inner),
        #[allow(unreachable_patterns)]
        _ => None,
    }
}

/// Key of a call.
#[derive(Debug)]
struct Key {
    spec: NormSpec,
    codes: Option<(CodeFormat, bool)>,
    tensors: [Option<Seen>; 6],
}

/// A call, as far as its check depends on it.
#[derive(Debug, Hash)]
pub(super) struct Query<'a> {
    spec: &'a NormSpec,
    codes: Option<(CodeFormat, bool)>,
    tensors: [Option<Seen>; 6],
}

impl<'a> Query<'a> {
    /// A call whose tensors are all on CubeCL runtimes.
    pub(super) fn of(call: &'a Call) -> Option<Self> {
        let mut tensors = [const { None }; 6];
        for (seen, tensor) in tensors.iter_mut().zip(call.tensors()) {
            if let Some(tensor) = tensor {
                *seen = Some(Seen::of(tensor)?);
            }
        }
        Some(Self {
            spec: &call.spec,
            codes: call.codes,
            tensors,
        })
    }

    /// Runs a check, unless it has passed for an equal call.
    pub(super) fn once(
        &self,
        check: impl FnOnce() -> Result<(), NormError>,
    ) -> Result<(), NormError> {
        if CHECKED.find(self).is_none() {
            check()?;
            CHECKED.insert(self, Arc::new(()));
        }
        Ok(())
    }
}

impl cubenorm_kernels::Query<Key> for Query<'_> {
    fn matches(&self, key: &Key) -> bool {
        *self.spec == key.spec && self.codes == key.codes && self.tensors == key.tensors
    }

    fn to_key(&self) -> Key {
        Key {
            spec: self.spec.clone(),
            codes: self.codes,
            tensors: self.tensors.clone(),
        }
    }
}
