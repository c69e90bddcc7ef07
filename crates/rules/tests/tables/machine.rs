//! What the page needs to know of a machine.

use std::fmt::{Debug, Display};

/// Commands that share a table: its caption, and each with the heading of its column.
pub type Group<Command> = (&'static str, Vec<(String, Command)>);

pub trait Describe {
    type State: PartialEq;
    type Command;
    type Refusal: Debug + Display;

    const TITLE: &'static str;
    /// Which document it comes from, and what is derived rather than stored.
    const INTRODUCTION: &'static str;
    /// The word of the first state.
    const FIRST: &'static str;
    /// Whether a move from a state to itself, such as a renewal, belongs into the diagram.
    const DRAWS_LOOPS: bool = false;

    /// One for each case the rules tell apart, with the heading of its row.
    fn states() -> Vec<(String, Self::State)>;
    /// In tables of a readable width, each with its caption.
    fn commands() -> Vec<Group<Self::Command>>;
    fn decide(state: &Self::State, command: &Self::Command) -> Result<Self::State, Self::Refusal>;

    /// The document's own word: a node of the diagram.
    fn word(state: &Self::State) -> String;
    /// The command without its details: a label in the diagram.
    fn verb(command: &Self::Command) -> String;
    /// What a cell shows.
    fn cell(state: &Self::State) -> String {
        Self::word(state)
    }
    fn refusal(refusal: &Self::Refusal) -> String {
        variant(refusal)
    }
    /// Further tables.
    fn more() -> String {
        String::new()
    }
}

/// The name of an enum's variant, without what it carries.
pub fn variant(thing: &impl Debug) -> String {
    format!("{thing:?}").split(['(', ' ', '{']).next().unwrap_or_default().to_owned()
}

/// A list of labelled values, some for each variant of a type. A variant without a line does not compile.
macro_rules! every {
    ($type:ty { $($pattern:pat => [$($label:expr => $value:expr),+ $(,)?]),+ $(,)? }) => {{
        let _every_variant_is_listed = |it: &$type| match it { $($pattern => ()),+ };
        let mut list: Vec<(String, $type)> = Vec::new();
        $($(
            let value: $type = $value;
            assert!(matches!(&value, $pattern), "{} is listed under another variant", $label);
            list.push(($label.to_string(), value));
        )+)+
        list
    }};
}
pub(crate) use every;
