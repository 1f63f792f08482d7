//! Which values are chosen, and what their intervals promise.

use super::super::quantile;
use super::*;
use crate::run::record::{Factors, Outcome};
use dunlin_link::Random;

fn factors(of: &[(&str, &str)]) -> Factors {
    of.iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

fn record(system: &str, testbed: &str, roles: &[(&str, &[f64])]) -> Record {
    Record {
        cell: Cell {
            system: system.to_owned(),
            factors: factors(&[("testbed", testbed)]),
            repetition: 0,
            seed: 1,
        },
        outcome: Outcome {
            measures: roles
                .iter()
                .map(|(role, values)| Measure {
                    metric: "packets".to_owned(),
                    unit: "packets".to_owned(),
                    factors: factors(&[("role", role)]),
                    values: values.to_vec(),
                    series: Vec::new(),
                })
                .collect(),
            ..Outcome::default()
        },
        seconds: 1.0,
    }
}

#[test]
fn values_are_chosen_by_system_metric_and_factors_of_cell_and_measure() {
    let records = [
        record(
            "quic",
            "wired",
            &[("broker", &[7.0]), ("publisher", &[5.0])],
        ),
        record("quic", "wireless", &[("broker", &[9.0])]),
        record("tcp", "wired", &[("broker", &[14.0, f64::NAN])]),
    ];
    let values = |pick: Pick| Sample::of(&records, &pick).values();
    assert_eq!(values(Pick::new("quic", "packets")), [5.0, 7.0, 9.0]);
    assert_eq!(
        values(Pick::new("quic", "packets").at("role", "broker")),
        [7.0, 9.0]
    );
    let wired = Pick::any("packets").at("testbed", "wired");
    assert_eq!(values(wired.at("role", "broker")), [7.0, 14.0]);
    assert!(values(Pick::new("quic", "packets").at("link", "4G")).is_empty());
    assert!(values(Pick::new("quic", "latency")).is_empty());
}

#[test]
fn selecting_is_sorting_and_looking() {
    let mut random = Random::new(5);
    for count in 1..40 {
        let values: Vec<f64> = (0..count).map(|_| random.below(20) as f64).collect();
        for share in [0.0, 0.1, 0.25, 0.5, 0.9, 0.99, 1.0] {
            let selected = select(&mut values.clone(), share);
            let looked = quantile(&sorted(&values), share);
            let (selected, looked) = (selected.expect("values"), looked.expect("values"));
            assert!((selected - looked).abs() < 1e-9, "{count} {share}");
        }
    }
    assert_eq!(select(&mut [], 0.5), None);
}

#[test]
fn an_invalid_cell_gives_no_values() {
    let mut records = [
        record("quic", "wired", &[("broker", &[7.0])]),
        record("quic", "wired", &[("broker", &[1000.0])]),
    ];
    if let Some(record) = records.last_mut() {
        record.outcome.invalid = Some("the emulator was late".to_owned());
    }
    let sample = Sample::of(&records, &Pick::new("quic", "packets"));
    assert_eq!(sample.values(), [7.0]);
    assert_eq!(sample.cells(), 1);
}

#[test]
fn one_observation_has_no_interval() {
    let one = Sample::new([vec![4.0]]);
    let two = Sample::new([vec![8.0], vec![8.0]]);
    let estimate = one.estimate(Statistic::Median).expect("a value");
    assert_eq!(estimate.value, 4.0);
    assert!(estimate.low.is_nan() && estimate.high.is_nan());
    let change = one.change(&two, Statistic::Median).expect("values");
    assert_eq!(change.value, -50.0);
    assert!(change.low.is_nan());
}

#[test]
fn what_never_varied_has_an_interval_without_width() {
    let ours = Sample::new([vec![5.0; 3], vec![5.0; 3]]);
    let theirs = Sample::new([vec![10.0; 3], vec![10.0; 3]]);
    assert_eq!(
        ours.change(&theirs, Statistic::Mean),
        Some(Estimate {
            value: -50.0,
            low: -50.0,
            high: -50.0
        })
    );
}

#[test]
fn nothing_to_compare_with_is_no_number() {
    let ours = Sample::new([vec![5.0, 6.0]]);
    assert_eq!(ours.change(&Sample::default(), Statistic::Median), None);
    assert_eq!(Sample::default().estimate(Statistic::Mean), None);
    let zero = Sample::new([vec![0.0, 0.0]]);
    assert_eq!(ours.change(&zero, Statistic::Mean), None);
    let difference = ours.difference(&zero, Statistic::Mean).expect("values");
    assert_eq!(difference.value, 5.5);
}

#[test]
fn the_same_records_give_the_same_interval() {
    let sample = Sample::new([vec![1.0, 5.0, 2.0], vec![9.0, 4.0]]);
    assert_eq!(
        sample.estimate(Statistic::Median),
        sample.estimate(Statistic::Median)
    );
}

/// Draws samples whose true mean is known and counts how often the interval
/// has it: near 95 %, and not below where cells differ.
#[test]
fn intervals_have_the_truth_in_them_as_often_as_they_say() {
    const TRIALS: u32 = 60;
    let mut random = Random::new(7);
    for (cells, values, spread_of_cells) in [(1, 30, 0.0), (8, 5, 1.0)] {
        let mut inside = 0;
        for _ in 0..TRIALS {
            let sample = Sample::new((0..cells).map(|_| {
                let shift = spread_of_cells * random.normal();
                (0..values)
                    .map(|_| 10.0 + shift + random.normal())
                    .collect()
            }));
            let estimate = sample.estimate(Statistic::Mean).expect("values");
            assert!(estimate.low <= estimate.value && estimate.value <= estimate.high);
            inside += u32::from(estimate.low <= 10.0 && 10.0 <= estimate.high);
        }
        let share = f64::from(inside) / f64::from(TRIALS);
        assert!((0.86..=1.0).contains(&share), "{cells} cells: {share}");
    }
}

/// Messages that wait for one lost packet are late together: a cell of many
/// values is not as many observations.
#[test]
fn values_that_follow_each_other_are_not_taken_for_independent() {
    const TRIALS: u32 = 60;
    let mut random = Random::new(11);
    let mut inside = 0;
    for _ in 0..TRIALS {
        let mut value = 0.0;
        let values = (0..400).map(|_| {
            value = 0.8 * value + random.normal();
            10.0 + value
        });
        let sample = Sample::new([values.collect()]);
        let estimate = sample.estimate(Statistic::Mean).expect("values");
        inside += u32::from(estimate.low <= 10.0 && 10.0 <= estimate.high);
    }
    // Drawn one by one, it would be near 50 %.
    let share = f64::from(inside) / f64::from(TRIALS);
    assert!(share >= 0.8, "{share}");
}

#[test]
fn the_interval_of_a_ratio_shrinks_with_the_sample() {
    let mut random = Random::new(3);
    let mut draw = |mean: f64, count: usize| {
        Sample::new((0..10).map(|_| (0..count).map(|_| mean + random.normal()).collect()))
    };
    let mut width = |count| {
        let (ours, theirs) = (draw(40.0, count), draw(100.0, count));
        let change = ours.change(&theirs, Statistic::Median).expect("values");
        assert!((change.value + 60.0).abs() < 1.0, "{change:?}");
        change.high - change.low
    };
    let (few, many) = (width(2), width(60));
    assert!(many < few / 2.0, "{few} {many}");
}
