//! The cache against a dull twin on random histories, and its rules one by one.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that panics has failed")]

use proptest::prelude::*;

use super::*;

/// One block per entry, least recently used first; every question is answered by looking at all of them.
#[derive(Debug, Default)]
struct Twin {
    /// (path from the first block to this one, pins).
    blocks: Vec<(Vec<BlockHash>, usize)>,
    capacity: usize,
    running: Vec<(RequestId, Vec<BlockHash>, usize)>,
    evicted: u64,
}

impl Twin {
    fn at(&self, path: &[BlockHash]) -> Option<usize> {
        self.blocks.iter().position(|(held, _)| held == path)
    }

    fn held(&self, blocks: &[BlockHash]) -> usize {
        (1..=blocks.len()).take_while(|&n| self.at(&blocks[..n]).is_some()).count()
    }

    fn pinned(&self) -> usize {
        let unfinished: usize = self.running.iter().map(|request| request.2).sum();
        self.blocks.iter().filter(|(_, pins)| *pins > 0).count() + unfinished
    }

    /// Pin `blocks` beyond the first `own`, creating what is missing; `None` if they do not fit.
    fn pin(&mut self, blocks: &[BlockHash], own: usize, unfinished: usize) -> Option<()> {
        let needed = (own + 1..=blocks.len()).filter(|&n| self.at(&blocks[..n]).is_none_or(|i| self.blocks[i].1 == 0));
        if self.pinned() + needed.count() + unfinished > self.capacity {
            return None;
        }
        let held = self.held(blocks);
        for n in own + 1..=held {
            let i = self.at(&blocks[..n]).unwrap();
            self.blocks[i].1 += 1;
        }
        let other: usize = self.running.iter().map(|request| request.2).sum();
        while self.blocks.len() + (blocks.len() - held) + other + unfinished > self.capacity {
            let i = self.blocks.iter().position(|(_, pins)| *pins == 0).unwrap();
            self.blocks.remove(i);
            self.evicted += 1;
        }
        for n in held + 1..=blocks.len() {
            self.blocks.push((blocks[..n].to_vec(), 1));
        }
        Some(())
    }

    fn release(&mut self, blocks: &[BlockHash]) {
        for n in (1..=blocks.len()).rev() {
            let i = self.at(&blocks[..n]).unwrap();
            self.blocks[i].1 -= 1;
            if self.blocks[i].1 == 0 {
                let block = self.blocks.remove(i);
                self.blocks.push(block);
            }
        }
    }

    fn end(&mut self, request: RequestId) -> (Vec<BlockHash>, usize) {
        let i = self.running.iter().position(|(id, ..)| *id == request).unwrap();
        let (_, blocks, unfinished) = self.running.remove(i);
        (blocks, unfinished)
    }

    fn finish(&mut self, request: RequestId, context: &[BlockHash], rest: usize) -> Finished {
        let (own, _) = self.end(request);
        let unfinished = if context.len() >= own.len() { rest.div_ceil(BLOCK) } else { 0 };
        let context = if context.len() > own.len() { context } else { &own };
        let held = self.held(context);
        let mut kept = context.len();
        // The unfinished block takes its room if there is any, and is free again when the request is released.
        let mut placed = self.pin(context, own.len(), unfinished).is_some();
        while !placed && kept > held {
            placed = self.pin(&context[..kept], own.len(), 0).is_some();
            kept -= usize::from(!placed);
        }
        if !placed {
            self.pin(&context[..held], own.len(), 0).unwrap();
        }
        self.release(&context[..kept]);
        Finished { stored: kept - held, dropped: context.len() - kept }
    }
}

/// A chain in a small tree: the path of branch numbers is its identity.
fn chain(path: &[u8]) -> Vec<BlockHash> {
    let mut hash = 7_u64;
    path.iter()
        .map(|&step| {
            hash = hash.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(u64::from(step) + 1);
            BlockHash(hash ^ (hash >> 29))
        })
        .collect()
}

#[derive(Clone, Debug)]
enum Step {
    Start { path: Vec<u8>, rest: usize },
    Grow { which: usize, more: Vec<u8>, rest: usize },
    Finish { which: usize, more: Vec<u8>, rest: usize },
    Abort { which: usize },
    Clear,
}

fn path() -> impl Strategy<Value = Vec<u8>> {
    // Long shared stretches with few branches: what makes runs split.
    prop::collection::vec(prop_oneof![8 => Just(0_u8), 1 => Just(1), 1 => Just(2)], 0..12)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (path(), 0..4_usize).prop_map(|(path, rest)| Step::Start { path, rest }),
        1 => (0..8_usize, path(), 0..4_usize).prop_map(|(which, more, rest)| Step::Grow { which, more, rest }),
        4 => (0..8_usize, path(), 0..4_usize).prop_map(|(which, more, rest)| Step::Finish { which, more, rest }),
        1 => (0..8_usize).prop_map(|which| Step::Abort { which }),
        1 => Just(Step::Clear),
    ]
}

