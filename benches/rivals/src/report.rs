//! What came out: a table for people, an object for programs.

use std::fs;

use serde_json::{Value, json};

use crate::timing::Timing;

/// One figure of one contender.
pub struct Figure {
    pub contender: String,
    pub value: f64,
    pub p99: Option<f64>,
}

impl Figure {
    pub fn timed(contender: &str, timing: Timing) -> Self {
        Figure { contender: contender.to_owned(), value: timing.p50, p99: Some(timing.p99) }
    }

    pub fn plain(contender: &str, value: f64) -> Self {
        Figure { contender: contender.to_owned(), value, p99: None }
    }
}

/// One line: the same thing measured for all contenders, ours first.
pub struct Row {
    pub what: String,
    pub unit: String,
    pub figures: Vec<Figure>,
    pub more_is_better: bool,
}

impl Row {
    /// How many times better than the best rival; below 1 a rival wins.
    fn ratio(&self) -> Option<f64> {
        let (ours, rivals) = self.figures.split_first()?;
        let rivals = rivals.iter().map(|figure| figure.value);
        if self.more_is_better {
            rivals.reduce(f64::max).map(|best| ours.value / best)
        } else {
            rivals.reduce(f64::min).map(|best| best / ours.value)
        }
    }

    fn json(&self) -> Value {
        let figures: Vec<Value> = self
            .figures
            .iter()
            .map(|figure| json!({"contender": figure.contender, "value": figure.value, "p99": figure.p99}))
            .collect();
        json!({
            "what": self.what, "unit": self.unit, "figures": figures, "more_is_better": self.more_is_better,
            "ratio": self.ratio(),
        })
    }

    /// The row that such an object describes.
    pub fn of_json(value: &Value) -> Option<Self> {
        let text = |field: &str| value[field].as_str().map(str::to_owned);
        let figure = |figure: &Value| {
            let contender = figure["contender"].as_str()?.to_owned();
            Some(Figure { contender, value: figure["value"].as_f64()?, p99: figure["p99"].as_f64() })
        };
        let figures = value["figures"].as_array()?.iter().map(figure).collect::<Option<_>>()?;
        let more_is_better = value["more_is_better"].as_bool()?;
        Some(Row { what: text("what")?, unit: text("unit")?, figures, more_is_better })
    }
}

/// The machine, in words.
pub fn machine() -> String {
    let field = |path: &str, name: &str| {
        let text = fs::read_to_string(path).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_once(':')).map_or_else(String::new, |(_, value)| value.trim().to_owned())
    };
    let cache = fs::read_to_string("/sys/devices/system/cpu/cpu0/cache/index3/size").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "{} (family {}, model {}), {cores} cores usable, L3 {}, pinned to {}",
        field("/proc/cpuinfo", "model name"),
        field("/proc/cpuinfo", "cpu family"),
        field("/proc/cpuinfo", "model\t"),
        cache.trim(),
        field("/proc/self/status", "Cpus_allowed_list"),
    )
}

/// Prints one row, a figure to a column; a timing as p50/p99.
pub fn print(row: &Row) {
    println!("{} [{}]", row.what, row.unit);
    for figure in &row.figures {
        let p99 = figure.p99.map_or_else(String::new, |p99| format!("   p99 {}", short(p99)));
        println!("    {:<18} {:>9}{p99}", figure.contender, short(figure.value));
    }
    if let Some(ratio) = row.ratio() {
        println!("    {:<18} {:>8.2}x", "best rival / ours", ratio);
    }
}

fn short(value: f64) -> String {
    if value.abs() < 100.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}

/// Everything as one object.
pub fn json(rows: &[Row]) -> Value {
    let rows: Vec<Value> = rows.iter().map(Row::json).collect();
    json!({"schema": 2, "machine": machine(), "rows": rows})
}
