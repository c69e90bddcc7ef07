//! States and kinds are stored and shown as the words of their documents: one list serves both directions.

/// A word that names no state of its machine, as found in a database or a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown {machine} `{word}`; expected one of {expected}")]
pub struct Unknown {
    pub machine: &'static str,
    pub word: String,
    pub expected: String,
}

/// Gives a fieldless enum its words: `as_str`, `Display`, `FromStr`, serde, and `ALL` in order.
macro_rules! words {
    ($machine:literal, $type:ident { $($variant:ident => $word:literal),+ $(,)? }) => {
        impl $type {
            pub const ALL: &'static [$type] = &[$($type::$variant),+];

            pub const fn as_str(self) -> &'static str {
                match self { $($type::$variant => $word),+ }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::Unknown;

            fn from_str(word: &str) -> Result<Self, Self::Err> {
                match word {
                    $($word => Ok($type::$variant),)+
                    _ => Err($crate::Unknown {
                        machine: $machine,
                        word: word.chars().take(64).collect(),
                        expected: [$($word),+].join(", "),
                    }),
                }
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
                out.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
                let word = std::borrow::Cow::<'de, str>::deserialize(input)?;
                word.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
pub(crate) use words;
