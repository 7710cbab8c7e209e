//! Allocation and binding of every buffer of a launch.
//!
//! CubeCL inserts no bounds checks. A kernel that stores one vector too many overwrites another
//! tensor, while its own output stays right. Tests put guard bytes around all of these buffers: see
//! [`watch_memory`].

use std::sync::OnceLock;

use cubecl::prelude::*;
use cubecl::server::Handle;
use cubenorm_core::{Kernel, TensorDesc};

/// Test hooks for the memory of launches.
#[derive(Debug, Clone, Copy)]
pub struct MemoryWatch {
    /// Allocates a buffer of this many bytes, with any content.
    pub allocate: fn(&Client, usize) -> Handle,
    /// Allocates a buffer with this content.
    pub upload: fn(&Client, &[u8]) -> Handle,
    /// Returns the buffer that a launch binds. Its guard bytes are within the binding, because some
    /// drivers ignore stores beyond a binding.
    pub bind: fn(&Handle) -> Handle,
    /// Checks all guard bytes after a launch.
    pub launched: fn(&Client, Kernel),
}

static WATCH: OnceLock<MemoryWatch> = OnceLock::new();

/// Installs test hooks for all launches of this process. Returns false if hooks are already
/// installed.
pub fn watch_memory(watch: MemoryWatch) -> bool {
    WATCH.set(watch).is_ok()
}

/// True if hooks are installed. Each launch then has buffers of its own, with guard bytes around them.
pub(crate) fn is_watched() -> bool {
    WATCH.get().is_some()
}

/// Allocates an uninitialised buffer.
pub(crate) fn allocate_bytes(client: &Client, bytes: usize) -> Handle {
    match WATCH.get() {
        Some(watch) => (watch.allocate)(client, bytes),
        None => client.empty(bytes),
    }
}

/// Allocates a buffer with this content.
pub(crate) fn upload(client: &Client, bytes: &[u8]) -> Handle {
    match WATCH.get() {
        Some(watch) => (watch.upload)(client, bytes),
        None => client.create_from_slice(bytes),
    }
}

/// Buffer that a launch binds.
pub(crate) fn bound(handle: &Handle) -> Handle {
    match WATCH.get() {
        Some(watch) => (watch.bind)(handle),
        None => handle.clone(),
    }
}

/// Reports that a launch was queued.
pub(crate) fn launched(client: &Client, kernel: Kernel) {
    if let Some(watch) = WATCH.get() {
        (watch.launched)(client, kernel);
    }
}

/// Bytes of a buffer for a tensor; at least one element.
pub(crate) fn bytes(desc: &TensorDesc) -> usize {
    desc.layout.checked_span().unwrap_or(0).max(1) * desc.dtype.size()
}

/// Allocates an uninitialised buffer for a tensor.
pub(crate) fn allocate(client: &Client, desc: &TensorDesc) -> Handle {
    allocate_bytes(client, bytes(desc))
}
