//! The gate: whether an HLS stream is what it says, by the rules of HLS, of Apple, and of our own plan.
//!
//! It reads any folder, also one made by others, and trusts nothing in it: paths lead nowhere else, sizes are bounded,
//! and what cannot be understood is a finding. Decoding is asked of the caller, for nothing here starts a process:
//! run each of [`Check::decodes`], tell [`Check::decoded`], and take the [`Check::verdict`].
//!
//! | file | what |
//! | --- | --- |
//! | `rule`, `finding` | what is checked, and what was found |
//! | `folder`, `playlist`, `attributes` | files and text, read with suspicion |
//! | `rendition` | one media playlist with what its segments hold: `fmp4` (with `boxes`), `ts` (with `sps`), `vtt` measure a `part` |
//! | `media_rules`, `picture_rules`, `variant_rules`, `key_frames` | the rules, from one playlist to all of them |
//! | `gate` | what only our own output can be held to |
//! | `decode` | commands for ffmpeg, and what it answered |
//! | `verdict` | the result, and the proof that is kept of it |
//!
//! To add a rule: name it in `rule`, report it where its kind of rule is, and break a copy in `tests/check.rs` to see
//! it bite.

mod attributes;
mod boxes;
mod decode;
mod finding;
mod fmp4;
mod folder;
mod gate;
mod key_frames;
mod media_rules;
mod part;
mod picture_rules;
mod playlist;
mod rendition;
mod rule;
mod sps;
mod ts;
mod variant_rules;
mod verdict;
mod vtt;

pub use decode::{Decode, Outcome};
pub use finding::{Finding, Place};
pub use gate::Expect;
pub use rule::{Level, RULES, Rule};
pub use verdict::{Measured, Measures, Verdict};

use finding::Findings;
use folder::{Folder, Name};
use playlist::{Multivariant, Playlist};
use rendition::Rendition;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Over all playlists: a day of twenty renditions in segments of two seconds.
const MAX_SEGMENTS: usize = 1_000_000;

/// A stream that was read, and what was found so far.
pub struct Check {
    folder: Folder,
    playlist: Name,
    renditions: Vec<Rendition>,
    findings: Findings,
    files_proved: u64,
    decoded: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("there is no file or folder {0}")]
    NotFound(PathBuf),
    #[error("there is no playlist in {0}")]
    NoPlaylist(PathBuf),
    #[error("several playlists are in {0}, and none of them lists the others: name one")]
    Ambiguous(PathBuf),
    #[error("reading {path}")]
    Io { path: PathBuf, source: io::Error },
}

impl Check {
    /// As [`Check::open`], and holds a stream of ours to the record it keeps of itself.
    pub fn open_any(path: &Path) -> Result<Self, Error> {
        let (root, playlist) = start(path)?;
        let expect = Folder::open(&root).map(|folder| Expect::recorded(&folder, &playlist));
        Check::open(path, &expect.unwrap_or_default())
    }

    /// Reads the stream at `path`, a playlist or the folder of one, and checks all that needs no decoding.
    pub fn open(path: &Path, expect: &Expect) -> Result<Self, Error> {
        let (root, playlist) = start(path)?;
        let folder = Folder::open(&root).map_err(|source| Error::Io { path: root, source })?;
        let findings = Findings::new(expect.is_own());
        let mut check =
            Check { folder, playlist, renditions: Vec::new(), findings, files_proved: 0, decoded: 0 };
        check.read();
        for rendition in &check.renditions {
            media_rules::check(rendition, &mut check.findings);
            if rendition.media.is_i_frames_only {
                key_frames::check(&check.folder, rendition, &mut check.findings);
            }
        }
        picture_rules::check(&check.renditions, &mut check.findings);
        expect.renditions(&check.renditions, &mut check.findings);
        if expect.is_own() {
            for rendition in &check.renditions {
                expect.tracks(rendition, &mut check.findings);
                gate::content(&check.folder, rendition, &mut check.findings);
            }
        }
        check.files_proved = expect.files(&check.folder, &mut check.findings);
        Ok(check)
    }

    /// Commands that decode the first and the last segment of each rendition; mostly one. Copies of the segments are
    /// left in `scratch`, which must exist and is the caller's to remove.
    pub fn decodes(&self, scratch: &Path) -> io::Result<Vec<Decode>> {
        decode::prepare(&self.folder, &self.renditions, scratch)
    }

    /// Takes in how one of those commands ended.
    pub fn decoded(&mut self, decode: &Decode, outcome: &Outcome) {
        decode::judge(decode, outcome, &mut self.findings);
        self.decoded += decode.inputs();
    }

    pub fn verdict(&self) -> Verdict {
        let findings = self.findings.finished();
        let renditions = self.renditions.iter().map(Measures::of).collect();
        Verdict {
            is_good: findings.iter().all(|finding| finding.level != Level::Error),
            playlist: self.playlist.clone(),
            findings,
            measured: Measured { renditions, files_proved: self.files_proved, decoded: self.decoded },
        }
    }

