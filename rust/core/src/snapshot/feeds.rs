//! The event feeds of replicas as bytes and back.

use super::codec::{Reader, Writer, corrupt};
use crate::engine::Engine;
use crate::error::{MAX_BLOCK_SIZE, Result};
use crate::events::{Feed, Held, MOST, NumberedBatch, Numbers, Page, Residence, Role, Tagged, Window};
use crate::ids::{BlockHash, EngineHash, Medium, Slot};
use crate::outcome::FeedStats;

fn counters(stats: &mut FeedStats) -> [&mut u64; 11] {
    [
        &mut stats.batches,
        &mut stats.events,
        &mut stats.refused,
        &mut stats.unrecognized,
        &mut stats.unindexed,
        &mut stats.placeless,
        &mut stats.unknown_media,
        &mut stats.missed,
        &mut stats.restarts,
        &mut stats.stale,
        &mut stats.other_rank,
    ]
}

pub(super) fn write(out: &mut Writer, engine: &Engine) {
    for slot in (0..engine.held.holders.replicas().len()).map(|index| Slot(index as u16)) {
        let feed = engine.truth.feed(slot);
        out.u8(u8::from(feed.is_some()));
        if let Some(feed) = feed {
            write_feed(out, feed);
        }
    }
}

fn write_feed(out: &mut Writer, feed: &Feed) {
    out.u32(feed.numbers.iter().count() as u32);
    for batch in feed.numbers.iter() {
        out.u64(batch.number);
        out.u64(batch.content);
        out.u8(u8::from(batch.burnt));
    }
    out.u32(feed.ratio);
    out.option(feed.rank.map(|rank| u64::from_ne_bytes(rank.to_ne_bytes())));
    for counter in counters(&mut feed.counters.clone()) {
        out.u64(*counter);
    }
    out.u32(feed.groups.known.len() as u32);
    for &(group, role, said) in &feed.groups.known {
        let (role, tokens) = match role {
            Role::Indexed => (0, 0),
            Role::Window(tokens) => (1, tokens),
            Role::Counted => (2, 0),
        };
        out.u32(group);
        out.u8(role);
        out.u32(tokens);
        out.u8(u8::from(said));
    }
    out.u32(feed.windows.len() as u32);
    for window in &feed.windows {
        write_window(out, window);
    }
    let mut pages: Vec<_> = feed.pages.pages.iter().collect();
    pages.sort_unstable_by_key(|(name, _)| **name);
    out.u64(pages.len() as u64);
    for (name, page) in pages {
        write_page(out, *name, page);
    }
    write_tagged(out, &feed.tagged);
}

fn write_tagged(out: &mut Writer, tagged: &Tagged) {
    out.u64(tagged.iter().len() as u64);
    for (name, Residence { medium, tag }, copies) in tagged.iter() {
        out.u64(name.0);
        out.u8(medium as u8);
        out.u64(tag);
        out.u32(copies);
    }
}

fn write_copies(out: &mut Writer, copies: [u16; 3]) {
    for copies in copies {
        out.u16(copies);
    }
}

fn write_window(out: &mut Writer, window: &Window) {
    out.u32(window.group);
    out.u32(window.tokens);
    out.u32(window.block_size as u32);
    let mut held: Vec<_> = window.held.iter().collect();
    held.sort_unstable_by_key(|(name, _)| **name);
    out.u64(held.len() as u64);
    for (name, held) in held {
        out.u64(name.0);
        write_copies(out, held.copies);
        out.option(held.block.map(|block| block.0));
        out.option(held.before.map(|before| before.0));
    }
    write_tagged(out, &window.tagged);
}

fn write_page(out: &mut Writer, name: EngineHash, page: &Page) {
    out.u64(name.0);
    write_copies(out, page.copies);
    out.u32(page.completes);
    out.option(page.above.map(|above| above.0));
    out.u64(page.seed);
    out.u32(page.tail.len() as u32);
    for &token in &page.tail {
        out.u32(token);
    }
}

pub(super) fn read(input: &mut Reader<'_>, engine: &mut Engine) -> Result<()> {
    for slot in (0..engine.held.holders.replicas().len()).map(|index| Slot(index as u16)) {
        if input.flag()? {
            let feed = read_feed(input, engine.config.block_size)?;
            engine.truth.restore_feed(slot, feed);
        }
    }
    Ok(())
}

