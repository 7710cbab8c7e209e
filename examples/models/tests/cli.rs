//! Runs the program on small networks, on the pure-Rust backend unless `BURN_DEVICE` names another
//! device.

use std::env;
use std::process::{Command, Output};

fn models(arguments: &[&str]) -> Output {
    let device = env::var("BURN_DEVICE").unwrap_or_else(|_| "flex".to_owned());
    Command::new(env!("CARGO_BIN_EXE_models"))
        .args(["--device", &device])
        .args(arguments)
        .output()
        .expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
#[cfg_attr(
    not(feature = "flex"),
    ignore = "takes the pure-Rust backend: --features flex"
)]
fn small_networks_agree_and_are_timed() {
    let folder = env::temp_dir().join(format!("cubenorm-models-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("it can be made");
    let [json, csv] = ["rows.json", "rows.csv"].map(|name| folder.join(name));
    let output = models(&[
        "--small",
        "--rounds",
        "2",
        "--json",
        &json.to_string_lossy(),
        "--csv",
        &csv.to_string_lossy(),
    ]);
    let [json, csv] = [json, csv].map(|path| std::fs::read_to_string(path).unwrap_or_default());
    std::fs::remove_dir_all(&folder).expect("it is there");
    let report = text(&output.stdout);
    assert!(
        output.status.success(),
        "{report}\n{}",
        text(&output.stderr)
    );
    for network in ["minilm", "gpt2", "resnet", "unet", "decode"] {
        assert!(report.contains(network), "{network}: {report}");
        assert!(csv.contains(&format!(",{network},")), "{network}: {csv}");
        assert!(
            json.contains(&format!("\"{network}\"")),
            "{network}: {json}"
        );
    }
    assert_eq!(report.matches("speed-up").count(), 5, "{report}");
    assert!(!report.contains('\u{1b}'), "colours in a pipe: {report}");
}

#[test]
#[cfg_attr(
    not(feature = "flex"),
    ignore = "takes the pure-Rust backend: --features flex"
)]
fn unwritable_file_is_refused_at_once() {
    let output = models(&["--small", "--json", "/no/such/folder/rows.json"]);
    assert_eq!(output.status.code(), Some(1));
    let message = text(&output.stderr);
    assert!(
        message.contains("/no/such/folder/rows.json cannot be written"),
        "{message}"
    );
    assert!(output.stdout.is_empty());
}

#[test]
fn unknown_network_lists_known_ones() {
    let output = models(&["--only", "alexnet"]);
    assert_eq!(output.status.code(), Some(2));
    let message = text(&output.stderr);
    assert!(
        message.contains("minilm, gpt2, resnet, unet, decode"),
        "{message}"
    );
}

#[test]
fn empty_measurement_is_refused() {
    let output = models(&["--rounds", "0"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("must be at least 1"));
}
