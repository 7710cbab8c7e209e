//! CubeCL's own measure of a device's memory.

use cubecl::{
    client::Client,
    std::throughput::measure_peak_throughput,
    throughput::{MemoryAccess, MemorySpec, ThroughputKey, ThroughputMode},
};

/// Milliseconds of a copy of this many bytes, read and written together; `None` if the probe has no
/// answer. CubeCL measures each size once and keeps it.
pub(crate) fn copy_milliseconds(client: &Client, bytes: usize) -> Option<f64> {
    let spec = MemorySpec::new(MemoryAccess::Copy, bytes as u64);
    let key = ThroughputKey {
        mode: ThroughputMode::Memory(spec),
    };
    let rate = measure_peak_throughput(client, key).ok()?.bytes_per_s(&key);
    (rate > 0.0).then(|| 1e3 * bytes as f64 / rate)
}
