//! A page about a snapshot: one HTML file that needs nothing else, for `cuddy report`.
//!
//! `digest` makes of the snapshot what is drawn, and the page draws it. What is drawn is bounded, however
//! many events there were: points of the `timeline`, changes in `moments`, stacks in `sites`.

mod digest;
mod moments;
mod sites;
mod timeline;

use digest::Digest;

use crate::cli::{Outcome, ReportArgs};
use crate::snapshot::Snapshot;

const FRAME: &str = include_str!("page.html");
/// One script: what all use, the timeline, the map of addresses, call sites, and the page as a whole.
const SCRIPT: &str = concat!(
    include_str!("basis.js"),
    include_str!("timeline.js"),
    include_str!("map.js"),
    include_str!("sites.js"),
    include_str!("page.js"),
);
const STYLE: &str = include_str!("page.css");
/// uPlot (https://github.com/leeoniya/uPlot), by Leon Sorokin, under the MIT licence beside it.
const PLOT_SCRIPT: &str = include_str!("uPlot.iife.min.js");
const PLOT_STYLE: &str = include_str!("uPlot.min.css");

/// Writes the page of a snapshot, and says where it is.
pub fn run(args: &ReportArgs) -> Result<Outcome, String> {
    let name = args.snapshot.display();
    let text = std::fs::read(&args.snapshot).map_err(|error| format!("{name}: {error}"))?;
    let snapshot = Snapshot::parse(&text).map_err(|why| format!("{name}: {why}"))?;
    let page = page(&snapshot)?;
    let output = args.output.clone().unwrap_or_else(|| args.snapshot.with_extension("html"));
    std::fs::write(&output, &page).map_err(|error| format!("{}: {error}", output.display()))?;
    let events = snapshot.history.events.len();
    eprintln!("cuddy: {} ({events} events, {} KiB)", output.display(), page.len() >> 10);
    Ok(Outcome::Well)
}

fn page(snapshot: &Snapshot) -> Result<String, String> {
    let digest = serde_json::to_string(&Digest::of(snapshot)).map_err(|error| error.to_string())?;
    // Inside a script element nothing may look like its end.
    let digest = digest.replace("</", "<\\/");
    let parts = [
        ("/*PLOT STYLE*/", PLOT_STYLE),
        ("/*STYLE*/", STYLE),
        ("/*PLOT SCRIPT*/", PLOT_SCRIPT),
        ("/*SCRIPT*/", SCRIPT),
        ("/*DATA*/", &digest),
    ];
    Ok(parts.iter().fold(FRAME.to_owned(), |page, (mark, text)| page.replacen(mark, text, 1)))
}
