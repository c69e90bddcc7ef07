//! From a machine to Markdown.

use crate::machine::Describe;
use std::collections::BTreeMap;

/// A cell of a table too sparse for names.
pub const NOTHING: &str = "·";

pub fn section<M: Describe>() -> String {
    let mut parts =
        vec![format!("## {}\n", M::TITLE), format!("{}\n", M::INTRODUCTION.trim()), diagram::<M>()];
    for (caption, commands) in M::commands() {
        parts.push(format!("{caption}\n"));
        parts.push(table::<M>(&commands));
    }
    parts.extend([M::more(), refusals::<M>()]);
    parts.retain(|part| !part.is_empty());
    parts.join("\n")
}

fn table<M: Describe>(commands: &[(String, M::Command)]) -> String {
    let head: Vec<String> = commands.iter().map(|(heading, _)| heading.clone()).collect();
    let rows = M::states().into_iter().map(|(heading, state)| {
        let cells = commands.iter().map(|(_, command)| match M::decide(&state, command) {
            Ok(next) => format!("**{}**", M::cell(&next)),
            Err(refusal) => M::refusal(&refusal),
        });
        (heading, cells.collect())
    });
    markdown("", &head, rows)
}

pub fn markdown(
    corner: &str,
    head: &[String],
    rows: impl IntoIterator<Item = (String, Vec<String>)>,
) -> String {
    let mut text = format!("| {corner} | {} |\n", head.join(" | "));
    text += &format!("| --- |{}\n", " --- |".repeat(head.len()));
    for (heading, cells) in rows {
        text += &format!("| {heading} | {} |\n", cells.join(" | "));
    }
    text
}

/// From, to, by: every move of every state, in the order of the tables, each once.
pub fn moves<M: Describe>() -> Vec<(String, String, String)> {
    let commands: Vec<M::Command> =
        M::commands().into_iter().flat_map(|(_, group)| group).map(|(_, command)| command).collect();
    let mut moves = Vec::new();
    for (_, state) in M::states() {
        for command in &commands {
            if let Ok(next) = M::decide(&state, command)
                && next != state
            {
                let made = (M::word(&state), M::word(&next), M::verb(command));
                if !moves.contains(&made) {
                    moves.push(made);
                }
            }
        }
    }
    moves
}

fn diagram<M: Describe>() -> String {
    let moves = moves::<M>();
    let mut words: Vec<String> = M::states().iter().map(|(_, state)| M::word(state)).collect();
    words.dedup();
    let from_anywhere = from_anywhere(&moves, &words);
    let drawn = moves.iter().filter(|(from, to, by)| {
        let is_loop = from == to;
        !from_anywhere.contains_key(by) && (!is_loop || M::DRAWS_LOOPS)
    });
    let mut arrows: Vec<(&str, &str, Vec<&str>)> = Vec::new();
    for (from, to, by) in drawn {
        match arrows.iter_mut().find(|(f, t, _)| (f, t) == (&from.as_str(), &to.as_str())) {
            Some((_, _, verbs)) => verbs.push(by),
            None => arrows.push((from, to, vec![by])),
        }
    }
    let mut text = format!("```mermaid\nstateDiagram-v2\n    [*] --> {}\n", M::FIRST);
    for (from, to, verbs) in arrows {
        text += &format!("    {from} --> {to}: {}\n", verbs.join(", "));
    }
    for word in words.iter().filter(|word| !moves.iter().any(|(from, to, _)| from == *word && to != *word)) {
        text += &format!("    {word} --> [*]\n");
    }
    text += "```\n";
    for (by, to) in from_anywhere {
        text += &format!("\nNot drawn: `{by}` leads from everywhere to `{to}`.\n");
    }
    text
}

/// Commands that lead from every other state to one and the same.
fn from_anywhere(moves: &[(String, String, String)], words: &[String]) -> BTreeMap<String, String> {
    let leads_everywhere = |by: &str, to: &str| {
        words.iter().filter(|word| *word != to).all(|word| {
            moves.iter().any(|(from, target, verb)| (from, target.as_str(), verb.as_str()) == (word, to, by))
        })
    };
    let found = moves.iter().filter(|(_, to, by)| words.len() > 2 && leads_everywhere(by, to));
    found.map(|(_, to, by)| (by.clone(), to.clone())).collect()
}

/// What each refusal in the tables says to whoever is refused.
fn refusals<M: Describe>() -> String {
    let mut said: BTreeMap<String, String> = BTreeMap::new();
    for (_, state) in M::states() {
        for (_, command) in M::commands().into_iter().flat_map(|(_, group)| group) {
            if let Err(refusal) = M::decide(&state, &command)
                && M::refusal(&refusal) != NOTHING
            {
                said.entry(M::refusal(&refusal)).or_insert_with(|| refusal.to_string());
            }
        }
    }
    if said.is_empty() {
        return String::new();
    }
    let rows = said.into_iter().map(|(name, sentence)| (name, vec![sentence]));
    markdown("refusal", &["for example".into()], rows)
}
