//! Random graphs of the operations that norms are made of: fused, and one operation at a time.

use burn::tensor::{DType, Device, Tensor, TensorData};

use crate::{devices, installed, values};

/// Graphs per device.
const GRAPHS: u64 = 400;

/// An operation on tensors by their numbers. Its result gets the next number.
#[derive(Debug, Clone, Copy)]
enum Step {
    Mean(usize, usize),
    Sum(usize, usize),
    Add(usize, usize),
    Sub(usize, usize),
    Mul(usize, usize),
    Div(usize, usize),
    AddNumber(usize, f64),
    MulNumber(usize, f64),
    DivNumber(usize, f64),
    Power(usize, f64),
    Sqrt(usize),
    Recip(usize),
    Abs(usize),
    Tanh(usize),
    /// To f64 and back, if the device has it.
    Cast(usize),
    /// The axes 1 and 2 as one, and back.
    Reshape(usize),
}

impl Step {
    fn operands(&mut self) -> Vec<&mut usize> {
        match self {
            Self::Add(a, b) | Self::Sub(a, b) | Self::Mul(a, b) | Self::Div(a, b) => vec![a, b],
            Self::Mean(a, _)
            | Self::Sum(a, _)
            | Self::AddNumber(a, _)
            | Self::MulNumber(a, _)
            | Self::DivNumber(a, _)
            | Self::Power(a, _)
            | Self::Sqrt(a)
            | Self::Recip(a)
            | Self::Abs(a)
            | Self::Tanh(a)
            | Self::Cast(a)
            | Self::Reshape(a) => vec![a],
        }
    }
}

/// Random numbers of a seed (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, most: usize) -> usize {
        (self.next() % most as u64) as usize
    }

    fn one_in(&mut self, most: usize) -> bool {
        self.below(most) == 0
    }
}

/// Tensors that a graph begins with: two full ones, and two parameters.
const GIVEN: usize = 4;

/// A norm or two with random parts, and random operations around them.
fn graph(random: &mut Random) -> Vec<Step> {
    let mut steps = Vec::new();
    let output = norm(&mut steps, random, 0);
    if random.one_in(3) {
        norm(&mut steps, random, output);
    }
    for _ in 0..random.below(3) {
        mutate(&mut steps, random);
    }
    steps
}

/// Adds a norm of a tensor, with random operations behind it. Returns the result.
fn norm(steps: &mut Vec<Step>, random: &mut Random, x: usize) -> usize {
    let mut push = |step: Step| {
        steps.push(step);
        GIVEN + steps.len() - 1
    };
    let axis = random.below(3);
    let [z, gamma, beta] = [1, 2, 3];
    let mut input = x;
    if random.one_in(3) {
        input = push(Step::Add(x, z));
    }
    if random.one_in(6) {
        input = push(Step::Reshape(input));
    }
    let is_centered = !random.one_in(3);
    let mean = push(Step::Mean(input, axis));
    let centered = match is_centered {
        true => push(Step::Sub(input, mean)),
        false => input,
    };
    let again = match random.one_in(4) && is_centered {
        true => push(Step::Sub(input, mean)),
        false => centered,
    };
    let square = push(Step::Mul(again, again));
    let variance = match random.one_in(4) {
        true => {
            let sum = push(Step::Sum(square, axis));
            push(Step::DivNumber(sum, [4.0, 6.0, 8.0][axis]))
        }
        false => push(Step::Mean(square, axis)),
    };
    let variance = push(Step::AddNumber(variance, 1e-5));
    let mut output = match random.below(4) {
        0 => {
            let root = push(Step::Sqrt(variance));
            push(Step::Div(centered, root))
        }
        1 => {
            let root = push(Step::Sqrt(variance));
            let recip = push(Step::Recip(root));
            push(Step::Mul(centered, recip))
        }
        2 => {
            let power = push(Step::Power(variance, -0.5));
            push(Step::Mul(power, centered))
        }
        _ => {
            let power = push(Step::Power(variance, 0.5));
            push(Step::Div(centered, power))
        }
    };
    if random.one_in(2) {
        output = push(Step::Mul(output, gamma));
    }
    if random.one_in(2) {
        output = push(Step::Add(beta, output));
    }
    for _ in 0..random.below(4) {
        output = match random.below(6) {
            0 => push(Step::Tanh(output)),
            1 => push(Step::AddNumber(output, 0.5)),
            2 => push(Step::MulNumber(output, -2.0)),
            3 => push(Step::Add(output, z)),
            4 => push(Step::Mean(output, axis)),
            _ => push(Step::Mul(output, output)),
        };
    }
    output
}

