//! What keeps Burn's fusion from making one of several runs.

use burn::tensor::Device;

/// Has fusion run what this thread has recorded, and waits for nothing.
///
/// An operation that does nothing and that no fuser knows is the end of what is before it. What Burn itself has for that
/// (a flush, or a question to the device) waits for the threads of fusion and of CubeCL's server: two round trips a run,
/// which no network makes, and on a CPU on the cores that compute.
#[cfg(feature = "cube")]
pub fn end_run(device: &Device) {
    use burn::backend::{
        DispatchDevice,
        fusion::{
            NoOp,
            custom::{CustomOpIr, OperationIr, StreamId},
            get_client,
        },
    };
    use burn_cubecl::CubeBackend;

    let DispatchDevice::Cube(device) = device.as_dispatch() else {
        return;
    };
    let end = OperationIr::Custom(CustomOpIr::new("end of a run", &[], &[]));
    let nothing = NoOp::<CubeBackend>::new();
    get_client::<CubeBackend>(device).register(StreamId::current(), end, nothing);
}

/// Has fusion run what this thread has recorded: without a CubeCL runtime there is none.
#[cfg(not(feature = "cube"))]
pub fn end_run(_device: &Device) {}
