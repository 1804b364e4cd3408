//! Batches of events as bytes: an encoder, an engine that holds blocks of any size, and what an index makes of its events.

use std::collections::HashMap;

use super::history::Choices;
use crate::hash::{NamespaceSpec, hash_tokens, mix, namespace_seed};
use crate::{BlockHash, Config, EngineHash, Index, Medium, Slot};

/// Sizes of an engine's blocks and of the index's: equal, parts, multiples, and such that neither divides the other.
const SIZES: [(usize, usize); 7] = [(4, 4), (1, 4), (2, 4), (8, 4), (12, 4), (3, 4), (6, 4)];
/// Tokens of a prompt at most.
const LONGEST: u16 = 96;
const MEDIA: [&str; 6] = ["GPU", "cpu", "STORAGE", "EXTERNAL", "tape", "DISK"];

/// The medium that the word of an event means: two of them mean one.
fn meant(medium: usize) -> usize {
    if MEDIA[medium] == "DISK" { 2 } else { medium }
}

/// `MessagePack` being written.
#[derive(Clone, Debug, Default)]
pub struct Packed(pub Vec<u8>);

impl Packed {
    /// Head of an array of so many elements.
    pub fn array(&mut self, len: usize) -> &mut Self {
        self.0.push(0xDD);
        self.0.extend_from_slice(&(len as u32).to_be_bytes());
        self
    }

    /// Head of a map of so many pairs.
    pub fn map(&mut self, len: usize) -> &mut Self {
        self.0.push(0xDF);
        self.0.extend_from_slice(&(len as u32).to_be_bytes());
        self
    }

    /// An integer, in the shortest form.
    pub fn uint(&mut self, value: u64) -> &mut Self {
        let bytes = value.to_be_bytes();
        match value {
            0..=0x7F => self.0.push(bytes[7]),
            0x80..=0xFF => self.0.extend_from_slice(&[0xCC, bytes[7]]),
            0x100..=0xFFFF => self.0.extend_from_slice(&[0xCD, bytes[6], bytes[7]]),
            0x1_0000..=0xFFFF_FFFF => {
                self.0.push(0xCE);
                self.0.extend_from_slice(&bytes[4..]);
            }
            _ => {
                self.0.push(0xCF);
                self.0.extend_from_slice(&bytes);
            }
        }
        self
    }

    /// A text of at most 255 bytes.
    pub fn text(&mut self, text: &str) -> &mut Self {
        self.0.extend_from_slice(&[0xD9, text.len() as u8]);
        self.0.extend_from_slice(text.as_bytes());
        self
    }

    /// Nothing.
    pub fn nil(&mut self) -> &mut Self {
        self.0.push(0xC0);
        self
    }

    /// A block's name, in one of the forms that engines have: unsigned, signed, digest.
    pub fn name(&mut self, name: EngineHash, form: u16) -> &mut Self {
        match form {
            0 => self.uint(name.0),
            1 => {
                self.0.push(0xD3);
                self.0.extend_from_slice(&name.0.to_be_bytes());
                self
            }
            _ => {
                self.0.extend_from_slice(&[0xC4, 32]);
                self.0.extend_from_slice(&[7; 24]);
                self.0.extend_from_slice(&name.0.to_be_bytes());
                self
            }
        }
    }
}

/// A batch of one rank; `events` are encoded already.
pub fn batch(events: &[Packed]) -> Vec<u8> {
    let mut out = Packed::default();
    out.array(3).uint(1).array(events.len());
    for event in events {
        out.0.extend_from_slice(&event.0);
    }
    out.nil();
    out.0
}

/// A store event, as a map or as an array.
#[derive(Clone, Copy, Debug)]
pub struct StoreForm<'a> {
    /// Names of the blocks.
    pub names: &'a [EngineHash],
    /// The block before.
    pub parent: Option<EngineHash>,
    /// Token ids.
    pub tokens: &'a [u32],
    /// Tokens of a block.
    pub block_size: usize,
    /// The engine's word for the medium.
    pub medium: &'a str,
    /// How names are written.
    pub form: u16,
    /// As an array.
    pub is_array: bool,
}

