//! Rows up, columns to the right: a coloured cell for each shape, for the strategy that it gets.

use plotters::{
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use super::{
    super::survey::Map,
    plot::{FONT, GREY, Plot, size, strategy, undrawn},
};

/// Pixels: a cell, and the margins to the left of the cells and below them.
const CELL: i32 = 20;
const LEFT: i32 = 90;
const BELOW: i32 = 50;
/// Cells between two labels of an axis.
const STEP: u32 = 4;

/// The plot, if there is any cell.
pub fn plot(map: &Map) -> anyhow::Result<Option<Plot>> {
    if map.cells.is_empty() {
        return Ok(None);
    }
    let mut legend: Vec<(String, RGBColor)> = Vec::new();
    for cell in &map.cells {
        if !legend.iter().any(|(name, _)| *name == cell.strategy) {
            legend.push((cell.strategy.clone(), strategy(&cell.strategy)));
        }
    }
    let mut svg = String::new();
    draw(map, &mut svg).map_err(undrawn)?;
    Ok(Some(Plot { svg, legend }))
}

fn draw(map: &Map, svg: &mut String) -> Result<(), Box<dyn std::error::Error>> {
    let exponent = |size: usize| size.max(1).ilog2();
    let columns = map.cells.iter().map(|cell| exponent(cell.columns)).max();
    let rows = map.cells.iter().map(|cell| exponent(cell.rows)).max();
    let (columns, rows) = (columns.unwrap_or(0), rows.unwrap_or(0));
    let width = LEFT + CELL * (columns as i32 + 1) + CELL;
    let bottom = CELL * (rows as i32 + 1) + CELL / 2;

    let root = SVGBackend::with_string(svg, (width as u32, (bottom + BELOW) as u32));
    let root = root.into_drawing_area();
    root.fill(&WHITE)?;
    for cell in &map.cells {
        let x = LEFT + CELL * exponent(cell.columns) as i32;
        let y = bottom - CELL * (exponent(cell.rows) as i32 + 1);
        let corners = [(x, y), (x + CELL - 1, y + CELL - 1)];
        let fill = strategy(&cell.strategy).filled();
        root.draw(&Rectangle::new(corners, fill))?;
    }
    let text = |horizontal: HPos, vertical: VPos| {
        let style = TextStyle::from(FONT.into_font());
        style.color(&GREY).pos(Pos::new(horizontal, vertical))
    };
    let (across, down) = (
        text(HPos::Center, VPos::Top),
        text(HPos::Right, VPos::Center),
    );
    let middle = |exponent: u32| CELL * exponent as i32 + CELL / 2;
    for exponent in (0..=columns).step_by(STEP as usize) {
        let place = (LEFT + middle(exponent), bottom + 4);
        root.draw_text(&size(1 << exponent), &across, place)?;
    }
    for exponent in (0..=rows).step_by(STEP as usize) {
        let place = (LEFT - 8, bottom - middle(exponent));
        root.draw_text(&size(1 << exponent), &down, place)?;
    }
    root.draw_text(
        "columns",
        &across,
        (LEFT + middle(columns) / 2, bottom + 26),
    )?;
    let turned = TextStyle::from(FONT.into_font().transform(FontTransform::Rotate270));
    let turned = turned
        .color(&GREY)
        .pos(Pos::new(HPos::Center, VPos::Center));
    root.draw_text("rows", &turned, (18, bottom - middle(rows) / 2))?;
    root.present()?;
    Ok(())
}
