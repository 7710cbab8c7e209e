//! Recorded graphs: a device replays a whole pass in one launch.

use anyhow::{Result, ensure};
use burn::tensor::{Device, Graph, Tensor, capture};

use crate::OpenDevice;

/// Devices that record graphs (Burn 0.22.1).
pub const DEVICES: [&str; 5] = ["cuda", "rocm", "vulkan", "wgpu", "webgpu"];

/// True if the device records graphs. On other devices [`capture`] runs the closure again.
pub fn records(device: &Device) -> bool {
    let input = Tensor::<1>::ones([1], device);
    capture(device, || input.clone() + 1.0).is_hardware()
}

/// Checks that the device records graphs.
///
/// # Errors
///
/// If it does not. The error lists the devices that do.
pub fn require(opened: &OpenDevice) -> Result<()> {
    ensure!(
        records(&opened.device),
        "device `{}` records no graphs; choose one of: {}",
        opened.name,
        DEVICES.join(", ")
    );
    Ok(())
}

/// Records a pass with [`burn::tensor::capture`].
///
/// # Errors
///
/// If the device records no graphs, or Burn refuses.
pub fn record<T, F: FnMut() -> T>(device: &Device, pass: F) -> Result<Graph<T, F>> {
    let graph = capture(device, pass);
    ensure!(
        graph.is_hardware(),
        "Burn refused to record the pass as a graph"
    );
    Ok(graph)
}
