//! The parser: one pass over the characters, with a stack of open substitutions and subshells.

use std::mem;

use super::{Input, Script, Simple, is_keyword, pieces};

/// How deep substitutions and subshells may nest. Each level costs a frame.
const NESTING_MAX: usize = 1_000;

/// The placeholder in a word for the output of a substitution. It has no slash, so it adds no path component.
const SUBSTITUTED: &str = "$()";

pub(super) fn read(text: &str, is_here_document: bool) -> Script {
    let mut reader = Reader { text, ..Reader::default() };
    reader.frame.quotes.extend(is_here_document.then_some(Quote::HereDocument));
    reader.read_all();
    if is_here_document {
        // The rest of the outermost frame is the document itself, which is data.
        reader.frame.word = None;
    }
    reader.uncertain |= reader.frame.quotes.len() > usize::from(is_here_document);
    reader.finish()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Quote {
    /// `"…"`
    Double,
    /// `${…}`. `in_text`: inside double quotes or a here-document, where a single quote is an ordinary character.
    Brace { in_text: bool },
    /// The body of a here-document, where a `"` is an ordinary character.
    HereDocument,
}

/// The use of the current word.
#[derive(Clone, Copy, Default)]
enum Role {
    #[default]
    Word,
    Redirect,
    HereString,
    HereDocument {
        strip_tabs: bool,
    },
}

/// An open construct: the script itself, `(…)`, `$(…)` or backticks.
#[derive(Default)]
struct Frame {
    closer: Option<char>,
    /// Opened by `((`, where `<<` may be a shift.
    arithmetic: bool,
    /// Opened by `$((`. Its content is dropped when `))` closes it. That of `((` is kept, because some shells run it as a
    /// subshell.
    numeric: bool,
    quotes: Vec<Quote>,
    open_cases: usize,
    /// Whether the simple command has a word that is not a keyword.
    has_program: bool,
    commands: Vec<Simple>,
    simple: Simple,
    word: Option<String>,
    word_is_quoted: bool,
    role: Role,
}

impl Frame {
    fn until(closer: char) -> Frame {
        Frame { closer: Some(closer), ..Frame::default() }
    }
}

/// A here-document whose body starts at the next line.
struct HereDocument {
    delimiter: String,
    strip_tabs: bool,
    expands: bool,
}

#[derive(Default)]
struct Reader<'t> {
    text: &'t str,
    at: usize,
    line: usize,
    frame: Frame,
    outer: Vec<Frame>,
    open_backticks: usize,
    here_documents: Vec<HereDocument>,
    script: Script,
    /// The script could not be parsed with certainty, so all its pieces are returned too.
    uncertain: bool,
}