impl StoreForm<'_> {
    /// The event as bytes.
    pub fn packed(&self) -> Packed {
        let mut out = Packed::default();
        let key = |out: &mut Packed, key: &str| {
            if !self.is_array {
                out.text(key);
            }
        };
        if self.is_array {
            out.array(7).text("BlockStored");
        } else {
            out.map(7).text("later").map(1).text("x").array(1).nil();
        }
        key(&mut out, "block_hashes");
        out.array(self.names.len());
        for &name in self.names {
            out.name(name, self.form);
        }
        key(&mut out, "parent_block_hash");
        match self.parent {
            Some(parent) => out.name(parent, self.form),
            None => out.nil(),
        };
        key(&mut out, "token_ids");
        out.array(self.tokens.len());
        for &token in self.tokens {
            out.uint(u64::from(token));
        }
        key(&mut out, "block_size");
        out.uint(self.block_size as u64);
        if self.is_array {
            out.nil();
        }
        key(&mut out, "medium");
        out.text(self.medium);
        if !self.is_array {
            out.text("type").text("BlockStored");
        }
        out
    }
}

/// A removal event, as a map or as an array.
pub fn removal(names: &[EngineHash], medium: &str, form: u16, is_array: bool) -> Packed {
    let mut out = Packed::default();
    if is_array {
        out.array(3).text("BlockRemoved");
    } else {
        out.map(3).text("type").text("BlockRemoved").text("block_hashes");
    }
    out.array(names.len());
    for &name in names {
        out.name(name, form);
    }
    if !is_array {
        out.text("medium");
    }
    out.text(medium);
    out
}

/// An engine's block: how often it lies on each medium, the block before, and all tokens up to its end.
#[derive(Clone, Debug, Default)]
struct Held {
    copies: [u32; MEDIA.len()],
    parent: Option<EngineHash>,
    path: Vec<u32>,
}

/// An engine that holds blocks of its own size, and the index that hears of them.
struct Feed {
    index: Index,
    slot: Slot,
    size: usize,
    block_size: usize,
    /// It tells of blocks that it has already, and holds one copy at most on each medium.
    reuse_reports: bool,
    held: HashMap<EngineHash, Held>,
}

fn prompt(choices: &mut Choices<'_>) -> Vec<u32> {
    let (len, fork) = (choices.below(LONGEST) + 1, choices.below(LONGEST));
    let branch = u32::from(choices.below(3));
    (0..u32::from(len)).map(|at| if at < u32::from(fork) { 1 + at % 3 } else { 70_000 + 300 * branch + at }).collect()
}

fn names_of(tokens: &[u32], size: usize) -> Vec<EngineHash> {
    let mut name = 5;
    let step = |block: &[u32]| {
        name = block.iter().fold(name, |name, &token| mix(name, u64::from(token)));
        EngineHash(name)
    };
    tokens.chunks_exact(size).map(step).collect()
}

/// Runs the history that these bytes describe; what differed, or which invariant broke.
///
/// # Errors
///
/// What differs, or the invariant that broke.
pub fn run(bytes: &[u8]) -> Result<(), String> {
    let mut choices = Choices::new(bytes);
    let (size, block_size) = SIZES[usize::from(choices.below(SIZES.len() as u16))];
    let index = Index::with_table_key(Config { block_size, ..Config::default() }, 0x5DEE_CE66_D1CE_4E5B);
    let index = index.map_err(|error| error.to_string())?;
    // Where an engine's blocks are several of the index, two of them can share the first.
    let reuse_reports = choices.below(2) == 1;
    let slot = index.add_replica_with("a", None, reuse_reports).map_err(|error| error.to_string())?;
    let mut feed = Feed { index, slot, size, block_size, reuse_reports, held: HashMap::new() };
    while !choices.is_empty() {
        let what = feed.step(&mut choices)?;
        feed.compare(&mut choices.clone()).map_err(|why| format!("{what}, blocks of {size}: {why}"))?;
    }
    Ok(())
}

