//! The exchange itself: sums, errors and time limits.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use burn::module::Module;
use burn::tensor::{DType, Device, Tensor};
use cubenorm::distributed::{BurnCollective, Collective, CollectiveError, InProcess, SyncError};
use cubenorm::nn::{BatchNormConfig, SyncBatchNorm};
use cubenorm_tests::tensors::{devices, noise};

use crate::support::{all, run, upload, values};

/// Time in which an error has to come that waits for nothing.
const SOON: Duration = Duration::from_secs(60);

/// A collective that only reduces, as Burn's.
#[derive(Debug)]
struct Reducing(Arc<dyn Collective>);

impl Collective for Reducing {
    fn members(&self) -> usize {
        self.0.members()
    }

    fn rank(&self) -> usize {
        self.0.rank()
    }

    fn all_reduce(&self, tensor: Tensor<1>) -> Result<Tensor<1>, CollectiveError> {
        self.0.all_reduce(tensor)
    }
}

#[test]
fn members_get_equal_sums_and_rows() {
    for (name, device) in devices() {
        let own = |rank: usize| [0.1 + rank as f64, 1e8, -3.0 * rank as f64];
        let results = all(3, |rank, member| {
            let tensor = || upload(&own(rank), [3], DType::F32, &device);
            let sum = values(member.all_reduce(tensor()).unwrap());
            let rows = values(member.all_gather(tensor()).unwrap());
            let by_sums = values(Reducing(member).all_gather(tensor()).unwrap());
            assert_eq!(rows, by_sums, "{name}: rows of rank {rank}");
            (sum, rows)
        });
        let row = |rank| own(rank).map(|x| f64::from(x as f32));
        let rows = [row(0), row(1), row(2)].concat();
        let sum: Vec<f64> = (0..3)
            .map(|at| f64::from((row(0)[at] + row(1)[at] + row(2)[at]) as f32))
            .collect();
        for result in results {
            assert_eq!(result, (sum.clone(), rows.clone()), "{name}");
        }
    }
}

#[test]
fn panicking_member_ends_the_others() {
    let begin = Instant::now();
    let results = run(3, 10 * SOON, |rank, member| {
        let tensor = || Tensor::<1>::ones([2], &Device::flex());
        member.all_reduce(tensor())?;
        assert_ne!(rank, 1, "this member panics");
        member.all_reduce(tensor()).map(|_| ())
    });
    assert!(begin.elapsed() < SOON);
    for (rank, result) in results.into_iter().enumerate() {
        match (rank, result) {
            (1, result) => assert!(result.is_err(), "it panicked"),
            (_, result) => assert_eq!(
                result.unwrap(),
                Err(CollectiveError::Left {
                    member: 1,
                    panicked: true,
                    exchange: 1
                })
            ),
        }
    }
}

#[test]
fn leaving_member_ends_the_others() {
    let results = all(2, |rank, member| match rank {
        0 => {
            drop(member);
            None
        }
        _ => {
            let tensor = || Tensor::<1>::ones([2], &Device::flex());
            let errors = [(); 2].map(|()| member.all_reduce(tensor()).unwrap_err());
            assert_eq!(errors[0], errors[1], "later calls repeat the error");
            Some(errors[0].to_string())
        }
    });
    assert_eq!(
        results[1].as_deref(),
        Some("member 0 left before exchange 0: expected it to make the same calls as the others")
    );
}

#[test]
fn absent_member_ends_the_others_in_time() {
    let limit = Duration::from_millis(300);
    let mut group = InProcess::group(2, limit);
    let absent = group.pop();
    let member = group.pop().unwrap();
    let begin = Instant::now();
    let error = member
        .all_gather(Tensor::<1>::ones([2], &Device::flex()))
        .unwrap_err();
    assert!((limit..SOON).contains(&begin.elapsed()));
    assert_eq!(
        error.to_string(),
        "member 0 waited 300ms in exchange 0, but members [1] did not come: expected all 2 to make the same calls"
    );
    // The absent one learns of it.
    let late = absent
        .unwrap()
        .all_reduce(Tensor::ones([2], &Device::flex()));
    assert_eq!(late.unwrap_err(), error);
}

