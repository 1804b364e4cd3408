//! Prices from tables: step times that were measured, or that another model worked out, with straight lines in between.

use super::Work;

/// Values on a grid of two axes, bilinear within it; beyond its edges the outermost cells go on.
#[derive(Clone, Debug)]
pub struct Table {
    rows: Vec<f64>,
    columns: Vec<f64>,
    /// Row by row.
    values: Vec<f64>,
}

/// Why a table is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadTable {
    /// An axis has fewer than two points, or they do not ascend.
    Axis,
    /// There is not one finite value of 0 or more for each pair of points.
    Values,
}

impl std::fmt::Display for BadTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Axis => "an axis must have two points or more, finite and ascending",
            Self::Values => "a table must have one finite value of 0 or more for each pair of points of its axes",
        })
    }
}

impl std::error::Error for BadTable {}

impl Table {
    /// A table with `values[row * columns.len() + column]`.
    ///
    /// # Errors
    ///
    /// An axis does not ascend, or values are missing, negative or no numbers.
    pub fn new(rows: Vec<f64>, columns: Vec<f64>, values: Vec<f64>) -> Result<Self, BadTable> {
        for axis in [&rows, &columns] {
            let ascending = axis.windows(2).all(|pair| pair[0] < pair[1]);
            if axis.len() < 2 || !ascending || !axis.iter().all(|point| point.is_finite()) {
                return Err(BadTable::Axis);
            }
        }
        let good = values.iter().all(|value| value.is_finite() && *value >= 0.0);
        if values.len() != rows.len() * columns.len() || !good {
            return Err(BadTable::Values);
        }
        Ok(Self { rows, columns, values })
    }

    /// The value at a point, 0 or more.
    fn at(&self, row: f64, column: f64) -> f64 {
        let ((i, u), (j, v)) = (place(&self.rows, row), place(&self.columns, column));
        let line = |i: usize| {
            let start = i * self.columns.len() + j;
            self.values[start] + v * (self.values[start + 1] - self.values[start])
        };
        let (low, high) = (line(i), line(i + 1));
        (low + u * (high - low)).max(0.0)
    }
}

/// The cell of an axis that a value lies in or is nearest to, and where in it: from 0 to 1 inside.
fn place(axis: &[f64], value: f64) -> (usize, f64) {
    let cell = axis.partition_point(|&point| point <= value).clamp(1, axis.len() - 1) - 1;
    (cell, (value - axis[cell]) / (axis[cell + 1] - axis[cell]))
}

/// Four tables of seconds that price any step.
#[derive(Clone, Debug)]
pub struct Grid {
    /// A step that computes (row) tokens of one prompt behind (column) others.
    pub prefill: Table,
    /// A step in which (row) requests decode, each with (column) tokens of context.
    pub decode: Table,
    /// What such requests add to a step with prompt tokens.
    pub beside: Table,
    /// Seconds of a step with prompt tokens that do not depend on how many: counted once, however many prompts it has.
    pub step_s: f64,
}

impl Grid {
    /// Seconds of a step. Prompts beside each other take as long as one after the other, less the fixed part of a step.
    pub(crate) fn price<Chunks: Iterator<Item = (f64, f64)> + Clone>(&self, work: &Work<Chunks>) -> f64 {
        let decoding = |table: &Table| match work.decodes {
            decodes if decodes > 0.0 => table.at(decodes, work.context / decodes),
            _ => 0.0,
        };
        let mut seconds = 0.0;
        for (tokens, before) in work.chunks.clone().filter(|&(tokens, _)| tokens > 0.0) {
            let fixed = if seconds > 0.0 { self.step_s } else { 0.0 };
            seconds += (self.prefill.at(tokens, before) - fixed).max(0.0);
        }
        if seconds > 0.0 { seconds + decoding(&self.beside) } else { decoding(&self.decode) }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that panics has failed")]
mod tests {
    use super::*;

    #[test]
    fn a_bilinear_table_is_exact_and_goes_on_beyond_its_edges() {
        let (rows, columns) = (vec![1.0, 4.0, 64.0], vec![0.0, 100.0]);
        let plane = |row: f64, column: f64| 3.0 + 2.0 * row + 0.5 * column + 0.25 * row * column;
        let values = rows.iter().flat_map(|&row| columns.iter().map(move |&column| plane(row, column))).collect();
        let table = Table::new(rows, columns, values).unwrap();
        for (row, column) in [(1.0, 0.0), (2.5, 30.0), (64.0, 100.0), (200.0, 900.0), (0.5, 10.0)] {
            assert!((table.at(row, column) - plane(row, column)).abs() < 1e-9);
        }
    }

    #[test]
    fn tables_that_are_none_are_refused() {
        let two = || vec![0.0, 1.0];
        assert_eq!(Table::new(vec![1.0], two(), two()).unwrap_err(), BadTable::Axis);
        assert_eq!(Table::new(vec![1.0, 1.0], two(), vec![0.0; 4]).unwrap_err(), BadTable::Axis);
        assert_eq!(Table::new(two(), two(), two()).unwrap_err(), BadTable::Values);
        assert_eq!(Table::new(two(), two(), vec![-1.0; 4]).unwrap_err(), BadTable::Values);
    }
}
