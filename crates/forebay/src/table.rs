//! Tables as every command prints them: a line of headings, two spaces between columns, numbers to the right.

use std::fmt::{self, Display};

/// A column by its heading.
#[derive(Clone, Copy)]
pub enum Column {
    /// Words, to the left.
    Text(&'static str),
    /// Amounts and times, to the right.
    Number(&'static str),
}

pub struct Table<const N: usize> {
    columns: [Column; N],
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    pub fn new(columns: [Column; N]) -> Table<N> {
        Table { columns, rows: Vec::new() }
    }

    pub fn row(&mut self, cells: [String; N]) {
        self.rows.push(cells);
    }
}

impl Column {
    fn heading(self) -> &'static str {
        let (Column::Text(heading) | Column::Number(heading)) = self;
        heading
    }
}

impl<const N: usize> Display for Table<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = |text: &str| text.chars().count();
        let widths: [usize; N] = std::array::from_fn(|at| {
            let cells = self.rows.iter().map(|row| len(&row[at]));
            cells.fold(len(self.columns[at].heading()), usize::max)
        });
        let headings = self.columns.map(|column| column.heading().to_owned());
        for row in std::iter::once(&headings).chain(&self.rows) {
            let mut line = String::new();
            for ((cell, column), width) in row.iter().zip(self.columns).zip(widths) {
                line += &match column {
                    Column::Text(_) => format!("{cell:<width$}  "),
                    Column::Number(_) => format!("{cell:>width$}  "),
                };
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_numbers_stand_to_the_right() {
        let mut table = Table::new([Column::Text("pool"), Column::Number("free"), Column::Text("state")]);
        assert_eq!(table.to_string(), "pool  free  state\n");
        table.row(["pool-0", "9 GiB", "enabled"].map(str::to_owned));
        table.row(["pool-10", "1023 MiB", ""].map(str::to_owned));
        let text = "pool         free  state\npool-0      9 GiB  enabled\npool-10  1023 MiB\n";
        assert_eq!(table.to_string(), text);
    }
}
