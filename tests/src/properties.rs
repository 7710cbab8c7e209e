//! Properties of a device that plans depend on.

use cubenorm_kernels::hardware;

use crate::device::TestDevice;

/// Names and values, in printing order.
pub fn properties(device: &TestDevice) -> [(&'static str, String); 12] {
    let hardware = hardware(&device.client);
    let or_none = |number: Option<u32>| number.map_or("-".to_owned(), |n| n.to_string());
    let kind = match (hardware.cpu_cores, hardware.cpu_vulkan_cores) {
        (Some(cores), _) => format!("CPU of {cores} cores"),
        (None, Some(cores)) => format!("CPU Vulkan, {cores} cores"),
        (None, None) => "GPU".to_owned(),
    };
    let dtypes: Vec<String> = device.dtypes().iter().map(ToString::to_string).collect();
    let limit = |number: u64| match number >= u64::from(u32::MAX) {
        true => "no limit".to_owned(),
        false => number.to_string(),
    };
    let [x, y, z] = hardware.max_cube_dim;
    [
        ("compiles to", device.client.name().to_owned()),
        ("kind", kind),
        ("dtypes", dtypes.join(", ")),
        ("plane size", or_none(hardware.plane_size)),
        ("units per cube", hardware.max_units_per_cube.to_string()),
        ("cube dim", format!("{x} x {y} x {z}")),
        ("cubes along x", limit(hardware.max_cubes.into())),
        (
            "shared memory",
            format!("{} KiB", hardware.max_shared_memory >> 10),
        ),
        ("buffers per kernel", limit(hardware.max_bindings.into())),
        ("multiprocessors", or_none(hardware.multiprocessors)),
        ("widest load", format!("{} bits", hardware.load_width)),
        ("lanes of a vector", limit(hardware.max_vector as u64)),
    ]
}
