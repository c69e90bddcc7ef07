//! MPEG-TS: packets, the two tables, and the times of what they carry. Enough to measure a segment; no decoder.

use super::folder::Window;
use super::part::{Description, Kind, Part, Run, Sample};
use super::sps;
use std::collections::HashMap;
use std::io::{BufReader, Read};

/// The first byte of every packet.
pub const SYNC: u8 = 0x47;
const PACKET: usize = 188;
const TIMESCALE: u32 = 90_000;
/// Times have 33 bits and begin again at 0 after 26 hours.
const WRAP: i128 = 1 << 33;
/// How much of a frame is kept to look into its headers.
const HEAD: usize = 4096;
/// Ten minutes of 60 frames and 48 kHz of sound.
const MAX_FRAMES: usize = 100_000;

/// Goes from segment to segment, so that times run on where 33 bits begin again.
#[derive(Default)]
pub struct Clock {
    last: HashMap<u16, i128>,
}

impl Clock {
    /// The time nearest to the last one of that stream.
    fn unwrap(&mut self, pid: u16, time: i128) -> i128 {
        let last = *self.last.get(&pid).unwrap_or(&time);
        let rounds = (last - time + WRAP / 2).div_euclid(WRAP);
        let time = time + rounds * WRAP;
        self.last.insert(pid, time);
        time
    }
}

/// Measures a segment, and says what its streams are. `Err` says what is wrong with it.
pub fn part(window: Window, clock: &mut Clock) -> Result<(Part, Vec<Description>), String> {
    let bytes = window.size();
    if !bytes.is_multiple_of(PACKET as u64) {
        return Err(format!("{bytes} bytes are not whole packets of {PACKET}"));
    }
    let mut input = BufReader::with_capacity(PACKET * 512, window);
    let mut streams = Streams::default();
    for index in 0..bytes / PACKET as u64 {
        let mut packet = [0; PACKET];
        input.read_exact(&mut packet).map_err(|error| error.to_string())?;
        if packet[0] != SYNC {
            return Err(format!("packet {} does not begin with the byte 0x47", index + 1));
        }
        streams.read(&packet, clock)?;
    }
    streams.finish(bytes)
}

#[derive(Default)]
struct Streams {
    tables: Option<u16>,
    streams: Vec<Stream>,
}

struct Stream {
    pid: u16,
    /// ISO 13818-1, table 2-34.
    coding: u8,
    frames: Vec<Frame>,
    /// The first bytes of the frame that is being read; of sound, all of them.
    payload: Vec<u8>,
    first: Vec<u8>,
    sound: Option<Adts>,
    /// Frames of sound, over all packets.
    sounds: u64,
}

struct Frame {
    decoded: i128,
    shown: i128,
    is_key: bool,
}

impl Streams {
    fn read(&mut self, packet: &[u8; PACKET], clock: &mut Clock) -> Result<(), String> {
        let pid = u16::from_be_bytes([packet[1] & 0x1f, packet[2]]);
        let is_start = packet[1] & 0x40 != 0;
        let (adaptation, has_payload) = (packet[3] & 0x20 != 0, packet[3] & 0x10 != 0);
        let skipped = if adaptation { usize::from(packet[4]) + 1 } else { 0 };
        let is_key = adaptation && packet[4] > 0 && packet[5] & 0x40 != 0;
        let payload = packet.get(4 + skipped..).filter(|_| has_payload).unwrap_or_default();
        match self.tables {
            _ if pid == 0 && is_start => self.tables = program(payload).or(self.tables),
            Some(table) if pid == table && is_start && self.streams.is_empty() => {
                self.streams = tracks(payload)
            }
            _ if self.streams.is_empty() && is_start && payload.starts_with(&[0, 0, 1]) => {
                return Err("media come before the tables that describe them".into());
            }
            _ => {
                let stream = self.streams.iter_mut().find(|stream| stream.pid == pid);
                if let Some(stream) = stream {
                    stream.read(payload, is_start, is_key, clock)?;
                }
            }
        }
        Ok(())
    }

    fn finish(mut self, bytes: u64) -> Result<(Part, Vec<Description>), String> {
        if self.tables.is_none() || self.streams.is_empty() {
            return Err("it has no tables that say what is in it".into());
        }
        self.streams.iter_mut().for_each(Stream::end_frame);
        let runs: Vec<_> = self.streams.iter().filter_map(Stream::run).collect();
        if runs.is_empty() {
            return Err("it holds no picture and no sound".into());
        }
        let tracks =
            self.streams.iter().filter(|stream| !stream.frames.is_empty()).filter_map(Stream::describe);
        Ok((Part { bytes, payload: bytes, runs }, tracks.collect()))
    }
}

