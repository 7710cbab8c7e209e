//! Available runtimes of this build.

use cubecl::client::Client;
use cubenorm_core::DType;

/// A runtime with a device.
#[derive(Clone)]
pub struct TestDevice {
    /// Name of the runtime, as in cubenorm's features.
    pub name: &'static str,
    /// Client of the runtime.
    pub client: Client,
    /// Units of a plane. None if the device has no planes of a fixed size above 1.
    pub plane_size: Option<u32>,
}

/// The names in `CUBENORM_TEST_DEVICES`, a comma-separated list; `None` selects all.
pub fn selection() -> Option<Vec<String>> {
    let names = std::env::var("CUBENORM_TEST_DEVICES").ok()?;
    let names = names.split(',').map(str::trim).map(str::to_owned);
    Some(names.filter(|name| !name.is_empty()).collect())
}

/// True if a runtime is selected.
pub fn is_selected(name: &str) -> bool {
    selection().is_none_or(|names| names.iter().any(|selected| selected == name))
}

/// Every CubeCL runtime of this build that the selection names.
pub fn devices() -> Vec<TestDevice> {
    crate::guard::install();
    let mut devices = Vec::new();
    let mut add = |name: &'static str, client: &dyn Fn() -> Client| {
        if is_selected(name) {
            let client = client();
            let plane_size = plane_size(&client);
            devices.push(TestDevice {
                name,
                client,
                plane_size,
            });
        }
    };
    #[cfg(feature = "cpu")]
    add("cpu", &|| cubecl::Device::Cpu(Default::default()).client());
    #[cfg(feature = "wgpu")]
    add(wgpu_name(), &|| {
        cubecl::Device::Wgpu(Default::default()).client()
    });
    #[cfg(feature = "cuda")]
    add("cuda", &|| {
        cubecl::Device::Cuda(Default::default()).client()
    });
    #[cfg(feature = "rocm")]
    add("rocm", &|| cubecl::Device::Hip(Default::default()).client());
    let _ = &mut add;
    assert!(
        !devices.is_empty(),
        "no runtime to test: build with the feature of one, and select it or nothing in \
         CUBENORM_TEST_DEVICES"
    );
    devices
}

/// Name of the native wgpu device.
///
/// It compiles to SPIR-V with the feature `vulkan`, to MSL with `metal`, and to WGSL without them.
/// A Mac runs MSL under the names `metal` and `wgpu`.
#[cfg(feature = "wgpu")]
pub(crate) fn wgpu_name() -> &'static str {
    if cfg!(feature = "vulkan") {
        "vulkan"
    } else if cfg!(feature = "metal") && is_selected("metal") {
        "metal"
    } else {
        "wgpu"
    }
}

/// The fixed plane size of a device, if it is above 1.
///
/// CubeCL does not report plane operations on lavapipe, although they work there.
fn plane_size(client: &Client) -> Option<u32> {
    let hardware = &client.properties().hardware;
    let size = hardware.plane_size_min;
    (size > 1 && size == hardware.plane_size_max).then_some(size)
}

impl TestDevice {
    /// True if units may share memory. Prints the reason if not.
    ///
    /// Tests that force shared memory skip such a device.
    pub fn shares_memory(&self) -> bool {
        let shares = cubenorm_kernels::hardware(&self.client).shares_memory;
        if !shares {
            println!("{}: skipped, CPU Vulkan with SPIR-V", self.name);
        }
        shares
    }

    /// Number of rows that fills a GPU if each row has a column of units. None on other devices.
    ///
    /// Each multiprocessor runs four cubes of at most 16 rows.
    pub fn rows_that_fill_a_gpu(&self) -> Option<usize> {
        let hardware = cubenorm_kernels::hardware(&self.client);
        if !hardware.is_gpu() {
            println!("{}: skipped, not a GPU", self.name);
            return None;
        }
        Some(16 * 4 * hardware.multiprocessors.unwrap_or(32) as usize)
    }

    /// Supported dtypes of the device.
    pub fn dtypes(&self) -> Vec<DType> {
        DType::ALL
            .into_iter()
            .filter(|&dtype| cubenorm_kernels::supports(&self.client, dtype))
            .collect()
    }
}
