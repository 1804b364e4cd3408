//! What one simulated replica holds: its cache on the GPU, and the tiers below it.

use crate::replica_cache::{CacheEvent, Refused, ReplicaCache, RequestId, Sequence};

/// A memory below the GPU's. It is inclusive: it holds the most recently used blocks of the replica, those on the GPU too.
#[derive(Clone, Copy, Debug)]
pub struct Tier {
    /// Tokens that it holds.
    pub capacity_tokens: usize,
    /// Seconds to bring the keys and values of a token to the GPU.
    pub load_s_per_token: f64,
}

/// A request that was let in.
#[derive(Clone, Copy, Debug)]
pub struct Admitted {
    /// Its number in the cache; `None` if it is larger than the cache, and computed without being kept.
    pub running: Option<RequestId>,
    /// Leading tokens that need no prefill.
    pub hit_tokens: usize,
    /// Seconds to load those that a tier had.
    pub load_s: f64,
}

/// A cache of blocks with vLLM's rules, over tiers if there are any.
#[derive(Debug)]
pub struct Store {
    cache: ReplicaCache,
    tiers: Vec<(f64, ReplicaCache)>,
    loaded_tokens: usize,
    oversized: usize,
}

impl Store {
    /// An empty store. `capacity_tokens` of the GPU: `None` is unlimited.
    pub fn new(block_size: usize, capacity_tokens: Option<usize>, tiers: &[Tier]) -> Self {
        let below = |tier: &Tier| (tier.load_s_per_token, ReplicaCache::new(block_size, Some(tier.capacity_tokens)));
        Self {
            cache: ReplicaCache::new(block_size, capacity_tokens),
            tiers: tiers.iter().map(below).collect(),
            loaded_tokens: 0,
            oversized: 0,
        }
    }

    /// The cache on the GPU.
    pub fn cache(&self) -> &ReplicaCache {
        &self.cache
    }

    /// Drop every block that no running request holds, in every tier.
    pub fn clear(&mut self) {
        self.cache.clear();
        self.tiers.iter_mut().for_each(|(_, tier)| tier.clear());
    }

    /// Log what is stored and removed on the GPU from now on.
    pub fn record_events(&mut self) {
        self.cache.record_events();
    }

    /// What the log has, oldest first, which is empty then.
    pub fn take_events(&mut self) -> Vec<CacheEvent> {
        self.cache.take_events()
    }

    /// Tokens that were loaded from tiers.
    pub fn loaded_tokens(&self) -> usize {
        self.loaded_tokens
    }

    /// Requests that were larger than the cache, as they came or as they grew.
    pub fn oversized(&self) -> usize {
        self.oversized
    }

    /// Serve a request from start to end with nothing in between; its hit tokens, those loaded from a tier included.
    ///
    /// # Errors
    ///
    /// As [`ReplicaCache::serve`], of the GPU's cache or a tier's.
    pub fn serve(&mut self, prompt: Sequence, context: Sequence) -> Result<usize, Refused> {
        let mut best = 0;
        for (_, tier) in &mut self.tiers {
            best = tier.serve(prompt, context)?.max(best);
        }
        let hit = self.cache.serve(prompt, context)?;
        self.loaded_tokens += best.saturating_sub(hit);
        Ok(best.max(hit))
    }

    /// Let a request in: its blocks are pinned and allocated. `None` if there is no room beside the running requests; one
    /// that is `alone` is let in however large it is.
    pub fn admit(&mut self, prompt: Sequence, alone: bool) -> Option<Admitted> {
        let mut admitted = match self.cache.start(prompt) {
            Ok(started) => Admitted { running: Some(started.request), hit_tokens: started.hit_tokens, load_s: 0.0 },
            Err(_) if alone => {
                self.oversized += 1;
                Admitted { running: None, hit_tokens: self.cache.hit(prompt), load_s: 0.0 }
            }
            Err(_) => return None,
        };
        for (load_s_per_token, tier) in &self.tiers {
            let more = tier.hit(prompt).saturating_sub(admitted.hit_tokens);
            admitted.load_s += more as f64 * load_s_per_token;
            admitted.hit_tokens += more;
            self.loaded_tokens += more;
        }
        Some(admitted)
    }

    /// Blocks that no running request holds.
    pub fn room(&self) -> usize {
        self.cache.room()
    }

    /// Let outputs under way take so many blocks all together; false if they do not fit. See [`ReplicaCache::reserve`].
    pub fn reserve(&mut self, blocks: usize) -> bool {
        self.cache.reserve(blocks)
    }

    /// Count a request that has outgrown the cache.
    pub fn outgrown(&mut self) {
        self.oversized += 1;
    }

    /// Take a request off the GPU before its end: what it has computed stays there as ordinary cached blocks.
    ///
    /// # Errors
    ///
    /// As [`ReplicaCache::finish`].
    pub fn preempt(&mut self, running: RequestId, context: Sequence) -> Result<(), Refused> {
        self.cache.finish(running, context).map(drop)
    }

    /// End a request: prompt and output stay as ordinary cached blocks, in every tier.
    ///
    /// # Errors
    ///
    /// As [`ReplicaCache::finish`] and [`Self::serve`].
    pub fn release(&mut self, running: Option<RequestId>, prompt: Sequence, context: Sequence) -> Result<(), Refused> {
        if let Some(running) = running {
            self.cache.finish(running, context)?;
        }
        for (_, tier) in &mut self.tiers {
            tier.serve(prompt, context)?;
        }
        Ok(())
    }
}
