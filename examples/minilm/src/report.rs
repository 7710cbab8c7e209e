//! Tables of the example.

use std::fmt::Write;
use std::time::Duration;

use crate::check::{Agreement, SMALLEST_COSINE};
use crate::timing::Timing;
use crate::vectors::cosine;
use cubenorm_example_common::Norms;

/// Cosine similarities of all pairs of sentences.
pub fn similarity_table(sentences: &[String], embeddings: &[Vec<f32>]) -> String {
    let mut text = String::from("Cosine similarity\n\n     ");
    for column in 1..=sentences.len() {
        write!(text, "{column:>7}").unwrap();
    }
    text.push('\n');
    for (row, (sentence, a)) in sentences.iter().zip(embeddings).enumerate() {
        write!(text, "{:>5}", row + 1).unwrap();
        for b in embeddings {
            write!(text, "{:>7.3}", cosine(a, b)).unwrap();
        }
        writeln!(text, "   {sentence}").unwrap();
    }
    text
}

/// The timed batch.
#[derive(Debug, Clone, Copy)]
pub struct Timed {
    /// `[sentences, tokens, hidden]`.
    pub shape: [usize; 3],
    /// Norms per forward pass.
    pub norm_count: usize,
    /// Runs per median.
    pub iterations: usize,
}

/// Times, and the speed-up if both implementations were measured.
pub fn timing_table(timed: Timed, timings: &[(Norms, Timing)], difference: Option<f32>) -> String {
    let Timed {
        shape: [sentences, tokens, hidden],
        norm_count,
        iterations,
    } = timed;
    let mut text = format!(
        "Time per batch of {sentences} sentences, {tokens} tokens each (median of {iterations})\n\n"
    );

    let norms_alone = format!("its {norm_count} norms alone (*)");
    type Time = fn(&Timing) -> Option<Duration>;
    let rows: [(&str, Time); 3] = [
        ("forward pass", |timing| Some(timing.forward)),
        ("replayed graph of it", |timing| timing.replay),
        (&norms_alone, |timing| Some(timing.norms)),
    ];

    write!(text, "{:24}", "").unwrap();
    for (norms, _) in timings {
        write!(text, "{norms:>14}").unwrap();
    }
    let compared = timings.len() == 2;
    writeln!(text, "{}", if compared { "      speed-up" } else { "" }).unwrap();
    for (name, time) in rows {
        let times: Vec<_> = timings.iter().filter_map(|(_, it)| time(it)).collect();
        if times.is_empty() {
            continue;
        }
        write!(text, "  {name:22}").unwrap();
        for &time in &times {
            write!(text, "{:>11.2} ms", milliseconds(time)).unwrap();
        }
        if let [before, after] = times[..] {
            let speed_up = milliseconds(before) / milliseconds(after);
            write!(text, "{speed_up:>13.2}x").unwrap();
        }
        text.push('\n');
    }
    if let Some(difference) = difference {
        writeln!(
            text,
            "\nLargest difference of the embeddings: {difference:.1e}"
        )
        .unwrap();
    }
    write!(
        text,
        "\n(*) {norm_count} chained residual additions and norms of [{sentences}, {tokens}, \
         {hidden}], measured in a separate\n    loop, with the device synchronised before and \
         after each pass\n"
    )
    .unwrap();
    text
}

/// Agreement of each sentence with its reference.
pub fn agreement_table(norms: Norms, agreements: &[Agreement]) -> String {
    let mut text = format!(
        "Cosine with the reference embeddings, norms by {norms} (at least {SMALLEST_COSINE})\n\n"
    );
    for agreement in agreements {
        let verdict = if agreement.passes() { "ok" } else { "FAILED" };
        let tokens = if agreement.same_tokens {
            ""
        } else {
            " (different tokens)"
        };
        writeln!(
            text,
            "  {:.8}  {verdict:6}  {}{tokens}",
            agreement.cosine, agreement.sentence
        )
        .unwrap();
    }
    text
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMED: Timed = Timed {
        shape: [4, 8, 384],
        norm_count: 13,
        iterations: 10,
    };

    fn timing(forward: u64, norms: u64) -> Timing {
        Timing {
            forward: Duration::from_millis(forward),
            norms: Duration::from_millis(norms),
            replay: None,
        }
    }

    #[test]
    fn timing_table_compares_two_implementations() {
        let timings = [
            (Norms::Burn, timing(30, 12)),
            (Norms::Cubenorm, timing(20, 3)),
        ];
        let text = timing_table(TIMED, &timings, Some(2e-7));
        assert!(text.contains("1.50x"), "{text}");
        assert!(text.contains("4.00x"), "{text}");
        assert!(text.contains("2.0e-7"), "{text}");
        assert!(!text.contains("replayed"), "{text}");
    }

    #[test]
    fn replays_have_a_row_if_they_were_timed() {
        let replayed = |norms, replay| {
            let replay = Some(Duration::from_millis(replay));
            (
                norms,
                Timing {
                    replay,
                    ..timing(30, 12)
                },
            )
        };
        let timings = [replayed(Norms::Burn, 8), replayed(Norms::Cubenorm, 2)];
        let text = timing_table(TIMED, &timings, None);
        let row = text.lines().find(|line| line.contains("replayed graph"));
        assert!(row.is_some_and(|row| row.contains("4.00x")), "{text}");
    }

    #[test]
    fn timing_table_of_one_has_no_speed_up() {
        let text = timing_table(TIMED, &[(Norms::Burn, timing(30, 12))], None);
        assert!(!text.contains("speed-up"), "{text}");
        assert!(text.contains("30.00 ms"), "{text}");
    }

    #[test]
    fn similarity_table_has_a_row_per_sentence() {
        let sentences = ["one".to_owned(), "two".to_owned()];
        let text = similarity_table(&sentences, &[vec![1.0, 0.0], vec![0.0, 1.0]]);
        assert!(text.contains("    1  1.000  0.000   one"), "{text}");
        assert!(text.contains("    2  0.000  1.000   two"), "{text}");
    }
}
