//! The load book: what this router has in flight where, exact to the last request.

use std::collections::VecDeque;

/// Weight of the newest observation in a learned prefill rate.
const RATE_MEMORY: f64 = 0.2;
/// Prefills shorter than this say more about overhead than about the rate.
const RATE_MIN_TOKENS: i64 = 64;
/// Decisions that the recent window counts by default: so many, or so many for each replica if that is more. With 200 over
/// 64 replicas, counts of 3 say nothing and policies herd.
const WINDOW: usize = 200;
const WINDOW_PER_REPLICA: usize = 25;
/// What a request counts on `busy` that has been served lately; one in flight counts 1.
const SERVED_WEIGHT: f64 = 0.5;

/// Requests and tokens by slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests.
    pub in_flight: Vec<i64>,
    /// Prompt tokens that wait to be computed.
    pub queued: Vec<i64>,
    /// Context tokens in decode.
    pub decoding: Vec<i64>,
}

impl Counts {
    fn resize(&mut self, slots: usize) {
        for column in [&mut self.in_flight, &mut self.queued, &mut self.decoding] {
            column.resize(slots, 0);
        }
    }

    fn add(&mut self, slot: usize, requests: i64, queued: i64, decoding: i64) {
        self.in_flight[slot] += requests;
        self.queued[slot] += queued;
        self.decoding[slot] += decoding;
    }

    fn reset(&mut self, slot: usize) {
        (self.in_flight[slot], self.queued[slot], self.decoding[slot]) = (0, 0, 0);
    }
}

/// A column of counts as numbers.
pub(super) fn floats(column: &[i64]) -> Vec<f64> {
    column.iter().map(|&count| count as f64).collect()
}

/// What of a book a router may balance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balanced {
    /// Requests in flight, plus a half for each of the fleet's latest served requests. In flight alone is zero almost
    /// everywhere while load is light: whatever is hot then herds at its holder.
    Requests,
    /// Requests in flight.
    InFlight,
    /// How many of the latest bookings each replica received.
    Recent,
    /// Prompt tokens that wait to be computed.
    UncachedTokens,
    /// The same, plus context tokens in decode.
    Tokens,
}

impl Balanced {
    /// All of them, by name.
    pub const ALL: [(&'static str, Self); 5] = [
        ("requests", Self::Requests),
        ("in_flight", Self::InFlight),
        ("recent", Self::Recent),
        ("uncached_tokens", Self::UncachedTokens),
        ("tokens", Self::Tokens),
    ];
}

/// Which windows a book keeps, and how long they are.
#[derive(Clone, Copy, Debug)]
pub struct Windows {
    /// Length of the recent window in bookings; `None` = by the number of replicas.
    pub bookings: Option<usize>,
    /// Length of the window of prefill seconds, in seconds.
    pub prefill_s: f64,
    /// Whether the window of recent bookings is kept.
    pub recent: bool,
    /// Whether policies weigh what the recent window holds in place of what is in flight.
    pub balances_recent: bool,
    /// Whether served requests count on `busy`.
    pub served: bool,
}

/// Counters by slot. Every booking is undone by the same amounts; none goes below zero.
#[derive(Debug)]
pub struct Book {
    /// What is in flight.
    pub live: Counts,
    /// The same counters over the recent window of bookings.
    pub recent: Counts,
    /// Requests in flight, plus a half for each of the fleet's latest served requests.
    pub busy: Vec<f64>,
    /// Number of the decision on the last request that each replica took without a hit; -1 = none yet.
    pub last_miss: Vec<i64>,
    /// Requests booked since the replica's report.
    pub since_requests: Vec<i64>,
    /// Uncached tokens booked since the replica's report.
    pub since_tokens: Vec<i64>,
    /// Learned prefill rate of each replica in uncached tokens a second.
    pub rates: Vec<Option<f64>>,
    prefill_s: Vec<f64>,
    windows: Windows,
    length: usize,
    latest: VecDeque<(usize, i64, i64)>,
    served: VecDeque<usize>,
    spans: VecDeque<(f64, usize, f64)>,
}

impl Book {
    /// No slots.
    pub fn new(windows: Windows) -> Self {
        Self {
            live: Counts::default(),
            recent: Counts::default(),
            busy: Vec::new(),
            last_miss: Vec::new(),
            since_requests: Vec::new(),
            since_tokens: Vec::new(),
            rates: Vec::new(),
            prefill_s: Vec::new(),
            windows,
            length: windows.bookings.unwrap_or(WINDOW),
            latest: VecDeque::new(),
            served: VecDeque::new(),
            spans: VecDeque::new(),
        }
    }

    /// Have at least so many slots.
    pub fn grow(&mut self, slots: usize) {
        let slots = slots.max(self.busy.len());
        self.live.resize(slots);
        self.recent.resize(slots);
        for column in [&mut self.since_requests, &mut self.since_tokens] {
            column.resize(slots, 0);
        }
        self.last_miss.resize(slots, -1);
        self.rates.resize(slots, None);
        self.busy.resize(slots, 0.0);
        self.prefill_s.resize(slots, 0.0);
        self.length = self.windows.bookings.unwrap_or(WINDOW.max(WINDOW_PER_REPLICA * slots));
    }

