//! The manual pages: what `--help` says, as `cuddy.1` and a page for each command.

use std::path::PathBuf;

use clap::{Args, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::cli::Outcome;

/// What `cuddy man` is told.
#[derive(Args)]
pub struct ManArgs {
    /// Where to write the pages: a folder, such as share/man/man1
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Writes a page for the command and for each of its own.
pub fn run(args: &ManArgs, mut command: Command) -> Result<Outcome, String> {
    command.build();
    let shown = |it: &&Command| !it.is_hide_set();
    let commands: Vec<&Command> = command.get_subcommands().filter(shown).collect();
    let names: Vec<String> = commands.iter().map(|it| name(it)).collect();
    for it in std::iter::once(&command).chain(commands) {
        let man = Man::new(it.clone()).title(name(it).to_uppercase()).manual("Cuddy");
        let man = man.source(concat!("cuddy ", env!("CARGO_PKG_VERSION")));
        let path = args.folder.join(man.get_filename());
        let page = page(&man, it, &names).map_err(|error| error.to_string())?;
        std::fs::write(&path, page).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(Outcome::Well)
}

fn name(command: &Command) -> String {
    command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned()
}

fn page(man: &Man, command: &Command, names: &[String]) -> std::io::Result<Vec<u8>> {
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    // Not spread to the right margin, and no word is broken: commands and options stay whole.
    Roff::new().control("ad", ["l"]).control("nh", []).to_writer(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    let more = command.get_after_long_help().or(command.get_after_help());
    let more = more.map(ToString::to_string).unwrap_or_default();
    let (first, sections) = parts(&more);
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let mut text = Roff::new();
    text.control("SH", ["DESCRIPTION"]).text([roman(format!("{}.", about.trim_end_matches('.')))]);
    text.control("PP", []);
    write_lines(&mut text, "", &first);
    text.to_writer(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let mut rest = Roff::new();
    for (heading, lines) in sections {
        rest.control("SH", [heading.to_uppercase().as_str()]);
        write_lines(&mut rest, heading, &lines);
    }
    rest.control("SH", ["SEE ALSO"]);
    let others =
        names.iter().map(String::as_str).chain(["cuddy"]).filter(|it| *it != name(command));
    let others: Vec<String> = others.map(|it| format!("{it}(1)")).collect();
    rest.text([roman(others.join(", "))]);
    rest.to_writer(&mut page)?;
    Ok(page)
}

/// The text before the first heading, and what each heading has below it. A heading is a line by itself
/// that ends in a colon, with indented lines behind it.
fn parts(text: &str) -> (Vec<&str>, Vec<(&str, Vec<&str>)>) {
    let (mut first, mut sections) = (Vec::new(), Vec::<(&str, Vec<&str>)>::new());
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let indented = lines.peek().is_some_and(|next| next.starts_with(' '));
        match line.strip_suffix(':') {
            Some(heading) if !line.starts_with(' ') && indented => {
                sections.push((heading, Vec::new()));
            }
            _ => match sections.last_mut() {
                Some((_, lines)) => lines.push(line.strip_prefix("  ").unwrap_or(line)),
                None => first.push(line),
            },
        }
    }
    (first, sections)
}

/// Below these headings lines stay as they are, up to an empty one; all others are filled into paragraphs.
const LISTS: [&str; 5] =
    ["Modes", "It also works without this command", "Exit code", "Example", "Examples"];

fn write_lines(page: &mut Roff, heading: &str, lines: &[&str]) {
    let mut list = LISTS.contains(&heading);
    if list {
        page.control("nf", []);
    }
    for line in lines {
        if !line.is_empty() {
            page.text([roman(if list { line } else { line.trim_start() })]);
            continue;
        }
        if std::mem::take(&mut list) {
            page.control("fi", []);
        }
        page.control("PP", []);
    }
    if list {
        page.control("fi", []);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_are_found() {
        let text = "What is printed: much.\n\nExit code:\n  0 if well.\n\nExamples:\n  cuddy x";
        let (first, sections) = parts(text);
        assert_eq!(first, ["What is printed: much.", ""]);
        assert_eq!(sections[0], ("Exit code", vec!["0 if well.", ""]));
        assert_eq!(sections[1], ("Examples", vec!["cuddy x"]));
    }
}
