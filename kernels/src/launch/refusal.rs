//! Checks of a description against a device, without buffers.
//!
//! A lazy backend registers operations and runs them later, when it cannot return an error. It
//! calls these checks first.

use cubecl::ir::AddressType;
use cubecl::prelude::*;
use cubenorm_core::{
    BackwardDesc, BackwardError, Buffer, DType, Footprint, Hardware, NormDesc, NormError,
    PlanError, StrategyChoice, TensorDesc, plan_forward, problem_on, schedule_backward,
};

use super::device::{check_activation, check_dtypes};
use super::plan_cache::{DescKey, DescQuery, PlanCache};
use super::{LaunchError, hardware};

/// Reason why a device cannot run a description.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Error of the launch.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// A buffer has more elements than a kernel can index.
    #[error("{runtime} indexes at most {available} elements: {buffer} needs {elements}")]
    Elements {
        /// Name of the runtime.
        runtime: &'static str,
        /// Content of the buffer.
        buffer: &'static str,
        /// Elements of the buffer.
        elements: usize,
        /// Elements that a kernel can index.
        available: usize,
    },
    /// A buffer is larger than the device's largest allocation.
    #[error("{runtime} allocates at most {available} bytes at once: {buffer} needs {bytes}")]
    Bytes {
        /// Name of the runtime.
        runtime: &'static str,
        /// Content of the buffer.
        buffer: &'static str,
        /// Size of the buffer in bytes.
        bytes: usize,
        /// Largest allocation in bytes.
        available: usize,
    },
}

impl From<NormError> for Refusal {
    fn from(error: NormError) -> Self {
        Self::Launch(error.into())
    }
}

impl From<PlanError> for Refusal {
    fn from(error: PlanError) -> Self {
        Self::Launch(error.into())
    }
}

impl From<BackwardError> for Refusal {
    fn from(error: BackwardError) -> Self {
        Self::Launch(error.into())
    }
}

/// Limits of a device's buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferLimits {
    /// Name of the runtime.
    pub runtime: &'static str,
    /// Elements that a kernel can index.
    pub elements: usize,
    /// Largest allocation in bytes.
    pub bytes: usize,
}

impl BufferLimits {
    /// Limits that a client reports.
    pub fn of(client: &Client) -> Self {
        let properties = client.properties();
        Self {
            runtime: client.name(),
            elements: match properties.supports_address(AddressType::U64) {
                true => usize::MAX,
                false => u32::MAX as usize,
            },
            bytes: usize::try_from(properties.memory.max_page_size).unwrap_or(usize::MAX),
        }
    }

    fn check(
        &self,
        buffer: &'static str,
        elements: Option<usize>,
        dtype: DType,
    ) -> Result<(), Refusal> {
        let elements = elements.unwrap_or(usize::MAX);
        let bytes = elements.saturating_mul(dtype.size());
        let Self { runtime, .. } = *self;
        if elements > self.elements {
            return Err(Refusal::Elements {
                runtime,
                buffer,
                elements,
                available: self.elements,
            });
        }
        if bytes > self.bytes {
            return Err(Refusal::Bytes {
                runtime,
                buffer,
                bytes,
                available: self.bytes,
            });
        }
        Ok(())
    }

    /// Checks the workspaces that a plan allocates.
    fn check_workspaces(&self, launches: &[Footprint], dtype: DType) -> Result<(), Refusal> {
        let extents = launches.iter().flat_map(|launch| &launch.extents);
        extents
            .filter(|extent| {
                matches!(
                    extent.buffer,
                    Buffer::PartialStatistics
                        | Buffer::CombinedStatistics
                        | Buffer::RowSums
                        | Buffer::ChannelSums
                        | Buffer::ColumnSums
                )
            })
            .try_for_each(|extent| {
                let elements = Some(extent.elements());
                self.check("workspace", elements, dtype.accumulation())
            })
    }

    /// Checks a contiguous buffer for all elements of a tensor.
    fn check_tensor(&self, buffer: &'static str, desc: &TensorDesc) -> Result<(), Refusal> {
        self.check(buffer, desc.layout.checked_elements(), desc.dtype)
    }
}

/// Checks that a device can run a normalization, without buffers.
///
/// After success, [`launch_forward`](crate::launch_forward) of the same description can only fail
/// because of its buffers. The result is cached, so another check is a look-up.
///
/// # Errors
///
/// [`Refusal`]: an invalid description, a dtype or activation that the device does not support, or
/// a device limit that the plan or a buffer exceeds.
///
/// # Example
///
/// ```no_run
/// use cubecl::client::Client;
/// use cubenorm_core::{DType, NormDesc, Statistics, TensorDesc};
/// use cubenorm_kernels::check_forward;
///
/// # fn example(client: &Client) {
/// let input = TensorDesc::contiguous([1 << 20, 1 << 20], DType::F32);
/// let desc = NormDesc::new(input, [1], Statistics::MeanVariance);
/// if let Err(refusal) = check_forward(client, &desc) {
///     println!("{refusal}");
/// }
/// # }
/// ```
pub fn check_forward(client: &Client, desc: &NormDesc) -> Result<(), Refusal> {
    let query = DescQuery::new(client, desc, StrategyChoice::Inferred);
    let check = || {
        let problem = desc.problem()?;
        let dtypes = [
            problem.dtype,
            problem.param_dtype,
            problem.provided_dtype,
            problem.dtype.accumulation(),
        ];
        check_dtypes(client, dtypes.into_iter())?;
        check_activation(client, problem.dtype, problem.activation)?;
        check_activation(client, problem.dtype, problem.statistics.function())?;
        check_forward_within(desc, &hardware(client), &BufferLimits::of(client))
    };
    FORWARD.get(&query, |_| true, check)?;
    Ok(())
}

