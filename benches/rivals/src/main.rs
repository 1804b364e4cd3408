//! The core beside its rivals, in one run. Each contender is measured in processes of its own, which alternate: none meets
//! the heap, the caches or the pages that another has left, and a slow minute of the machine falls on all of them.

mod cases;
mod contender;
mod lane;
mod memory;
mod report;
mod rounds;
mod timing;
mod workload;

use std::process::ExitCode;

use cases::{Case, Effort, Task};
use report::Row;

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

const USAGE: &str = "\
usage: prefixroute-rivals [CASE...] [--quick] [--json FILE]
       prefixroute-rivals CASE --alone CONTENDER [--quick]

CASE: lookup cold growth write memory belief replay threads (default: all)
--quick            a quarter of the samples
--json FILE        writes the figures to FILE as well
--alone CONTENDER  measures one contender in this process and prints its figures as JSON, as each process of a run does

`taskset -c 1` in front pins the run to one core; `threads` wants two. The replay reads mooncake_conversation.jsonl.gz from the folder
PREFIXROUTE_TRACES (default ../shared/traces). With the feature `wheel`, Dynamo's wheel is imported from PYTHONPATH by the Python that
PYO3_PYTHON was when this was built; `make rivals` sets them.";

struct Arguments {
    cases: Vec<&'static Case>,
    quick: bool,
    alone: Option<String>,
    json: Option<String>,
}

fn arguments(words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut found = Arguments { cases: Vec::new(), quick: false, alone: None, json: None };
    let mut words = words;
    while let Some(word) = words.next() {
        match word.as_str() {
            "--quick" => found.quick = true,
            "--alone" => found.alone = Some(words.next().ok_or("--alone needs a contender")?),
            "--json" => found.json = Some(words.next().ok_or("--json needs a file")?),
            name => match cases::ALL.iter().find(|case| case.name == name) {
                Some(case) => found.cases.push(case),
                None => return Err(format!("unknown argument {word:?}\n\n{USAGE}")),
            },
        }
    }
    if found.cases.is_empty() {
        found.cases.extend(&cases::ALL);
    }
    Ok(found)
}

fn main() -> ExitCode {
    let done = arguments(std::env::args().skip(1)).and_then(|arguments| match &arguments.alone {
        Some(contender) => alone(&arguments, contender),
        None => together(&arguments),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}

/// One contender's figures, to be read by the process that compares.
fn alone(arguments: &Arguments, contender: &str) -> Result<(), String> {
    let effort = if arguments.quick { Effort::QUICK } else { Effort::FULL };
    let task = Task { contender, effort, clock: timing::clock_cost() };
    let mut rows: Vec<Row> = Vec::new();
    for case in &arguments.cases {
        (case.run)(&task, &mut |row| rows.push(row));
    }
    println!("{}", report::json(&rows));
    Ok(())
}

fn together(arguments: &Arguments) -> Result<(), String> {
    println!("{}\nmedians of {} processes a contender\n", report::machine(), rounds::processes(arguments.quick));
    let mut rows: Vec<Row> = Vec::new();
    for case in &arguments.cases {
        println!("== {}", case.name);
        let found = rounds::run(case, arguments.quick)?;
        found.iter().for_each(report::print);
        rows.extend(found);
    }
    let Some(path) = &arguments.json else { return Ok(()) };
    std::fs::write(path, format!("{:#}\n", report::json(&rows)))
        .map_err(|error| format!("cannot write the figures to {path}: {error}"))
}
