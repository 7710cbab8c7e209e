use std::fmt::Debug;
use std::time::Duration;

use burn::tensor::Tensor;
use cubenorm_core::NormError;

/// One member's connection to a group of devices or threads.
///
/// All members call the same functions in the same order. A call returns when all of them have made it. See the
/// [module](crate::distributed) for the order that is safe.
pub trait Collective: Debug + Send + Sync {
    /// Number of members.
    fn members(&self) -> usize;

    /// Position of this member, from 0.
    fn rank(&self) -> usize;

    /// Sum of one tensor of each member, on this member's device.
    ///
    /// # Shapes and dtypes
    ///
    /// The tensors of all members have the same length and dtype, and are not tracked by autodiff.
    ///
    /// # Errors
    ///
    /// [`CollectiveError`]. All members get an error if one does, unless only its own device fails.
    fn all_reduce(&self, tensor: Tensor<1>) -> Result<Tensor<1>, CollectiveError>;

    /// One tensor of each member, as the rows of `[members, length]`.
    ///
    /// Unless an implementation has a better way, it is the sum of rows that are 0 for other members. That is exact.
    ///
    /// # Errors
    ///
    /// As [`all_reduce`](Self::all_reduce).
    fn all_gather(&self, tensor: Tensor<1>) -> Result<Tensor<2>, CollectiveError> {
        let ([length], members) = (tensor.dims(), self.members());
        if members == 1 {
            return Ok(tensor.reshape([1, length]));
        }
        let (device, dtype) = (tensor.device(), tensor.dtype());
        let before = self.rank() * length;
        let own = before..before + length;
        let rows = Tensor::<1>::zeros([members * length], (&device, dtype));
        let rows = rows.slice_assign([own], tensor);
        Ok(self.all_reduce(rows)?.reshape([members, length]))
    }
}

/// A reason that members did not exchange their numbers.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CollectiveError {
    /// Burn has no transport between the devices.
    #[error(
        "device {device} is member {rank}, but Burn 0.22 has no transport to it: expected CUDA devices of one process, \
         or cubenorm::distributed::InProcess"
    )]
    NoTransport {
        /// The device.
        device: String,
        /// Its rank.
        rank: usize,
    },
    /// A tensor is not on the member's device.
    #[error("tensor is on device {actual}: expected {expected}, the device of member {rank}")]
    WrongDevice {
        /// The member.
        rank: usize,
        /// Its device.
        expected: String,
        /// The tensor's device.
        actual: String,
    },
    /// A device is listed twice.
    #[error("members {first} and {second} are both on device {device}: expected one device each")]
    RepeatedDevice {
        /// The first member.
        first: usize,
        /// The second member.
        second: usize,
        /// Their device.
        device: String,
    },
    /// Members passed tensors of different length or dtype.
    #[error(
        "member {other} passed {other_length} numbers of {other_dtype}: expected {length} of {dtype}, as member 0 did"
    )]
    Mismatch {
        /// The other member.
        other: usize,
        /// Length of its tensor.
        other_length: usize,
        /// Dtype of its tensor.
        other_dtype: String,
        /// Length of member 0's tensor.
        length: usize,
        /// Dtype of member 0's tensor.
        dtype: String,
    },
    /// Some members did not come within the time limit.
    #[error(
        "member {rank} waited {limit:?} in exchange {exchange}, but members {missing:?} did not come: expected all \
         {members} to make the same calls"
    )]
    TimedOut {
        /// The member that waited.
        rank: usize,
        /// The members that did not come.
        missing: Vec<usize>,
        /// Number of members.
        members: usize,
        /// The time limit.
        limit: Duration,
        /// Number of the exchange, from 0.
        exchange: u64,
    },
    /// A member was dropped before the exchange.
    #[error(
        "member {member} {} before exchange {exchange}: expected it to make the same calls as the others",
        departure(.panicked)
    )]
    Left {
        /// The member.
        member: usize,
        /// True if its thread panicked.
        panicked: bool,
        /// Number of the exchange, from 0.
        exchange: u64,
    },
    /// Two threads used one member at the same time.
    #[error("member {rank} is in exchange {exchange} already: expected one thread for each member")]
    Concurrent {
        /// The member.
        rank: usize,
        /// Number of the exchange, from 0.
        exchange: u64,
    },
    /// The numbers of a member could not be read from its device.
    #[error("the tensor of member {rank} could not be read: {reason}")]
    Unreadable {
        /// The member.
        rank: usize,
        /// The device's reason.
        reason: String,
    },
    /// The member that a forward pass used was dropped before its backward pass.
    #[error(
        "the member of the forward pass was dropped: expected it to live until backward() returns"
    )]
    Dropped,
    /// A graph is being captured.
    #[error(
        "member {rank} captures a graph, which a replay could not exchange numbers in: run it uncaptured"
    )]
    Captured {
        /// The member.
        rank: usize,
    },
}

fn departure(panicked: &bool) -> &'static str {
    match panicked {
        true => "panicked",
        false => "left",
    }
}

/// A reason that a function over several devices failed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SyncError {
    /// The call is invalid, or the device does not run it.
    #[error(transparent)]
    Norm(#[from] NormError),
    /// The members did not exchange their numbers.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
}