impl Feed {
    fn apply(&self, event: Packed) -> Result<(), String> {
        let base = NamespaceSpec::default();
        let done =
            self.index.apply(self.slot, &batch(&[event]), &base, None, 0.0).map_err(|error| error.to_string())?;
        if done.refused + done.unrecognized + done.stored.orphaned + done.stored.placeless + done.removed.unknown > 0 {
            return Err(format!("{done:?}"));
        }
        Ok(())
    }

    fn step(&mut self, choices: &mut Choices<'_>) -> Result<String, String> {
        let (kind, form, is_array) = (choices.below(8), choices.below(3), choices.below(2) == 1);
        let (tokens, medium) = (prompt(choices), usize::from(choices.below(MEDIA.len() as u16)));
        let names = names_of(&tokens, self.size);
        match kind {
            0..=3 => self.store(choices, &tokens, &names, medium, form, is_array),
            4..=6 => self.remove(&names, medium, form, is_array),
            _ if choices.below(4) == 0 => {
                let mut event = Packed::default();
                event.array(1).text("AllBlocksCleared");
                self.held.clear();
                self.apply(event).map(|()| "clear".into())
            }
            _ => {
                let bytes = self.index.to_bytes();
                self.index = Index::from_bytes(&bytes).map_err(|error| error.to_string())?;
                Ok("loading".into())
            }
        }
    }

    /// Blocks of a prompt that follow one that is held, as engines tell them.
    fn store(
        &mut self,
        choices: &mut Choices<'_>,
        tokens: &[u32],
        names: &[EngineHash],
        medium: usize,
        form: u16,
        is_array: bool,
    ) -> Result<String, String> {
        let known = names.iter().take_while(|&name| self.held.contains_key(name)).count();
        // Reports begin with the prompt.
        let from = if self.reuse_reports { 0 } else { usize::from(choices.below(64)).min(known) };
        if from == names.len() {
            return Ok("nothing to store".into());
        }
        let without_content = known > from && choices.below(4) == 0;
        let to = if without_content { from + 1 } else { names.len() };
        let event = StoreForm {
            names: &names[from..to],
            parent: from.checked_sub(1).map(|before| names[before]).filter(|_| !without_content),
            tokens: if without_content { &[] } else { &tokens[from * self.size..to * self.size] },
            block_size: if without_content { 0 } else { self.size },
            medium: MEDIA[medium],
            form,
            is_array,
        };
        for at in from..to {
            let held = self.held.entry(names[at]).or_default();
            let copies = &mut held.copies[meant(medium)];
            *copies = if self.reuse_reports { 1 } else { *copies + 1 };
            held.parent = at.checked_sub(1).map(|before| names[before]);
            held.path = tokens[..(at + 1) * self.size].to_vec();
        }
        self.apply(event.packed())?;
        Ok(format!("store of {from}..{to} on {}", MEDIA[medium]))
    }

    /// The last block of a prompt that is held, as engines evict; where blocks are whole ones of the index any block.
    fn remove(&mut self, names: &[EngineHash], medium: usize, form: u16, is_array: bool) -> Result<String, String> {
        let holes = self.size % self.block_size == 0;
        let is_parent = |name: &EngineHash| self.held.values().any(|held| held.parent == Some(*name));
        let here = |name: &&EngineHash| self.held.get(name).is_some_and(|held| held.copies[meant(medium)] > 0);
        let name = if holes {
            names.iter().find(here)
        } else {
            names.iter().rev().find(|name| here(name) && !is_parent(name))
        };
        let Some(&name) = name else { return Ok("nothing to remove".into()) };
        if let Some(held) = self.held.get_mut(&name) {
            held.copies[meant(medium)] -= 1;
            if held.copies == [0; MEDIA.len()] {
                self.held.remove(&name);
            }
        }
        self.apply(removal(&[name], MEDIA[medium], form, is_array))?;
        Ok(format!("removal on {}", MEDIA[medium]))
    }

