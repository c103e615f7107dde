//! Figures for people: sizes and times in sensible units, tables whose columns line up.

/// A size in binary units, four significant digits: `64295 MiB` is `62.79 GiB`.
pub fn bytes_text(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    // 1023.95 would be printed as 1024.
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{} {}", significant(value), UNITS[unit])
}

/// A time in a sensible unit.
pub fn time_text(nanoseconds: f64) -> String {
    match nanoseconds {
        ns if ns < 999.5 => format!("{ns:.0} ns"),
        ns if ns < 999.5e3 => format!("{} us", significant(ns / 1e3)),
        ns if ns < 999.5e6 => format!("{} ms", significant(ns / 1e6)),
        ns => format!("{} s", significant(ns / 1e9)),
    }
}

/// A count with its thousands apart: `25187` is `25 187`.
pub fn count_text(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// At least three significant digits, two decimals at most.
fn significant(value: f64) -> String {
    match value {
        v if v < 99.95 => format!("{v:.2}"),
        v => format!("{v:.1}"),
    }
}

/// A table of text: the first column to the left, and the others to the right or to the left.
pub struct Table {
    rows: Vec<Vec<String>>,
    of_words: bool,
}

impl Table {
    /// A table of figures with these column heads.
    pub fn new<S: Into<String>>(heads: impl IntoIterator<Item = S>) -> Self {
        Self { rows: vec![heads.into_iter().map(Into::into).collect()], of_words: false }
    }

    /// A table of words with these column heads: every column to the left.
    pub fn of_words<S: Into<String>>(heads: impl IntoIterator<Item = S>) -> Self {
        Self { of_words: true, ..Self::new(heads) }
    }

    /// Adds a row.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// The table, each line indented by two.
    pub fn text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for (index, row) in self.rows.iter().enumerate() {
            let mut line = String::from("  ");
            for (column, cell) in row.iter().enumerate() {
                let pad = " ".repeat(widths[column] - cell.chars().count());
                match column {
                    0 => line.extend([cell.as_str(), pad.as_str()]),
                    _ if self.of_words => line.extend(["   ", cell.as_str(), pad.as_str()]),
                    _ => line.extend(["   ", pad.as_str(), cell.as_str()]),
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
            if index == 0 {
                let all = widths.iter().sum::<usize>() + 3 * columns.saturating_sub(1);
                text.push_str(&format!("  {}\n", "-".repeat(all)));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_well() {
        assert_eq!(bytes_text(0), "0 B");
        assert_eq!(bytes_text(1023), "1023 B");
        assert_eq!(bytes_text(1024), "1.00 KiB");
        assert_eq!(bytes_text(64295 << 20), "62.79 GiB");
        assert_eq!(bytes_text((1 << 30) - 1), "1.00 GiB");
        assert_eq!(bytes_text(u64::MAX), "16384.0 PiB");
        assert_eq!(time_text(17.4), "17 ns");
        assert_eq!(time_text(999.6), "1.00 us");
        assert_eq!(time_text(98_300_000.0), "98.30 ms");
        assert_eq!(time_text(2.5e12), "2500.0 s");
        assert_eq!(count_text(0), "0");
        assert_eq!(count_text(999), "999");
        assert_eq!(count_text(25187), "25 187");
        assert_eq!(count_text(1_000_000), "1 000 000");
    }

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(["name", "calls"]);
        table.row(["a", "1"]);
        table.row(["longer", "12 345"]);
        let expected =
            "  name      calls\n  ---------------\n  a             1\n  longer   12 345\n";
        assert_eq!(table.text(), expected);
    }
}
