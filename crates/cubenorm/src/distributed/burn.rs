//! Burn's own collectives. This is the one file that Burn 0.23 changes: there `Tensor::all_reduce` takes the tensors of
//! all members at once.

use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "cube")]
use burn::backend::DispatchDevice;
use burn::tensor::distributed::{ReduceOperation, all_reduce};
use burn::tensor::{Device, Tensor};

use super::rendezvous::{Form, Rendezvous};
use super::{Collective, CollectiveError};

/// A member of a group of devices that exchange numbers by Burn's `all_reduce`: CUDA devices of one process, through
/// NCCL.
///
/// Each member belongs to the thread of its device. The threads meet on the host before each exchange, so a member that
/// leaves or does not come is an error: NCCL would wait for it forever. The devices do not wait for the host.
///
/// NCCL is found as Burn finds it: `libnccl.so` on the path of the dynamic linker.
///
/// Dropping a member ends the group's next exchange: see [`CollectiveError::Left`].
#[derive(Debug)]
pub struct BurnCollective {
    rank: usize,
    devices: Vec<Device>,
    rendezvous: Arc<Rendezvous<Form>>,
}

impl BurnCollective {
    /// A group with one member on each device, in the order of their ranks. Each waits at most `limit` for the others.
    ///
    /// # Errors
    ///
    /// - [`CollectiveError::NoTransport`] if a device is not one of CUDA
    /// - [`CollectiveError::RepeatedDevice`] if a device is listed twice
    ///
    /// # Example
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use burn::tensor::Device;
    /// use cubenorm::distributed::BurnCollective;
    ///
    /// # #[cfg(feature = "flex")] {
    /// let error = BurnCollective::group(vec![Device::flex()], Duration::from_secs(10)).unwrap_err();
    /// assert!(error.to_string().contains("no transport"));
    /// # }
    /// ```
    pub fn group(devices: Vec<Device>, limit: Duration) -> Result<Vec<Self>, CollectiveError> {
        let devices: Vec<Device> = devices.into_iter().map(Device::without_autodiff).collect();
        for (rank, device) in devices.iter().enumerate() {
            if !has_transport(device) {
                return Err(CollectiveError::NoTransport {
                    device: format!("{device:?}"),
                    rank,
                });
            }
            if let Some(first) = devices[..rank].iter().position(|other| other == device) {
                return Err(CollectiveError::RepeatedDevice {
                    first,
                    second: rank,
                    device: format!("{device:?}"),
                });
            }
        }
        let rendezvous = Arc::new(Rendezvous::new(devices.len(), limit));
        let member = |rank| Self {
            rank,
            devices: devices.clone(),
            rendezvous: rendezvous.clone(),
        };
        Ok((0..devices.len()).map(member).collect())
    }
}

/// True if Burn reduces over this device and others. Elsewhere its `all_reduce` panics.
fn has_transport(device: &Device) -> bool {
    #[cfg(feature = "cube")]
    if let DispatchDevice::Cube(cube) = device.as_dispatch() {
        return cube.client().has_device_transport();
    }
    let _ = device;
    false
}

impl Collective for BurnCollective {
    fn members(&self) -> usize {
        self.devices.len()
    }

    fn rank(&self) -> usize {
        self.rank
    }

    fn all_reduce(&self, tensor: Tensor<1>) -> Result<Tensor<1>, CollectiveError> {
        let (device, expected) = (tensor.device(), &self.devices[self.rank]);
        if device != *expected {
            return Err(CollectiveError::WrongDevice {
                rank: self.rank,
                expected: format!("{expected:?}"),
                actual: format!("{:?}", device.without_autodiff()),
            });
        }
        if self.devices.len() == 1 {
            return Ok(tensor);
        }
        let form = (tensor.dims()[0], tensor.dtype());
        self.rendezvous.meet(self.rank, form, |form| *form)?;
        let sum = all_reduce(tensor, ReduceOperation::Sum, self.devices.clone());
        Ok(sum.resolve())
    }
}

impl Drop for BurnCollective {
    fn drop(&mut self) {
        self.rendezvous.leave(self.rank, std::thread::panicking());
    }
}
