//! What is asked of a machine rather than of the kernels. Answers are lines of their own, marked, so
//! that whoever reads the output finds them; the first line is empty, as a test's name may stand on it.

use cubenorm_tests::device::devices;
use cubenorm_tests::properties::properties;
use cubenorm_tests::throughput::{Candidates, Norm, Selection, hidden_sizes, maps, measure, rows};

/// A number from the environment.
fn number(name: &str, otherwise: usize) -> usize {
    let value = std::env::var(name).ok();
    value.map_or(otherwise, |value| {
        value
            .parse()
            .unwrap_or_else(|_| panic!("{name}={value} is no number"))
    })
}

#[test]
#[ignore = "prints what the devices can do: cargo xtask gpu-check"]
fn device_properties() {
    println!();
    cubenorm_tests::guard::leave_out();
    for device in devices() {
        for (property, value) in properties(&device) {
            println!("property {}\t{property}\t{value}", device.name);
        }
    }
}

/// Prints how fast these norms are on every device: those that `CUBENORM_OPS` names, by commas, or all; with
/// `CUBENORM_CANDIDATES=all` by every candidate of the tuner.
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
fn throughput_of_rows_beside_a_copy() {
    throughput(rows());
}

#[test]
#[ignore = "a benchmark: cargo xtask gpu-check"]
fn throughput_of_hidden_sizes_beside_a_copy() {
    throughput(hidden_sizes());
}

#[test]
#[ignore = "a benchmark: cargo xtask gpu-check"]
fn throughput_of_maps_beside_a_copy() {
    throughput(maps());
}