static FORWARD: PlanCache<DescKey<NormDesc>, ()> = PlanCache::new();

/// Checks that a device can run a backward pass, without buffers: see [`check_forward`].
///
/// # Errors
///
/// As [`check_forward`].
pub fn check_backward(client: &Client, desc: &BackwardDesc) -> Result<(), Refusal> {
    let query = DescQuery::new(client, desc, StrategyChoice::Inferred);
    let check = || {
        desc.validate()?;
        let norm = &desc.norm;
        let params = [&norm.scale, &norm.bias];
        let params = params.into_iter().chain([&desc.gate_gradient]);
        let params = params.flatten().map(|tensor| tensor.dtype);
        let dtype = norm.input.dtype;
        check_dtypes(
            client,
            [dtype, dtype.accumulation()].into_iter().chain(params),
        )?;
        check_activation(client, dtype, norm.activation)?;
        check_backward_within(desc, &hardware(client), &BufferLimits::of(client))
    };
    GRADIENT.get(&query, |_| true, check)?;
    Ok(())
}

static GRADIENT: PlanCache<DescKey<BackwardDesc>, ()> = PlanCache::new();

/// [`check_forward`] for given hardware and limits, which need no device. All dtypes and
/// activations count as supported.
///
/// # Errors
///
/// As [`check_forward`].
///
/// # Example
///
/// ```
/// use cubenorm_core::{DType, Hardware, NormDesc, Statistics, TensorDesc};
/// use cubenorm_kernels::{BufferLimits, check_forward_within};
///
/// let input = TensorDesc::contiguous([1 << 20, 1 << 20], DType::F32);
/// let desc = NormDesc::new(input, [1], Statistics::MeanVariance);
/// let limits = BufferLimits {
///     runtime: "wgpu<wgsl>",
///     elements: u32::MAX as usize,
///     bytes: usize::MAX,
/// };
/// let refusal = check_forward_within(&desc, &Hardware::webgpu(), &limits).unwrap_err();
/// assert_eq!(
///     refusal.to_string(),
///     "wgpu<wgsl> indexes at most 4294967295 elements: output needs 1099511627776"
/// );
/// ```
pub fn check_forward_within(
    desc: &NormDesc,
    hardware: &Hardware,
    limits: &BufferLimits,
) -> Result<(), Refusal> {
    // Checks sizes before plans, which rely on them.
    let layout = desc.input.layout.clone();
    limits.check_tensor("output", &TensorDesc::new(layout, desc.output_dtype()))?;
    if desc.writes_sum {
        limits.check_tensor("sum", &desc.input)?;
    }
    if desc.written_statistics.is_some() {
        limits.check_tensor("statistics", &desc.statistics_desc())?;
    }
    let choice = StrategyChoice::Inferred;
    let problem = problem_on(desc, hardware, choice)?;
    if problem.is_empty() {
        return Ok(());
    }
    let plan = plan_forward(&problem, hardware, choice)?;
    limits.check_workspaces(&plan.footprint(&problem), problem.dtype)
}

/// [`check_backward`] for given hardware and limits: see [`check_forward_within`].
///
/// # Errors
///
/// As [`check_backward`].
pub fn check_backward_within(
    desc: &BackwardDesc,
    hardware: &Hardware,
    limits: &BufferLimits,
) -> Result<(), Refusal> {
    desc.validate()?;
    limits.check_tensor("output gradient", &desc.output_gradient)?;
    if let Some(gradient) = &desc.input_gradient {
        limits.check_tensor("input gradient", gradient)?;
    }
    if let Some(gradient) = &desc.gate_gradient {
        limits.check_tensor("gate gradient", gradient)?;
    }
    let schedule = schedule_backward(desc, hardware, StrategyChoice::Inferred)?;
    limits.check_workspaces(&schedule.footprint(), desc.norm.input.dtype)
}

#[cfg(test)]
mod tests {
    use cubenorm_core::{Activation, Layout, Statistics, WrittenStatistics};

    use super::*;

    /// WGSL device with unlimited memory.
    const WGSL: BufferLimits = BufferLimits {
        runtime: "wgpu<wgsl>",
        elements: u32::MAX as usize,
        bytes: usize::MAX,
    };

