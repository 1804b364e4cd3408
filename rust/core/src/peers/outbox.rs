//! The outbox: messages of one router, numbered and gathered to frames until somebody takes them.

use std::collections::VecDeque;

use super::wire::{self, HEADER_BYTES, MAX_MESSAGES, Message, Seal};

/// Bytes from which on a frame gets no further message.
const FULL_BYTES: usize = 1 << 16;
/// Bytes of frames that wait at most; of more, the oldest are lost.
const MAX_WAITING_BYTES: usize = 16 << 20;

/// Frames that wait, the last of which takes further messages.
#[derive(Debug)]
pub struct Outbox {
    seal: Seal,
    peer: u64,
    sequence: u64,
    frame: Vec<u8>,
    messages: usize,
    waiting: VecDeque<Vec<u8>>,
    waiting_bytes: usize,
    lost: u64,
}

impl Outbox {
    /// An outbox whose next message has the sequence `first`.
    pub fn new(seal: Seal, peer: u64, first: u64) -> Self {
        let (frame, waiting) = (Vec::new(), VecDeque::new());
        Self { seal, peer, sequence: first - 1, frame, messages: 0, waiting, waiting_bytes: 0, lost: 0 }
    }

    /// Puts a message in; its sequence.
    pub fn tell(&mut self, message: &Message<'_>) -> u64 {
        self.sequence += 1;
        if self.messages == 0 {
            self.seal.begin(&mut self.frame, self.peer, self.sequence);
        }
        wire::write(&mut self.frame, self.sequence, message);
        self.messages += 1;
        if self.messages == MAX_MESSAGES || self.frame.len() >= FULL_BYTES {
            self.close();
        }
        self.sequence
    }

    /// Sequence of the next message.
    pub fn next(&self) -> u64 {
        self.sequence + 1
    }

    /// Frames that were lost because nobody took them.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    fn close(&mut self) {
        if self.messages == 0 {
            return;
        }
        self.messages = 0;
        let mut frame = std::mem::take(&mut self.frame);
        self.seal.close(&mut frame);
        self.waiting_bytes += frame.len();
        self.waiting.push_back(frame);
        while self.waiting_bytes > MAX_WAITING_BYTES {
            let Some(oldest) = self.waiting.pop_front() else { break };
            self.waiting_bytes -= oldest.len();
            self.lost += 1;
        }
    }

    /// Takes the oldest frame out.
    pub fn take(&mut self) -> Option<Vec<u8>> {
        if self.waiting.is_empty() {
            self.close();
            if let Some(frame) = self.waiting.front() {
                self.frame.reserve(frame.len().max(HEADER_BYTES)); // the next one will be like it
            }
        }
        let frame = self.waiting.pop_front()?;
        self.waiting_bytes -= frame.len();
        Some(frame)
    }
}
