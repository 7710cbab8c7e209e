//! The device of the page.

use std::cell::RefCell;
use std::sync::Arc;

use burn::tensor::{Device, Tensor};
use cubecl::client::Client;
use cubecl::wgpu::{RuntimeOptions, WgpuSetup, try_init_device, wgpu};
use js_sys::Function;
use serde::Serialize;
use wasm_bindgen::prelude::*;

thread_local! {
    static OPENED: RefCell<Option<Opened>> = const { RefCell::new(None) };
}

/// An open device, by all its names.
#[derive(Clone)]
pub(crate) struct Opened {
    pub device: Device,
    pub client: Client,
    pub wgpu: wgpu::Device,
    pub queue: wgpu::Queue,
}

/// Properties of a device that the page shows.
#[derive(Serialize)]
pub(crate) struct Properties {
    /// Largest number of units of a cube.
    units: u32,
    /// Bytes of shared memory of a cube.
    shared_memory: usize,
    /// Buffers that a kernel may bind. CubeCL keeps one more for itself.
    buffers: u32,
    /// Units of a plane. None: the size varies, or there are no plane operations.
    plane: Option<u32>,
    /// Largest buffer in bytes.
    largest_buffer: u64,
    compiler: &'static str,
}

/// The open device.
pub(crate) fn opened() -> Result<Opened, JsError> {
    let opened = OPENED.with_borrow(Clone::clone);
    opened.ok_or_else(|| JsError::new("no device is open"))
}

pub(crate) async fn open(guaranteed: bool, report: Function) -> Result<Properties, JsError> {
    // Results of autotuning live in the origin's private files. Without those they are kept in memory.
    cubecl::environment::open().await;
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
        backends: wgpu::Backends::BROWSER_WEBGPU,
        ..wgpu::InstanceDescriptor::new_without_display_handle()
    });
    let adapter = instance
        .request_adapter(&wgpu::RequestAdapterOptions {
            power_preference: wgpu::PowerPreference::HighPerformance,
            ..Default::default()
        })
        .await?;
    if !adapter.features().contains(wgpu::Features::TIMESTAMP_QUERY) {
        // CubeCL 0.11.3 panics at the first use of such a device.
        return Err(JsError::new(
            "the adapter has no timestamp queries: CubeCL needs them in a browser",
        ));
    }
    let (device, queue) = adapter
        .request_device(&wanted(&adapter, guaranteed))
        .await?;
    let setup = WgpuSetup {
        instance,
        adapter,
        device: device.clone(),
        queue: queue.clone(),
        backend: wgpu::Backend::BrowserWebGpu,
    };
    let id = try_init_device(setup, RuntimeOptions::try_default()?)?;
    // After CubeCL, which panics on an error.
    watch(&device, report);
    let client = cubecl::Device::from(id.clone()).client();
    let hardware = cubenorm_kernels::hardware(&client);
    let properties = Properties {
        units: hardware.max_units_per_cube,
        shared_memory: hardware.max_shared_memory,
        buffers: hardware.max_bindings,
        plane: hardware.plane_size,
        largest_buffer: device.limits().max_storage_buffer_binding_size as u64,
        compiler: client.name(),
    };
    let opened = Opened {
        device: Device::new(id),
        client,
        wgpu: device,
        queue,
    };
    OPENED.set(Some(opened));
    Ok(properties)
}

/// A device with the adapter's features and limits. `guaranteed` reduces the limits on buffers and shared memory to
/// WebGPU's guaranteed ones. CubeCL reads the size of a cube from the adapter.
fn wanted(adapter: &wgpu::Adapter, guaranteed: bool) -> wgpu::DeviceDescriptor<'static> {
    let limits = adapter.limits();
    let least = wgpu::Limits::default();
    wgpu::DeviceDescriptor {
        required_features: adapter.features() - wgpu::Features::MAPPABLE_PRIMARY_BUFFERS,
        required_limits: match guaranteed {
            true => wgpu::Limits {
                max_storage_buffers_per_shader_stage: least.max_storage_buffers_per_shader_stage,
                max_compute_workgroup_storage_size: least.max_compute_workgroup_storage_size,
                ..limits
            },
            false => limits,
        },
        memory_hints: wgpu::MemoryHints::MemoryUsage,
        ..Default::default()
    }
}

/// Tells the page of errors that no call returns.
fn watch(device: &wgpu::Device, report: Function) {
    let report = Reporter(report);
    let lost = report.clone();
    device.set_device_lost_callback(move |reason, message| {
        lost.call("lost", &format!("{reason:?}: {message}"));
    });
    device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
        let kind = match &error {
            wgpu::Error::OutOfMemory { .. } => "memory",
            _ => "validation",
        };
        report.call(kind, &error.to_string());
    }));
}

/// A function of the page.
#[derive(Clone)]
struct Reporter(Function);

// SAFETY: The module has one thread.
unsafe impl Send for Reporter {}
// SAFETY: As above.
unsafe impl Sync for Reporter {}

impl Reporter {
    fn call(&self, kind: &str, message: &str) {
        // An exception of the page cannot be reported elsewhere.
        let _ = self.0.call2(&JsValue::NULL, &kind.into(), &message.into());
    }
}

/// The elements of a tensor, row-major.
pub(crate) async fn read<const D: usize>(tensor: Tensor<D>) -> Result<Vec<f32>, JsError> {
    let data = tensor.into_data_async().await?;
    let values = data.try_into_vec::<f32>();
    values.map_err(|error| JsError::new(&format!("the tensor is not f32: {error:?}")))
}
