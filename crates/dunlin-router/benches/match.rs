//! What a match costs: by the number of subscriptions, with cold and with warm
//! memory, and by the number of subscribers.
//!
//! `1k` and `1M-hot` publish to 1,000 topics each: the growth of the work with
//! the subscriptions, and what the acceptance (at most twice) is about.
//! `1M-uniform` publishes to a million topics in random order, so that every
//! match waits for main memory twice, one load after the other.

use core::hint::black_box;
use core::ops::ControlFlow;
use core::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use dunlin_router::{Match, RetainedTree, SubscriptionTree};

const SMALL: usize = 1_000;
const LARGE: usize = 1_000_000;
const REGIONS: usize = 100;

type Tree = SubscriptionTree<u32, u64>;

fn device(n: usize) -> String {
    let (region, device) = (n % REGIONS, n / REGIONS);
    format!("fleet/region-{region:02}/device-{device:06}")
}

/// Texts of one length, one after the other in the order in which they are
/// used, so that reading them costs next to nothing.
struct Topics {
    text: String,
    each: usize,
}

impl Topics {
    /// `count` topics of random ones of the first `among` devices.
    fn random(count: usize, among: usize) -> Self {
        let mut order: Vec<usize> = (0..among).collect();
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for at in (1..among).rev() {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            order.swap(at, (state >> 33) as usize % (at + 1));
        }
        let mut text = String::new();
        for n in order.iter().take(count) {
            text.push_str(&device(*n));
            text.push_str("/temperature");
        }
        let each = device(0).len() + "/temperature".len();
        Self { text, each }
    }

    fn len(&self) -> usize {
        self.text.len() / self.each
    }

    fn get(&self, n: usize) -> &str {
        &self.text[n * self.each..][..self.each]
    }
}

/// Resident memory of this process, where the system tells.
fn resident_bytes() -> usize {
    const PAGE_BYTES: usize = 4096;
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm
        .split(' ')
        .nth(1)
        .and_then(|n| n.parse::<usize>().ok());
    pages.unwrap_or_default() * PAGE_BYTES
}

#[allow(clippy::print_stderr, reason = "it is a program's output")]
fn report_memory(what: &str, before: usize, count: usize) {
    let bytes = resident_bytes().saturating_sub(before) / count;
    eprintln!("{what}: {bytes} bytes of resident memory each");
}

fn tree_of(count: usize, suffixes: &[&str]) -> Tree {
    let mut tree = Tree::new(42);
    for n in 0..count {
        for suffix in suffixes {
            tree.insert(&format!("{}/{suffix}", device(n)), n as u32, 1);
        }
    }
    tree
}

fn count_matches(tree: &Tree, topic: &str) -> u64 {
    let mut sum = 0;
    tree.matches(topic, |found| match found {
        Match::Subscriber { value, .. } => sum += *value,
        Match::Shared(group) => sum += group.select(|_, _| true).map_or(0, |(_, v)| *v),
    });
    sum
}

fn run(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, tree: &Tree, topics: &Topics) {
    let mut next = 0;
    group.bench_function(name, |b| {
        b.iter(|| {
            next = if next + 1 < topics.len() { next + 1 } else { 0 };
            black_box(count_matches(tree, black_box(topics.get(next))))
        });
    });
}

fn by_subscriptions(c: &mut Criterion) {
    let shapes: [(&str, &[&str]); 3] = [
        ("plus", &["+"]),
        ("exact", &["temperature"]),
        ("plus-and-exact", &["+", "temperature"]),
    ];
    for (shape, suffixes) in shapes {
        let mut group = c.benchmark_group(shape);
        let small = tree_of(SMALL, suffixes);
        run(&mut group, "1k", &small, &Topics::random(SMALL, SMALL));
        let before = resident_bytes();
        let large = tree_of(LARGE, suffixes);
        report_memory(shape, before, large.subscription_count());
        let some = Topics::random(SMALL, LARGE);
        run(&mut group, "1M-hot", &large, &some);
        let all = Topics::random(LARGE, LARGE);
        run(&mut group, "1M-uniform", &large, &all);
        group.finish();
    }
}

fn by_subscribers(c: &mut Criterion) {
    let topic = Topics::random(1, 1);
    let mut group = c.benchmark_group("subscribers");

    let mut wide = Tree::new(42);
    for key in 0..50 {
        wide.insert("fleet/+/+/temperature", key, 1);
    }
    group.throughput(Throughput::Elements(50));
    run(&mut group, "50-on-one-filter", &wide, &topic);

    let mut square = Tree::new(42);
    let filters = [
        "#",
        "+/#",
        "+/+/#",
        "+/+/+/+",
        "fleet/#",
        "fleet/+/#",
        "fleet/+/+/+",
        "fleet/region-00/#",
        "fleet/region-00/device-000000/+",
        "fleet/region-00/device-000000/temperature",
    ];
    for filter in filters {
        for key in 0..10 {
            square.insert(filter, key, 1);
        }
    }
    group.throughput(Throughput::Elements(100));
    run(&mut group, "10-on-each-of-10-filters", &square, &topic);

    let mut shared = Tree::new(42);
    for key in 0..1_000 {
        shared.insert_shared("workers", "fleet/#", key, 1, 1);
    }
    group.throughput(Throughput::Elements(1));
    run(&mut group, "1-of-1000-shared", &shared, &topic);
    run(&mut group, "no subscriber", &Tree::new(42), &topic);
    group.finish();
}

fn retained(c: &mut Criterion) {
    let mut group = c.benchmark_group("retained");
    let mut tree = RetainedTree::new();
    for (name, count) in [("set-1k", SMALL), ("set-1M-uniform", LARGE)] {
        let topics = Topics::random(count, count);
        let before = resident_bytes();
        tree = RetainedTree::new();
        for n in 0..count {
            tree.set(topics.get(n), n as u64);
        }
        report_memory(name, before, count);
        let mut next = 0;
        group.bench_function(name, |b| {
            b.iter(|| {
                next = (next + 1) % topics.len();
                black_box(tree.set(topics.get(next), 7))
            });
        });
    }
    group.throughput(Throughput::Elements(100));
    group.bench_function("page-of-100-in-1M", |b| {
        b.iter(|| {
            let mut left = 100;
            tree.visit("fleet/+/+/temperature", Some("fleet/region-50"), |_, v| {
                black_box(*v);
                left -= 1;
                match left {
                    0 => ControlFlow::Break(()),
                    _ => ControlFlow::Continue(()),
                }
            })
        });
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    targets = by_subscriptions, by_subscribers, retained
}
criterion_main!(benches);
