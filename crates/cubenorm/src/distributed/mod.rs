//! Norms over several devices: the exchange between them, and the rules that keep it free of deadlocks.
//!
//! [`nn::SyncBatchNorm`](crate::nn::SyncBatchNorm) and [`sync_batch_norm_train`](crate::sync_batch_norm_train) normalize
//! by the statistics of a batch that is divided over several members. [`norm_sharded`](crate::norm_sharded) normalizes
//! rows that are divided. A member is a thread with a device of its own, or with its own share of one device. A
//! [`Collective`] connects them:
//!
//! | collective | members | transport |
//! | --- | --- | --- |
//! | [`InProcess`] | threads of one process, on any devices | host memory; each exchange waits for the device |
//! | [`BurnCollective`] | CUDA devices of one process | Burn's `all_reduce` (NCCL) |
//!
//! Burn 0.22 has no transport for other runtimes, nor between hosts: [`CollectiveError::NoTransport`] says so.
//!
//! # What is exchanged
//!
//! Each layer exchanges one tensor forward and one backward. All numbers are `f32`, or `f64` for an input of `f64`.
//!
//! | function | forward, from each member | backward |
//! | --- | --- | --- |
//! | [`sync_batch_norm_train`](crate::sync_batch_norm_train) | count, and mean and M2 of each channel | 2 sums per channel |
//! | [`norm_sharded`](crate::norm_sharded), layer norm | count, and mean and M2 of each row | 2 sums per row |
//! | [`norm_sharded`](crate::norm_sharded), RMS norm | count, and sum of squares of each row | 1 sum per row |
//!
//! M2 is the sum of squared deviations. Means and M2 are merged by the formula of Chan, Golub and LeVeque, which does not
//! cancel as `E[x^2] - E[x]^2` does. The gradients of `gamma` and `beta` are sums over the
//! member's own elements.
//!
//! # Order
//!
//! Collectives have no names: the first call of a member meets the first call of the others. All members must therefore
//! make the same calls in the same order. The same network with the same tracked tensors does so. A batch may be empty.
//!
//! Data-parallel training also reduces the gradients of parameters. These orders are safe:
//!
//! - Each member runs forward, then `backward()`, and then reduces its gradients on the same thread, in the same order of
//!   parameters as the others. [`Collective::all_reduce`] of the same collective will do.
//! - One thread collects the gradients of all members after their `backward()` has returned, as gradient accumulation
//!   does.
//!
//! Not safe: Burn's own gradient reduction (`burn::tensor::distributed::DistributedContext`) over the same devices. It
//! reduces on a thread of its own while `backward()` runs, over the same communicators. A device may then see the
//! reduction of a gradient before the exchange of a layer, and another device after it. NCCL waits forever in that case.
//!
//! # One graph for each member
//!
//! `backward()` holds the lock of its autodiff graph while it waits for the other members. Members whose parameters are
//! clones share a graph, so one would wait for the lock that another holds, until the time limit. Give each member
//! parameters of its own: `model.clone().fork(&device)`, also on the same device.
//!
//! # Errors and time limits
//!
//! A member that leaves or panics ends the calls of the others with [`CollectiveError::Left`]. A member that does not
//! come ends them with [`CollectiveError::TimedOut`]. After either, every call of the group returns that error. Burn's
//! `backward()` returns no errors, so it panics with the error's message.
//!
//! # Example
//!
//! Two threads normalize one batch of three samples:
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use burn::tensor::{Device, Tensor};
//! use cubenorm::distributed::{Collective, InProcess};
//!
//! # #[cfg(feature = "flex")] {
//! let shards = [vec![[1.0f32], [2.0]], vec![[6.0]]];
//! let members = InProcess::group(2, Duration::from_secs(10));
//! std::thread::scope(|scope| {
//!     for (member, shard) in members.into_iter().zip(shards) {
//!         scope.spawn(move || {
//!             let member: Arc<dyn Collective> = Arc::new(member);
//!             let rows = shard.len();
//!             let data = burn::tensor::TensorData::new(shard.concat(), [rows, 1]);
//!             let x = Tensor::<2>::from_data(data, &Device::flex());
//!             let result = cubenorm::sync_batch_norm_train(x, None, None, 1e-5, &member);
//!             assert_eq!(result.mean.into_scalar::<f32>(), 3.0);
//!         });
//!     }
//! });
//! # }
//! ```

mod burn;
mod collective;
mod in_process;
mod rendezvous;

pub use self::burn::BurnCollective;
pub use collective::{Collective, CollectiveError, SyncError};
pub use in_process::InProcess;