/// Where the table of the first program is.
fn program(payload: &[u8]) -> Option<u16> {
    let entries = section(payload, 8)?;
    let entry = entries.chunks_exact(4).find(|entry| entry[..2] != [0, 0])?;
    Some(u16::from_be_bytes([entry[2] & 0x1f, entry[3]]))
}

fn tracks(payload: &[u8]) -> Vec<Stream> {
    let Some(body) = section(payload, 12) else { return Vec::new() };
    let Some(info) = payload.get(usize::from(payload[0]) + 11..).and_then(length) else { return Vec::new() };
    let mut rest = body.get(info..).unwrap_or_default();
    let mut found = Vec::new();
    while let [coding, high, low, tail @ ..] = rest
        && let Some(info) = length(tail)
    {
        let pid = u16::from_be_bytes([high & 0x1f, *low]);
        found.push(Stream {
            pid,
            coding: *coding,
            frames: Vec::new(),
            payload: Vec::new(),
            first: Vec::new(),
            sound: None,
            sounds: 0,
        });
        rest = tail.get(2 + info..).unwrap_or_default();
    }
    found
}

/// The body of a section after `head` bytes, without its checksum.
fn section(payload: &[u8], head: usize) -> Option<&[u8]> {
    let table = payload.get(usize::from(*payload.first()?) + 1..)?;
    let end = 3 + length(table.get(1..)?)?;
    table.get(head..end.checked_sub(4)?)
}

/// A length of twelve bits.
fn length(bytes: &[u8]) -> Option<usize> {
    Some(usize::from(bytes.first()? & 0x0f) << 8 | usize::from(*bytes.get(1)?))
}

impl Stream {
    fn kind(&self) -> Option<Kind> {
        match self.coding {
            0x01 | 0x02 | 0x10 | 0x1b | 0x24 => Some(Kind::Video),
            0x03 | 0x04 | 0x0f | 0x11 | 0x81 | 0x87 => Some(Kind::Audio),
            _ => None,
        }
    }

    fn read(
        &mut self,
        payload: &[u8],
        is_start: bool,
        is_key: bool,
        clock: &mut Clock,
    ) -> Result<(), String> {
        let Some(kind) = self.kind() else { return Ok(()) };
        if !is_start {
            let limit = if kind == Kind::Video { HEAD } else { 1 << 20 };
            let room = limit - self.payload.len().min(limit);
            self.payload.extend(&payload[..payload.len().min(room)]);
            return Ok(());
        }
        self.end_frame();
        let Some((shown, decoded, body)) = header(payload) else {
            return Err("a frame has no time".into());
        };
        let decoded = clock.unwrap(self.pid, decoded);
        let shown = decoded + (shown - decoded).rem_euclid(WRAP);
        if self.frames.len() >= MAX_FRAMES {
            return Err(format!("more than {MAX_FRAMES} frames in one segment"));
        }
        self.frames.push(Frame { decoded, shown, is_key });
        self.payload.extend(body);
        Ok(())
    }

    /// Looks into what was gathered of a frame.
    fn end_frame(&mut self) {
        let payload = std::mem::take(&mut self.payload);
        if self.coding == 0x0f {
            let (count, adts) = Adts::count(&payload);
            self.sounds += count;
            self.sound = self.sound.take().or(adts);
        }
        // What says key frame in the transport is optional; the picture itself is not.
        if let Some(frame) = self.frames.last_mut().filter(|_| self.coding == 0x1b) {
            frame.is_key |= sps::has_idr(&payload);
        }
        if self.first.is_empty() {
            self.first = payload;
        }
    }

