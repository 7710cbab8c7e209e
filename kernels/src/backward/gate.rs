//! The gate: a factor of the input or of the output, and its gradient.

use cubecl::prelude::*;
use cubenorm_core::{AccessBlueprint, BackwardBlueprint};

use crate::backward::element::{BackwardRow, Element, Params, TypedBackwardSource, WideStep, step};
use crate::backward::io::Bound;
use crate::epilogue::{Scalars, activate, slope};
use crate::memory::access::{load, store};
use crate::types::Types;

/// Access of the gate.
pub(crate) fn gate_access(blueprint: &BackwardBlueprint) -> Option<AccessBlueprint> {
    blueprint.gate.map(|gate| gate.access)
}

/// Loads a step of the gate. An absent one is 0.
#[cube]
pub(crate) fn gate_of_step<T: Types, G: Float>(
    source: &TypedBackwardSource<T>,
    row: &BackwardRow<T::A, T::N>,
    step: usize,
    #[comptime] blueprint: BackwardBlueprint,
) -> Vector<G, T::N> {
    if comptime!(blueprint.gate.is_none()) {
        Vector::<G, T::N>::new(G::new(0.0))
    } else {
        let access = comptime!(gate_access(&blueprint).unwrap());
        let vectorization = comptime!(blueprint.team.lanes());
        let tensor = source.gate.as_ref().unwrap();
        load::<T::O, T::Mean, G, T::N>(tensor, row.gate, step, access, vectorization)
    }
}

/// `value * activation(gate)`
#[cube]
fn times_gate<T: Types>(
    value: Vector<T::A, T::N>,
    gate: Vector<T::A, T::N>,
    scalars: &Scalars,
    #[comptime] blueprint: BackwardBlueprint,
) -> Vector<T::A, T::N> {
    let (alpha, beta) = (scalars.alpha.get::<T::A>(), scalars.beta.get::<T::A>());
    value * activate::<T::A, T::N>(gate, alpha, beta, blueprint.activation)
}

/// A step whose input or output gradient is multiplied by the gate.
#[cube]
pub(crate) fn gated<T: Types>(
    read: &WideStep<T>,
    scalars: &Scalars,
    #[comptime] blueprint: BackwardBlueprint,
) -> WideStep<T> {
    let gate = read.gate;
    if comptime!(blueprint.gate.is_none()) {
        step::<T::A, T::A, T::A, T::N>(read.input, read.dy, gate)
    } else if comptime!(blueprint.gate.is_some_and(|gate| gate.is_of_input)) {
        let input = times_gate::<T>(read.input, gate, scalars, blueprint);
        step::<T::A, T::A, T::A, T::N>(input, read.dy, gate)
    } else {
        let dy = times_gate::<T>(read.dy, gate, scalars, blueprint);
        step::<T::A, T::A, T::A, T::N>(read.input, dy, gate)
    }
}

/// Writes the gradient of the gate, if it is wanted. Returns the gradient of the input: `passed`, multiplied by an input's gate.
#[cube]
#[allow(clippy::too_many_arguments)]
pub(crate) fn pass_gate<T: Types>(
    passed: Vector<T::A, T::N>,
    read: &WideStep<T>,
    element: &Element<T::A, T::N>,
    params: &Params<T::A, T::N>,
    output: usize,
    at: usize,
    bound: &mut Bound<'_, T>,
    #[comptime] blueprint: BackwardBlueprint,
) -> Vector<T::A, T::N> {
    if comptime!(blueprint.gate.is_none()) {
        passed
    } else {
        let gate = read.gate;
        let is_of_input = comptime!(blueprint.gate.is_some_and(|gate| gate.is_of_input));
        if comptime!(blueprint.writes_gate_gradient()) {
            let of_product = if is_of_input {
                passed * read.input
            } else {
                read.dy * affine::<T>(element, params, blueprint)
            };
            let (alpha, beta) = (
                bound.scalars.alpha.get::<T::A>(),
                bound.scalars.beta.get::<T::A>(),
            );
            let gradient =
                of_product * slope::<T::A, T::N>(gate, alpha, beta, blueprint.activation);
            store::<T::O, T::Output, T::A, T::N>(
                bound.results.gate.as_mut().unwrap(),
                output,
                at,
                gradient,
                comptime!(blueprint.input_gradient.unwrap()),
                comptime!(blueprint.team.lanes()),
            );
        }
        if is_of_input {
            times_gate::<T>(passed, gate, bound.scalars, blueprint)
        } else {
            passed
        }
    }
}

/// The normalized value with scale and bias.
#[cube]
fn affine<T: Types>(
    element: &Element<T::A, T::N>,
    params: &Params<T::A, T::N>,
    #[comptime] blueprint: BackwardBlueprint,
) -> Vector<T::A, T::N> {
    let scaled = if comptime!(blueprint.scale.is_some()) {
        element.normalized * params.scale
    } else {
        element.normalized
    };
    if comptime!(blueprint.bias.is_some()) {
        scaled + params.bias
    } else {
        scaled
    }
}