impl Reader<'_> {
    fn read_all(&mut self) {
        while let Some(c) = self.bump() {
            match self.frame.quotes.last() {
                None => self.read_plain(c),
                Some(&quote) => self.read_quoted(c, quote),
            }
        }
        while !self.outer.is_empty() {
            self.uncertain |= !self.frame.quotes.is_empty();
            self.close_frame();
        }
    }

    fn finish(mut self) -> Script {
        self.end_command();
        self.script.commands.append(&mut self.frame.commands);
        if self.uncertain {
            self.script.pieces.extend(pieces(self.text));
        }
        self.script
    }

    fn read_plain(&mut self, c: char) {
        match c {
            '\\' => self.read_escape(),
            '\'' => self.read_single_quoted(),
            '"' => self.open_quote(Quote::Double),
            '$' => self.read_dollar(),
            '`' => self.read_backtick(),
            '#' if self.frame.word.is_none() => self.skip_comment(),
            '\n' => self.end_line(),
            ';' | '|' => self.end_command(),
            '&' if self.peek() == Some('>') => self.end_word(),
            '&' => self.end_command(),
            '<' | '>' => self.read_redirection(c),
            '(' => self.open_parenthesis(),
            ')' => self.close_parenthesis(),
            '}' if self.frame.closer == Some('}') && self.frame.word.is_none() => self.close_frame(),
            ' ' | '\t' => self.end_word(),
            c => self.push(c),
        }
    }

    fn read_quoted(&mut self, c: char, quote: Quote) {
        match (c, quote) {
            ('"', Quote::Double) => {
                self.frame.quotes.pop();
            }
            ('}', Quote::Brace { .. }) => {
                self.push(c);
                self.frame.quotes.pop();
            }
            ('"', Quote::Brace { .. }) => self.open_quote(Quote::Double),
            ('\'', Quote::Brace { in_text: false }) => self.read_single_quoted(),
            ('\\', Quote::Brace { .. }) => self.read_escape(),
            ('\\', _) => {
                if self.peek().is_some_and(|next| "$`\"\\\n".contains(next)) {
                    self.read_escape();
                } else {
                    self.push(c);
                }
            }
            ('$', _) => self.read_dollar(),
            ('`', _) => self.read_backtick(),
            _ => self.push(c),
        }
    }

    /// Whether a single quote is an ordinary character here.
    fn is_in_text(&self) -> bool {
        match self.frame.quotes.last() {
            None => false,
            Some(Quote::Brace { in_text }) => *in_text,
            Some(Quote::Double | Quote::HereDocument) => true,
        }
    }

    fn read_escape(&mut self) {
        match self.bump() {
            // Inside backticks, an escaped backtick opens or closes a nested substitution.
            Some('`') if self.frame.closer == Some('`') => self.end_command(),
            Some('\n') => {}
            Some(c) => {
                self.frame.word_is_quoted = true;
                self.push(c);
            }
            None => {}
        }
    }

    fn read_single_quoted(&mut self) {
        self.frame.word_is_quoted = true;
        let rest = &self.text[self.at..];
        let end = rest.find('\'');
        let body = &rest[..end.unwrap_or(rest.len())];
        self.uncertain |= end.is_none() || self.is_ambiguous_quote(body);
        self.word().push_str(body);
        self.at += body.len() + usize::from(end.is_some());
    }

    /// Whether shells disagree about this quote: in arithmetic they differ, and a backtick ends the substitution.
    fn is_ambiguous_quote(&self, body: &str) -> bool {
        self.frame.arithmetic || (self.open_backticks > 0 && body.contains('`'))
    }

    fn open_quote(&mut self, quote: Quote) {
        self.frame.word_is_quoted = true;
        self.word();
        self.frame.quotes.push(quote);
    }

    fn read_dollar(&mut self) {
        if self.take('(') {
            self.word().push_str(SUBSTITUTED);
            self.open_frame(Frame::until(')'));
            if self.take('(') {
                self.open_frame(Frame { arithmetic: true, numeric: true, ..Frame::until(')') });
            }
        } else if self.take('{') {
            if self.peek().is_some_and(|c| c.is_whitespace() || c == '|') {
                // `${ command; }` runs the command in ksh, mksh and bash 5.3.
                self.word().push_str(SUBSTITUTED);
                return self.open_frame(Frame::until('}'));
            }
            self.word().push_str("${");
            let in_text = self.is_in_text();
            self.frame.quotes.push(Quote::Brace { in_text });
        } else if !self.is_in_text() && self.take('\'') {
            self.read_ansi_quoted();
        } else if !(self.frame.quotes.is_empty() && self.peek() == Some('"')) {
            self.push('$');
        }
    }

    /// `$'…'`, where `\x2f` is a slash.
    fn read_ansi_quoted(&mut self) {
        self.frame.word_is_quoted = true;
        self.word();
        let start = self.at;
        while let Some(c) = self.bump() {
            match c {
                '\'' => {
                    self.uncertain |= self.is_ambiguous_quote(&self.text[start..self.at]);
                    return;
                }
                '\\' => {
                    if let Some(c) = self.read_ansi_escape() {
                        self.push(c);
                    }
                }
                c => self.push(c),
            }
        }
        self.uncertain = true;
    }

    fn read_ansi_escape(&mut self) -> Option<char> {
        match self.bump()? {
            'x' => self.read_code(16, 2),
            'u' => self.read_code(16, 4),
            'U' => self.read_code(16, 8),
            '0'..='7' => {
                self.at -= 1;
                self.read_code(8, 3)
            }
            'n' => Some('\n'),
            't' => Some('\t'),
            c => Some(c),
        }
    }

    fn read_code(&mut self, radix: u32, digits_max: usize) -> Option<char> {
        let rest = &self.text[self.at..];
        let digits = rest.chars().take(digits_max).take_while(|c| c.is_digit(radix)).count();
        self.at += digits;
        u32::from_str_radix(&rest[..digits], radix).ok().and_then(char::from_u32)
    }

    fn read_backtick(&mut self) {
        if self.frame.closer == Some('`') {
            self.frame.quotes.clear();
            self.close_frame();
        } else {
            // Backticks nest only if escaped, so this one may close the outer substitution instead.
            self.uncertain |= self.open_backticks > 0;
            self.word().push_str(SUBSTITUTED);
            self.open_frame(Frame::until('`'));
        }
    }

    fn skip_comment(&mut self) {
        let rest = &self.text[self.at..];
        let ends_backticks = self.open_backticks > 0;
        let end = rest.find(|c| c == '\n' || (ends_backticks && c == '`'));
        self.at += end.unwrap_or(rest.len());
    }

    fn open_parenthesis(&mut self) {
        self.end_command();
        self.open_frame(Frame::until(')'));
        if self.take('(') {
            self.open_frame(Frame { arithmetic: true, ..Frame::until(')') });
        }
    }

    fn close_parenthesis(&mut self) {
        if self.frame.open_cases > 0 || self.frame.closer != Some(')') {
            // The end of a `case` pattern, or an unmatched parenthesis.
            return self.end_command();
        }
        if self.frame.numeric && self.peek() == Some(')') {
            self.end_command();
            self.frame.commands.clear();
        }
        self.close_frame();
    }

    fn read_redirection(&mut self, operator: char) {
        if self.frame.word.as_ref().is_some_and(|word| word.bytes().all(|b| b.is_ascii_digit())) {
            // The word is a descriptor number.
            self.frame.word = None;
        }
        self.end_word();
        if self.frame.arithmetic {
            return;
        }
        if self.take('(') {
            return self.open_frame(Frame::until(')'));
        }
        self.frame.role = if operator == '<' && self.take('<') {
            if self.take('<') { Role::HereString } else { Role::HereDocument { strip_tabs: self.take('-') } }
        } else {
            let _kind = self.take('>') || self.take('|') || self.take('&');
            Role::Redirect
        };
    }

    fn end_word(&mut self) {
        let quoted = mem::take(&mut self.frame.word_is_quoted);
        let Some(word) = self.frame.word.take() else { return };
        match mem::take(&mut self.frame.role) {
            Role::Word => {
                self.count_cases(&word);
                self.frame.simple.words.push(word);
            }
            Role::Redirect if word == "-" || word.bytes().all(|b| b.is_ascii_digit()) => {}
            Role::Redirect => self.frame.simple.redirects.push(word),
            Role::HereString => {
                self.script.pieces.push(word.clone());
                self.script.inputs.push(Input { text: word, line: self.line, expands: false });
            }
            Role::HereDocument { strip_tabs } => {
                self.here_documents.push(HereDocument { delimiter: word, strip_tabs, expands: !quoted });
            }
        }
    }

    fn count_cases(&mut self, word: &str) {
        match word {
            _ if self.frame.has_program => {}
            "case" => self.frame.open_cases += 1,
            "esac" => self.frame.open_cases = self.frame.open_cases.saturating_sub(1),
            _ => {}
        }
        self.frame.has_program |= !is_keyword(word);
    }

    fn end_command(&mut self) {
        self.end_word();
        self.frame.role = Role::Word;
        self.frame.has_program = false;
        let mut simple = mem::take(&mut self.frame.simple);
        if !simple.words.is_empty() || !simple.redirects.is_empty() {
            simple.line = self.line;
            self.frame.commands.push(simple);
        }
    }

    fn end_line(&mut self) {
        self.end_command();
        for document in mem::take(&mut self.here_documents) {
            if self.uncertain || !self.read_here_document(&document) {
                // Without a delimiter it is not a here-document, and what follows is read as commands. Searching for
                // the delimiters of further ones would cost a pass over the text for each.
                self.uncertain = true;
            }
        }
        self.line += 1;
    }

    /// Reads the body of a here-document. False if its delimiter is missing.
    fn read_here_document(&mut self, document: &HereDocument) -> bool {
        let body = &self.text[self.at..];
        let mut end = 0;
        for line in body.split_inclusive('\n') {
            let bare = line.strip_suffix('\n').unwrap_or(line);
            let bare = if document.strip_tabs { bare.trim_start_matches('\t') } else { bare };
            if bare == document.delimiter {
                let text = body[..end].to_owned();
                self.script.inputs.push(Input { text, line: self.line, expands: document.expands });
                self.at += end + line.len();
                return true;
            }
            end += line.len();
        }
        false
    }

    fn open_frame(&mut self, inner: Frame) {
        if self.outer.len() < NESTING_MAX {
            self.open_backticks += usize::from(inner.closer == Some('`'));
            self.outer.push(mem::replace(&mut self.frame, inner));
        } else {
            self.uncertain = true;
        }
    }

    fn close_frame(&mut self) {
        self.end_command();
        if let Some(outer) = self.outer.pop() {
            let inner = mem::replace(&mut self.frame, outer);
            self.open_backticks -= usize::from(inner.closer == Some('`'));
            self.script.commands.extend(inner.commands);
        }
    }

    fn word(&mut self) -> &mut String {
        self.frame.word.get_or_insert_default()
    }

    fn push(&mut self, c: char) {
        self.word().push(c);
    }

    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn bump(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn take(&mut self, c: char) -> bool {
        let taken = self.peek() == Some(c);
        if taken {
            self.at += c.len_utf8();
        }
        taken
    }
}
