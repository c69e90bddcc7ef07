//! The languages of tracks, as HLS wants them.

/// The BCP 47 tag of what a file calls a language: the two letters for the three of ISO 639-2 (both its kinds) where
/// there are two, the tag itself where it already is one, and `und` for all that is no tag.
pub fn tag(named: Option<&str>) -> String {
    named.and_then(known).unwrap_or_else(|| "und".into())
}

fn known(named: &str) -> Option<String> {
    let named = named.trim().replace('_', "-").to_ascii_lowercase();
    let mut parts = named.split('-');
    let primary =
        parts.next().filter(|part| is_word(part, 2..=3) && part.bytes().all(|b| b.is_ascii_lowercase()))?;
    let rest: Vec<String> = parts.map(subtag).collect::<Option<_>>()?;
    let primary = TWO_LETTERS
        .binary_search_by_key(&primary, |(three, _)| three)
        .map_or(primary, |found| TWO_LETTERS[found].1);
    Some([&[primary.to_string()], rest.as_slice()].concat().join("-"))
}

/// A region of two letters is written large, a script of four begins so; all else stays small.
fn subtag(part: &str) -> Option<String> {
    match part.len() {
        2 if is_word(part, 2..=2) => Some(part.to_ascii_uppercase()),
        4 if part.bytes().all(|b| b.is_ascii_lowercase()) => {
            Some(part[..1].to_ascii_uppercase() + &part[1..])
        }
        _ if is_word(part, 1..=8) => Some(part.into()),
        _ => None,
    }
}

fn is_word(part: &str, length: std::ops::RangeInclusive<usize>) -> bool {
    length.contains(&part.len()) && part.bytes().all(|b| b.is_ascii_alphanumeric())
}

