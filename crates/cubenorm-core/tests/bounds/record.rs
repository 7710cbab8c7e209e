//! Writes every plan of a fixed list of problems to a file, to compare two versions of the planner.

use std::env;
use std::fs::File;
use std::io::{BufWriter, Write};

use cubenorm_core::{
    backward_candidates, forward_candidates, input_problem_on, plan_backward, plan_forward,
    problem_on, schedule_backward, sums_on,
};

use crate::devices::device;
use crate::problems::{Numbers, backward, forward, knobs};

/// Problems of the list, alternately forward and backward.
const PROBLEMS: u64 = 60_000;

/// One in this number of problems also has its candidates, which take longer.
const WITH_CANDIDATES: u64 = 10;

#[test]
#[ignore = "writes a file: CUBENORM_PLANS=FILE cargo test -p cubenorm-core --test bounds -- --ignored"]
fn records_every_plan() {
    let path = env::var("CUBENORM_PLANS").expect("CUBENORM_PLANS names a file to write");
    let mut file = BufWriter::new(File::create(&path).expect("the file can be written"));
    for seed in 0..PROBLEMS {
        let text = match seed % 2 {
            0 => forward_of(seed),
            _ => backward_of(seed),
        };
        writeln!(file, "{seed}\n{text}").expect("the disk has room");
    }
}

fn forward_of(seed: u64) -> String {
    let mut numbers = Numbers::new(seed);
    let hardware = device(&mut numbers);
    let choice = knobs(&mut numbers, &hardware);
    let problem = match problem_on(&forward(&mut numbers), &hardware, choice) {
        Ok(problem) => problem,
        Err(error) => return error.to_string(),
    };
    let plan = plan_forward(&problem, &hardware, choice);
    let footprint = plan.as_ref().map(|plan| plan.footprint(&problem));
    let has_candidates = (seed / 2).is_multiple_of(WITH_CANDIDATES);
    let candidates = has_candidates.then(|| forward_candidates(&problem, &hardware));
    format!("{problem:?}\n{plan:?}\n{footprint:?}\n{candidates:?}")
}

fn backward_of(seed: u64) -> String {
    let mut numbers = Numbers::new(seed);
    let hardware = device(&mut numbers);
    let choice = knobs(&mut numbers, &hardware);
    let desc = backward(&mut numbers);
    let problem = match input_problem_on(&desc, sums_on(&desc, &hardware), &hardware) {
        Ok(problem) => problem,
        Err(error) => return error.to_string(),
    };
    let plan = plan_backward(&problem, &hardware, choice);
    let schedule = schedule_backward(&desc, &hardware, choice);
    let footprint = schedule
        .as_ref()
        .map(cubenorm_core::BackwardSchedule::footprint);
    let has_candidates = (seed / 2).is_multiple_of(WITH_CANDIDATES);
    let candidates = has_candidates.then(|| backward_candidates(&problem, &hardware));
    format!("{problem:?}\n{plan:?}\n{schedule:?}\n{footprint:?}\n{candidates:?}")
}
