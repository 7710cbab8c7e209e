//! Properties of the machine.

use cubenorm_tests::device::devices;
use cubenorm_tests::properties::properties;

/// Prints a line for each property, with a prefix that `cargo xtask gpu-check` parses.
#[test]
#[ignore = "prints the properties of devices: cargo xtask gpu-check"]
fn device_properties() {
    // The harness may print the test's name on the first line.
    println!();
    cubenorm_tests::guard::leave_out();
    for device in devices() {
        for (property, value) in properties(&device) {
            println!("property {}\t{property}\t{value}", device.name);
        }
    }
}
