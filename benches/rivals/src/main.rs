//! The core beside its rivals, in one run: the contenders take turns on the same prompts, after their answers have been
//! compared with a dull oracle's. A slow minute of the machine falls on all of them.

mod cases;
mod contender;
mod lane;
mod memory;
mod report;
mod timing;
mod workload;

use std::process::ExitCode;

use report::Row;

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

const USAGE: &str = "\
usage: prefixroute-rivals [CASE...] [--quick] [--json FILE]

CASE: lookup cold growth write memory belief replay threads (default: all)
--quick      a tenth of the samples
--json FILE  writes the figures to FILE as well

`taskset -c 1` in front pins the run to one core; `threads` wants two. The replay reads mooncake_conversation.jsonl.gz from the folder
PREFIXROUTE_TRACES (default ../shared/traces). With the feature `wheel`, Dynamo's wheel is imported from PYTHONPATH by the Python that
PYO3_PYTHON was when this was built; `make rivals` sets them.";

struct Arguments {
    cases: Vec<String>,
    effort: cases::Effort,
    json: Option<String>,
}

fn arguments(words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut found = Arguments { cases: Vec::new(), effort: cases::Effort::FULL, json: None };
    let mut words = words;
    while let Some(word) = words.next() {
        match word.as_str() {
            "--quick" => found.effort = cases::Effort::QUICK,
            "--json" => found.json = Some(words.next().ok_or("--json needs a file")?),
            case if cases::ALL.iter().any(|(name, _)| *name == case) => found.cases.push(word),
            _ => return Err(format!("unknown argument {word:?}\n\n{USAGE}")),
        }
    }
    Ok(found)
}

fn main() -> ExitCode {
    let arguments = match arguments(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(message) => {
            eprintln!("{message}");
            return ExitCode::from(2);
        }
    };
    let clock = timing::clock_cost();
    println!("{}\nclock {clock:.0} ns (taken off), medians\n", report::machine());
    let mut rows: Vec<Row> = Vec::new();
    for (name, run) in cases::ALL {
        if arguments.cases.is_empty() || arguments.cases.iter().any(|case| case == name) {
            println!("== {name}");
            run(arguments.effort, clock, &mut |row| {
                report::print(&row);
                rows.push(row);
            });
        }
    }
    let written =
        arguments.json.map_or(Ok(()), |path| std::fs::write(path, format!("{:#}\n", report::json(&rows, clock))));
    if let Err(error) = written {
        eprintln!("cannot write the figures: {error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
