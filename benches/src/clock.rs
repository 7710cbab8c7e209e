//! Clocks that time work.

use std::{
    mem::take,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use burn::tensor::Device;
use cubecl::{
    future::block_on,
    logging::{LaunchObservation, LaunchObserver, ProfileDuration, TimingMethod, TimingRequest},
};

/// The clock of a sample.
pub enum Clock {
    /// The host's, from the first launch until the device is idle: a caller's time.
    Host,
    /// The device's own: the kernels' time, without the gaps between them.
    Device,
}

impl Clock {
    /// The device's own, if its runtime reads one.
    pub fn of(device: &Device) -> Option<Self> {
        let client = crate::tune::client(device).ok()?;
        let properties = client.properties();
        // A CPU's runtime calls the host's clock its own.
        let is_apart = properties.hardware.num_cpu_cores.is_none();
        (is_apart && properties.timing_method == TimingMethod::Device).then_some(Self::Device)
    }

    /// The time that an idle device takes for the launches of `work`, which `sync` waits for, and
    /// the result of `work`.
    pub fn time<T>(
        &self,
        work: impl FnOnce() -> T,
        sync: impl FnOnce() -> Result<()>,
    ) -> Result<(Duration, T)> {
        let work = || {
            let done = work();
            sync()?;
            Ok(done)
        };
        match self {
            Self::Host => {
                let start = Instant::now();
                let done = work()?;
                Ok((start.elapsed(), done))
            }
            Self::Device => kernels(work),
        }
    }
}

/// The time of all kernels that `work` launches.
fn kernels<T>(work: impl FnOnce() -> Result<T>) -> Result<(Duration, T)> {
    let kernels = Arc::new(Kernels::default());
    let observation = LaunchObservation::new(kernels.clone());
    let done = work()?;
    drop(observation);
    let launches = take(&mut *kernels.kept());
    let launched = kernels.launched.load(Ordering::Relaxed);
    ensure!(
        launches.len() == launched,
        "{} of {launched} kernels were timed",
        launches.len()
    );
    let mut total = Duration::ZERO;
    for launch in launches {
        ensure!(
            launch.timing_method() == TimingMethod::Device,
            "a kernel was timed by the host"
        );
        let ticks = block_on(launch.resolve()).context("a kernel was not timed")?;
        total += ticks.duration();
    }
    ensure!(!total.is_zero(), "the device's clock stood still");
    Ok((total, done))
}

/// Keeps what is measured until the device is idle: reading it waits for the kernel.
#[derive(Default)]
struct Kernels {
    launched: AtomicUsize,
    kept: Mutex<Vec<ProfileDuration>>,
}

impl Kernels {
    fn kept(&self) -> MutexGuard<'_, Vec<ProfileDuration>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LaunchObserver for Kernels {
    fn launched(&self, _: &'static str) {
        self.launched.fetch_add(1, Ordering::Relaxed);
    }

    fn timing(&self) -> TimingRequest {
        TimingRequest::Deferred
    }

    fn profiled(&self, _: &'static str, profile: ProfileDuration) {
        self.kept().push(profile);
    }
}
