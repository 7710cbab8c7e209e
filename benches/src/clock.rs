//! Clocks that time work.

use std::time::{Duration, Instant};

use anyhow::Result;
use burn::tensor::Device;

/// The clock of a sample.
pub enum Clock {
    /// The host's, from the first launch until the device is idle: a caller's time.
    Host,
    /// The device's own: the kernels' time, without the gaps between them.
    Device,
}

impl Clock {
    /// The device's own, if its runtime reads one.
    #[cfg(feature = "cube")]
    pub fn of(device: &Device) -> Option<Self> {
        let client = crate::tune::client(device).ok()?;
        let properties = client.properties();
        // A CPU's runtime calls the host's clock its own.
        let is_apart = properties.hardware.num_cpu_cores.is_none();
        (is_apart && kernels::are_timed(properties.timing_method)).then_some(Self::Device)
    }

    /// The device's own. Without a runtime there is none.
    #[cfg(not(feature = "cube"))]
    pub fn of(_device: &Device) -> Option<Self> {
        None
    }

    /// The time that an idle device takes for the launches of `work`, which `sync` waits for, and
    /// the result of `work`.
    pub fn time<T>(
        &self,
        work: impl FnOnce() -> T,
        sync: impl FnOnce() -> Result<()>,
    ) -> Result<(Duration, T)> {
        match self {
            Self::Host => {
                let start = Instant::now();
                let done = work();
                sync()?;
                Ok((start.elapsed(), done))
            }
            #[cfg(feature = "cube")]
            Self::Device => kernels::time(|| {
                let done = work();
                sync()?;
                Ok(done)
            }),
            #[cfg(not(feature = "cube"))]
            Self::Device => {
                anyhow::bail!("this build has no CubeCL runtime, which reads its clock")
            }
        }
    }
}

#[cfg(feature = "cube")]
mod kernels {
    use std::{
        mem::take,
        sync::{
            Arc, Mutex, MutexGuard, PoisonError,
            atomic::{AtomicUsize, Ordering},
        },
        time::Duration,
    };

    use anyhow::{Context, Result, ensure};
    use cubecl::{
        future::block_on,
        logging::{
            LaunchObservation, LaunchObserver, ProfileDuration, TimingMethod, TimingRequest,
        },
    };

    /// True if a time is the device's own, not the host's.
    pub fn are_timed(method: TimingMethod) -> bool {
        method == TimingMethod::Device
    }

    /// The time of all kernels that `work` launches.
    pub fn time<T>(work: impl FnOnce() -> Result<T>) -> Result<(Duration, T)> {
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
                are_timed(launch.timing_method()),
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
}