    fn compare(&mut self, choices: &mut Choices<'_>) -> Result<(), String> {
        self.index.validate()?;
        for _ in 0..3 {
            let tokens = prompt(choices);
            let blocks = names_of(&tokens, self.size);
            // A block of the index lies in the engine's block that ends with it or goes on behind it.
            let covered = |end: &usize| {
                let ends_in = |path: &[u32]| path.len() >= *end && path.len() - self.size < *end;
                self.held.values().any(|held| ends_in(&held.path) && held.path[..*end] == tokens[..*end])
            };
            let ends = (1..=tokens.len() / self.block_size).map(|block| block * self.block_size);
            let held = (ends.take_while(covered).count() * self.block_size) as u32;
            let mut out = [0];
            let seed = namespace_seed(&NamespaceSpec::default());
            let matched = self.index.match_tokens(&tokens, seed, &[], &mut out);
            matched.map_err(|error| error.to_string())?;
            if out != [held] {
                return Err(format!("{} of {} tokens match, {held} are held", out[0], tokens.len()));
            }
            let mut hashes = Vec::new();
            hash_tokens(&tokens, self.block_size, seed, &[], &mut hashes).map_err(|error| error.to_string())?;
            self.compare_media(&blocks, &hashes, held)?;
        }
        Ok(())
    }

    /// The best medium of each block, where an engine's block is one of the index.
    fn compare_media(&self, names: &[EngineHash], hashes: &[BlockHash], held: u32) -> Result<(), String> {
        if self.size != self.block_size {
            return Ok(());
        }
        let tier = |at: usize| match MEDIA[at] {
            "GPU" => Medium::Gpu,
            "cpu" => Medium::Cpu,
            _ => Medium::Disk,
        };
        let mut expected = [0; 3];
        for name in &names[..held as usize / self.size] {
            let copies = self.held[name].copies;
            let best = (0..MEDIA.len()).filter(|&at| copies[at] > 0).map(tier).min();
            expected[best.unwrap_or(Medium::Gpu).index()] += self.size as u32;
        }
        let media = self.index.match_media(hashes)[self.slot.index()];
        if media == expected { Ok(()) } else { Err(format!("media {media:?}, held {expected:?}")) }
    }
}

/// Applies any bytes to an index that holds something: bytes that are refused change nothing, the rest leaves it valid.
///
/// # Errors
///
/// What differs, or the invariant that broke.
pub fn apply(bytes: &[u8]) -> Result<(), String> {
    let index = Index::with_table_key(Config { block_size: 4, ..Config::default() }, 0x5DEE_CE66_D1CE_4E5B);
    let index = index.map_err(|error| error.to_string())?;
    let slot = index.add_replica("a", None).map_err(|error| error.to_string())?;
    let base = NamespaceSpec::default();
    let names = [EngineHash(1), EngineHash(2)];
    let event = StoreForm {
        names: &names,
        parent: None,
        tokens: &[1, 2, 3, 4, 5, 6, 7, 8],
        block_size: 4,
        medium: "GPU",
        form: 0,
        is_array: false,
    };
    index.apply(slot, &batch(&[event.packed()]), &base, None, 0.0).map_err(|error| error.to_string())?;
    let before = index.stats();
    if index.apply(slot, bytes, &base, None, 0.0).is_err() && index.stats() != before {
        return Err("bytes that are no batch changed something".into());
    }
    index.validate()?;
    Index::from_bytes(&index.to_bytes()).map_err(|error| error.to_string())?;
    Ok(())
}