    fn read(&mut self) {
        let name = self.playlist.clone();
        match self.parse(&name) {
            Some(Playlist::Multivariant(multivariant)) => self.read_all(&multivariant),
            Some(Playlist::Media(media)) => {
                let rendition = Rendition::load(&self.folder, name, media, &mut self.findings);
                if !rendition.media.is_independent && !rendition.media.is_i_frames_only {
                    let what = "EXT-X-INDEPENDENT-SEGMENTS is missing";
                    self.findings.add(&rule::INDEPENDENT, rendition.place(), what);
                }
                self.renditions.push(rendition);
            }
            None => {}
        }
    }

    fn read_all(&mut self, multivariant: &Multivariant) {
        let mut known = HashMap::new();
        let mut load = |entries: &[playlist::Entry]| -> Vec<Option<usize>> {
            entries.iter().map(|entry| self.load(entry, &mut known)).collect()
        };
        let variants = load(&multivariant.variants);
        let alternatives = load(&multivariant.renditions);
        load(&multivariant.i_frames);
        let renditions = &self.renditions;
        let (variants, alternatives) = (&variants, &alternatives);
        variant_rules::Stream { playlist: &self.playlist, multivariant, renditions, variants, alternatives }
            .check(&mut self.findings);
    }

    /// Reads the playlist that an entry names, unless it was read before, and returns its place.
    fn load(&mut self, entry: &playlist::Entry, known: &mut HashMap<Name, Option<usize>>) -> Option<usize> {
        let place = Place::line(self.playlist.clone(), entry.line);
        let uri = entry.uri.as_ref()?;
        let missing = &rule::PLAYLIST_MISSING;
        let name =
            rendition::locate(&self.folder, &self.playlist, uri, place.clone(), missing, &mut self.findings)?;
        if let Some(index) = known.get(&name) {
            return *index;
        }
        let index = match self.parse(&name) {
            Some(Playlist::Media(media)) => {
                let segments: usize = self.renditions.iter().map(|one| one.media.segments.len()).sum();
                if segments + media.segments.len() > MAX_SEGMENTS {
                    let what = format!("the stream has more than {MAX_SEGMENTS} segments: it is not checked");
                    self.findings.add(&rule::PLAYLIST_TOO_LARGE, Place::file(name.clone()), what);
                    None
                } else {
                    self.renditions.push(Rendition::load(
                        &self.folder,
                        name.clone(),
                        media,
                        &mut self.findings,
                    ));
                    Some(self.renditions.len() - 1)
                }
            }
            Some(Playlist::Multivariant(_)) => {
                let what = format!("{name} lists renditions; a playlist of segments is expected");
                self.findings.add(&rule::SYNTAX, place, what);
                None
            }
            None => None,
        };
        known.insert(name, index);
        index
    }

    fn parse(&mut self, name: &str) -> Option<Playlist> {
        let place = Place::file(name);
        let bytes = match self.folder.read(name, playlist::MAX_BYTES) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                let what = format!("the playlist has more than {} bytes", playlist::MAX_BYTES);
                self.findings.add(&rule::PLAYLIST_TOO_LARGE, place, what);
                return None;
            }
            Err(error) => {
                self.findings.add(&rule::PLAYLIST_MISSING, place, format!("it cannot be read: {error}"));
                return None;
            }
        };
        match playlist::parse(&bytes) {
            Ok((playlist, complaints)) => {
                for (line, what) in complaints {
                    self.findings.add(&rule::SYNTAX, Place::line(name, line), what);
                }
                Some(playlist)
            }
            Err(why) => {
                self.findings.add(&rule::NOT_A_PLAYLIST, place, why);
                None
            }
        }
    }
}

/// The folder, and the playlist to begin with.
fn start(path: &Path) -> Result<(PathBuf, Name), Error> {
    let metadata = fs::metadata(path).map_err(|_| Error::NotFound(path.into()))?;
    if metadata.is_dir() {
        return Ok((path.into(), choose(path)?));
    }
    let name = path.file_name().and_then(|name| name.to_str());
    match name.filter(|_| metadata.is_file()) {
        Some(name) => {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            Ok((parent.unwrap_or(Path::new(".")).into(), name.into()))
        }
        None => Err(Error::NotFound(path.into())),
    }
}

/// The playlist that a player of this folder would open.
fn choose(root: &Path) -> Result<Name, Error> {
    let failed = |source| Error::Io { path: root.into(), source };
    let mut names = Vec::new();
    for entry in fs::read_dir(root).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".m3u8") && root.join(&name).is_file() {
            names.push(name);
        }
    }
    names.sort_unstable();
    let has = |name: &&str| names.iter().any(|found| found == name);
    if let Some(name) = ["master.m3u8", "index.m3u8", "playlist.m3u8"].iter().find(|name| has(name)) {
        return Ok((*name).into());
    }
    let is_multivariant = |name: &&Name| {
        let read = Folder::open(root).and_then(|folder| folder.read(name, playlist::MAX_BYTES));
        read.is_ok_and(|bytes| matches!(playlist::parse(&bytes), Ok((Playlist::Multivariant(_), _))))
    };
    let listing: Vec<_> = names.iter().filter(is_multivariant).collect();
    match (&listing[..], &names[..]) {
        ([only], _) => Ok((*only).clone()),
        (_, [only]) => Ok(only.clone()),
        (_, []) => Err(Error::NoPlaylist(root.into())),
        _ => Err(Error::Ambiguous(root.into())),
    }
}