/// Changes an operation, or an operand, to another.
fn mutate(steps: &mut Vec<Step>, random: &mut Random) {
    let at = random.below(steps.len());
    let before = GIVEN + at;
    match random.below(5) {
        0 => {
            let other = random.below(before);
            let mut operands = steps[at].operands();
            let which = random.below(operands.len());
            *operands[which] = other;
        }
        1 => match &mut steps[at] {
            Step::Mean(_, axis) | Step::Sum(_, axis) => *axis = random.below(3),
            Step::AddNumber(_, number) | Step::DivNumber(_, number) => *number *= 2.0,
            Step::Power(_, number) => *number = -1.5,
            _ => {}
        },
        2 => {
            let operand = *steps[at].operands()[0];
            steps[at] = match random.below(4) {
                0 => Step::Sum(operand, random.below(3)),
                1 => Step::Abs(operand),
                2 => Step::Cast(operand),
                _ => Step::Mean(operand, random.below(3)),
            };
        }
        3 => {
            // An operation in between, which may be read by none.
            let operand = random.below(before);
            insert(steps, at, Step::Tanh(operand));
        }
        _ => {
            let (a, b) = (random.below(before), random.below(before));
            insert(steps, at, Step::Mul(a, b));
        }
    }
}

fn insert(steps: &mut Vec<Step>, at: usize, step: Step) {
    for step in &mut steps[at..] {
        for operand in step.operands() {
            if *operand >= GIVEN + at {
                *operand += 1;
            }
        }
    }
    steps.insert(at, step);
}

/// Evaluates a graph. Each tensor is moved into its last reader. Returns the tensors that no operation reads.
fn run(steps: &[Step], given: Vec<Tensor<3>>, one_at_a_time: Option<&Device>) -> Vec<Tensor<3>> {
    let mut tensors: Vec<Option<Tensor<3>>> = given.into_iter().map(Some).collect();
    let mut last = vec![usize::MAX; GIVEN + steps.len()];
    for (at, step) in steps.iter().enumerate() {
        for operand in step.clone().operands() {
            last[*operand] = at;
        }
    }
    for (at, step) in steps.iter().enumerate() {
        let take = |which: usize, tensors: &mut Vec<Option<Tensor<3>>>, is_last_use: bool| {
            let taken = match last[which] == at && is_last_use {
                true => tensors[which].take(),
                false => tensors[which].clone(),
            };
            taken.expect("a tensor is read before it dies")
        };
        let (a, b) = match *step {
            Step::Add(a, b) | Step::Sub(a, b) | Step::Mul(a, b) | Step::Div(a, b) => {
                let first = take(a, &mut tensors, a != b);
                (first, Some(take(b, &mut tensors, true)))
            }
            mut other => (take(*other.operands()[0], &mut tensors, true), None),
        };
        let result = apply(*step, a, b);
        tensors.push(Some(result));
        if let Some(device) = one_at_a_time {
            device.sync().expect("the device runs");
        }
    }
    tensors.into_iter().flatten().collect()
}

fn apply(step: Step, a: Tensor<3>, b: Option<Tensor<3>>) -> Tensor<3> {
    let b = || b.expect("two operands");
    match step {
        Step::Mean(_, axis) => a.mean_dim(axis),
        Step::Sum(_, axis) => a.sum_dim(axis),
        Step::Add(..) => a + b(),
        Step::Sub(..) => a - b(),
        Step::Mul(..) => a * b(),
        Step::Div(..) => a / b(),
        Step::AddNumber(_, number) => a + number,
        Step::MulNumber(_, number) => a * number,
        Step::DivNumber(_, number) => a / number,
        Step::Power(_, number) => a.powf_scalar(number),
        Step::Sqrt(_) => a.sqrt(),
        Step::Recip(_) => a.recip(),
        Step::Abs(_) => a.abs(),
        Step::Tanh(_) => a.tanh(),
        Step::Cast(_) => match a.device().supports_dtype(DType::F64) {
            true => a.cast(DType::F64).cast(DType::F32),
            false => a,
        },
        Step::Reshape(_) => {
            let shape = a.dims();
            let flat: Tensor<2> = a.reshape([shape[0], shape[1] * shape[2]]);
            flat.reshape(shape)
        }
    }
}

