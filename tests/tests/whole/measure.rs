//! Measurements and properties of the machine.
//!
//! Each result is a line with a prefix that `cargo xtask gpu-check` parses. The first line is
//! empty, since the harness may print the test's name there.

use cubenorm_tests::device::devices;
use cubenorm_tests::properties::properties;
use cubenorm_tests::throughput::{Candidates, Norm, Selection, hidden_sizes, maps, measure, rows};

/// Number in an environment variable, or `otherwise` if it is not set.
fn number(name: &str, otherwise: usize) -> usize {
    let value = std::env::var(name).ok();
    value.map_or(otherwise, |value| {
        value
            .parse()
            .unwrap_or_else(|_| panic!("{name} is {value}: expected a number"))
    })
}

#[test]
#[ignore = "prints the properties of devices: cargo xtask gpu-check"]
fn device_properties() {
    println!();
    cubenorm_tests::guard::leave_out();
    for device in devices() {
        for (property, value) in properties(&device) {
            println!("property {}\t{property}\t{value}", device.name);
        }
    }
}

/// Prints the throughput of norms on every device.
///
/// `CUBENORM_OPS` selects norms, separated by commas. `CUBENORM_CANDIDATES=all` measures every
/// candidate of the autotuner.
fn throughput(mut norms: Vec<Norm>) {
    if let Ok(names) = std::env::var("CUBENORM_OPS") {
        norms.retain(|norm| names.split(',').any(|name| name == norm.name()));
    }
    let selection = Selection {
        bytes: number("CUBENORM_MEBIBYTES", 256) << 20,
        norms,
        candidates: match std::env::var("CUBENORM_CANDIDATES").as_deref() {
            Ok("all") => Candidates::All,
            _ => Candidates::AnalyticAndTuned,
        },
    };
    println!();
    cubenorm_tests::guard::leave_out();
    for device in devices() {
        measure(&device.client, &selection, &mut |row| {
            let row = serde_json::to_string(&row).expect("numbers and words");
            println!("throughput {row}");
        });
    }
}

#[test]
#[ignore = "a benchmark: cargo xtask gpu-check"]
fn throughput_of_rows() {
    throughput(rows());
}

#[test]
#[ignore = "a benchmark: cargo xtask gpu-check"]
fn throughput_of_hidden_sizes() {
    throughput(hidden_sizes());
}

#[test]
#[ignore = "a benchmark: cargo xtask gpu-check"]
fn throughput_of_feature_maps() {
    throughput(maps());
}
