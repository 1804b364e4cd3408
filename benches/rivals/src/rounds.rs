//! Contenders in processes of their own, in turn, and the medians of what they say.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::cases::Case;
use crate::report::{Figure, Row};
use crate::timing::median;

/// Processes of each contender in a case.
pub fn processes(quick: bool) -> usize {
    if quick { 2 } else { 5 }
}

/// Measures every contender of a case in as many rounds as it has processes, one after the other in each round.
pub fn run(case: &Case, quick: bool) -> Result<Vec<Row>, String> {
    let mut rows: Vec<Row> = Vec::new();
    for _ in 0..processes(quick) {
        for contender in (case.contenders)() {
            for row in child(case, contender, quick)? {
                match rows.iter_mut().find(|known| known.what == row.what) {
                    Some(known) => known.figures.extend(row.figures),
                    None => rows.push(row),
                }
            }
        }
    }
    rows.iter_mut().for_each(|row| row.figures = medians(&row.figures));
    Ok(rows)
}

fn child(case: &Case, contender: &str, quick: bool) -> Result<Vec<Row>, String> {
    let failed = |why: String| format!("{contender} in {}: {why}", case.name);
    let program = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let mut command = Command::new(program);
    command.args([case.name, "--alone", contender]).args(quick.then_some("--quick")).stderr(Stdio::inherit());
    let done = command.output().map_err(|error| failed(error.to_string()))?;
    if !done.status.success() {
        return Err(failed(done.status.to_string()));
    }
    let value: Value = serde_json::from_slice(&done.stdout).map_err(|error| failed(error.to_string()))?;
    let rows = value["rows"].as_array().into_iter().flatten();
    rows.map(|row| Row::of_json(row).ok_or_else(|| failed(format!("no row: {row}")))).collect()
}

/// The figures of each contender, in the order of its first, reduced to medians.
fn medians(figures: &[Figure]) -> Vec<Figure> {
    let mut names: Vec<&str> = Vec::new();
    for figure in figures {
        if !names.contains(&figure.contender.as_str()) {
            names.push(&figure.contender);
        }
    }
    let of = |name: &&str| {
        let all = || figures.iter().filter(move |figure| figure.contender == *name);
        let p99: Vec<f64> = all().filter_map(|figure| figure.p99).collect();
        let value = median(all().map(|figure| figure.value).collect());
        Figure { contender: (*name).to_owned(), value, p99: (!p99.is_empty()).then(|| median(p99)) }
    };
    names.iter().map(of).collect()
}