const BLOCK: usize = 4;

fn sequence(blocks: &[BlockHash], rest: usize) -> Sequence<'_> {
    Sequence { blocks, tokens: blocks.len() * BLOCK + rest }
}

/// What both sides remember of a request: its path of branches.
struct Both {
    cache: ReplicaCache,
    twin: Twin,
    paths: Vec<(RequestId, Vec<u8>)>,
}

impl Both {
    fn new(capacity: usize) -> Self {
        let mut cache = ReplicaCache::new(BLOCK, Some(capacity * BLOCK));
        cache.record_events();
        Self { cache, twin: Twin { capacity, ..Twin::default() }, paths: Vec::new() }
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::Start { path, rest } => self.start(path, *rest),
            Step::Clear => {
                self.cache.clear();
                let before = self.twin.blocks.len();
                self.twin.blocks.retain(|(_, pins)| *pins > 0);
                self.twin.evicted += (before - self.twin.blocks.len()) as u64;
            }
            _ if self.paths.is_empty() => {}
            Step::Grow { which, more, rest } => self.grow(which % self.paths.len(), more, *rest),
            Step::Finish { which, more, rest } => {
                let (request, mut path) = self.paths.remove(which % self.paths.len());
                path.extend(more);
                let context = chain(&path);
                let finished = self.cache.finish(request, sequence(&context, *rest)).unwrap();
                assert_eq!(finished, self.twin.finish(request, &context, *rest));
            }
            Step::Abort { which } => {
                let (request, _) = self.paths.remove(which % self.paths.len());
                self.cache.abort(request).unwrap();
                let (own, _) = self.twin.end(request);
                self.twin.release(&own);
            }
        }
    }

    fn start(&mut self, path: &[u8], rest: usize) {
        let prompt = chain(path);
        let tokens = prompt.len() * BLOCK + rest;
        let hit = self.twin.held(&prompt).min(tokens.saturating_sub(1) / BLOCK) * BLOCK;
        assert_eq!(self.cache.hit(sequence(&prompt, rest)), hit);
        let unfinished = rest.div_ceil(BLOCK);
        match self.cache.start(sequence(&prompt, rest)) {
            Ok(started) => {
                assert_eq!(started.hit_tokens, hit);
                self.twin.pin(&prompt, 0, unfinished).expect("the twin has room too");
                self.twin.running.push((started.request, prompt, unfinished));
                self.paths.push((started.request, path.to_vec()));
            }
            Err(refused) => {
                assert!(matches!(refused, Refused::NoRoom { .. }));
                assert!(self.twin.pin(&prompt, 0, unfinished).is_none());
            }
        }
    }

    fn grow(&mut self, which: usize, more: &[u8], rest: usize) {
        let (request, mut path) = self.paths[which].clone();
        path.extend(more);
        let context = chain(&path);
        let i = self.twin.running.iter().position(|(id, ..)| *id == request).unwrap();
        let (own, unfinished) = (self.twin.running[i].1.len(), std::mem::take(&mut self.twin.running[i].2));
        let fits = self.twin.pin(&context, own, rest.div_ceil(BLOCK)).is_some();
        assert_eq!(self.cache.grow(request, sequence(&context, rest)).is_ok(), fits);
        if fits {
            self.twin.running[i] = (request, context, rest.div_ceil(BLOCK));
            self.paths[which].1 = path;
        } else {
            self.twin.running[i].2 = unfinished;
        }
    }

    fn compare(&self) {
        self.cache.runs.validate();
        assert_eq!(self.cache.blocks(), self.twin.blocks.len());
        assert_eq!(self.cache.pinned_blocks(), self.twin.pinned());
        assert_eq!(self.cache.evicted_blocks(), self.twin.evicted);
        for (path, _) in &self.twin.blocks {
            assert_eq!(self.cache.hit(sequence(path, 1)), path.len() * BLOCK);
        }
    }
}