    fn layer_norm(shape: [usize; 2]) -> NormDesc {
        let input = TensorDesc::contiguous(shape, DType::F32);
        NormDesc::new(input, [1], Statistics::MeanVariance)
    }

    fn with_params(desc: NormDesc) -> NormDesc {
        let cols = desc.input.shape()[1];
        let param = || TensorDesc::contiguous([cols], DType::F32);
        desc.with_scale(param()).with_bias(param())
    }

    fn small(bindings: u32) -> Hardware {
        Hardware {
            max_bindings: bindings,
            ..Hardware::webgpu()
        }
    }

    #[track_caller]
    fn refused<T: std::fmt::Debug>(result: Result<T, Refusal>) -> String {
        result.expect_err("it is refused").to_string()
    }

    #[test]
    fn refuses_more_elements_than_an_address_reaches() {
        let desc = layer_norm([1 << 20, 1 << 13]);
        assert_eq!(
            refused(check_forward_within(&desc, &Hardware::webgpu(), &WGSL)),
            "wgpu<wgsl> indexes at most 4294967295 elements: output needs 8589934592"
        );
        let gradient = BackwardDesc::new(layer_norm([1 << 20, 1 << 13]));
        assert_eq!(
            refused(check_backward_within(&gradient, &Hardware::webgpu(), &WGSL)),
            "wgpu<wgsl> indexes at most 4294967295 elements: output gradient needs 8589934592"
        );
        let wide = BufferLimits {
            elements: usize::MAX,
            ..WGSL
        };
        assert_eq!(
            check_forward_within(&desc, &Hardware::cuda(132), &wide),
            Ok(())
        );
    }

    #[test]
    fn counts_output_elements_of_a_broadcast_input() {
        let mut desc = layer_norm([1 << 20, 1 << 13]);
        desc.input.layout = Layout::strided([1 << 20, 1 << 13], [0, 1]);
        let message = refused(check_forward_within(&desc, &Hardware::webgpu(), &WGSL));
        assert!(message.ends_with("output needs 8589934592"), "{message}");
    }

    #[test]
    fn counts_the_statistics_of_short_rows() {
        let mut desc = layer_norm([(1 << 31) + 8, 1]);
        assert_eq!(
            check_forward_within(&desc, &Hardware::webgpu(), &WGSL),
            Ok(())
        );
        desc.written_statistics = Some(WrittenStatistics::MeanVariance);
        let message = refused(check_forward_within(&desc, &Hardware::webgpu(), &WGSL));
        assert!(
            message.ends_with("statistics needs 4294967312"),
            "{message}"
        );
    }

    #[test]
    fn refuses_buffers_that_no_device_allocates() {
        let limits = BufferLimits {
            bytes: 128 << 20,
            ..WGSL
        };
        let desc = layer_norm([1 << 12, 1 << 13]);
        assert_eq!(
            check_forward_within(&desc, &Hardware::webgpu(), &limits),
            Ok(())
        );
        let desc = layer_norm([1 << 13, 1 << 13]);
        assert_eq!(
            refused(check_forward_within(&desc, &Hardware::webgpu(), &limits)),
            "wgpu<wgsl> allocates at most 134217728 bytes at once: output needs 268435456"
        );
    }

    #[test]
    fn refuses_kernels_with_too_many_bindings() {
        let mean = TensorDesc::contiguous([1, 768], DType::F32);
        let mut desc = with_params(layer_norm([64, 768]));
        desc.statistics = Statistics::Provided {
            mean: mean.clone(),
            variance: mean,
        };
        assert_eq!(check_forward_within(&desc, &small(8), &WGSL), Ok(()));
        assert_eq!(
            refused(check_forward_within(&desc, &small(6), &WGSL)),
            "the kernel binds 7 buffers, the device takes 6"
        );
    }

    #[test]
    fn refuses_a_backward_pass_whose_forward_pass_fits() {
        let desc = with_params(layer_norm([64, 768])).with_activation(Activation::Silu);
        let gradient = BackwardDesc::new(desc.clone());
        assert_eq!(check_forward_within(&desc, &small(6), &WGSL), Ok(()));
        let message = refused(check_backward_within(&gradient, &small(6), &WGSL));
        assert!(message.ends_with("the device takes 6"), "{message}");
        assert_eq!(check_backward_within(&gradient, &small(8), &WGSL), Ok(()));
    }

    #[test]
    fn webgpu_runs_every_pass_of_every_size() {
        for shape in [
            [1, 1],
            [3, 7],
            [64, 768],
            [2, 1 << 20],
            [1 << 20, 2],
            [0, 4],
            [4, 0],
        ] {
            for desc in [
                layer_norm(shape),
                with_params(layer_norm(shape)),
                with_params(layer_norm(shape)).with_activation(Activation::Tanh),
            ] {
                let hardware = Hardware::webgpu();
                assert_eq!(check_forward_within(&desc, &hardware, &WGSL), Ok(()));
                let gradient = BackwardDesc::new(desc);
                assert_eq!(check_backward_within(&gradient, &hardware, &WGSL), Ok(()));
            }
        }
    }
}
