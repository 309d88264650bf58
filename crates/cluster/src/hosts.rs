//! Host lists as Slurm writes them: `io[01-16]`, `r[1-2]n[01-04,07],login`.
//!
//! Names are parted by commas or white space. Brackets contain numbers and ranges of numbers; a range has the leading zeros
//! of its first number, and several brackets in one name give every combination, the last one counting fastest. Unlike
//! Slurm, text may follow the last bracket (`io[01-16]-ib`), and what Slurm reads in some way of its own (`io[1-]`, a
//! bracket that is never closed) is refused. The order is kept, and so are names that stand there twice.
//!
//! What a stranger writes costs little: the number of names is known, and bounded, before the first is made.

use std::fmt::Write;

/// The most names in one list.
pub const HOSTS_MAX: usize = 65_535;
/// The longest name, in bytes.
pub const HOST_LEN_MAX: usize = 255;
/// The most digits of a number: any number of so many fits into 64 bits.
const DIGITS_MAX: usize = 18;
/// So much of a list that cannot be read is shown.
const SHOWN_LEN_MAX: usize = 80;

/// A text that is no host list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{shown:?} is no host list: {reason} (allowed: names such as io01, io[01-16], io[1,3-5],r[1-2]n[01-16])")]
pub struct BadHosts {
    shown: String,
    reason: String,
}

/// A piece of one name.
enum Piece<'a> {
    Text(&'a str),
    Numbers(Vec<Range>),
}

/// Numbers from `first` to `last`, with zeros before them to fill `width`.
struct Range {
    first: u64,
    last: u64,
    width: usize,
}

impl Range {
    fn count(&self) -> u64 {
        self.last - self.first + 1
    }
}

/// The names that `text` stands for, in order.
///
/// # Errors
/// If it is no host list, has more than [`HOSTS_MAX`] names, or one of more than [`HOST_LEN_MAX`] bytes. No names at all
/// are an empty list.
pub fn expand(text: &str) -> Result<Vec<String>, BadHosts> {
    expand_within(text).map_err(|reason| BadHosts { shown: shown(text), reason })
}

fn expand_within(text: &str) -> Result<Vec<String>, String> {
    let mut hosts = Vec::new();
    for item in items(text)? {
        let pieces = pieces(item)?;
        let count = pieces.iter().fold(1u64, |count, piece| match piece {
            Piece::Text(_) => count,
            Piece::Numbers(ranges) => {
                count.saturating_mul(ranges.iter().fold(0, |sum: u64, range| sum.saturating_add(range.count())))
            }
        });
        if count > (HOSTS_MAX - hosts.len()) as u64 {
            return Err(format!("it has more than {HOSTS_MAX} names"));
        }
        let longest: usize = pieces.iter().map(longest).sum();
        if longest > HOST_LEN_MAX {
            return Err(format!("a name has {longest} bytes, more than {HOST_LEN_MAX}"));
        }
        hosts.extend(combinations(&pieces));
    }
    Ok(hosts)
}

/// Cuts at commas and white space outside brackets.
fn items(text: &str) -> Result<Vec<&str>, String> {
    let mut items = Vec::new();
    let (mut begin, mut is_inside) = (0, false);
    for (at, letter) in text.char_indices() {
        match letter {
            '[' if is_inside => return Err("a bracket is opened within another".to_owned()),
            ']' if !is_inside => return Err("a bracket is closed that was not opened".to_owned()),
            '[' | ']' => is_inside = !is_inside,
            ',' | ' ' | '\t' | '\r' | '\n' if !is_inside => {
                items.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    if is_inside {
        return Err("a bracket is never closed".to_owned());
    }
    items.push(&text[begin..]);
    items.retain(|item| !item.is_empty());
    Ok(items)
}

/// Brackets are balanced and not nested in `item`.
fn pieces(item: &str) -> Result<Vec<Piece<'_>>, String> {
    let mut pieces = Vec::new();
    let mut rest = item;
    while let Some((before, behind)) = rest.split_once('[') {
        let (inside, behind) = behind.split_once(']').ok_or("a bracket is never closed")?;
        if !before.is_empty() {
            pieces.push(Piece::Text(before));
        }
        pieces.push(Piece::Numbers(inside.split(',').map(range).collect::<Result<_, _>>()?));
        rest = behind;
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest));
    }
    Ok(pieces)
}