#[test]
fn different_lengths_and_dtypes_are_errors() {
    let device = Device::flex();
    let lengths = all(2, |rank, member| {
        let error = member.all_reduce(Tensor::ones([3 + rank], &device));
        error.unwrap_err().to_string()
    });
    for error in lengths {
        assert_eq!(
            error,
            "member 1 passed 4 numbers of f32: expected 3 of f32, as member 0 did"
        );
    }
    let dtypes = all(2, |rank, member| {
        let dtype = [DType::F32, DType::F64][rank];
        let tensor = upload(&[1.0], [1], dtype, &device);
        member.all_reduce(tensor).unwrap_err().to_string()
    });
    assert_eq!(
        dtypes[0],
        "member 1 passed 1 numbers of f64: expected 1 of f32, as member 0 did"
    );
}

#[test]
fn devices_without_transport_are_an_error() {
    for (name, device) in devices() {
        if name == "cuda" {
            continue;
        }
        let error = BurnCollective::group(vec![device.clone()], SOON).unwrap_err();
        assert!(
            matches!(error, CollectiveError::NoTransport { rank: 0, .. }),
            "{name}: {error}"
        );
    }
}

#[test]
fn invalid_calls_exchange_nothing() {
    let results = all(2, |rank, member| {
        let device = Device::flex();
        let gamma = Tensor::<1>::ones([3 + rank], &device);
        let x = Tensor::<2>::ones([2, 3], &device);
        cubenorm::try_sync_batch_norm_train(x, gamma, None, 1e-5, &member).map(|_| ())
    });
    assert!(matches!(results[1], Err(SyncError::Norm(_))));
    assert!(matches!(
        results[0],
        Err(SyncError::Collective(CollectiveError::Left {
            member: 1,
            ..
        }))
    ));
}

/// A layer of a member, with parameters of its own.
fn layer(member: Arc<dyn Collective>, device: &Device) -> SyncBatchNorm {
    let norm = BatchNormConfig::new(3).init(device);
    SyncBatchNorm::from_batch_norm(norm, member)
}

#[test]
fn panic_between_passes_ends_backward() {
    let begin = Instant::now();
    let results = run(2, 10 * SOON, |rank, member| {
        let device = Device::flex().autodiff();
        let norm = layer(member, &device);
        let y = norm.forward(noise([4, 3], 1, &device).require_grad());
        assert_eq!(rank, 0, "this member panics");
        let backward = catch_unwind(AssertUnwindSafe(|| y.sum().backward()));
        let panic = backward.err().expect("backward needs the other member");
        panic.downcast_ref::<String>().cloned().unwrap()
    });
    assert!(begin.elapsed() < SOON);
    assert_eq!(
        results[0].as_ref().unwrap(),
        "member 1 panicked before exchange 1: expected it to make the same calls as the others"
    );
}

#[test]
fn members_of_one_graph_end_in_time() {
    let device = Device::flex().autodiff();
    // Parameters of one graph: the second backward pass waits for the lock that the first one holds.
    let norm = BatchNormConfig::new(3).init(&device);
    // A parameter has no node before its first use.
    let _ = norm.gamma.val();
    let gamma = Mutex::new(norm.gamma);
    let begin = Instant::now();
    let results = run(2, Duration::from_secs(2), |rank, member| {
        let mut norm = layer(member, &device);
        norm.gamma = gamma.lock().unwrap().clone();
        let y = norm.forward(noise([4, 3], rank as u64, &device).require_grad());
        y.sum().backward();
    });
    assert!(begin.elapsed() < SOON);
    assert!(results.iter().all(Result::is_err));
}

#[test]
fn forked_layers_share_neither_graph_nor_statistics() {
    let device = Device::flex().autodiff();
    let norm = Mutex::new(BatchNormConfig::new(1).with_momentum(0.5).init(&device));
    let running = all(2, |rank, member| {
        let norm = norm.lock().unwrap().clone();
        let norm = SyncBatchNorm::from_batch_norm(norm.fork(&device), member);
        for _ in 0..2 {
            let x = upload(&[[1.0], [3.0]][rank], [1, 1], DType::F32, &device);
            norm.forward(x.require_grad()).sum().backward();
        }
        norm.sync_running_statistics();
        values(norm.running_mean.value())
    });
    // 0, then half of the way to 2, twice.
    assert_eq!(running, [[1.5], [1.5]]);
}
