//! The text that Prometheus reads (exposition format 0.0.4).

use std::fmt::{Display, Write};

pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

#[derive(Debug, Default)]
pub struct Text(String);

impl Text {
    /// Begins a family; its samples follow.
    pub fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    pub fn sample<'a>(
        &mut self,
        name: &str,
        labels: impl IntoIterator<Item = (&'a str, &'a str)>,
        value: impl Display,
    ) {
        self.0.push_str(name);
        let mut before = '{';
        for (label, value) in labels {
            let _ = write!(self.0, "{before}{label}=\"{}\"", escaped(value));
            before = ',';
        }
        if before == ',' {
            self.0.push('}');
        }
        let _ = writeln!(self.0, " {value}");
    }

    /// A family of one sample without labels.
    pub fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.sample(name, [], value);
    }

    pub fn into_string(self) -> String {
        self.0
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_cannot_break_out_of_their_quotes() {
        let mut text = Text::default();

        text.family("a", "gauge", "An a.");
        text.sample("a", [("x", "q\"\\\n"), ("y", "plain")], 1.5);
        text.single("b", "counter", "A b.", 2);

        let expected = "# HELP a An a.\n# TYPE a gauge\na{x=\"q\\\"\\\\\\n\",y=\"plain\"} 1.5\n\
                        # HELP b A b.\n# TYPE b counter\nb 2\n";
        assert_eq!(text.into_string(), expected);
    }
}
