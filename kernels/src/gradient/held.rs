//! What a unit holds in registers while its team goes from row to row.

use cubecl::prelude::*;
use cubenorm_core::{GradientBlueprint, Hold, RowKept};

use super::element::Step;
use super::kernel::ColumnStep;
use crate::strategy::member;

/// Sums of the columns that a unit takes of each row of its team, in registers or in shared memory. What
/// is there is the unit's own, so nobody waits.
#[derive(CubeType)]
pub(super) struct HeldColumns<A: Float, N: Size> {
    registers: ComptimeOption<Array<Vector<A, N>>>,
    shared: ComptimeOption<Shared<[Vector<A, N>]>>,
}

#[cube]
impl<A: Float, N: Size> HeldColumns<A, N> {
    pub(super) fn zeros(#[comptime] blueprint: GradientBlueprint) -> Self {
        let slots = comptime!(2 * blueprint.held_vectors());
        let zero = Vector::<A, N>::new(A::new(0.0));
        match comptime!(blueprint.held_columns) {
            Hold::Reread => HeldColumns::<A, N> {
                registers: ComptimeOption::new_None(),
                shared: ComptimeOption::new_None(),
            },
            Hold::Registers(_) => {
                let mut registers = Array::<Vector<A, N>>::new(slots);
                #[unroll]
                for i in 0..slots {
                    registers[i] = zero;
                }
                HeldColumns::<A, N> {
                    registers: ComptimeOption::new_Some(registers),
                    shared: ComptimeOption::new_None(),
                }
            }
            Hold::Shared(_) => {
                let units = comptime!(blueprint.team.members as usize);
                let slots = comptime!(blueprint.column_sums.count() * blueprint.held_vectors());
                let mut shared = Shared::<[Vector<A, N>]>::new_slice(comptime!(slots * units));
                #[unroll]
                for i in 0..slots {
                    shared[i * units + member(blueprint.team)] = zero;
                }
                HeldColumns::<A, N> {
                    registers: ComptimeOption::new_None(),
                    shared: ComptimeOption::new_Some(shared),
                }
            }
        }
    }

    /// Adds a step to the sums of the unit's `i`th vector.
    pub(super) fn add(
        &mut self,
        #[comptime] i: usize,
        step: &ColumnStep<A, N>,
        #[comptime] blueprint: GradientBlueprint,
    ) {
        let sums = comptime!(blueprint.column_sums);
        if comptime!(matches!(blueprint.held_columns, Hold::Shared(_))) {
            let shared = self.shared.as_mut().unwrap();
            if comptime!(sums.products) {
                shared[slot(i, false, blueprint)] += step.products;
            }
            if comptime!(sums.gradients) {
                shared[slot(i, true, blueprint)] += step.gradients;
            }
        } else {
            let registers = self.registers.as_mut().unwrap();
            registers[comptime!(2 * i)] += step.products;
            registers[comptime!(2 * i + 1)] += step.gradients;
        }
    }

    /// The sums of the unit's `i`th vector; of those that nobody wants, anything.
    pub(super) fn get(
        &self,
        #[comptime] i: usize,
        #[comptime] blueprint: GradientBlueprint,
    ) -> ColumnStep<A, N> {
        if comptime!(matches!(blueprint.held_columns, Hold::Shared(_))) {
            let shared = self.shared.as_ref().unwrap();
            ColumnStep::<A, N> {
                products: shared[slot(i, false, blueprint)],
                gradients: shared[slot(i, true, blueprint)],
            }
        } else {
            let registers = self.registers.as_ref().unwrap();
            ColumnStep::<A, N> {
                products: registers[comptime!(2 * i)],
                gradients: registers[comptime!(2 * i + 1)],
            }
        }
    }
}

/// Where a sum of a unit's `i`th vector lies in shared memory: products first, where both are there.
#[cube]
fn slot(
    #[comptime] i: usize,
    #[comptime] is_gradient: bool,
    #[comptime] blueprint: GradientBlueprint,
) -> usize {
    let kind = comptime!(match is_gradient {
        true => blueprint.column_sums.count() - 1,
        false => 0,
    });
    let row = comptime!((kind * blueprint.held_vectors() + i) * blueprint.team.members as usize);
    row + member(blueprint.team)
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
