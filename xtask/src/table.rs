//! Tables, for a terminal or as Markdown.

use std::{fmt::Display, ops::Range};

use comfy_table::{CellAlignment, Table, presets};

/// A table for a terminal; the columns of `right` are numbers.
pub(crate) fn terminal<H, R, C>(
    header: H,
    rows: impl IntoIterator<Item = R>,
    right: Range<usize>,
) -> String
where
    H: IntoIterator<Item: Display>,
    R: IntoIterator<Item = C>,
    C: Display,
{
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    table.set_header(header.into_iter().map(|cell| cell.to_string()));
    for row in rows {
        table.add_row(row.into_iter().map(|cell| cell.to_string()));
    }
    let columns = table.column_iter_mut().enumerate();
    for (_, column) in columns.filter(|(place, _)| right.contains(place)) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

/// A table as Markdown.
pub(crate) fn markdown<H, R, C>(header: H, rows: impl IntoIterator<Item = R>) -> String
where
    H: IntoIterator<Item: Display>,
    R: IntoIterator<Item = C>,
    C: Display,
{
    let escaped = |cell: &dyn Display| cell.to_string().replace('|', "\\|").replace('\n', " ");
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let header: Vec<String> = header.into_iter().map(|cell| escaped(&cell)).collect();
    let rule = line(vec!["---".to_owned(); header.len()]);
    let rows = rows
        .into_iter()
        .map(|row| line(row.into_iter().map(|cell| escaped(&cell)).collect()));
    line(header) + &rule + &rows.collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_in_a_cell_is_no_border() {
        let text = markdown(["a", "b"], [["x|y", "1"]]);
        assert_eq!(text, "| a | b |\n| --- | --- |\n| x\\|y | 1 |\n");
    }

    #[test]
    fn numbers_are_aligned_on_the_right() {
        let text = terminal(["name", "ms"], [["a", "1"], ["b", "100"]], 1..2);
        assert!(
            text.contains("a        1 ") && text.contains("b      100 "),
            "{text}"
        );
    }
}
