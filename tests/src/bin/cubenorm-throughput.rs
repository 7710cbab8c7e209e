//! Throughput of the kernels in % of copy bandwidth, on every device of the build.
//!
//! `cubenorm-throughput [MIB]` normalizes tensors of MIB mebibytes (default: 256): rows of 512 to
//! 65,536 elements and feature maps, forward and backward. It runs each candidate of the autotuner
//! and prints a table. The analytic plan is first, the tuned one has a star. Times come from the
//! device's timer if it has one. The ceiling is CubeCL's copy probe for the same working set.
//! `CUBENORM_TEST_DEVICES` selects devices.

use cubenorm_tests::device::devices;
use cubenorm_tests::throughput::{Candidates, Row, Selection, hidden_sizes, maps, measure, rows};

fn main() {
    let mebibytes = std::env::args().nth(1);
    let mebibytes: usize = match mebibytes.map(|text| text.parse()) {
        None => 256,
        Some(Ok(mebibytes)) if mebibytes > 0 => mebibytes,
        Some(_) => {
            eprintln!("usage: cubenorm-throughput [MIB]");
            std::process::exit(2);
        }
    };
    let selection = Selection {
        bytes: mebibytes << 20,
        norms: [rows(), hidden_sizes(), maps()].concat(),
        candidates: Candidates::All,
    };
    for device in devices() {
        println!("# {} ({})", device.name, device.client.name());
        println!("op pass dtype rows cols ms GB/s share_of_copy candidate plan");
        measure(&device.client, &selection, &mut |row| print(&row));
    }
}

fn print(row: &Row) {
    let number = |number: Option<f64>, digits: usize, unit: &str| match number {
        Some(number) => format!("{number:.digits$}{unit}"),
        None => "-".to_owned(),
    };
    println!(
        "{} {} {} {} {} {} {} {} {}{} {}",
        row.op,
        row.pass,
        row.dtype,
        row.rows,
        row.cols,
        number(row.milliseconds, 4, ""),
        number(row.gigabytes_per_second, 0, ""),
        number(row.share_of_copy.map(|share| 100.0 * share), 1, "%"),
        if row.tuned { "*" } else { "" },
        row.candidate,
        row.plan,
    );
}
