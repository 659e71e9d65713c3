//! Plain commands, which run only the programs that their text names. Only these can match an `allow`
//! pattern.

use super::words;
use brush_parser::ast;

/// Returns the simple commands of a program, or `None` if it contains anything else or has side effects in words or
/// redirections.
pub(super) fn plain_commands(program: &ast::Program) -> Option<Vec<&ast::SimpleCommand>> {
    let mut commands = Vec::new();
    for ast::CompoundListItem(and_or, _) in program.complete_commands.iter().flat_map(|list| &list.0) {
        let others = and_or.additional.iter().map(|(ast::AndOr::And(p) | ast::AndOr::Or(p))| p);
        for command in std::iter::once(&and_or.first).chain(others).flat_map(|pipeline| &pipeline.seq) {
            match command {
                ast::Command::Simple(simple) if is_plain(simple) => commands.push(simple),
                _ => return None,
            }
        }
    }
    Some(commands)
}

fn is_plain(command: &ast::SimpleCommand) -> bool {
    use ast::CommandPrefixOrSuffixItem as Item;
    let plain_word = |word: &ast::Word| {
        words::scan(&word.value, false)
            .is_some_and(|s| s.commands.is_empty() && s.arithmetic.is_empty() && !s.prompt)
    };
    let plain_item = |item: &Item| match item {
        Item::IoRedirect(redirect) => writes_nothing(redirect),
        Item::Word(word) | Item::AssignmentWord(_, word) => plain_word(word),
        Item::ProcessSubstitution(..) => false,
    };
    let prefix = command.prefix.iter().flat_map(|prefix| &prefix.0);
    let suffix = command.suffix.iter().flat_map(|suffix| &suffix.0);
    prefix.chain(suffix).all(plain_item) && command.word_or_name.iter().all(plain_word)
}

/// Returns whether a redirection writes to no file, only to `/dev/null` or another stream.
fn writes_nothing(redirect: &ast::IoRedirect) -> bool {
    use ast::{IoFileRedirectKind as Kind, IoFileRedirectTarget as Target, IoRedirect as R};
    match redirect {
        R::File(_, Kind::Write | Kind::Append, Target::Filename(word)) | R::OutputAndError(word, _) => {
            word.value == "/dev/null"
        }
        R::File(_, Kind::DuplicateOutput, Target::Fd(_)) => true,
        R::File(_, Kind::DuplicateOutput, Target::Duplicate(word)) => {
            !word.value.is_empty() && word.value.chars().all(|c| c.is_ascii_digit())
        }
        _ => false,
    }
}

/// Returns a simple command as written, with single spaces between its words and without redirections.
pub(super) fn as_written(command: &ast::SimpleCommand) -> String {
    use ast::CommandPrefixOrSuffixItem as Item;
    let of = |item: &Item| match item {
        Item::Word(word) | Item::AssignmentWord(_, word) => Some(word.value.clone()),
        Item::IoRedirect(_) | Item::ProcessSubstitution(..) => None,
    };
    let prefix = command.prefix.iter().flat_map(|prefix| &prefix.0).filter_map(of);
    let suffix = command.suffix.iter().flat_map(|suffix| &suffix.0).filter_map(of);
    let name = command.word_or_name.iter().map(|word| word.value.clone());
    prefix.chain(name).chain(suffix).collect::<Vec<_>>().join(" ")
}
