//! CubeCL's store of measured, tuned and compiled data.

use cubecl::{
    config::{CubeClRuntimeConfig, RuntimeConfig},
    environment,
};

/// Does something in an environment of its own, which starts empty, and removes that afterwards.
pub(crate) fn apart<T>(purpose: &str, what: impl FnOnce() -> T) -> T {
    // The first reader of CubeCL's configuration activates the environment that it names. If the
    // first client inside were that reader, `what` would run in the wrong environment.
    CubeClRuntimeConfig::get();
    let before = environment::active();
    environment::activate(format!("cubenorm-{purpose}-{}", std::process::id()));
    let left = environment::path();
    let result = what();
    environment::activate(before);
    // No other process reads it.
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
    fn a_configuration_reader_stays_in_its_environment() {
        let active = apart("test", || {
            CubeClRuntimeConfig::get();
            environment::active()
        });
        assert!(active.starts_with("cubenorm-test-"), "{active}");
    }
}
