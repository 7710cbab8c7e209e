//! The page as a browser lays it out.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use serde::Deserialize;

use super::Page;
use crate::{
    commands::bench::{fixture, summary::summaries},
    exec::{on_path, workspace},
};

/// Asks the laid-out page for its visible parts, and writes the answer into the page.
const PROBE: &str = r#"<script>
addEventListener("load", () => {
  document.querySelectorAll("details").forEach(it => it.open = true);
  const box = it => it.getBoundingClientRect();
  const meet = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
  const overlaps = [], plots = [];
  for (const svg of document.querySelectorAll("svg")) {
    const texts = [...svg.querySelectorAll("text")];
    const frame = box(svg);
    plots.push({ width: frame.width, height: frame.height, texts: texts.map(it => it.textContent.trim()) });
    texts.forEach((a, i) => texts.slice(i + 1).forEach(b => {
      if (meet(box(a), box(b))) overlaps.push(a.textContent.trim() + " / " + b.textContent.trim());
    }));
    for (const text of texts) {
      const at = box(text);
      if (at.left < frame.left - 1 || at.right > frame.right + 1 || at.top < frame.top - 1 || at.bottom > frame.bottom + 1)
        overlaps.push(text.textContent.trim() + " / edge");
    }
  }
  const seen = {
    text: document.body.innerText, plots, overlaps,
    loaded: performance.getEntriesByType("resource").length,
    wide: document.documentElement.scrollWidth > document.documentElement.clientWidth,
  };
  document.documentElement.innerHTML = "<body>SEEN" + btoa(unescape(encodeURIComponent(JSON.stringify(seen)))) + "SEEN</body>";
});
</script>"#;
/// Far more than a browser needs to start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Debug, Deserialize)]
struct Seen {
    text: String,
    plots: Vec<Plot>,
    /// Pairs of texts in plots that overlap, and texts cut off by the edge.
    overlaps: Vec<String>,
    /// Number of other files that the page asked for.
    loaded: usize,
    /// True if it is wider than the window.
    wide: bool,
}

#[derive(Debug, Deserialize)]
struct Plot {
    width: f64,
    height: f64,
    texts: Vec<String>,
}

/// Lays a page out in Chromium, without a window, if the machine has one.
fn look(html: &str) -> Option<Seen> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let Some(browser) = names.into_iter().find(|name| on_path(name)) else {
        println!("skipped: there is no Chromium here");
        return None;
    };
    // Not the system's temporary folder: a browser in a sandbox of its system may have another one.
    let folder = workspace().join(format!("target/report-test-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let page = folder.join("report.html");
    fs::write(&page, html.replace("</body>", &format!("{PROBE}</body>"))).unwrap();
    let dump = dump(browser, &folder, &page);
    let _ = fs::remove_dir_all(&folder);
    let encoded = dump
        .split("SEEN")
        .nth(1)
        .unwrap_or_else(|| panic!("nothing seen: {dump}"));
    Some(serde_json::from_slice(&decoded(encoded)).unwrap())
}

fn dump(browser: &str, folder: &Path, page: &Path) -> String {
    let output = folder.join("dump.html");
    let mut child = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"])
        .args(["--window-size=1280,1000", "--virtual-time-budget=5000"])
        .arg(format!(
            "--user-data-dir={}",
            folder.join("profile").display()
        ))
        .arg(format!("file://{}", page.display()))
        .stdin(Stdio::null())
        .stdout(fs::File::create(&output).unwrap())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > PATIENCE {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{browser} did not end in {PATIENCE:?}");
        }
        thread::sleep(Duration::from_millis(50));
    }
    fs::read_to_string(&output).unwrap()
}

/// Base64, which needs no escaping in a page.
fn decoded(text: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let digits: Vec<u32> = text.bytes().filter_map(digit).map(u32::from).collect();
    let mut bytes = Vec::new();
    for chunk in digits.chunks(4) {
        let bits = chunk.iter().fold(0, |bits, digit| bits << 6 | digit) << (6 * (4 - chunk.len()));
        bytes.extend_from_slice(&bits.to_be_bytes()[1..chunk.len()]);
    }
    bytes
}

/// The visible parts of the fixed measurements, laid out once for all tests.
fn seen() -> Option<&'static Seen> {
    static SEEN: OnceLock<Option<Seen>> = OnceLock::new();
    SEEN.get_or_init(|| look(&page())).as_ref()
}

fn page() -> String {
    let measurements = fixture::measurements();
    let page = Page {
        facts: vec![("command", "cargo xtask bench <&>".to_owned())],
        measurements: &measurements,
        summaries: &summaries(&measurements),
        surveys: &[fixture::survey()],
    };
    page.html().unwrap()
}

#[test]
fn a_browser_shows_the_whole_report_offline() {
    let Some(seen) = seen() else { return };
    for part in [
        "cargo xtask bench <&>",
        "cpu: cubenorm on cpu; burn on cpu; torch on torch 1.2.3",
        "times onnxruntime's speed",
        "times a copy's time",
        "Speed against each baseline: forward, f32",
        "Throughput of each strategy on cpu",
        "Strategy without tuning on cpu: forward",
        "unit: 2 units (a CPU)",
        "onnxruntime, layer_norm 2048x4096 f32 full: no result: ONNX Runtime has no backward pass",
    ] {
        assert!(seen.text.contains(part), "{part}: {}", seen.text);
    }
    assert_eq!(seen.loaded, 0, "the page needs other files");
    assert!(!seen.wide, "the page is wider than a window of 1280 pixels");
}

#[test]
fn plots_have_their_size_and_readable_labels() {
    let Some(seen) = seen() else { return };
    let [forward, full, lengths, map] = &seen.plots[..] else {
        panic!("{:?}", seen.plots);
    };
    for plot in &seen.plots {
        assert!(plot.width > 500.0 && plot.height > 60.0, "{plot:?}");
    }
    let shows = |plot: &Plot, text: &str| plot.texts.iter().any(|it| it == text);
    assert!(
        shows(forward, "layer_norm 2048x4096") && shows(forward, "5.00x"),
        "{forward:?}"
    );
    assert!(shows(full, "2.50x") && !shows(full, "0.05x"), "{full:?}");
    assert!(
        shows(lengths, "GB/s") && shows(lengths, "4Ki"),
        "{lengths:?}"
    );
    assert!(shows(map, "columns") && shows(map, "16Mi"), "{map:?}");
    assert_eq!(seen.overlaps, Vec::<String>::new());
}

#[test]
fn base64_reads_back() {
    assert_eq!(decoded("aGVsbG8="), b"hello");
    assert_eq!(decoded("aGVsbG8h"), b"hello!");
}
