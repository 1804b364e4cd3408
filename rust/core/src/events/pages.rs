//! Pages: engine blocks that are no whole blocks of the index, put together to blocks by their tokens.
//!
//! A page remembers the tokens from the last block boundary to its end, so that any page that follows it, now or later and
//! whatever branch it begins, can go on from there. A block belongs to the page that completes it: engines evict the end of
//! a chain before its start, so with the first page of a block its last one has gone.

use super::apply::StoreEvent;
use crate::hash::content_hash_keyed;
use crate::holders::take_copy;
use crate::ids::{EngineHash, Medium};
use crate::memory::{Map, map_growth, tidy_map};

/// Where a chain of pages goes on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seam {
    /// Tokens since the last block boundary.
    pub tail: Vec<u32>,
    /// Name of the block that ends at that boundary; none at the start of a prompt.
    pub above: Option<EngineHash>,
    /// Seed of the chain, which counts where there is no block above.
    pub seed: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Page {
    /// Copies on each tier.
    pub copies: [u16; 3],
    /// Blocks that it completes.
    pub completes: u32,
    pub tail: Box<[u32]>,
    pub above: Option<EngineHash>,
    pub seed: u64,
}

/// Blocks that pages have completed: a chain of which each follows the one before.
#[derive(Clone, Debug, Default)]
pub(crate) struct Completed {
    pub names: Vec<EngineHash>,
    pub contents: Vec<u64>,
    /// Pages that completed none.
    pub unfilled: usize,
}

/// The pages of a replica.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pages {
    pub(crate) pages: Map<EngineHash, Page>,
    /// Tokens kept in tails.
    pub(crate) tokens: usize,
}

/// Name of the `at`-th block that a page completes. Names are opaque, so a made-up one will do as long as it is one to one.
pub(crate) fn block_name(page: EngineHash, at: u32) -> EngineHash {
    EngineHash(page.0.rotate_left(17) ^ (u64::from(at) + 1).wrapping_mul(0xD6E8_FEB8_6659_FD93))
}

impl Pages {
    /// Where pages behind this one go on.
    pub(crate) fn seam(&self, page: EngineHash) -> Option<Seam> {
        let page = self.pages.get(&page)?;
        Some(Seam { tail: page.tail.to_vec(), above: page.above, seed: page.seed })
    }

    /// Name of the last block before a page's end, and the tokens between.
    pub(crate) fn end(&self, page: EngineHash) -> Option<(Option<EngineHash>, usize)> {
        self.pages.get(&page).map(|page| (page.above, page.tail.len()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// One more copy of an event's pages, which follow one another from a seam on and are what this says; the blocks that they
    /// complete.
    pub(crate) fn store(
        &mut self,
        mut seam: Seam,
        event: &StoreEvent<'_>,
        block_size: usize,
        hash_key: u64,
    ) -> Completed {
        let medium = event.residence.medium;
        let mut done = Completed::default();
        for (&name, tokens) in event.names.iter().zip(event.tokens.chunks_exact(event.block_size)) {
            seam.tail.extend_from_slice(tokens);
            let completes = (seam.tail.len() / block_size) as u32;
            done.unfilled += usize::from(completes == 0);
            for at in 0..completes {
                let block = block_name(name, at);
                done.names.push(block);
                let tokens = &seam.tail[at as usize * block_size..][..block_size];
                done.contents.push(content_hash_keyed(tokens, hash_key));
                seam.above = Some(block);
            }
            seam.tail.drain(..completes as usize * block_size);
            let page =
                Page { copies: [0; 3], completes, tail: seam.tail[..].into(), above: seam.above, seed: seam.seed };
            self.put(name, page, medium);
        }
        done
    }

    /// One more copy of a page, which is what this says from now on.
    fn put(&mut self, name: EngineHash, mut page: Page, medium: Medium) {
        self.tokens += page.tail.len();
        let known = self.pages.entry(name).or_insert_with(|| Page { tail: Box::default(), ..page.clone() });
        self.tokens -= known.tail.len();
        page.copies = known.copies;
        page.copies[medium.index()] = page.copies[medium.index()].saturating_add(1);
        *known = page;
    }

    /// Copies of a page on each tier; none if it is not known.
    pub(crate) fn copies(&self, name: EngineHash) -> Option<[u16; 3]> {
        self.pages.get(&name).map(|page| page.copies)
    }

    /// One more copy of a page that is known; how many blocks it completes.
    pub(crate) fn copy(&mut self, name: EngineHash, medium: Medium) -> Option<u32> {
        let page = self.pages.get_mut(&name)?;
        page.copies[medium.index()] = page.copies[medium.index()].saturating_add(1);
        Some(page.completes)
    }

    /// One copy less of those on a tier; how many blocks the page completed, if there was one.
    pub(crate) fn remove(&mut self, name: EngineHash, medium: Medium) -> Option<u32> {
        let page = self.pages.get_mut(&name)?;
        if !take_copy(&mut page.copies[medium.index()]) {
            return None;
        }
        let completes = page.completes;
        if page.copies == [0; 3] {
            self.tokens -= page.tail.len();
            self.pages.remove(&name);
        }
        Some(completes)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.pages.allocation_size() + self.tokens * size_of::<u32>()
    }

    /// What so many more pages take at most, whose tails are shorter than a block.
    pub(crate) fn growth(&mut self, pages: usize, block_size: usize) -> usize {
        tidy_map(&mut self.pages, pages);
        map_growth(&self.pages, pages) + pages * (block_size - 1) * size_of::<u32>()
    }
}
