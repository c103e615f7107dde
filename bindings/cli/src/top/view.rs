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
        let (width, height) = (frame.area().width, frame.area().height);
        let inside = usize::from(width.saturating_sub(2));
        let devices: Vec<_> = self
            .last
            .devices
            .iter()
            .map(|(&number, values)| (number, values, flow(self.figures(number, values), inside)))
            .collect();
        // Two for the frame, one for the bar; the curve is taller where there is room.
        let curve = if height >= 30 && devices.len() == 1 { 4 } else { 1 };
        let mut heights = vec![Constraint::Length(1)];
        heights.extend(devices.iter().map(|it| Constraint::Length(it.2.len() as u16 + 3 + curve)));
        heights.extend([Constraint::Min(3), Constraint::Length(1)]);
        let areas = Layout::vertical(heights).split(frame.area());
        frame.render_widget(Line::from(self.title.as_str()).bold(), areas[0]);
        let last = devices.len() + 1;
        for (place, (number, values, lines)) in devices.into_iter().enumerate() {
            self.device(frame, areas[1 + place], number, values, lines);
        }
        self.scopes(frame, areas[last]);
        let foot = match &self.warning {
            Some(warning) => Line::from(warning.as_str()).style(Style::new().fg(Color::Red)),
            None => Line::from("q quits").dim(),
        };
        frame.render_widget(foot, areas[last + 1]);
    }

    fn device(
        &self,
        frame: &mut Frame<'_>,
        area: Rect,
        number: u32,
        values: &BTreeMap<String, f64>,
        lines: Vec<Line<'_>>,
    ) {
        let of = |name: &str| values.get(name).copied().unwrap_or(0.0);
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
            Constraint::Length(lines.len() as u16),
            Constraint::Min(1),
        ])
        .split(inside);
        let total = total(values);
        frame.render_widget(bar(&parts(values), total, rows[0].width.into()), rows[0]);
        frame.render_widget(Paragraph::new(lines), rows[1]);
        if let Some(curve) = self.curves.get(&number) {
            let width = usize::from(rows[2].width);
            let shown: Vec<u64> =
                curve.iter().skip(curve.len().saturating_sub(width)).copied().collect();
            let curve = Sparkline::default().data(&shown).max(total as u64).style(Color::Blue);
            frame.render_widget(curve, rows[2]);
        }
    }

    /// What is said of a device, a figure each; an empty one begins a line.
    fn figures(&self, number: u32, values: &BTreeMap<String, f64>) -> Vec<Vec<Span<'static>>> {
        let of = |name: &str| values.get(name).copied().unwrap_or(0.0);
        let mut figures: Vec<Vec<Span<'static>>> = Vec::new();
        for (name, bytes, colour, mark) in parts(values) {
            let key = Span::styled(format!("{mark} "), Style::new().fg(colour));
            figures.push(vec![key, Span::raw(format!("{name} {}", size(bytes)))]);
        }
        let served = (of("hit_total") + of("miss_total")).max(1.0);
        let count = |name: &str| count_text(of(name) as u64);
        let texts = [
            format!("reserved {} of {}", size(of("reserved_bytes")), size(total(values))),
            String::new(),
            format!("mallocs {}/s", self.rate(number, "malloc_total")),
            format!("frees {}/s", self.rate(number, "free_total")),
            format!("driver calls {}/s", self.rate(number, "driver_call_total")),
            format!("from the cache {:.1} %", 100.0 * of("hit_total") / served),
            String::new(),
            format!("live blocks {}", count("live_block")),
            format!("peak reserved {}", size(of("reserved_peak_bytes"))),
            format!("largest free {}", size(of("largest_free_bytes"))),
            format!("waits {}", count("wait_total")),
            format!("out of memory {}", count("out_of_memory_total")),
        ];
        figures.extend(texts.map(|text| if text.is_empty() { vec![] } else { vec![text.into()] }));
        figures
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
            row(path, [size(*live), size(*peak), count_text(*blocks as u64)])
        });
        let widths = [
            Constraint::Min(20),
            Constraint::Length(12),
            Constraint::Length(12),
            Constraint::Length(12),
        ];
        let table = Table::new(rows, widths)
            .header(row("scope", ["live", "peak", "blocks"].map(str::to_owned)).bold())
            .block(Block::bordered().title(" scopes "));
        frame.render_widget(table, area);
    }
}

/// A row of the table: numbers end below each other.
fn row(first: &str, numbers: [String; 3]) -> Row<'static> {
    let numbers = numbers.map(|it| Line::from(it).right_aligned());
    Row::new([Line::from(first.to_owned())].into_iter().chain(numbers).collect::<Vec<_>>())
}

/// Figures in lines of `width` cells: none is broken, however narrow the terminal.
fn flow(figures: Vec<Vec<Span<'static>>>, width: usize) -> Vec<Line<'static>> {
    const APART: &str = "   ";
    let mut lines = vec![Line::default()];
    for figure in figures {
        let line = lines.last_mut().expect("there is one from the beginning");
        let wide: usize = figure.iter().map(Span::width).sum();
        if figure.is_empty() {
            lines.push(Line::default());
        } else if line.spans.is_empty() {
            line.spans.extend(figure);
        } else if line.width() + APART.len() + wide > width {
            lines.push(Line::from(figure));
        } else {
            line.spans.push(APART.into());
            line.spans.extend(figure);
        }
    }
    lines
}

type Part = (&'static str, f64, Color, char);

/// The parts of the bar.
fn parts(values: &BTreeMap<String, f64>) -> [Part; 3] {
    let of = |name: &str| values.get(name).copied().unwrap_or(0.0);
    [
        ("live", of("allocated_bytes"), Color::Blue, '█'),
        ("limbo", of("active_bytes") - of("allocated_bytes"), Color::Yellow, '▓'),
        ("cached", of("cached_bytes"), Color::Cyan, '▒'),
    ]
}

/// What the whole bar stands for: the device's memory.
fn total(values: &BTreeMap<String, f64>) -> f64 {
    let of = |name: &str| values.get(name).copied().unwrap_or(0.0);
    of("device_memory_bytes").max(of("reserved_bytes")).max(1.0)
}

fn size(bytes: f64) -> String {
    bytes_text(bytes as u64)
}

/// A bar of `width` cells; what is there at all has one at least.
fn bar(parts: &[Part], total: f64, width: usize) -> Line<'static> {
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
    fn a_narrow_terminal_gets_more_lines_and_all_figures() {
        let view = View::new("title".into(), sample(100));
        let figures = || view.figures(0, &view.last.devices[&0]);
        let text = |width| {
            let lines: Vec<String> = flow(figures(), width).iter().map(Line::to_string).collect();
            assert!(lines.iter().all(|line| line.chars().count() <= width), "{lines:?}");
            (lines.len(), lines.join("   "))
        };
        let (wide, narrow) = (text(108), text(48));
        assert_eq!((wide.0, narrow.1), (3, wide.1));
        assert!(narrow.0 > 3);
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
