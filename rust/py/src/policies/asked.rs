//! What a kernel asks of a decision, read from Python's objects when it is asked for.

use std::borrow::Cow;

use prefixroute_core::columns::UNKNOWN_RATE;
use prefixroute_core::policies::{Failure, Figure, Key, Seen};
use prefixroute_core::routing::{Kind, Signal};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};

use super::formula::foreign;
use super::roster::Roster;
use crate::columns;
use crate::draws::fitting;
use crate::errors;
use crate::routing::{Candidates, Sight};

/// A decision, as a kernel sees it.
pub struct Asked<'a, 'py> {
    pub sight: &'a Sight,
    pub candidates: &'a Candidates<'a>,
    pub request: &'a Bound<'py, PyAny>,
    pub roster: &'a Roster,
    /// The last fields of a view, in the order of `Signal::ALL`.
    pub signals: &'a Bound<'py, PyTuple>,
    pub given: &'a [Vec<f64>],
    /// Hashes a text.
    pub text_hash: Option<&'a Py<PyAny>>,
}

impl<'py> Asked<'_, 'py> {
    fn count(&self) -> usize {
        self.candidates.hits.len()
    }

    fn slot(&self, at: usize) -> usize {
        self.candidates.slots.as_ref().map_or(at, |slots| slots[at])
    }

    /// A signal as Python has it; none: it is not known.
    fn signal(&self, signal: Signal) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(Some(self.signals.get_item(signal as usize)?).filter(|value| !value.is_none()))
    }

    /// The candidates' part of a column of all slots, where it has a number for each of them.
    fn of_candidates<'b, T: Copy>(&self, column: &'b [T]) -> Result<Cow<'b, [T]>, Failure> {
        let part: Cow<'b, [T]> = match &self.candidates.slots {
            Some(slots) => slots.iter().filter_map(|&slot| column.get(slot).copied()).collect(),
            None => Cow::Borrowed(&column[..self.count().min(column.len())]),
        };
        if part.len() == self.count() {
            return Ok(part);
        }
        Err(foreign(errors::config("a signal must have a number for each candidate")))
    }

    fn report(&self, at: usize) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(reports) = self.signal(Signal::Reports)? else { return Ok(None) };
        Ok(Some(reports.get_item(self.slot(at))?).filter(|report| !report.is_none()))
    }

    fn attribute<T>(&self, name: &Bound<'py, PyString>) -> PyResult<Option<T>>
    where
        T: for<'b> FromPyObject<'b, 'py, Error: Into<PyErr>>,
    {
        let value = self.request.getattr(name)?;
        if value.is_none() { Ok(None) } else { value.extract().map(Some).map_err(Into::into) }
    }

    fn listed(&self, signal: Signal) -> PyResult<Vec<f64>> {
        let (name, _) = Signal::ALL[signal as usize];
        let column = self.signal(signal)?;
        let column = column.ok_or_else(|| errors::config(format!("the signal {name} is not in the view")))?;
        if signal.kind() != Kind::Rates {
            return columns::read(&column);
        }
        let rate = |rate: PyResult<Bound<'_, PyAny>>| {
            let rate = rate?;
            if rate.is_none() { Ok(UNKNOWN_RATE) } else { columns::number(&rate, "a rate") }
        };
        column.try_iter()?.map(rate).collect()
    }

    fn hash_of_text(&self, text: &Bound<'py, PyAny>) -> PyResult<Option<u64>> {
        let hash = self.text_hash.ok_or_else(|| errors::config("the kernel has no hash of texts"))?;
        fitting(&hash.bind(text.py()).call1((text,))?, "a hash").map(Some)
    }

    fn key(&self, key: Key) -> PyResult<Option<u64>> {
        let py = self.signals.py();
        match key {
            Key::Session => {
                let session = self.request.getattr(intern!(py, "session"))?;
                if session.is_truthy()? { self.hash_of_text(&session) } else { Ok(None) }
            }
            Key::Head => match self.sight.head {
                Some(head) => Ok(Some(head)),
                None => self.signal(Signal::Head)?.map(|head| fitting(&head, "a hash")).transpose(),
            },
            Key::Document => {
                let attributes = self.request.getattr(intern!(py, "attrs"))?;
                let document = attributes.call_method1(intern!(py, "get"), (intern!(py, "document"),))?;
                if document.is_none() || document.eq(intern!(py, ""))? {
                    return self.key(Key::Head);
                }
                self.hash_of_text(document.str()?.as_any())
            }
        }
    }
}

