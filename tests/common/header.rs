//! Reads a C header as cbindgen writes it: one declaration a line or a braced body, `//` comments.

use std::collections::BTreeMap;

/// What a header declares.
pub struct Header {
    /// A function's name, to its declaration on one line and the comment before it.
    pub functions: BTreeMap<String, Function>,
    /// A struct's name, to its fields' names, in order.
    pub structs: BTreeMap<String, Vec<String>>,
    /// An enum's constants with their numbers, in order.
    pub constants: Vec<(String, i64)>,
    /// Macros: name and text.
    pub macros: Vec<(String, String)>,
}

/// A declared function.
pub struct Function {
    /// `cuddy_status cuddy_free(void *ptr)`.
    pub declaration: String,
    /// The comment before it, without slashes.
    pub comment: String,
    /// Its parameters' names.
    pub parameters: Vec<String>,
}

impl Header {
    /// Reads the text of a header.
    pub fn read(text: &str) -> Self {
        let mut header = Self {
            functions: BTreeMap::new(),
            structs: BTreeMap::new(),
            constants: Vec::new(),
            macros: Vec::new(),
        };
        let (mut comment, mut statement) = (String::new(), String::new());
        for line in text.lines() {
            let trimmed = line.trim();
            if let Some(words) = trimmed.strip_prefix("//") {
                if statement.is_empty() {
                    comment.push_str(words.strip_prefix(' ').unwrap_or(words));
                    comment.push('\n');
                }
            } else if let Some(directive) = trimmed.strip_prefix('#') {
                if let Some(rest) = directive.trim_start().strip_prefix("define ") {
                    let (name, value) = rest.split_once(' ').unwrap_or((rest, ""));
                    header.macros.push((name.to_owned(), value.trim().to_owned()));
                }
                if statement.is_empty() {
                    comment.clear();
                }
            } else if trimmed.is_empty() {
                if statement.is_empty() {
                    comment.clear();
                }
            } else if trimmed == "extern \"C\" {" || trimmed.starts_with("}  // extern") {
                comment.clear();
            } else {
                statement.push_str(trimmed);
                statement.push(' ');
                let open = statement.matches('{').count() > statement.matches('}').count();
                if trimmed.ends_with(';') && !open {
                    header.take(statement.trim_end_matches([';', ' ']), &comment);
                    statement.clear();
                    comment.clear();
                }
            }
        }
        assert!(statement.is_empty(), "the header ends inside: {statement}");
        header
    }

    fn take(&mut self, statement: &str, comment: &str) {
        if let Some(rest) = statement.strip_prefix("typedef struct ")
            && let Some((name, body)) = rest.split_once('{')
        {
            let body = body.split('}').next().unwrap_or_default();
            let fields = body.split(';').filter_map(|field| last_name(field.trim()));
            self.structs.insert(name.trim().to_owned(), fields.collect());
        } else if let Some(rest) = statement.strip_prefix("enum ") {
            let body = rest.split_once('{').and_then(|(_, body)| body.split('}').next());
            for constant in body.unwrap_or_default().split(',').filter(|c| !c.trim().is_empty()) {
                let (name, number) = constant.split_once('=').expect("each constant has a number");
                let number = number.trim().parse().expect("a decimal number");
                self.constants.push((name.trim().to_owned(), number));
            }
        } else if statement.starts_with("typedef ") {
            // Another name for a type: compiling checks it.
        } else if let Some((before, after)) = statement.split_once('(') {
            let name = last_name(before).expect("a function has a name");
            let list = after.trim_end_matches(')');
            let parameters = match list {
                "void" => Vec::new(),
                _ => list.split(',').filter_map(last_name).collect(),
            };
            let function = Function {
                declaration: statement.to_owned(),
                comment: comment.to_owned(),
                parameters,
            };
            assert!(self.functions.insert(name, function).is_none(), "twice: {statement}");
        } else {
            panic!("what is this? {statement}");
        }
    }
}

fn last_name(text: &str) -> Option<String> {
    let name = text.trim().rsplit([' ', '*']).next()?;
    (!name.is_empty()).then(|| name.to_owned())
}
