//! Steps worked out by hand.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::cell::RefCell;

use super::*;
use crate::ids::BlockHash;
use crate::replica_cache::SharedSequence;

/// A second a prompt token, ten a decode step.
#[derive(Default)]
struct Linear {
    steps: RefCell<Vec<(Vec<Chunk>, usize, i128)>>,
}

impl Prices for Linear {
    type Error = std::convert::Infallible;

    fn step_seconds(&self, chunks: &[Chunk], decodes: usize, context: i128) -> Result<f64, Self::Error> {
        self.steps.borrow_mut().push((chunks.to_vec(), decodes, context));
        let tokens: u64 = chunks.iter().map(|chunk| chunk.0).sum();
        Ok(tokens as f64 + if decodes > 0 { 10.0 } else { 0.0 })
    }
}

/// A prompt that nobody shares, in blocks of one token.
fn request(number: u64, prompt_tokens: u64, output_tokens: u64) -> Request {
    let hashes = (0..prompt_tokens).map(|at| BlockHash(number << 32 | at)).collect();
    let prompt = SharedSequence::new(Arc::new(hashes), prompt_tokens as usize, prompt_tokens as usize);
    Request { number, session: 0, context: prompt.clone(), prompt, prompt_tokens, output_tokens, arrival: 0.0 }
}

fn engine(capacity: Option<usize>, max_running: usize) -> Engine {
    let store = Arc::new(Mutex::new(Store::new(1, capacity, &[])));
    Engine::new(Limits { chunk_tokens: 100, max_running, overhead_s: 0.0, warmup: 0, late_s: f64::INFINITY }, store)
}

fn end(engine: &mut Engine, wake: Wake) -> Option<Ended> {
    engine.end::<std::convert::Infallible>(wake.version, wake.at, &mut Gaps::default()).unwrap()
}

/// Serve until the engine is idle: numbers and times of the ends.
fn run(engine: &mut Engine, prices: &Linear, mut wake: Option<Wake>) -> Vec<(u64, f64)> {
    let mut finished = Vec::new();
    while let Some(Wake { at, version }) = wake {
        let ended = end(engine, Wake { at, version }).unwrap();
        finished.extend(ended.finished.into_iter().map(|(request, _)| (request.number, at)));
        wake = engine.begin(at, prices).unwrap();
    }
    finished
}

fn outcome((gone, wake, _): (bool, Option<Wake>, Option<Kept>)) -> (bool, Option<Wake>) {
    (gone, wake)
}

#[test]
fn a_run_of_decode_steps_is_cut_for_a_request_that_waits() {
    let (mut engine, prices) = (engine(None, 8), Linear::default());
    let prefill = engine.submit(request(0, 10, 100), 0.0, &prices).unwrap().unwrap();
    let ended = end(&mut engine, prefill);
    assert_eq!(ended.unwrap().first_tokens.len(), 1);
    let whole = engine.begin(prefill.at, &prices).unwrap().unwrap();
    let cut = engine.submit(request(1, 5, 1), 35.0, &prices).unwrap().unwrap();
    assert_eq!((whole.at, cut.at), (1000.0, 40.0));
    let stale = end(&mut engine, whole);
    assert!(stale.is_none(), "the run that was cut is stale");
    assert_eq!(run(&mut engine, &prices, Some(cut)), [(1, 55.0), (0, 1005.0)]);
    assert_eq!((engine.running(), engine.waiting(), engine.context), (0, 0, 0));
    assert!((engine.busy_s() - 1005.0).abs() < 1e-9);
}

#[test]
fn a_stopped_engine_gives_back_all_in_order_and_begins_anew() {
    let (mut engine, prices) = (engine(None, 2), Linear::default());
    let wake = engine.submit(request(7, 10, 50), 0.0, &prices).unwrap().unwrap();
    end(&mut engine, wake);
    engine.submit(request(3, 300, 2), wake.at, &prices).unwrap();
    let under_way = engine.begin(wake.at, &prices).unwrap().unwrap();
    engine.submit(request(5, 10, 2), 12.0, &prices).unwrap();
    let numbers: Vec<u64> = engine.stop(15.0).iter().map(|job| job.request.number).collect();
    assert_eq!(numbers, [7, 3, 5]);
    assert!(end(&mut engine, under_way).is_none());
    assert!((engine.busy_s() - 15.0).abs() < 1e-9);
    let again = engine.submit(request(1, 10, 1), 20.0, &prices).unwrap();
    assert_eq!(run(&mut engine, &prices, again), [(1, 30.0)]);
}

