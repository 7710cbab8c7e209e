//! Prints the properties that plans depend on, for each device of the build.
//!
//! Each line has device, property and value, separated by tabs, for `cargo xtask devices`.

use cubenorm_tests::device::devices;
use cubenorm_tests::properties::properties;

fn main() {
    for device in devices() {
        for (property, value) in properties(&device) {
            println!("{}\t{property}\t{value}", device.name);
        }
    }
}
