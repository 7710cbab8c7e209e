//! The runtimes that the suite is built with and that are there.

use cubecl::client::Client;
use cubenorm_core::DType;

/// A runtime with a device.
#[derive(Clone)]
pub struct TestDevice {
    /// The runtime's name, as cubenorm's features have it.
    pub name: &'static str,
    /// Its client.
    pub client: Client,
    /// Units of a plane, where the device runs plane operations that CubeCL does not report.
    pub plane_size: Option<u32>,
}

/// The names in `CUBENORM_TEST_DEVICES`, a comma-separated list; `None` selects all.
pub fn selection() -> Option<Vec<String>> {
    let names = std::env::var("CUBENORM_TEST_DEVICES").ok()?;
    let names = names.split(',').map(str::trim).map(str::to_owned);
    Some(names.filter(|name| !name.is_empty()).collect())
}

/// Whether a runtime is selected.
pub fn is_selected(name: &str) -> bool {
    selection().is_none_or(|names| names.iter().any(|selected| selected == name))
}

/// Every CubeCL runtime that this build has and the selection names.
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

/// What a native wgpu device is called: with `vulkan` in the build it compiles to SPIR-V, with `metal` to MSL, which a Mac
/// runs under both names, and without them to WGSL.
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

/// The plane size of a software Vulkan driver. CubeCL leaves plane operations out of the
/// properties there, although both drivers run them.
fn plane_size(client: &Client) -> Option<u32> {
    let hardware = &client.properties().hardware;
    let size = hardware.plane_size_min;
    (size > 1 && size == hardware.plane_size_max).then_some(size)
}

impl TestDevice {
    /// Whether units may share memory here, with the reason printed where they may not: a test that forces them to runs on
    /// the others.
    pub fn shares_memory(&self) -> bool {
        let shares = cubenorm_kernels::hardware(&self.client).shares_memory;
        if !shares {
            println!("{}: skipped, a software driver under SPIR-V", self.name);
        }
        shares
    }

    /// Rows that fill a GPU where each has a column of units, four cubes for each multiprocessor, of 16 rows at most; with the reason
    /// printed where the device is none.
    pub fn rows_that_fill_a_gpu(&self) -> Option<usize> {
        let hardware = cubenorm_kernels::hardware(&self.client);
        if !hardware.is_gpu() {
            println!("skipped: {} is no GPU", self.name);
            return None;
        }
        Some(16 * 4 * hardware.multiprocessors.unwrap_or(32) as usize)
    }

    /// The dtypes that the device has.
    pub fn dtypes(&self) -> Vec<DType> {
        DType::ALL
            .into_iter()
            .filter(|&dtype| cubenorm_kernels::supports(&self.client, dtype))
            .collect()
    }
}
