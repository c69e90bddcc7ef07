//! `moov`: the tracks and their defaults.

use super::bytes::{Bytes, atoms, find, need};
use super::{Entry, Error, codec, malformed};

/// More tracks than any file we cut has, and few enough to search one by one.
const MAX_TRACKS: usize = 64;

#[derive(Debug, Clone)]
pub struct Movie {
    pub tracks: Vec<Track>,
}

#[derive(Debug, Clone)]
pub struct Track {
    pub id: u32,
    pub kind: Kind,
    /// Ticks per second; never 0.
    pub timescale: u32,
    /// `None` for tracks that are neither picture nor sound.
    pub entry: Option<Entry>,
    pub(super) defaults: Defaults,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Video,
    Audio,
    /// The handler's four letters.
    Other([u8; 4]),
}

/// What holds for a sample when neither its run nor its fragment says otherwise.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Defaults {
    pub duration: u32,
    pub size: u32,
    pub flags: u32,
}

impl Movie {
    /// From the body of a `moov`.
    pub(super) fn parse(moov: &[u8]) -> Result<Self, Error> {
        let extends = find(moov, b"mvex")?.map(atoms).transpose()?.unwrap_or_default();
        let mut tracks = Vec::new();
        for trak in atoms(moov)?.iter().filter(|atom| atom.is(b"trak")).take(MAX_TRACKS + 1) {
            tracks.push(Track::parse(trak.body)?);
        }
        if tracks.len() > MAX_TRACKS {
            return Err(malformed(format!("more than {MAX_TRACKS} tracks")));
        }
        for trex in extends.iter().filter(|atom| atom.is(b"trex")) {
            let (id, defaults) = parse_trex(trex.body)?;
            for track in tracks.iter_mut().filter(|track| track.id == id) {
                track.defaults = defaults;
            }
        }
        Ok(Movie { tracks })
    }

    pub(super) fn track(&self, id: u32) -> Option<&Track> {
        self.tracks.iter().find(|track| track.id == id)
    }
}

impl Track {
    fn parse(trak: &[u8]) -> Result<Self, Error> {
        let mdia = need(trak, b"mdia")?;
        let stsd = need(need(need(mdia, b"minf")?, b"stbl")?, b"stsd")?;
        let kind = parse_handler(need(mdia, b"hdlr")?)?;
        let entry = match kind {
            Kind::Video => Some(codec::video(stsd)?),
            Kind::Audio => Some(codec::audio(stsd)?),
            Kind::Other(_) => None,
        };
        Ok(Track {
            id: parse_track_id(need(trak, b"tkhd")?)?,
            kind,
            timescale: parse_timescale(need(mdia, b"mdhd")?)?,
            entry,
            defaults: Defaults::default(),
        })
    }
}

fn parse_track_id(tkhd: &[u8]) -> Result<u32, Error> {
    let mut body = Bytes(tkhd);
    skip_times(&mut body)?;
    body.u32()
}

fn parse_timescale(mdhd: &[u8]) -> Result<u32, Error> {
    let mut body = Bytes(mdhd);
    skip_times(&mut body)?;
    match body.u32()? {
        0 => Err(malformed("a track with a timescale of 0")),
        timescale => Ok(timescale),
    }
}

/// Version, flags, and the times of creation and change.
fn skip_times(body: &mut Bytes<'_>) -> Result<(), Error> {
    let (version, _) = body.version()?;
    body.skip(if version == 1 { 16 } else { 8 })
}

fn parse_handler(hdlr: &[u8]) -> Result<Kind, Error> {
    let mut body = Bytes(hdlr);
    body.skip(8)?;
    Ok(match body.kind()?.0 {
        kind if &kind == b"vide" => Kind::Video,
        kind if &kind == b"soun" => Kind::Audio,
        kind => Kind::Other(kind),
    })
}

fn parse_trex(trex: &[u8]) -> Result<(u32, Defaults), Error> {
    let mut body = Bytes(trex);
    body.version()?;
    let id = body.u32()?;
    body.skip(4)?;
    Ok((id, Defaults { duration: body.u32()?, size: body.u32()?, flags: body.u32()? }))
}
