//! Random operators of DirectML and ONNX against their formulas in f64.
//!
//! Operator, rank, sizes, axes, strides, broadcasting, dtypes, activation, optional tensors and
//! values vary all at once.
//!
//! Each operator is lowered and run by the executor of every device of the build, as models in
//! `cubenorm-models` are. Each element must be within the rounding bounds of the formulas, see
//! [`cubenorm_tests::estimate`]. Gaps between elements must be unchanged.
//!
//! `CUBENORM_PROPERTY_CASES` sets the number of cases per device. Each run prints its seed, and
//! `PROPTEST_RNG_SEED` repeats it. A failure is shrunk, printed, and saved in
//! `proptest-regressions/operators.txt`, which later runs try first.

mod check;
mod description;
mod directml;
mod genes;
mod onnx;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use check::{Case, Outcome};
use cubenorm_core::{DType, TensorDesc};
use cubenorm_models::{Executor, run};
use cubenorm_operators::onnx::{LpNormalization, Operator};
use cubenorm_tests::device::is_selected;
use description::Description;
use genes::genes;
use proptest::prelude::*;
use proptest::test_runner::{Config, FileFailurePersistence, RngSeed, TestRunner};

/// Default cases per device. CI runs more than 2,000 over all its devices.
const CASES: u32 = 700;

/// Names of the devices to run on.
fn devices() -> Vec<&'static str> {
    let compiled = run::compiled().into_iter();
    let mut names: Vec<_> = compiled.filter(|name| is_selected(name)).collect();
    // One runtime under several names, which all use the same compiler.
    let other = ["vulkan", "webgpu", "metal"];
    if names.iter().any(|name| other.contains(name)) {
        names.retain(|&name| name != "wgpu");
    }
    assert!(
        !names.is_empty(),
        "no device to test: build with the feature of one, and select it or nothing in \
         CUBENORM_TEST_DEVICES"
    );
    names
}

/// Supported dtypes of a device, f32 first.
fn dtypes(device: &dyn Executor) -> Vec<DType> {
    let lacks = |dtype: DType| {
        let description = Description::Onnx {
            operator: Operator::LpNormalization(LpNormalization::default()),
            inputs: vec![Some(TensorDesc::contiguous([2, 2], dtype))],
            wanted: vec![true],
        };
        let case = Case {
            description,
            offset: 0.0,
            amplitude: 1.0,
            slack: 0,
            seed: 0,
        };
        matches!(case.check(device), Ok(Outcome::Skipped { .. }))
    };
    [DType::F32, DType::F16, DType::BF16, DType::F64]
        .into_iter()
        .filter(|&dtype| !lacks(dtype))
        .collect()
}

fn case(on_device: &[DType]) -> impl Strategy<Value = Case> {
    let description = genes(directml::COUNT + onnx::COUNT, on_device).prop_map(|genes| match genes
        .operator
        .checked_sub(directml::COUNT)
    {
        None => Description::DirectMl(Box::new(genes.directml())),
        Some(number) => genes.onnx(number),
    });
    let numbers = prop_oneof![
        4 => Just((0.0, 2.0)),
        1 => Just((100.0, 1.0)),
        1 => Just((-3.0, 0.01)),
        1 => Just((0.0, 300.0)),
    ];
    let slack = prop_oneof![3 => Just(0usize), 1 => 1usize..4];
    (description, numbers, slack, any::<u64>()).prop_map(
        |(description, (offset, amplitude), slack, seed)| Case {
            description,
            offset,
            amplitude,
            slack,
            seed,
        },
    )
}

/// Outcomes of the cases of a device.
#[derive(Debug, Default)]
struct Tally {
    ran: BTreeMap<&'static str, u32>,
    skipped: BTreeMap<String, u32>,
    elements: usize,
    /// Sum over cases of the fraction of loosely bounded elements.
    loose: f64,
}

impl Tally {
    fn count(&mut self, case: &Case, outcome: Outcome) {
        match outcome {
            Outcome::Agrees { elements, loose } => {
                *self.ran.entry(case.description.name()).or_default() += 1;
                self.elements += elements;
                self.loose += loose as f64 / elements.max(1) as f64;
            }
            Outcome::Skipped { reason } => *self.skipped.entry(reason).or_default() += 1,
        }
    }
}

fn check_device(name: &str, cases: u32, seed: u64) {
    let device = run::open(name).unwrap_or_else(|error| panic!("{error}"));
    let on_device = dtypes(device.as_ref());
    let persistence = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/proptest-regressions/operators.txt"
    );
    let mut runner = TestRunner::new(Config {
        cases,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(persistence))),
        ..Config::default()
    });
    let tally = RefCell::new(Tally::default());
    let result = runner.run(&case(&on_device), |case| {
        let outcome = case.check(device.as_ref()).map_err(TestCaseError::fail)?;
        tally.borrow_mut().count(&case, outcome);
        Ok(())
    });
    if let Err(error) = result {
        panic!("{name}, PROPTEST_RNG_SEED={seed}: {error}");
    }

    let Tally {
        ran,
        skipped,
        elements,
        loose,
    } = tally.into_inner();
    let (agree, skips): (u32, u32) = (ran.values().sum(), skipped.values().sum());
    println!("{name}: {agree} random operators agree, {skips} skipped; {elements} elements");
    ran.iter()
        .for_each(|(operator, count)| println!("  {count:4} {operator}"));
    let mut reasons: Vec<_> = skipped.iter().collect();
    reasons.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    for (reason, count) in reasons {
        println!("  {count:4} skipped: {reason}");
    }
    assert!(
        agree * 10 >= (agree + skips) * 6,
        "{name} ran {agree} of {} operators: expected at least 60 %",
        agree + skips
    );
    // Loosely bounded elements prove little.
    let loose = 100.0 * loose / f64::from(agree.max(1));
    assert!(
        loose <= 5.0,
        "{loose:.1} % of the elements have loose bounds: expected at most 5 %"
    );
    if cases >= CASES {
        let operators = directml::COUNT + onnx::COUNT;
        assert_eq!(
            ran.len(),
            operators,
            "each operator should have run: {ran:?}"
        );
    }
}

#[test]
fn random_operators_agree_with_their_formulas() {
    let cases = std::env::var("CUBENORM_PROPERTY_CASES").ok();
    let cases = cases.and_then(|cases| cases.parse().ok()).unwrap_or(CASES);
    let seed = match Config::default().rng_seed {
        RngSeed::Fixed(seed) => seed,
        RngSeed::Random => RandomState::new().build_hasher().finish(),
    };
    println!("PROPTEST_RNG_SEED={seed} repeats this run");
    for name in devices() {
        check_device(name, cases, seed);
    }
}