/// Tensors of 4 x 6 x 8, and parameters that broadcast to them.
fn given(seed: u64, (noise, pattern): (f64, u64), device: &Device) -> Vec<Tensor<3>> {
    let shapes = [[4, 6, 8], [4, 6, 8], [1, 1, 8], [1, 6, 1]];
    let tensor = |(which, shape): (usize, [usize; 3])| {
        let elements = shape.iter().product();
        let values: Vec<f32> = (0..elements)
            .map(|at| {
                let value = cubenorm_tests::case::noise(seed * 4 + which as u64, at);
                let error = noise * cubenorm_tests::case::noise(seed * 4 + 1000 * pattern, at);
                ((1.0 + error) * (2.0 * value + 0.25)) as f32
            })
            .collect();
        Tensor::from_data(TensorData::new(values, shape), device)
    };
    shapes.into_iter().enumerate().map(tensor).collect()
}

#[test]
fn random_graphs_agree_with_unfused_burn() {
    let _guard = installed();
    for (name, device) in devices() {
        let before = cubenorm::install_report().norms();
        for seed in 0..GRAPHS {
            let steps = graph(&mut Random(seed));
            let inputs = |noise| given(seed, noise, &device);
            const EXACT: (f64, u64) = (0.0, 1);
            let fused = run(&steps, inputs(EXACT), None);
            let unfused = run(&steps, inputs(EXACT), Some(&device));
            // Rounding errors are as large as those of slightly different inputs.
            let perturbed = [1, 2, 3].map(|pattern| {
                let inputs = inputs((2f64.powi(-20), pattern));
                run(&steps, inputs, Some(&device)).into_iter().map(values)
            });
            assert_eq!(fused.len(), unfused.len());
            let [mut first, mut second, mut third] = perturbed;
            for (which, (fused, unfused)) in fused.into_iter().zip(unfused).enumerate() {
                assert_eq!(fused.dims(), unfused.dims());
                let perturbed = [&mut first, &mut second, &mut third]
                    .map(|results| results.next().expect("each run has all results"));
                check(
                    &values(fused),
                    &values(unfused),
                    &perturbed,
                    &format!("{name}, seed {seed}, result {which}: {steps:?}"),
                );
            }
        }
        let norms = cubenorm::install_report().norms() - before;
        println!("{name}: {norms} norms in {GRAPHS} graphs");
        assert!(
            norms > GRAPHS / 4,
            "{name}: only {norms} norms in {GRAPHS} graphs"
        );
    }
}

fn check(fused: &[f64], unfused: &[f64], perturbed: &[Vec<f64>; 3], context: &str) {
    let largest = unfused.iter().filter(|value| value.is_finite());
    let largest = largest.fold(1.0, |most: f64, value| most.max(value.abs()));
    let differences = perturbed.iter().flat_map(|perturbed| {
        let both = unfused.iter().zip(perturbed);
        both.map(|(a, b)| (a - b).abs())
    });
    let sensitivity = differences.fold(0.0, f64::max);
    for (at, (&fused, &unfused)) in fused.iter().zip(unfused).enumerate() {
        let is_close = (fused - unfused).abs() <= 1e-5 * largest + 8.0 * sensitivity;
        let is_same = fused == unfused || fused.is_nan() && unfused.is_nan();
        // Beyond the range, or at the edge of a domain.
        let is_edge = perturbed.iter().any(|perturbed| !perturbed[at].is_finite());
        assert!(
            is_close || is_same || is_edge || !unfused.is_finite(),
            "{context}: {fused} for {unfused}"
        );
    }
}