fn range(text: &str) -> Result<Range, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |digits: &str| {
        let is_number = (1..=DIGITS_MAX).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| digits.parse().ok()).flatten()
    };
    let (Some(low), Some(high)) = (number(first), number(last)) else {
        return Err(format!(
            "{:?} in a bracket is neither a number of up to {DIGITS_MAX} digits nor two with - between",
            shown(text)
        ));
    };
    if low > high {
        return Err(format!("{text:?} goes backwards"));
    }
    Ok(Range { first: low, last: high, width: first.len() })
}

fn longest(piece: &Piece<'_>) -> usize {
    match piece {
        Piece::Text(text) => text.len(),
        Piece::Numbers(ranges) => {
            let digits = |range: &Range| range.last.checked_ilog10().map_or(1, |log| log as usize + 1).max(range.width);
            ranges.iter().map(digits).max().unwrap_or(0)
        }
    }
}

fn combinations(pieces: &[Piece<'_>]) -> Vec<String> {
    let mut all = vec![String::new()];
    for piece in pieces {
        match piece {
            Piece::Text(text) => all.iter_mut().for_each(|name| name.push_str(text)),
            Piece::Numbers(ranges) => {
                let longer = |name: &String, number, width| format!("{name}{number:0width$}");
                all = all
                    .iter()
                    .flat_map(|name| ranges.iter().map(move |range| (name, range)))
                    .flat_map(|(name, range)| {
                        (range.first..=range.last).map(move |number| longer(name, number, range.width))
                    })
                    .collect();
            }
        }
    }
    all
}

/// The shortest list, of those that join neighbours by their last number alone, that [`expand`] expands to `names` again.
/// Names have no brackets, commas or white space, and are not empty.
pub fn compress<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut text = String::new();
    let mut open: Option<Run<'_>> = None;
    for name in names {
        if open.as_mut().is_some_and(|run| run.takes(name)) {
            continue;
        }
        if let Some(run) = open.replace(Run::new(name)) {
            run.write(&mut text);
        }
    }
    if let Some(run) = open {
        run.write(&mut text);
    }
    text
}

/// Names, one after the other, that differ in their last number.
struct Run<'a> {
    before: &'a str,
    behind: &'a str,
    /// The first and the last number of each range, as they are written.
    ranges: Vec<(&'a str, &'a str)>,
}

impl<'a> Run<'a> {
    fn new(name: &'a str) -> Self {
        match last_number(name) {
            Some((before, digits, behind)) => Self { before, behind, ranges: vec![(digits, digits)] },
            None => Self { before: name, behind: "", ranges: Vec::new() },
        }
    }

    /// Whether `name` goes on with the run, and is in it now.
    fn takes(&mut self, name: &'a str) -> bool {
        let Some((before, digits, behind)) = last_number(name) else { return false };
        let Some((first, last)) = self.ranges.last_mut() else { return false };
        if (before, behind) != (self.before, self.behind) {
            return false;
        }
        let width = first.len();
        let follows = last.parse::<u64>().is_ok_and(|last| format!("{:0width$}", last + 1) == digits);
        if follows {
            *last = digits
        } else {
            self.ranges.push((digits, digits))
        }
        true
    }

    fn write(&self, text: &mut String) {
        if !text.is_empty() {
            text.push(',');
        }
        // Writing to a string cannot fail.
        let _ = match &self.ranges[..] {
            [] => write!(text, "{}", self.before),
            [(first, last)] if first == last => write!(text, "{}{first}{}", self.before, self.behind),
            ranges => {
                let range = |(first, last): &(&str, &str)| match first == last {
                    true => (*first).to_owned(),
                    false => format!("{first}-{last}"),
                };
                let inside: Vec<String> = ranges.iter().map(range).collect();
                write!(text, "{}[{}]{}", self.before, inside.join(","), self.behind)
            }
        };
    }
}

/// What is before the last number of a name, the number, and what is behind it. A number of very many digits is none.
fn last_number(name: &str) -> Option<(&str, &str, &str)> {
    let end = name.rfind(|letter: char| letter.is_ascii_digit())? + 1;
    let begin = name[..end]
        .rfind(|letter: char| !letter.is_ascii_digit())
        .map_or(0, |at| at + name[at..].chars().next().map_or(1, char::len_utf8));
    (end - begin <= DIGITS_MAX).then(|| (&name[..begin], &name[begin..end], &name[end..]))
}

/// As much of `text` as a message may have.
fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN_LEN_MAX) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