    /// Make a slot new: another process has it, or none.
    pub fn reset(&mut self, slot: usize) {
        self.live.reset(slot);
        self.recent.reset(slot);
        (self.since_requests[slot], self.since_tokens[slot]) = (0, 0);
        (self.last_miss[slot], self.rates[slot]) = (-1, None);
        (self.busy[slot], self.prefill_s[slot]) = (0.0, 0.0);
        self.latest.retain(|booking| booking.0 != slot);
        self.served.retain(|served| *served != slot);
        self.spans.retain(|span| span.1 != slot);
    }

    /// What is in flight, as policies weigh it.
    pub(super) fn weighed(&self) -> &Counts {
        if self.windows.balances_recent { &self.recent } else { &self.live }
    }

    /// A load of each slot.
    pub fn balanced(&self, what: Balanced) -> Vec<f64> {
        match what {
            Balanced::Requests => self.busy.clone(),
            Balanced::InFlight => floats(&self.live.in_flight),
            Balanced::Recent => floats(&self.recent.in_flight),
            Balanced::UncachedTokens => floats(&self.live.queued),
            Balanced::Tokens => {
                let both = self.live.queued.iter().zip(&self.live.decoding);
                both.map(|(queued, decoding)| (queued + decoding) as f64).collect()
            }
        }
    }

    /// Count a request that was sent to a slot: `uncached` tokens to compute of a prompt of `context`. All uncached tokens
    /// that wait there now.
    pub fn book(&mut self, slot: usize, uncached: i64, context: i64, decision_id: i64) -> i64 {
        self.live.add(slot, 1, uncached, 0);
        self.busy[slot] += 1.0;
        self.since_requests[slot] += 1;
        self.since_tokens[slot] += uncached;
        if uncached == context {
            self.last_miss[slot] = decision_id;
        }
        if self.windows.recent {
            self.latest.push_back((slot, uncached, context));
            self.recent.add(slot, 1, uncached, context);
            while self.latest.len() > self.length {
                let Some((slot, uncached, context)) = self.latest.pop_front() else { break };
                self.recent.add(slot, -1, -uncached, -context);
            }
        }
        self.live.queued[slot]
    }

    /// Count what another router has in flight at a slot, or has no more: it is load, and in no window.
    pub fn adjust(&mut self, slot: usize, requests: i64, queued: i64, decoding: i64) {
        self.live.add(slot, requests, queued, decoding);
        self.busy[slot] += requests as f64;
    }

    /// Move a request from prefill to decode.
    pub fn start(&mut self, slot: usize, uncached: i64, context: i64) {
        self.live.add(slot, 0, -uncached, context);
    }

    /// Take a request off the book, with what it still had there.
    pub fn release(&mut self, slot: usize, queued: i64, decoding: i64) {
        self.live.add(slot, -1, -queued, -decoding);
        self.busy[slot] -= 1.0;
    }

    /// Count a request that has been served: it counts a half for as long as it is among the latest.
    pub fn serve(&mut self, slot: usize) {
        if !self.windows.served {
            return;
        }
        self.served.push_back(slot);
        self.busy[slot] += SERVED_WEIGHT;
        while self.served.len() > self.length {
            let Some(slot) = self.served.pop_front() else { break };
            self.busy[slot] -= SERVED_WEIGHT;
        }
    }

    /// Take out of the reports' additions a request that never reached the engine.
    pub fn unbook(&mut self, slot: usize, uncached: i64) {
        self.since_requests[slot] = (self.since_requests[slot] - 1).max(0);
        self.since_tokens[slot] = (self.since_tokens[slot] - uncached).max(0);
    }

    /// A replica has reported its load: what was booked before is in the report.
    pub fn reported(&mut self, slot: usize) {
        (self.since_requests[slot], self.since_tokens[slot]) = (0, 0);
    }

    /// Learn a replica's prefill rate: tokens that it computed until a request's first token, and the time it took.
    pub fn learn(&mut self, slot: usize, computed: i64, seconds: f64) {
        let rate = computed as f64 / seconds;
        if computed >= RATE_MIN_TOKENS && seconds > 0.0 && rate.is_finite() {
            self.rates[slot] = Some(self.rates[slot].map_or(rate, |known| known + RATE_MEMORY * (rate - known)));
        }
    }

    /// Count prefill seconds given to a replica in the window that ends now.
    pub fn spend(&mut self, slot: usize, seconds: f64, now: f64) {
        self.prefill_s[slot] += seconds;
        self.spans.push_back((now, slot, seconds));
    }

    /// The prefill seconds given to each replica within the window that ends now.
    pub fn window_s(&self, now: f64) -> Vec<f64> {
        let (mut spent, oldest) = (self.prefill_s.clone(), now - self.windows.prefill_s);
        for &(_, slot, seconds) in self.spans.iter().take_while(|span| span.0 <= oldest) {
            spent[slot] = (spent[slot] - seconds).max(0.0);
        }
        spent
    }

    /// Forget the prefill seconds that have left the window.
    pub fn sweep(&mut self, now: f64) {
        let oldest = now - self.windows.prefill_s;
        while let Some(&(_, slot, seconds)) = self.spans.front().filter(|span| span.0 <= oldest) {
            self.spans.pop_front();
            self.prefill_s[slot] = (self.prefill_s[slot] - seconds).max(0.0);
        }
    }
}
