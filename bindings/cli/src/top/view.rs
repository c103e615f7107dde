//! The view: samples as a screen of text, for a terminal of any size.

use std::collections::{BTreeMap, VecDeque};

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Row, Sparkline, Table};

use super::sample::Sample;
use crate::table::{bytes_text, count_text};

/// How many samples are kept for the curves.
const KEPT: usize = 600;

/// Samples of one process, the last of them, and rates between the last two.
pub struct View {
    title: String,
    last: Sample,
    before: Option<(Sample, f64)>,
    /// Active bytes of each device, oldest first.
    curves: BTreeMap<u32, VecDeque<u64>>,
    /// What is wrong with what is shown, if anything is.
    pub warning: Option<String>,
}

impl View {
    /// Begins with a first sample.
    pub fn new(title: String, first: Sample) -> Self {
        let mut view = Self {
            title,
            last: Sample::default(),
            before: None,
            curves: BTreeMap::new(),
            warning: None,
        };
        view.keep(first);
        view
    }

    /// The next sample, taken `seconds` after the one before.
    pub fn next(&mut self, sample: Sample, seconds: f64) {
        self.before = Some((std::mem::take(&mut self.last), seconds));
        self.keep(sample);
    }

    fn keep(&mut self, sample: Sample) {
        for (&number, values) in &sample.devices {
            let curve = self.curves.entry(number).or_default();
            curve.push_back(values.get("active_bytes").copied().unwrap_or(0.0) as u64);
            if curve.len() > KEPT {
                curve.pop_front();
            }
        }
        self.last = sample;
    }

    /// Draws all of it.
    pub fn draw(&self, frame: &mut Frame<'_>) {
        let devices = self.last.devices.len();
        let mut heights = vec![Constraint::Length(1)];
        heights.extend(std::iter::repeat_n(Constraint::Length(8), devices));
        heights.push(Constraint::Min(3));
        heights.push(Constraint::Length(1));
        let areas = Layout::vertical(heights).split(frame.area());
        frame.render_widget(Line::from(self.title.as_str()).bold(), areas[0]);
        for (place, (&number, values)) in self.last.devices.iter().enumerate() {
            self.device(frame, areas[1 + place], number, values);
        }
        self.scopes(frame, areas[1 + devices]);
        let foot = match &self.warning {
            Some(warning) => Line::from(warning.as_str()).style(Style::new().fg(Color::Red)),
            None => Line::from("q quits").dim(),
        };
        frame.render_widget(foot, areas[2 + devices]);
    }

