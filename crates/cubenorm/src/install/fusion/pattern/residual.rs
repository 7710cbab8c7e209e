//! The addition in front of a norm.

use cubenorm_core::ResidualPlace;

use super::super::graph::{Binary, Graph, Node};
use super::{Draft, Operand, Use, dies_inside};

/// Takes the addition that makes the input, if there is one. Its result is written if something else reads it.
pub(super) fn add(graph: &Graph<'_>, draft: &mut Draft) {
    if draft.residual.is_some() {
        return;
    }
    let Some((at, Node::Binary(Binary::Add, a, b))) = graph.made(&draft.input) else {
        return;
    };
    let Some(sum) = graph.output(at) else {
        return;
    };
    let same_dtype = a.dtype == sum.dtype && b.dtype == sum.dtype;
    let (input, residual) = match (a.shape == sum.shape, b.shape == sum.shape) {
        (true, _) => (a, b),
        (false, true) => (b, a),
        _ => return,
    };
    if !same_dtype {
        return;
    }
    draft.taken.push(at);
    draft.residual = Some((
        Operand {
            tensor: residual.clone(),
            used: Use {
                small: residual.clone(),
                full: sum.clone(),
            },
        },
        ResidualPlace::Input,
    ));
    draft.input = input.clone();
    // Casts and reshapes of the sum are looked through only if they die, else they read the sum.
    if !dies_inside(graph, draft, sum) {
        draft.sum = Some(sum.clone());
    }
}