#[test]
fn the_request_admitted_last_is_preempted_and_finds_what_it_had_computed() {
    let (mut engine, prices) = (engine(Some(40), 8), Linear::default());
    engine.submit(request(0, 10, 15), 0.0, &prices).unwrap();
    let wake = engine.submit(request(1, 10, 15), 0.0, &prices).unwrap();
    assert!(wake.is_none(), "the first request began a step, the second waits for its end");
    let first = Wake { at: 10.0, version: 1 };
    let finished = run(&mut engine, &prices, Some(first));
    assert_eq!(engine.preempted(), 1);
    assert_eq!(finished.iter().map(|end| end.0).collect::<Vec<_>>(), [0, 1], "first come, first served");
    let computed: Vec<Chunk> = prices.steps.borrow().iter().flat_map(|step| step.0.clone()).collect();
    let &(again, before) = computed.last().unwrap();
    assert_eq!(computed.len(), 3, "two prompts, and what the preempted request lost");
    assert!(before >= 10 && again <= 11, "most of it is still in the cache: {again} behind {before}");
    assert_eq!((engine.running(), engine.reserved, engine.context), (0, 0, 0));
    assert_eq!(engine.store().cache().pinned_blocks(), 0);
}

#[test]
fn one_request_may_outgrow_the_cache() {
    let (mut engine, prices) = (engine(Some(20), 8), Linear::default());
    let wake = engine.submit(request(0, 10, 100), 0.0, &prices).unwrap();
    assert_eq!(run(&mut engine, &prices, wake), [(0, 10.0 + 990.0)]);
    assert_eq!((engine.store().oversized(), engine.preempted(), engine.reserved), (1, 0, 0));
    assert_eq!(engine.store().cache().pinned_blocks(), 0);
}

#[test]
fn an_aborted_request_ends_with_its_step_and_the_others_go_on_faster() {
    let (mut engine, prices) = (engine(None, 2), Linear::default());
    engine.submit(request(0, 10, 100), 0.0, &prices).unwrap();
    engine.submit(request(1, 10, 50), 0.0, &prices).unwrap();
    let mut wake = Wake { at: 10.0, version: 1 };
    for _ in 0..2 {
        end(&mut engine, wake).unwrap();
        wake = engine.begin(wake.at, &prices).unwrap().unwrap();
    }
    let (gone, cut, _) = engine.abort(1, 45.0);
    assert!(!gone);
    let cut = cut.unwrap();
    assert!((cut.at - 50.0).abs() < 1e-9, "the run of decode steps ends at the next boundary");
    engine.submit(request(2, 10, 1), 46.0, &prices).unwrap();
    assert_eq!(outcome(engine.abort(2, 47.0)), (true, None), "it was in the queue");
    let ended = end(&mut engine, cut).unwrap();
    assert_eq!((ended.aborted, engine.running(), engine.waiting()), (vec![1], 1, 0));
    let wake = engine.begin(cut.at, &prices).unwrap();
    let finished = run(&mut engine, &prices, wake);
    assert_eq!(finished.iter().map(|end| end.0).collect::<Vec<_>>(), [0]);
    assert_eq!((engine.running(), engine.reserved, engine.context), (0, 0, 0));
    assert_eq!(engine.store().cache().pinned_blocks(), 0);
}

#[test]
fn a_request_aborted_in_prefill_gives_its_memory_back() {
    let (mut engine, prices) = (engine(Some(400), 2), Linear::default());
    let wake = engine.submit(request(0, 300, 5), 0.0, &prices).unwrap().unwrap();
    assert_eq!(outcome(engine.abort(0, 1.0)), (false, None));
    assert_eq!(outcome(engine.abort(7, 1.0)), (false, None), "nobody knows it");
    let ended = end(&mut engine, wake).unwrap();
    assert_eq!(ended.aborted, [0]);
    assert_eq!(engine.begin(wake.at, &prices).unwrap(), None);
    assert_eq!((engine.running(), engine.store().cache().pinned_blocks()), (0, 0));
}