    fn device(
        &self,
        frame: &mut Frame<'_>,
        area: Rect,
        number: u32,
        values: &BTreeMap<String, f64>,
    ) {
        let of = |name: &str| values.get(name).copied().unwrap_or(0.0);
        let total = of("device_memory_bytes").max(of("reserved_bytes")).max(1.0);
        let title = match of("limit_bytes") {
            limit if limit.is_finite() => {
                format!(" device {number}, limit {} ", bytes_text(limit as u64))
            }
            _ => format!(" device {number} "),
        };
        let block = Block::bordered().title(title);
        let inside = block.inner(area);
        frame.render_widget(block, area);
        let rows = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Length(2),
            Constraint::Min(1),
        ])
        .split(inside);
        let parts = [
            ("live", of("allocated_bytes"), Color::Blue, '█'),
            ("limbo", of("active_bytes") - of("allocated_bytes"), Color::Yellow, '▓'),
            ("cached", of("cached_bytes"), Color::Cyan, '▒'),
        ];
        frame.render_widget(bar(&parts, total, rows[0].width.into()), rows[0]);
        let mut legend: Vec<Span<'_>> = Vec::new();
        for (name, bytes, colour, mark) in parts {
            legend.push(Span::styled(format!("{mark} "), Style::new().fg(colour)));
            legend.push(Span::raw(format!("{name} {}   ", bytes_text(bytes as u64))));
        }
        legend.push(Span::raw(format!(
            "reserved {} of {}",
            size(of("reserved_bytes")),
            size(total)
        )));
        frame.render_widget(Line::from(legend), rows[1]);
        let served = (of("hit_total") + of("miss_total")).max(1.0);
        let lines = [
            format!(
                "mallocs {}/s   frees {}/s   driver calls {}/s   from the cache {:.1} %",
                self.rate(number, "malloc_total"),
                self.rate(number, "free_total"),
                self.rate(number, "driver_call_total"),
                100.0 * of("hit_total") / served,
            ),
            format!(
                "live blocks {}   peak reserved {}   largest free {}   waits {}   out of memory {}",
                count_text(of("live_block") as u64),
                size(of("reserved_peak_bytes")),
                size(of("largest_free_bytes")),
                count_text(of("wait_total") as u64),
                count_text(of("out_of_memory_total") as u64),
            ),
        ];
        frame.render_widget(Paragraph::new(lines.map(Line::from).to_vec()), rows[2]);
        if let Some(curve) = self.curves.get(&number) {
            let width = usize::from(rows[3].width);
            let shown: Vec<u64> =
                curve.iter().skip(curve.len().saturating_sub(width)).copied().collect();
            let curve = Sparkline::default().data(&shown).max(total as u64).style(Color::Blue);
            frame.render_widget(curve, rows[3]);
        }
    }

    /// How much a counter rose in a second, between the last two samples.
    fn rate(&self, number: u32, name: &str) -> String {
        let of = |sample: &Sample| sample.devices.get(&number).and_then(|it| it.get(name)).copied();
        let Some((before, seconds)) = &self.before else { return "-".to_owned() };
        match (of(before), of(&self.last)) {
            // One that starts anew tells nothing.
            (Some(from), Some(to)) if to >= from => count_text(((to - from) / seconds) as u64),
            _ => "-".to_owned(),
        }
    }

    fn scopes(&self, frame: &mut Frame<'_>, area: Rect) {
        let mut scopes: Vec<_> = self.last.scopes.iter().collect();
        scopes.sort_by(|a, b| b.1[0].total_cmp(&a.1[0]).then(a.0.cmp(b.0)));
        let rows = scopes.into_iter().map(|(path, [live, peak, blocks])| {
            let path = if path.is_empty() { "all" } else { path };
            Row::new([path.to_owned(), size(*live), size(*peak), count_text(*blocks as u64)])
        });
        let widths = [
            Constraint::Min(20),
            Constraint::Length(12),
            Constraint::Length(12),
            Constraint::Length(12),
        ];
        let table = Table::new(rows, widths)
            .header(Row::new(["scope", "live", "peak", "blocks"]).bold())
            .block(Block::bordered().title(" scopes "));
        frame.render_widget(table, area);
    }
}

fn size(bytes: f64) -> String {
    bytes_text(bytes as u64)
}

/// A bar of `width` cells; what is there at all has one at least.
fn bar(parts: &[(&str, f64, Color, char)], total: f64, width: usize) -> Line<'static> {
    let mut left = width;
    let mut spans = Vec::new();
    for &(_, bytes, colour, mark) in parts {
        let share = (bytes / total * width as f64).round() as usize;
        let cells = share.max(usize::from(bytes > 0.0)).min(left);
        left -= cells;
        spans.push(Span::styled(mark.to_string().repeat(cells), Style::new().fg(colour)));
    }
    spans.push(Span::raw("·".repeat(left)).dim());
    Line::from(spans)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(mallocs: u64) -> Sample {
        let text = format!("cuddy_malloc_total{{device=\"0\"}} {mallocs}\n");
        Sample::parse(&text).expect("it is Cuddy's")
    }

    #[test]
    fn a_rate_is_what_came_in_the_time_that_passed() {
        let mut view = View::new("title".into(), sample(100));
        assert_eq!(view.rate(0, "malloc_total"), "-");
        view.next(sample(400), 0.5);
        assert_eq!(view.rate(0, "malloc_total"), "600");
        // The counters were started anew.
        view.next(sample(10), 0.5);
        assert_eq!(view.rate(0, "malloc_total"), "-");
        assert_eq!(view.rate(1, "malloc_total"), "-");
    }
}
