//! By whose clock work is timed.

use std::time::{Duration, Instant};

use anyhow::Result;
use burn::tensor::Device;

/// What a sample is timed by.
pub enum Clock {
    /// The host's, from the first launch until the device is idle: what a caller waits.
    Host,
    /// The device's own, from the start of the first kernel to the end of the last.
    #[cfg(feature = "cube")]
    Device(cubecl::client::Client),
}

impl Clock {
    /// The device's own, where its runtime reads one.
    #[cfg(feature = "cube")]
    pub fn of(device: &Device) -> Option<Self> {
        use cubecl::profile::TimingMethod;

        let client = crate::tune::client(device).ok()?;
        let is_kept = client.properties().timing_method == TimingMethod::Device;
        is_kept.then_some(Self::Device(client))
    }

    /// The device's own: no runtime, no clock.
    #[cfg(not(feature = "cube"))]
    pub fn of(_device: &Device) -> Option<Self> {
        None
    }

    /// How long an idle device takes for what `work` launches, and what `work` returns: the device is idle again,
    /// by `sync` where the clock is the host's.
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
            Self::Device(client) => {
                use anyhow::{Context, anyhow};
                use cubecl::future::block_on;

                let refused = |error| anyhow!("the device's clock: {error:?}");
                let window = client.profile_start().map_err(refused)?;
                let done = work();
                let read = client.profile_end(window).map_err(refused)?;
                let ticks = block_on(read.resolve()).context("the device kept no time")?;
                Ok((ticks.duration(), done))
            }
        }
    }
}
