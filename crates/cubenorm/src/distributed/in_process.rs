use std::sync::Arc;
use std::time::Duration;

use burn::tensor::{DType, Device, Tensor, TensorData};

use super::rendezvous::Rendezvous;
use super::{Collective, CollectiveError};

/// A member of a group of threads in one process, which exchange numbers through host memory.
///
/// It works on every device, also if several members share one: on CPUs, in tests, and to normalize by the statistics of
/// a virtual batch whose parts run one after another. Each exchange waits for the member's device.
///
/// Sums are added in the order of ranks, in `f64`, so all members get the same bits.
///
/// Dropping a member ends the group's next exchange: see [`CollectiveError::Left`].
///
/// # Example
///
/// ```
/// use std::time::Duration;
///
/// use burn::tensor::{Device, Tensor};
/// use cubenorm::distributed::{Collective, InProcess};
///
/// # #[cfg(feature = "flex")] {
/// let members = InProcess::group(2, Duration::from_secs(10));
/// std::thread::scope(|scope| {
///     for member in members {
///         scope.spawn(move || {
///             let own = 10.0 + member.rank() as f32;
///             let tensor = Tensor::from_floats([own], &Device::flex());
///             assert_eq!(member.all_reduce(tensor).unwrap().into_scalar::<f32>(), 21.0);
///         });
///     }
/// });
/// # }
/// ```
#[derive(Debug)]
pub struct InProcess {
    rank: usize,
    members: usize,
    rendezvous: Arc<Rendezvous<Part>>,
}

/// The numbers of a member.
#[derive(Debug)]
struct Part {
    dtype: DType,
    /// Exact: `f64` holds every number of the dtypes that norms have.
    numbers: Vec<f64>,
}

impl InProcess {
    /// A group of `members`, in the order of their ranks. Each waits at most `limit` for the others.
    ///
    /// The first exchange on a device may compile kernels, so allow for that.
    pub fn group(members: usize, limit: Duration) -> Vec<Self> {
        let rendezvous = Arc::new(Rendezvous::new(members, limit));
        let member = |rank| Self {
            rank,
            members,
            rendezvous: rendezvous.clone(),
        };
        (0..members).map(member).collect()
    }

    /// Exchanges a tensor for the numbers of all members.
    fn exchange(&self, tensor: Tensor<1>) -> Result<Arc<Vec<Part>>, CollectiveError> {
        let unreadable = |reason: String| CollectiveError::Unreadable {
            rank: self.rank,
            reason,
        };
        let dtype = tensor.dtype();
        let data = tensor.try_into_data();
        let data = data.map_err(|error| unreadable(format!("{error:?}")))?;
        let numbers = data.convert::<f64>().try_to_vec::<f64>();
        let numbers = numbers.map_err(|error| unreadable(format!("{error:?}")))?;
        let part = Part { dtype, numbers };
        self.rendezvous
            .meet(self.rank, part, |part| (part.numbers.len(), part.dtype))
    }
}

/// Numbers on a device, in a dtype.
fn upload<const D: usize>(
    numbers: Vec<f64>,
    shape: [usize; D],
    dtype: DType,
    device: &Device,
) -> Tensor<D> {
    let data = TensorData::new(numbers, shape).convert_dtype(dtype);
    Tensor::from_data(data, (device, dtype))
}

impl Collective for InProcess {
    fn members(&self) -> usize {
        self.members
    }

    fn rank(&self) -> usize {
        self.rank
    }

    fn all_reduce(&self, tensor: Tensor<1>) -> Result<Tensor<1>, CollectiveError> {
        if self.members == 1 {
            return Ok(tensor);
        }
        let (device, dtype, shape) = (tensor.device(), tensor.dtype(), tensor.dims());
        let parts = self.exchange(tensor)?;
        let mut sums = vec![0.0; shape[0]];
        for part in parts.iter() {
            for (sum, number) in sums.iter_mut().zip(&part.numbers) {
                *sum += number;
            }
        }
        Ok(upload(sums, shape, dtype, &device))
    }

    fn all_gather(&self, tensor: Tensor<1>) -> Result<Tensor<2>, CollectiveError> {
        let (device, dtype, [length]) = (tensor.device(), tensor.dtype(), tensor.dims());
        if self.members == 1 {
            return Ok(tensor.reshape([1, length]));
        }
        let parts = self.exchange(tensor)?;
        let rows = parts.iter().flat_map(|part| &part.numbers).copied();
        Ok(upload(
            rows.collect(),
            [self.members, length],
            dtype,
            &device,
        ))
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        self.rendezvous.leave(self.rank, std::thread::panicking());
    }
}
