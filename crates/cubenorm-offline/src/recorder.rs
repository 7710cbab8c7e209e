//! A device that executes nothing and records the launched kernels.
//!
//! It implements CubeCL's server. Recorded kernels pass the same steps as on a real device of these
//! properties: description, plan, kernel, launch.

use std::any::Any;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cubecl::future::DynFut;
use cubecl::ir::{DeviceProperties, TargetProperties};
use cubecl::prelude::*;
use cubecl::profile::ProfileDuration;
use cubecl::server::{
    BufferBinding, CopyDescriptor, IoError, KernelArguments, ProfileError, ProfilingToken, Server,
    ServerCommunication, ServerError, ServerStorage, ServerUtilities,
};
use cubecl::{StreamMemoryReport, bytes::Bytes};
use cubecl_common::device::{DeviceId, DeviceService, ServerUtilitiesHandle, ServiceId};
use cubecl_environment::{backtrace::BackTrace, stream::StreamId};
use cubecl_server::allocator::ContiguousMemoryLayoutPolicy;
use cubecl_server::dry_run::LaunchMode;
use cubecl_server::logging::ServerLogger;
use cubecl_server::memory_management::{ManagedMemoryHandle, MemoryAllocationMode};
use cubecl_server::storage::{BytesResource, BytesStorage, ManagedResource};

use crate::Profile;

/// A launched kernel: its definition, not yet compiled.
pub type Kernel = Arc<dyn CubeKernel>;

/// Kernels in launch order.
type Launches = Arc<Mutex<Vec<Kernel>>>;

/// A device with given properties that records launches instead of executing them.
///
/// Its memory is unlimited because it has none: handles may have any size, and written data is
/// discarded.
///
/// # Example
///
/// ```
/// use cubenorm_core::{DType, NormDesc, Statistics, StrategyChoice, TensorDesc};
/// use cubenorm_kernels::{ForwardTensors, launch_forward};
/// use cubenorm_offline::{Profile, Recorder};
///
/// let recorder = Recorder::of(&Profile::cpu());
/// let client = recorder.client();
/// let input = TensorDesc::contiguous([4, 8], DType::F32);
/// let desc = NormDesc::new(input, [1], Statistics::MeanSquare);
/// let tensors = ForwardTensors::new(client.empty(4 * 8 * 4));
/// launch_forward(client, &desc, &tensors, StrategyChoice::Inferred)?;
/// assert_eq!(recorder.take().len(), 1);
/// # Ok::<(), cubenorm_kernels::LaunchError>(())
/// ```
pub struct Recorder {
    client: Client,
    launches: Launches,
}

impl Recorder {
    /// A device that reports these properties under a runtime's name.
    pub fn new(runtime: &'static str, properties: DeviceProperties) -> Self {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let id = DeviceId::new(0, NEXT.fetch_add(1, Ordering::Relaxed));
        let launches = Launches::default();
        let alignment = properties.memory.alignment as usize;
        // Nothing is captured, so captures need no updates.
        let (utilities, _captures) = ServerUtilities::init(
            ServiceId::of::<Recording>(id),
            runtime,
            properties,
            TargetProperties::default(),
            Arc::new(ServerLogger::default()),
            ContiguousMemoryLayoutPolicy::new(alignment),
        );
        let server = Recording {
            launches: launches.clone(),
            utilities: Arc::new(utilities),
        };
        Self {
            client: Client::init(id, server),
            launches,
        }
    }

    /// A device with a profile's properties.
    pub fn of(profile: &Profile) -> Self {
        Self::new(profile.runtime, profile.properties.clone())
    }

    /// A device with the properties of an existing one: plans and kernels are the same.
    pub fn like(client: &Client) -> Self {
        Self::new(client.name(), client.properties().clone())
    }

    /// The client to launch on.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The kernels that were launched since the last call.
    pub fn take(&self) -> Vec<Kernel> {
        // Launches go to the device's thread: this waits for all of them. No device can fail here.
        let _ = self.client.flush();
        std::mem::take(&mut lock(&self.launches))
    }
}

fn lock(launches: &Launches) -> MutexGuard<'_, Vec<Kernel>> {
    // The list is intact after a panic of another thread: a push is a single step.
    launches.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The server behind a [`Recorder`].
struct Recording {
    launches: Launches,
    utilities: Arc<ServerUtilities>,
}

impl std::fmt::Debug for Recording {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recording").finish_non_exhaustive()
    }
}

/// The error of reads from a device without memory.
fn nothing_there() -> IoError {
    IoError::UnsupportedIoOperation {
        backtrace: BackTrace::capture(),
    }
}

impl DeviceService for Recording {
    fn init(_: DeviceId) -> Self {
        unreachable!("`Recorder::new` registers every recorder first")
    }

    fn utilities(&self) -> ServerUtilitiesHandle {
        self.utilities.clone() as Arc<dyn Any + Send + Sync>
    }
}

impl ServerCommunication for Recording {}

impl Server for Recording {
    unsafe fn launch(
        &mut self,
        kernel: Box<dyn CubeKernel>,
        _: CubeCount,
        _: KernelArguments,
        _: StreamId,
        _: LaunchMode,
    ) {
        lock(&self.launches).push(Arc::from(kernel));
    }

    fn initialize_memory(
        &mut self,
        _: ManagedMemoryHandle,
        _: u64,
        _: StreamId,
    ) -> Result<(), ServerError> {
        Ok(())
    }

    fn logger(&self) -> Arc<ServerLogger> {
        self.utilities.logger.clone()
    }

    fn utilities(&self) -> Arc<ServerUtilities> {
        self.utilities.clone()
    }

    fn read(
        &mut self,
        _: Vec<CopyDescriptor>,
        _: StreamId,
    ) -> DynFut<Result<Vec<Bytes>, ServerError>> {
        Box::pin(async { Err(nothing_there().into()) })
    }

    fn write(&mut self, _: Vec<(CopyDescriptor, Bytes)>, _: StreamId) {}

    fn sync(&mut self, _: Vec<BufferBinding>, _: StreamId) -> DynFut<Result<(), ServerError>> {
        Box::pin(async { Ok(()) })
    }

    fn check(&mut self, _: Vec<BufferBinding>, _: StreamId) -> Result<(), ServerError> {
        Ok(())
    }

    fn flush(&mut self, _: StreamId) -> Result<(), ServerError> {
        Ok(())
    }

    fn memory_report(&mut self, _: StreamId) -> Option<StreamMemoryReport> {
        None
    }

    fn memory_cleanup(&mut self, _: StreamId) -> Result<(), ServerError> {
        Ok(())
    }

    fn start_profile(&mut self, _: StreamId) -> Result<ProfilingToken, ServerError> {
        Err(nothing_there().into())
    }

    fn end_profile(
        &mut self,
        _: StreamId,
        _: ProfilingToken,
    ) -> Result<ProfileDuration, ProfileError> {
        Err(ProfileError::NotRegistered {
            backtrace: BackTrace::capture(),
        })
    }

    fn allocation_mode(&mut self, _: MemoryAllocationMode, _: StreamId) {}
}

impl ServerStorage for Recording {
    type Storage = BytesStorage;

    fn get_resource(
        &mut self,
        _: BufferBinding,
        _: StreamId,
    ) -> Result<ManagedResource<BytesResource>, ServerError> {
        Err(nothing_there().into())
    }
}