    /// Each frame lasts until the next; the last one as long as most.
    fn run(&self) -> Option<Run> {
        let kind = self.kind()?;
        let mut steps: Vec<i128> =
            self.frames.windows(2).map(|pair| pair[1].decoded - pair[0].decoded).collect();
        let packet = self.sound.as_ref().map(|adts| i128::from(1024 * TIMESCALE) / i128::from(adts.rate));
        let first = self.frames.first()?;
        let samples = if kind == Kind::Audio && self.sounds > 0 {
            self.sounds
        } else {
            self.frames.len() as u64
        };
        let total = packet.map(|_| i128::from(samples) * 1024 * i128::from(TIMESCALE));
        let total = total.zip(self.sound.as_ref()).map(|(total, adts)| total / i128::from(adts.rate));
        let mut sorted = steps.clone();
        sorted.sort_unstable();
        let usual = sorted.get(sorted.len() / 2).copied().unwrap_or(TIMESCALE as i128 / 25);
        steps.push(usual);
        let last = self.frames.last()?.decoded + usual;
        let tick = |ticks: i128| u64::try_from(ticks.max(0)).unwrap_or(0);
        let frames = self.frames.iter();
        let mut run = Run::begin(kind, self.pid.into(), TIMESCALE, &first.sample(tick(usual)));
        run.end = total.map_or(last, |total| first.decoded + total);
        run.first_shown = frames.clone().map(|frame| frame.shown).min()?;
        run.last_shown_until = frames.clone().map(|frame| frame.shown).max()? + usual;
        if let Some(total) = total {
            run.last_shown_until = first.shown + total;
        }
        run.samples = samples;
        run.shortest = packet.map_or_else(|| tick(*steps.iter().min().unwrap_or(&usual)), tick);
        run.longest = packet.map_or_else(|| tick(*steps.iter().max().unwrap_or(&usual)), tick);
        if kind == Kind::Video {
            run.keys = frames.filter(|frame| frame.is_key).map(|frame| frame.decoded).collect();
        }
        Some(run)
    }

    fn describe(&self) -> Option<Description> {
        let is_video = self.kind()? == Kind::Video;
        let parameters = if self.coding == 0x1b { sps::find(&self.first) } else { None };
        let codec = match self.coding {
            0x1b => parameters.as_ref().map(|sps| sps.codec.clone()),
            // Without a name of its own here: only that it is HEVC matters, which MPEG-TS must not carry.
            0x24 => Some("hvc1".into()),
            0x0f => self.sound.as_ref().map(|adts| format!("mp4a.40.{}", adts.object)),
            0x81 => Some("ac-3".into()),
            0x87 => Some("ec-3".into()),
            0x03 | 0x04 => Some("mp4a.40.34".into()),
            _ => None,
        };
        let channels = self.sound.as_ref().map(|adts| adts.channels).filter(|count| *count > 0);
        let size = parameters.and_then(|sps| sps.size);
        Some(Description { is_video, codec, size, channels, ..Description::default() })
    }
}

impl Frame {
    fn sample(&self, duration: u64) -> Sample {
        Sample { decoded: self.decoded, shown: self.shown, duration, is_key: self.is_key }
    }
}

/// When a frame is shown and decoded, and its bytes.
fn header(pes: &[u8]) -> Option<(i128, i128, &[u8])> {
    if pes.get(..3)? != [0, 0, 1] {
        return None;
    }
    let (flags, size) = (*pes.get(7)?, usize::from(*pes.get(8)?));
    let shown = time(pes.get(9..14).filter(|_| flags & 0x80 != 0)?);
    let decoded = pes.get(14..19).filter(|_| flags & 0x40 != 0).map_or(shown, time);
    Some((shown, decoded, pes.get(9 + size..).unwrap_or_default()))
}

/// 33 bits in five bytes.
fn time(bytes: &[u8]) -> i128 {
    let [a, b, c, d, e] = [0, 1, 2, 3, 4].map(|at| i128::from(bytes[at]));
    (a >> 1 & 7) << 30 | b << 22 | (c >> 1) << 15 | d << 7 | e >> 1
}

/// The header of a packet of AAC.
#[derive(Debug)]
struct Adts {
    object: u8,
    rate: u32,
    channels: u16,
}

const RATES: [u32; 13] =
    [96000, 88200, 64000, 48000, 44100, 32000, 24000, 22050, 16000, 12000, 11025, 8000, 7350];

impl Adts {
    /// How many packets there are, and what the first says.
    fn count(payload: &[u8]) -> (u64, Option<Self>) {
        let (mut count, mut first, mut rest) = (0, None, payload);
        while let [0xff, b, c, d, e, f, ..] = rest
            && b & 0xf6 == 0xf0
        {
            let size = usize::from(d & 3) << 11 | usize::from(*e) << 3 | usize::from(f >> 5);
            let rate = RATES.get(usize::from(c >> 2 & 0xf)).copied();
            first = first.or(rate.map(|rate| Adts {
                object: (c >> 6) + 1,
                rate,
                channels: u16::from(c & 1) << 2 | u16::from(d >> 6),
            }));
            count += 1;
            rest = rest.get(size.max(7)..).unwrap_or_default();
        }
        (count, first)
    }
}
