//! Elementwise kernel for small tensors: unpacks saved statistics, updates running statistics,
//! converts parameters.

use cubecl::prelude::*;
use cubecl::server::Handle;
use cubenorm_core::{AccessBlueprint, Epsilon, Kernel, LerpDesc, TensorDesc, Vectorization};

use crate::launch::args::{address_type, check_buffer, check_buffer_from};
use crate::launch::device::check_dtypes;
use crate::launch::memory::{bound, launched};
use crate::launch::{LaunchError, elem_type, hardware};
use crate::memory::access::{Optional, row_offset};
use crate::reduce::moments::reciprocal_deviation;
use crate::types::One;

/// Units of a cube on a GPU. A CPU uses its busy cores.
const UNITS: u32 = 64;

/// Maximum number of cubes. A unit of a larger tensor processes several elements.
const MAX_CUBES: usize = 1024;

/// Writes `previous * momentum + input * (1 - momentum)`, converted to the output's dtype. Without
/// a previous value it writes the input. See [`LerpDesc`].
///
/// # Errors
///
/// [`LaunchError`] for invalid layouts and for a buffer that is too small or misaligned. All of them
/// are checked before the launch.
pub fn launch_lerp(
    client: &Client,
    desc: &LerpDesc,
    input: &Handle,
    previous: Option<&Handle>,
    output: &Handle,
) -> Result<(), LaunchError> {
    desc.validate()?;
    let dtype_of = |tensor: &TensorDesc| tensor.dtype;
    let previous_dtype = desc.previous.as_ref().map_or(desc.input.dtype, dtype_of);
    let dtypes = [desc.input.dtype, previous_dtype, desc.output.dtype];
    check_dtypes(client, dtypes.into_iter().chain([desc.accumulation()]))?;
    check_buffer_from("input", &desc.input, desc.input_offset, input)?;
    check_buffer_from("output", &desc.output, desc.output_offset, output)?;
    match (&desc.previous, previous) {
        (Some(desc), Some(handle)) => check_buffer("previous", desc, handle)?,
        (None, None) => {}
        _ => return Err(LaunchError::Missing { tensor: "previous" }),
    }
    let elements = desc.input.layout.checked_elements().unwrap_or(0);
    if elements == 0 {
        return Ok(());
    }

    let hardware = hardware(client);
    let (units, cubes) = match hardware.busy_cores(elements) {
        Some(cores) => (cores, 1),
        None => {
            let units = UNITS.min(hardware.max_units_per_cube);
            (units, elements.div_ceil(units as usize).min(MAX_CUBES))
        }
    };
    let arg = |handle: &Handle, desc: &TensorDesc| {
        let (shape, strides) = (desc.layout.shape.clone(), desc.layout.strides.clone());
        // SAFETY: `check_buffer_from` has checked that the buffer holds the layout's span from its
        // offset on.
        unsafe { TensorArg::from_raw_parts(bound(handle), strides.into(), shape.into()) }
    };
    let kept = match (&desc.previous, previous) {
        (Some(desc), Some(handle)) => Some(arg(handle, desc)),
        _ => None,
    };
    let bound = [
        ("input", Some(input), desc.input.dtype),
        ("previous", previous, previous_dtype),
        ("output", Some(output), desc.output.dtype),
    ];
    let address = address_type(client, bound, 0)?;
    let accumulation = elem_type(desc.accumulation());
    // SAFETY: The kernel addresses only elements below `elements`, each within its layout.
    unsafe {
        lerp::launch_unchecked(
            client,
            CubeCount::Static(cubes as u32, 1, 1),
            CubeDim::new_1d(units),
            address,
            arg(input, &desc.input),
            kept.into(),
            arg(output, &desc.output),
            elements,
            desc.input_offset,
            desc.output_offset,
            InputScalar::new(desc.momentum, accumulation),
            InputScalar::new(desc.deviation.map_or(0.0, Epsilon::value), accumulation),
            desc.deviation.map(Epsilon::is_inside_sqrt),
            desc.input.layout.rank(),
            desc.previous.is_some(),
            elem_type(desc.input.dtype),
            elem_type(previous_dtype),
            elem_type(desc.output.dtype),
            accumulation,
        );
    }
    launched(client, Kernel::Lerp);
    Ok(())
}

#[cube(launch_unchecked, address_type = "dynamic")]
#[allow(clippy::too_many_arguments)]
fn lerp<F: Float, G: Float, H: Float, A: Float>(
    input: &Tensor<Vector<F, One>>,
    previous: &Optional<G, One>,
    output: &mut Tensor<Vector<H, One>>,
    elements: usize,
    input_offset: usize,
    output_offset: usize,
    momentum: InputScalar,
    epsilon: InputScalar,
    #[comptime] epsilon_in_sqrt: Option<bool>,
    #[comptime] rank: usize,
    #[comptime] has_previous: bool,
    #[define(F)] _input_dtype: ElemType,
    #[define(G)] _previous_dtype: ElemType,
    #[define(H)] _output_dtype: ElemType,
    #[define(A)] _accumulation: ElemType,
) {
    let access = comptime!(AccessBlueprint::of_numbers(rank, 0));
    let lanes = comptime!(Vectorization::Parallel);
    let mut element = ABSOLUTE_POS;
    while element < elements {
        let from = input_offset + row_offset::<F, One>(input, element, access, lanes);
        let read = Vector::<A, One>::cast_from(input[from]);
        let new = if comptime!(epsilon_in_sqrt.is_some()) {
            let inside = comptime!(epsilon_in_sqrt == Some(true));
            reciprocal_deviation::<A, One>(read, epsilon.get::<A>(), inside).extract(0usize)
        } else {
            read.extract(0usize)
        };
        let value = if comptime!(has_previous) {
            let previous = previous.as_ref().unwrap();
            let at = row_offset::<G, One>(previous, element, access, lanes);
            let old = A::cast_from(previous[at].extract(0usize));
            let share = momentum.get::<A>();
            old * share + new * (A::new(1.0) - share)
        } else {
            new
        };
        let to = output_offset + row_offset::<H, One>(&*output, element, access, lanes);
        output[to] = Vector::new(H::cast_from(value));
        element += CUBE_COUNT * (CUBE_DIM as usize);
    }
}
