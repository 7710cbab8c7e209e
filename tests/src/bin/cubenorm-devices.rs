//! What each device of the build can do, as the plans see it: a line of device, property and value,
//! separated by tabs, for `cargo xtask devices`.

use cubenorm_tests::device::devices;
use cubenorm_tests::properties::properties;

fn main() {
    for device in devices() {
        for (property, value) in properties(&device) {
            println!("{}\t{property}\t{value}", device.name);
        }
    }
}