fn read_feed(input: &mut Reader<'_>, block_size: usize) -> Result<Feed> {
    let numbers = read_numbers(input)?;
    let mut feed = Feed { numbers, ratio: input.u32()?, ..Feed::default() };
    feed.rank = input.option()?.map(|rank| i64::from_ne_bytes(rank.to_ne_bytes()));
    if !(1..=MAX_BLOCK_SIZE as u32).contains(&feed.ratio) {
        return corrupt("a ratio of block sizes is out of range");
    }
    for counter in counters(&mut feed.counters) {
        *counter = input.u64()?;
        if *counter > MOST {
            return corrupt("its counters are out of range");
        }
    }
    for _ in 0..input.u32()? {
        let (group, role, tokens, said) = (input.u32()?, input.u8()?, input.u32()?, input.flag()?);
        let role = match role {
            0 => Role::Indexed,
            1 if tokens > 0 => Role::Window(tokens),
            2 => Role::Counted,
            _ => return corrupt("a group has no role"),
        };
        feed.groups.known.push((group, role, said));
    }
    for _ in 0..input.u32()? {
        feed.windows.push(read_window(input)?);
    }
    for _ in 0..input.u64()? {
        let (name, page) = read_page(input, block_size)?;
        feed.pages.tokens += page.tail.len();
        if feed.pages.pages.insert(name, page).is_some() {
            return corrupt("two pages have one name");
        }
    }
    feed.tagged = read_tagged(input)?;
    Ok(feed)
}

fn read_tagged(input: &mut Reader<'_>) -> Result<Tagged> {
    let mut tagged = Tagged::default();
    for _ in 0..input.u64()? {
        let (name, medium, tag, copies) = (EngineHash(input.u64()?), input.u8()?, input.u64()?, input.u32()?);
        let Some(&medium) = Medium::ALL.get(usize::from(medium)) else { return corrupt("a medium is unknown") };
        if !tagged.restore(name, Residence { medium, tag }, copies) {
            return corrupt("copies of an owner are out of range");
        }
    }
    Ok(tagged)
}

/// Copies on each tier, of which there are some.
fn read_copies(input: &mut Reader<'_>) -> Result<[u16; 3]> {
    match [input.u16()?, input.u16()?, input.u16()?] {
        [0, 0, 0] => corrupt("a block has no copies"),
        copies => Ok(copies),
    }
}

fn read_numbers(input: &mut Reader<'_>) -> Result<Numbers> {
    let mut numbers = Numbers::default();
    for _ in 0..input.u32()? {
        let batch = NumberedBatch { number: input.u64()?, content: input.u64()?, burnt: input.flag()? };
        if numbers.last().is_some_and(|last| batch.number <= last) {
            return corrupt("batches are out of order");
        }
        numbers.push(batch, true);
    }
    Ok(numbers)
}

fn read_window(input: &mut Reader<'_>) -> Result<Window> {
    let (group, tokens, size) = (input.u32()?, input.u32()?, input.u32()? as usize);
    if tokens == 0 || size > MAX_BLOCK_SIZE {
        return corrupt("a window is out of range");
    }
    let mut window = Window::new(group, tokens, size);
    for _ in 0..input.u64()? {
        let (name, copies) = (EngineHash(input.u64()?), read_copies(input)?);
        let (block, before) = (input.option()?.map(BlockHash), input.option()?.map(EngineHash));
        if !window.restore(name, Held { copies, block, before }) {
            return corrupt("copies of a window are out of range");
        }
    }
    window.tagged = read_tagged(input)?;
    Ok(window)
}

fn read_page(input: &mut Reader<'_>, block_size: usize) -> Result<(EngineHash, Page)> {
    let name = EngineHash(input.u64()?);
    let (copies, completes) = (read_copies(input)?, input.u32()?);
    let (above, seed, len) = (input.option()?.map(EngineHash), input.u64()?, input.u32()? as usize);
    if len >= block_size || completes as usize > MAX_BLOCK_SIZE {
        return corrupt("a page is out of range");
    }
    let tail: Vec<u32> = (0..len).map(|_| input.u32()).collect::<Result<_>>()?;
    Ok((name, Page { copies, completes, tail: tail.into(), above, seed }))
}
