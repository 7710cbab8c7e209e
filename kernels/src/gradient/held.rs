//! What a unit holds in registers while its team goes from row to row.

use cubecl::prelude::*;
use cubenorm_core::{GradientBlueprint, RowKept};

use super::element::Step;

/// Sums of the columns that a unit takes of each row of its team.
#[derive(CubeType)]
pub(super) struct HeldColumns<A: Float, N: Size> {
    pub(super) products: Array<Vector<A, N>>,
    pub(super) gradients: Array<Vector<A, N>>,
}

#[cube]
impl<A: Float, N: Size> HeldColumns<A, N> {
    pub(super) fn zeros(#[comptime] blueprint: GradientBlueprint) -> Self {
        let vectors = comptime!(blueprint.held_vectors());
        let mut products = Array::<Vector<A, N>>::new(vectors);
        let mut gradients = Array::<Vector<A, N>>::new(vectors);
        #[unroll]
        for i in 0..vectors {
            products[i] = Vector::new(A::new(0.0));
            gradients[i] = Vector::new(A::new(0.0));
        }
        HeldColumns::<A, N> {
            products,
            gradients,
        }
    }
}

/// A unit's share of a row, as it is in memory, where the plan holds it.
#[derive(CubeType)]
pub(super) struct HeldRow<F: Float, N: Size> {
    inputs: ComptimeOption<Array<Vector<F, N>>>,
    above: ComptimeOption<Array<Vector<F, N>>>,
}

#[cube]
impl<F: Float, N: Size> HeldRow<F, N> {
    /// Room for a row; nothing is in it yet.
    pub(super) fn new(#[comptime] blueprint: GradientBlueprint) -> Self {
        if comptime!(blueprint.row == RowKept::Reread) {
            HeldRow::<F, N> {
                inputs: ComptimeOption::new_None(),
                above: ComptimeOption::new_None(),
            }
        } else {
            let vectors = comptime!(blueprint.held_vectors());
            HeldRow::<F, N> {
                inputs: ComptimeOption::new_Some(Array::<Vector<F, N>>::new(vectors)),
                above: ComptimeOption::new_Some(Array::<Vector<F, N>>::new(vectors)),
            }
        }
    }

    /// The `i`th step, as it is computed with.
    pub(super) fn get<A: Float>(&self, #[comptime] i: usize) -> Step<A, N> {
        Step::<A, N> {
            input: Vector::<A, N>::cast_from(self.inputs.as_ref().unwrap()[i]),
            above: Vector::<A, N>::cast_from(self.above.as_ref().unwrap()[i]),
        }
    }

    pub(super) fn set(&mut self, #[comptime] i: usize, step: &Step<F, N>) {
        self.inputs.as_mut().unwrap()[i] = step.input;
        self.above.as_mut().unwrap()[i] = step.above;
    }

    /// Copies another.
    pub(super) fn take(&mut self, other: &Self, #[comptime] blueprint: GradientBlueprint) {
        #[unroll]
        for i in 0..comptime!(blueprint.held_vectors()) {
            self.inputs.as_mut().unwrap()[i] = other.inputs.as_ref().unwrap()[i];
            self.above.as_mut().unwrap()[i] = other.above.as_ref().unwrap()[i];
        }
    }
}