impl Seen for Asked<'_, '_> {
    fn column(&self, signal: Signal) -> Result<Cow<'_, [f64]>, Failure> {
        if let Some(column) = self.sight.signal_of(signal) {
            return self.of_candidates(column);
        }
        let column = self.listed(signal).map_err(foreign)?;
        self.of_candidates(&column).map(|part| Cow::Owned(part.into_owned()))
    }

    fn given(&self, number: usize) -> Result<Cow<'_, [f64]>, Failure> {
        let column = self.given.get(number).filter(|column| column.len() == self.count());
        column.map(|column| Cow::Borrowed(&**column)).ok_or_else(|| {
            foreign(errors::config(format!("column {number} must be given, with a number for each candidate")))
        })
    }

    fn names(&self) -> Result<Cow<'_, [u64]>, Failure> {
        self.of_candidates(&self.roster.hashes)
    }

    fn weights(&self) -> Result<Option<Cow<'_, [f64]>>, Failure> {
        self.roster.weights.as_deref().map(|weights| self.of_candidates(weights)).transpose()
    }

    fn key(&self, key: Key) -> Result<Option<u64>, Failure> {
        self.key(key).map_err(foreign)
    }

    fn reporting(&self) -> Result<usize, Failure> {
        let count = || {
            let Some(reports) = self.signal(Signal::Reports)? else { return Ok(0) };
            let is_report = |report: Bound<'_, PyAny>| !report.is_none();
            let reported: Vec<bool> = match reports.cast::<PyList>() {
                Ok(list) => list.iter().map(is_report).collect(),
                Err(_) => reports.try_iter()?.map(|report| report.map(is_report)).collect::<PyResult<_>>()?,
            };
            Ok((0..self.count()).filter(|&at| reported.get(self.slot(at)) == Some(&true)).count())
        };
        count().map_err(foreign)
    }

    fn reported(&self, at: usize, figure: Figure) -> Result<Option<f64>, Failure> {
        let py = self.signals.py();
        let name = match figure {
            Figure::WaitingTokens => intern!(py, "waiting_tokens"),
            Figure::Waiting => intern!(py, "waiting"),
            Figure::Running => intern!(py, "running"),
            Figure::KvUse => intern!(py, "kv_use"),
            Figure::TokensPerS => intern!(py, "tokens_per_s"),
        };
        let value = || self.report(at)?.map_or(Ok(None), |report| report.getattr(name)?.extract::<Option<f64>>());
        value().map_err(foreign)
    }

    fn kv_at(&self) -> Result<Option<usize>, Failure> {
        if self.sight.kv_at.is_some() {
            return Ok(self.sight.kv_at);
        }
        let slot = || self.signal(Signal::KvAt)?.map(|slot| slot.extract()).transpose();
        slot().map_err(foreign)
    }

    fn max_tokens(&self) -> Result<Option<f64>, Failure> {
        self.attribute(intern!(self.signals.py(), "max_tokens")).map_err(foreign)
    }

    fn slo_ttft_s(&self) -> Result<Option<f64>, Failure> {
        self.attribute(intern!(self.signals.py(), "slo_ttft_s")).map_err(foreign)
    }
}

/// The columns that are given with a question.
pub fn given(columns: Option<&Bound<'_, PyList>>) -> PyResult<Vec<Vec<f64>>> {
    columns.map_or(Ok(Vec::new()), |columns| columns.iter().map(|column| columns::read(&column)).collect())
}
