//! A small mutator for test runs without coverage: seeded, so that a failure can be repeated.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, RngCore, SeedableRng};

/// Numbers at which parsers stumble.
const EDGES: &[u64] = &[
    0,
    1,
    2,
    7,
    8,
    16,
    127,
    128,
    255,
    256,
    0x7fff,
    0x8000,
    0xffff,
    0x1_0000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    i64::MAX as u64,
    u64::MAX,
];

const LONGEST: usize = 1 << 20;

pub struct Mutator {
    random: StdRng,
    seeds: Vec<Vec<u8>>,
    words: Vec<Vec<u8>>,
}

impl Mutator {
    /// `seeds` are inputs to begin with, `words` pieces of the format.
    pub fn new(seed: u64, seeds: Vec<Vec<u8>>, words: Vec<Vec<u8>>) -> Self {
        assert!(!seeds.is_empty(), "a corpus has at least one input");
        Mutator { random: StdRng::seed_from_u64(seed), seeds, words }
    }

    /// One of the seeds with up to eight changes.
    pub fn next_input(&mut self) -> Vec<u8> {
        let mut input = self.seeds.choose(&mut self.random).expect("seeds").clone();
        for _ in 0..self.random.random_range(1..=8) {
            self.change(&mut input);
            input.truncate(LONGEST);
        }
        input
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let at = self.random.random_range(0..=input.len());
        match self.random.random_range(0..9) {
            0 if at < input.len() => input[at] ^= 1 << self.random.random_range(0..8),
            1 if at < input.len() => input[at] = self.random.next_u32() as u8,
            2 => self.write_edge(input, at),
            3 => input.truncate(at),
            4 => drop(input.drain(at..self.end(input, at))),
            5 => {
                let piece = input[at..self.end(input, at)].to_vec();
                input.splice(at..at, piece);
            }
            6 => self.splice_other(input, at),
            7 if !self.words.is_empty() => {
                let word = self.words.choose(&mut self.random).expect("words").clone();
                let until = if self.random.random() { at } else { (at + word.len()).min(input.len()) };
                input.splice(at..until, word);
            }
            _ => input.insert(at, self.random.next_u32() as u8),
        }
    }

    fn end(&mut self, input: &[u8], at: usize) -> usize {
        let most = (input.len() - at).min(1 << self.random.random_range(0..12));
        at + self.random.random_range(0..=most)
    }

    /// A number at an edge, in one to eight bytes, either end first; or in digits.
    fn write_edge(&mut self, input: &mut Vec<u8>, at: usize) {
        let edge = *EDGES.choose(&mut self.random).expect("edges");
        let bytes = match self.random.random_range(0..3) {
            0 => edge.to_string().into_bytes(),
            1 => edge.to_be_bytes()[8 - (1 << self.random.random_range(0..4))..].to_vec(),
            _ => edge.to_le_bytes()[..1 << self.random.random_range(0..4)].to_vec(),
        };
        let until = (at + bytes.len()).min(input.len());
        input.splice(at..until, bytes);
    }

    fn splice_other(&mut self, input: &mut Vec<u8>, at: usize) {
        let other = self.seeds.choose(&mut self.random).expect("seeds").clone();
        let from = self.random.random_range(0..=other.len());
        let to = self.end(&other, from);
        input.splice(at..at, other[from..to].iter().copied());
    }
}
