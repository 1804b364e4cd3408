//! Trust: predicted against reported cached tokens, and which replicas' belief is not to be believed.

/// Reports of no cached token in a row, against a predicted hit, after which a replica's belief counts for nothing.
pub const ZERO_STREAK: u32 = 20;

/// One replica's predicted and reported hits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HitRecord {
    /// Tokens predicted, of requests that were reported.
    pub predicted: i64,
    /// Tokens reported.
    pub reported: i64,
    /// Requests reported.
    pub requests: u64,
    /// Tokens predicted and not reported, request by request: they were evicted, or never there.
    pub lost: i64,
    streak: u32,
    /// Whether its belief counts for nothing.
    pub distrusted: bool,
}

/// What a report changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The replica is distrusted from now on.
    Distrusted,
    /// The replica is trusted again.
    Trusted,
}

/// Compares what the belief predicted with the cached tokens that engines report.
///
/// A replica that reports zero for [`ZERO_STREAK`] predicted hits in a row is distrusted: its prefix caching is off, its hashes
/// differ, or its cache is far smaller than assumed. Its hits then count as zero until it reports one. A request without a
/// report is counted and says nothing.
#[derive(Debug, Default)]
pub struct Trust {
    /// By slot; `None` = nothing reported.
    pub records: Vec<Option<HitRecord>>,
    /// The sum over processes that are gone; `None` = nothing reported.
    pub left: Option<HitRecord>,
    /// Requests without a report.
    pub unreported: u64,
    /// Replicas that are distrusted.
    pub distrusted: usize,
}

impl Trust {
    /// Take in one finished request. `predicted`: its hit tokens by the belief, 0 while distrusted.
    pub fn learn(&mut self, slot: usize, predicted: i64, reported: Option<i64>) -> Option<Verdict> {
        let Some(reported) = reported else {
            self.unreported += 1;
            return None;
        };
        if self.records.len() <= slot {
            self.records.resize(slot + 1, None);
        }
        let record = self.records[slot].get_or_insert_default();
        record.predicted += predicted;
        record.reported += reported;
        record.requests += 1;
        record.lost += (predicted - reported).max(0);
        if reported > 0 {
            record.streak = 0;
            if std::mem::take(&mut record.distrusted) {
                self.distrusted -= 1;
                return Some(Verdict::Trusted);
            }
        } else if predicted > 0 {
            record.streak += 1;
            if record.streak == ZERO_STREAK {
                record.distrusted = true;
                self.distrusted += 1;
                return Some(Verdict::Distrusted);
            }
        }
        None
    }

    /// Slots of the replicas that are distrusted.
    pub fn distrusted_slots(&self) -> impl Iterator<Item = usize> {
        let records = if self.distrusted == 0 { &[] } else { &*self.records };
        let distrusted = |record: &Option<HitRecord>| record.is_some_and(|record| record.distrusted);
        records.iter().enumerate().filter(move |(_, record)| distrusted(record)).map(|(slot, _)| slot)
    }

    /// Begin a slot anew: another process has it. What was counted goes to the sum over those that are gone.
    pub fn reset(&mut self, slot: usize) {
        if let Some(record) = self.records.get_mut(slot).and_then(Option::take) {
            self.distrusted -= usize::from(record.distrusted);
            let left = self.left.get_or_insert_default();
            left.predicted += record.predicted;
            left.reported += record.reported;
            left.requests += record.requests;
            left.lost += record.lost;
        }
    }
}
