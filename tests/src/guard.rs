//! Guard bytes before and after every buffer of a launch.
//!
//! A kernel that stores past the end of its buffer corrupts another tensor, while its own result
//! stays right. Guards of a fixed pattern surround all buffers of launches and tests. They are
//! compared after each launch. Buffers start one vector after the start of their allocation.
//!
//! `CUBENORM_GUARDS=off` disables the guards, for tests that measure time or use all memory.

use std::cell::{Cell, RefCell};
use std::env;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use cubecl::client::Client;
use cubecl::server::Handle;
use cubenorm_kernels::{MemoryWatch, watch_memory};

/// Minimum bytes of a guard: more than one vector of each unit of a small cube.
const GUARD: u64 = 1 << 10;

/// Minimum extra offset of a buffer in its allocation, in bytes: one vector of any device.
const VECTOR: u64 = 64;

/// Byte of the guards. No result consists of this byte alone.
const PATTERN: u8 = 0xa5;

/// Bytes of the largest buffer that gets guards: tests of failing allocations ask for more than there is.
const LARGEST: usize = 1 << 28;

/// Maximum number of buffers that a thread compares: the latest ones.
const MOST: usize = 64;

/// A buffer with its guards.
struct Guarded {
    whole: Handle,
    start: u64,
    bytes: u64,
    total: u64,
}

static LEFT_OUT: AtomicBool = AtomicBool::new(false);

thread_local! {
    static LEFT_OUT_HERE: Cell<bool> = const { Cell::new(false) };
    static GUARDED: RefCell<Vec<Guarded>> = const { RefCell::new(Vec::new()) };
    static CUT: Cell<Option<(u64, u64)>> = const { Cell::new(None) };
}

/// Disables the guards of this thread, for a launch that fails on purpose: reading the guards would
/// report it.
pub fn leave_out_here() {
    LEFT_OUT_HERE.set(true);
}

/// Disables the guards, for tests that measure time or memory.
///
/// Applies to the process, or only to this thread if the process runs the whole suite.
pub fn leave_out() {
    leave_out_here();
    if !cfg!(feature = "whole") {
        leave_out_everywhere();
    }
}

/// Disables the guards of the process, also on the device's own thread: nothing may be read while a graph is recorded.
pub fn leave_out_everywhere() {
    LEFT_OUT.store(true, Ordering::Relaxed);
}

fn is_left_out() -> bool {
    LEFT_OUT_HERE.get() || LEFT_OUT.load(Ordering::Relaxed)
}

/// Adds guards to all later buffers of this process. Returns false if guards are disabled.
pub fn install() -> bool {
    static INSTALL: Once = Once::new();
    let is_on = !is_left_out() && env::var("CUBENORM_GUARDS").as_deref() != Ok("off");
    if is_on {
        INSTALL.call_once(|| {
            let watch = MemoryWatch {
                allocate,
                upload,
                bind,
                launched,
            };
            assert!(watch_memory(watch), "something else watches the memory");
        });
    }
    is_on
}

/// Runs `run` with this thread's allocations of `bytes` bytes shortened by `by`, like a wrong plan.
pub fn shortened<T>(bytes: usize, by: usize, run: impl FnOnce() -> T) -> T {
    CUT.set(Some((bytes as u64, by as u64)));
    let result = run();
    CUT.set(None);
    result
}

/// Uploads `content`, between guards if they are enabled.
pub fn buffer(client: &Client, content: &[u8]) -> Handle {
    match install() {
        true => upload(client, content),
        false => client.create_from_slice(content),
    }
}

fn allocate(client: &Client, bytes: usize) -> Handle {
    if is_left_out() || bytes > LARGEST {
        return client.empty(bytes);
    }
    let wanted = bytes as u64;
    let bytes = match CUT.get() {
        Some((cut, by)) if cut == wanted => wanted.saturating_sub(by),
        _ => wanted,
    };
    // Allocated memory is uninitialized. The pattern makes a read of it show.
    guarded(client, &vec![PATTERN; bytes as usize])
}

fn upload(client: &Client, content: &[u8]) -> Handle {
    match is_left_out() {
        true => client.create_from_slice(content),
        false => guarded(client, content),
    }
}

fn guarded(client: &Client, content: &[u8]) -> Handle {
    let alignment = client.properties().memory.alignment.max(VECTOR);
    let start = GUARD.next_multiple_of(alignment) + alignment;
    let bytes = content.len() as u64;
    let total = (start + bytes + GUARD).next_multiple_of(VECTOR);
    let mut memory = vec![PATTERN; total as usize];
    memory[start as usize..][..content.len()].copy_from_slice(content);
    let whole = client.create_from_slice(&memory);
    let handle = whole
        .clone()
        .offset_start(start)
        .offset_end(total - start - bytes);
    GUARDED.with_borrow_mut(|all| {
        if all.len() == MOST {
            all.remove(0);
        }
        all.push(Guarded {
            whole,
            start,
            bytes,
            total,
        });
    });
    handle
}

/// Extends a buffer to the end of its guard.
fn bind(handle: &Handle) -> Handle {
    let memory = handle.memory.descriptor();
    GUARDED.with_borrow(|all| {
        let is_same = |it: &&Guarded| std::ptr::eq(it.whole.memory.descriptor(), memory);
        match all.iter().find(is_same) {
            Some(guarded) => {
                let start = handle.offset_start.unwrap_or(0);
                guarded.whole.clone().offset_start(start)
            }
            None => handle.clone(),
        }
    })
}

/// Compares all guards of this thread.
///
/// # Panics
///
/// If a byte has changed. The message names the kernel and the last byte that it wrote.
fn launched(client: &Client, kernel: cubenorm_core::Kernel) {
    if is_left_out() {
        return;
    }
    let guards = GUARDED.with_borrow(|all| {
        let ends = |it: &Guarded| {
            // Devices copy from multiples of four bytes only.
            let end = (it.start + it.bytes) / 4 * 4;
            let before = it.whole.clone().offset_end(it.total - it.start);
            [before, it.whole.clone().offset_start(end)]
        };
        all.iter().flat_map(ends).collect::<Vec<_>>()
    });
    // An error of the launch shows when its result is read.
    let Ok(read) = client.read(guards) else {
        return;
    };
    let fault = GUARDED.with_borrow_mut(|all| {
        let mut pairs = read.chunks_exact(2);
        let fault = all.iter().find_map(|it| {
            let [before, behind] = pairs.next()? else {
                return None;
            };
            let skipped = ((it.start + it.bytes) % 4) as usize;
            let changed = |bytes: &[u8]| bytes.iter().rposition(|&byte| byte != PATTERN);
            let bytes = it.bytes;
            match (changed(before), changed(&behind[skipped..])) {
                (None, None) => None,
                (Some(_), _) => Some(format!("before a buffer of {bytes} bytes")),
                (_, Some(last)) => Some(format!(
                    "{} bytes behind a buffer of {bytes} bytes",
                    last + 1
                )),
            }
        });
        // A buffer without another handle is not written again.
        all.retain(|it| !it.whole.can_mut());
        fault
    });
    if let Some(fault) = fault {
        GUARDED.with_borrow_mut(Vec::clear);
        panic!("guard: {kernel:?} wrote {fault}");
    }
}