/// ISO 639-2, of both kinds, to ISO 639-1. Sorted.
#[rustfmt::skip]
const TWO_LETTERS: &[(&str, &str)] = &[
    ("aar", "aa"), ("abk", "ab"), ("afr", "af"), ("aka", "ak"), ("alb", "sq"), ("amh", "am"), ("ara", "ar"),
    ("arg", "an"), ("arm", "hy"), ("asm", "as"), ("ava", "av"), ("ave", "ae"), ("aym", "ay"), ("aze", "az"),
    ("bak", "ba"), ("bam", "bm"), ("baq", "eu"), ("bel", "be"), ("ben", "bn"), ("bih", "bh"), ("bis", "bi"),
    ("bod", "bo"), ("bos", "bs"), ("bre", "br"), ("bul", "bg"), ("bur", "my"), ("cat", "ca"), ("ces", "cs"),
    ("cha", "ch"), ("che", "ce"), ("chi", "zh"), ("chu", "cu"), ("chv", "cv"), ("cor", "kw"), ("cos", "co"),
    ("cre", "cr"), ("cym", "cy"), ("cze", "cs"), ("dan", "da"), ("deu", "de"), ("div", "dv"), ("dut", "nl"),
    ("dzo", "dz"), ("ell", "el"), ("eng", "en"), ("epo", "eo"), ("est", "et"), ("eus", "eu"), ("ewe", "ee"),
    ("fao", "fo"), ("fas", "fa"), ("fij", "fj"), ("fin", "fi"), ("fra", "fr"), ("fre", "fr"), ("fry", "fy"),
    ("ful", "ff"), ("geo", "ka"), ("ger", "de"), ("gla", "gd"), ("gle", "ga"), ("glg", "gl"), ("glv", "gv"),
    ("gre", "el"), ("grn", "gn"), ("guj", "gu"), ("hat", "ht"), ("hau", "ha"), ("heb", "he"), ("her", "hz"),
    ("hin", "hi"), ("hmo", "ho"), ("hrv", "hr"), ("hun", "hu"), ("hye", "hy"), ("ibo", "ig"), ("ice", "is"),
    ("ido", "io"), ("iii", "ii"), ("iku", "iu"), ("ile", "ie"), ("ina", "ia"), ("ind", "id"), ("ipk", "ik"),
    ("isl", "is"), ("ita", "it"), ("jav", "jv"), ("jpn", "ja"), ("kal", "kl"), ("kan", "kn"), ("kas", "ks"),
    ("kat", "ka"), ("kau", "kr"), ("kaz", "kk"), ("khm", "km"), ("kik", "ki"), ("kin", "rw"), ("kir", "ky"),
    ("kom", "kv"), ("kon", "kg"), ("kor", "ko"), ("kua", "kj"), ("kur", "ku"), ("lao", "lo"), ("lat", "la"),
    ("lav", "lv"), ("lim", "li"), ("lin", "ln"), ("lit", "lt"), ("ltz", "lb"), ("lub", "lu"), ("lug", "lg"),
    ("mac", "mk"), ("mah", "mh"), ("mal", "ml"), ("mao", "mi"), ("mar", "mr"), ("may", "ms"), ("mkd", "mk"),
    ("mlg", "mg"), ("mlt", "mt"), ("mon", "mn"), ("mri", "mi"), ("msa", "ms"), ("mya", "my"), ("nau", "na"),
    ("nav", "nv"), ("nbl", "nr"), ("nde", "nd"), ("ndo", "ng"), ("nep", "ne"), ("nld", "nl"), ("nno", "nn"),
    ("nob", "nb"), ("nor", "no"), ("nya", "ny"), ("oci", "oc"), ("oji", "oj"), ("ori", "or"), ("orm", "om"),
    ("oss", "os"), ("pan", "pa"), ("per", "fa"), ("pli", "pi"), ("pol", "pl"), ("por", "pt"), ("pus", "ps"),
    ("que", "qu"), ("roh", "rm"), ("ron", "ro"), ("rum", "ro"), ("run", "rn"), ("rus", "ru"), ("sag", "sg"),
    ("san", "sa"), ("sin", "si"), ("slk", "sk"), ("slo", "sk"), ("slv", "sl"), ("sme", "se"), ("smo", "sm"),
    ("sna", "sn"), ("snd", "sd"), ("som", "so"), ("sot", "st"), ("spa", "es"), ("sqi", "sq"), ("srd", "sc"),
    ("srp", "sr"), ("ssw", "ss"), ("sun", "su"), ("swa", "sw"), ("swe", "sv"), ("tah", "ty"), ("tam", "ta"),
    ("tat", "tt"), ("tel", "te"), ("tgk", "tg"), ("tgl", "tl"), ("tha", "th"), ("tib", "bo"), ("tir", "ti"),
    ("ton", "to"), ("tsn", "tn"), ("tso", "ts"), ("tuk", "tk"), ("tur", "tr"), ("twi", "tw"), ("uig", "ug"),
    ("ukr", "uk"), ("urd", "ur"), ("uzb", "uz"), ("ven", "ve"), ("vie", "vi"), ("vol", "vo"), ("wel", "cy"),
    ("wln", "wa"), ("wol", "wo"), ("xho", "xh"), ("yid", "yi"), ("yor", "yo"), ("zha", "za"), ("zho", "zh"),
    ("zul", "zu"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_become_the_shortest_tag_there_is() {
        for (named, expected) in [
            ("eng", "en"),
            ("ger", "de"),
            ("deu", "de"),
            ("fil", "fil"),
            ("pt_br", "pt-BR"),
            ("zh-hant", "zh-Hant"),
            ("EN-US", "en-US"),
            ("und", "und"),
            ("English", "und"),
            ("", "und"),
            ("```", "und"),
            ("e", "und"),
            ("ü1", "und"),
            ("en-\u{1F600}", "und"),
        ] {
            assert_eq!(tag(Some(named)), expected, "{named}");
        }
        assert_eq!(tag(None), "und");
    }

    #[test]
    fn the_table_is_sorted() {
        assert!(TWO_LETTERS.is_sorted());
    }
}
