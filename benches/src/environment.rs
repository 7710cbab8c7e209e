//! Where CubeCL keeps what it has measured, tuned and compiled.

use cubecl::{
    config::{CubeClRuntimeConfig, RuntimeConfig},
    environment,
};

/// Does something in an environment of its own, which starts empty, and removes that afterwards.
pub fn apart<T>(purpose: &str, what: impl FnOnce() -> T) -> T {
    // Whoever reads CubeCL's configuration first activates the environment that it names: had that been the
    // first client in here, `what` would have run in that one.
    CubeClRuntimeConfig::get();
    let before = environment::active();
    environment::activate(format!("cubenorm-{purpose}-{}", std::process::id()));
    let left = environment::path();
    let result = what();
    environment::activate(before);
    // Nobody else reads it.
    for suffix in ["", "-wal", "-shm", "-tshm"] {
        let mut file = left.clone().into_os_string();
        file.push(suffix);
        let _ = std::fs::remove_file(file);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_reads_the_configuration_inside_stays_inside() {
        let active = apart("test", || {
            CubeClRuntimeConfig::get();
            environment::active()
        });
        assert!(active.starts_with("cubenorm-test-"), "{active}");
    }
}