proptest! {
    #[test]
    fn equals_its_twin_on_any_history(capacity in 1..24_usize, steps in prop::collection::vec(step(), 1..60)) {
        let mut both = Both::new(capacity);
        let mut published = std::collections::HashSet::new();
        for step in &steps {
            both.apply(step);
            both.compare();
            for event in both.cache.take_events() {
                match event {
                    CacheEvent::Stored { parent, blocks } => {
                        prop_assert!(parent.is_none_or(|parent| published.contains(&parent)));
                        for block in blocks {
                            prop_assert!(published.insert(block));
                        }
                    }
                    CacheEvent::Removed { blocks } => {
                        for block in blocks {
                            prop_assert!(published.remove(&block));
                        }
                    }
                }
            }
            prop_assert_eq!(published.len(), both.cache.blocks());
        }
    }

    #[test]
    fn hashes_that_are_no_chain_do_no_harm(
        capacity in 1..16_usize,
        prompts in prop::collection::vec(prop::collection::vec(0..4_u64, 0..10), 1..40),
    ) {
        let mut cache = ReplicaCache::new(BLOCK, Some(capacity * BLOCK));
        for prompt in prompts {
            let blocks: Vec<_> = prompt.into_iter().map(BlockHash).collect();
            cache.serve(sequence(&blocks, 1), sequence(&blocks, 1)).unwrap();
            prop_assert!(cache.blocks() <= capacity);
            prop_assert_eq!(cache.pinned_blocks(), 0);
        }
    }
}

#[test]
fn a_hit_leaves_the_last_token_to_compute() {
    let mut cache = ReplicaCache::new(BLOCK, None);
    let blocks = chain(&[0, 1, 2]);
    cache.serve(sequence(&blocks, 0), sequence(&blocks, 0)).unwrap();
    assert_eq!(cache.hit(sequence(&blocks, 0)), 8);
    assert_eq!(cache.hit(sequence(&blocks, 1)), 12);
    assert_eq!(cache.hit(sequence(&[], 0)), 0);
}

#[test]
fn the_tail_goes_before_the_head_and_a_shared_head_is_kept_once() {
    let mut cache = ReplicaCache::new(BLOCK, Some(6 * BLOCK));
    let (first, second) = (chain(&[0, 0, 1, 1]), chain(&[0, 0, 2, 2]));
    cache.serve(sequence(&first, 0), sequence(&first, 0)).unwrap();
    assert_eq!(cache.serve(sequence(&second, 0), sequence(&second, 0)), Ok(8));
    assert_eq!(cache.blocks(), 6);
    let third = chain(&[3]);
    cache.serve(sequence(&third, 0), sequence(&third, 0)).unwrap();
    assert_eq!(cache.hit(sequence(&first, 1)), 12, "only the last block of the older branch went");
    assert_eq!(cache.hit(sequence(&second, 1)), 16);
}

#[test]
fn a_request_that_does_not_fit_changes_nothing() {
    let mut cache = ReplicaCache::new(BLOCK, Some(4 * BLOCK));
    let (first, second) = (chain(&[0, 0, 0]), chain(&[0, 1]));
    let idle = chain(&[5]);
    cache.serve(sequence(&idle, 0), sequence(&idle, 0)).unwrap();
    let started = cache.start(sequence(&first, 0)).unwrap();
    let before = (cache.blocks(), cache.pinned_blocks(), cache.evicted_blocks());
    assert_eq!(cache.start(sequence(&second, 1)), Err(Refused::NoRoom { needed: 2, available: 1 }));
    assert_eq!((cache.blocks(), cache.pinned_blocks(), cache.evicted_blocks()), before);
    assert_eq!(cache.hit(sequence(&idle, 1)), 4);
    cache.abort(started.request).unwrap();
    assert!(cache.start(sequence(&second, 1)).is_ok());
    assert_eq!(cache.abort(started.request), Err(Refused::NotRunning(started.request)));
}

#[test]
fn a_context_must_begin_with_its_prompt() {
    let mut cache = ReplicaCache::new(BLOCK, None);
    let started = cache.start(sequence(&chain(&[0, 0]), 0)).unwrap();
    let other = chain(&[0, 1, 1]);
    assert_eq!(cache.finish(started.request, sequence(&other, 0)), Err(Refused::OtherContext(started.request)));
    assert_eq!(cache.running(), 1);
    let shorter = chain(&[0]);
    assert_eq!(cache.finish(started.request, sequence(&shorter, 0)), Ok(Finished { stored: 0, dropped: 0 }));
    assert_eq!((cache.blocks(), cache.running()), (2, 0));
}

#[test]
fn entries_follow_the_compatibility_model() {
    let mut cache = EntryCache::new(Some(10_000));
    assert_eq!(cache.serve("a", 2_200, 2_600, 2_000), 0, "the first request finds nothing");
    assert_eq!(cache.serve("b", 2_200, 2_600, 2_000), 2_000, "then the shared head is resident");
    assert_eq!(cache.serve("a", 2_800, 3_200, 2_000), 2_600);
    assert_eq!(cache.cached_tokens(), 2_000 + 3_200 + 2_600);
    assert_eq!(cache.serve("c", 2_200, 2_600, 2_000), 2_000);
    assert_eq!((cache.len(), cache.evicted()), (2, 1), "b was the least recently used");
    assert_eq!(cache.cached("b", 2_800, 2_000), 2_000);
    cache.clear();
    assert!(cache.is_empty() && cache.cached_tokens() == 0);
}
