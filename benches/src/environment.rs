//! Where CubeCL keeps what it has measured, tuned and compiled.

use cubecl::environment;

/// Does something in an environment of its own, which starts empty, and removes that afterwards.
pub fn apart<T>(purpose: &str, what: impl FnOnce() -> T) -> T {
    let before = environment::active();
    environment::activate(format!("cubenorm-{purpose}-{}", std::process::id()));
    let left = environment::path();
    let result = what();
    environment::activate(before);
    // Nobody else reads it.
    for suffix in ["", "-wal", "-shm"] {
        let mut file = left.clone().into_os_string();
        file.push(suffix);
        let _ = std::fs::remove_file(file);
    }
    result
}
