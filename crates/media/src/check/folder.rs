//! The checked folder, and the only way to its files: never out of it, never more than was asked for.

use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};

/// A file below the folder, as playlists name it: with slashes, and without a way up.
pub type Name = String;

pub struct Folder {
    root: PathBuf,
}

/// Why a URI leads to no file.
#[derive(Debug, PartialEq, Eq)]
pub enum Astray {
    /// A URL, an absolute path, or a way out of the folder.
    Outside,
    Missing,
}

/// Bytes of a file, from `offset` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Range {
    pub offset: u64,
    pub bytes: u64,
}

impl Range {
    /// `None` when it is beyond all numbers.
    pub fn end(self) -> Option<u64> {
        self.offset.checked_add(self.bytes)
    }
}

impl Folder {
    pub fn open(root: &Path) -> io::Result<Self> {
        Ok(Folder { root: fs::canonicalize(root)? })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// The file that a URI means, when it stands in the playlist `from`.
    pub fn resolve(&self, from: &str, uri: &str) -> Result<Name, Astray> {
        let place = from.rsplit_once('/').map_or("", |(folder, _)| folder);
        let plain = uri.split(['?', '#']).next().unwrap_or_default();
        if is_elsewhere(plain) {
            return Err(Astray::Outside);
        }
        for spelling in [uri.to_owned(), unescape(plain)] {
            let name = join(place, &spelling).ok_or(Astray::Outside)?;
            let path = self.path(&name);
            let Ok(found) = fs::canonicalize(&path) else { continue };
            if !found.starts_with(&self.root) {
                return Err(Astray::Outside);
            }
            // Opening a pipe would wait for ever.
            if fs::metadata(&found).is_ok_and(|metadata| metadata.is_file()) {
                return Ok(name);
            }
        }
        Err(Astray::Missing)
    }

    pub fn bytes(&self, name: &str) -> io::Result<u64> {
        Ok(fs::metadata(self.path(name))?.len())
    }

    /// The whole file, unless it is larger than `limit`.
    pub fn read(&self, name: &str, limit: u64) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        File::open(self.path(name))?.take(limit + 1).read_to_end(&mut content)?;
        if content.len() as u64 > limit {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        Ok(content)
    }

    /// A part of a file that reads as if it were a file.
    pub fn window(&self, name: &str, range: Option<Range>) -> io::Result<Window> {
        let file = File::open(self.path(name))?;
        let bytes = file.metadata()?.len();
        let range = range.unwrap_or(Range { offset: 0, bytes });
        if range.end().is_none_or(|end| end > bytes) {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        Ok(Window { file, range, at: 0 })
    }

    pub fn sha256(&self, name: &str) -> io::Result<String> {
        let mut file = File::open(self.path(name))?;
        let mut block = vec![0; 1 << 20];
        let mut hash = Sha256::new();
        loop {
            match file.read(&mut block)? {
                0 => return Ok(hex::encode(hash.finalize())),
                count => hash.update(&block[..count]),
            }
        }
    }

    /// All files, up to `limit` of them; links are not followed.
    pub fn names(&self, limit: usize) -> io::Result<Vec<Name>> {
        let mut found = Vec::new();
        let mut folders = vec![String::new()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(self.path(&folder))? {
                let entry = entry?;
                let kind = entry.file_type()?;
                let own = entry.file_name().to_string_lossy().into_owned();
                let name = if folder.is_empty() { own } else { format!("{folder}/{own}") };
                match kind.is_dir() {
                    true => folders.push(name),
                    false => found.push(name),
                }
                if found.len() + folders.len() >= limit {
                    return Ok(found);
                }
            }
        }
        found.sort_unstable();
        Ok(found)
    }
}

/// A URL of any kind, or an absolute path of any system.
fn is_elsewhere(uri: &str) -> bool {
    let scheme = uri.split('/').next().is_some_and(|first| first.contains(':'));
    scheme || uri.starts_with(['/', '\\']) || uri.contains('\0')
}

/// `None` when it leads out of the folder, or names nothing.
fn join(place: &str, uri: &str) -> Option<Name> {
    let mut parts: Vec<&str> = place.split('/').filter(|part| !part.is_empty()).collect();
    for component in Path::new(uri).components() {
        match component {
            Component::Normal(part) => parts.push(part.to_str()?),
            Component::CurDir => {}
            Component::ParentDir => drop(parts.pop()?),
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    let name = parts.join("/");
    (!name.is_empty() && !name.contains('\0')).then_some(name)
}

/// `%20` is a space. What is no escape, or no text, stays as it is.
fn unescape(uri: &str) -> String {
    let bytes = uri.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = bytes.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        let byte = escaped.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        out.push(byte.unwrap_or(bytes[at]));
        at += if byte.is_some() { 3 } else { 1 };
    }
    String::from_utf8(out).unwrap_or_else(|_| uri.to_owned())
}

pub struct Window {
    file: File,
    range: Range,
    at: u64,
}

impl Window {
    pub fn size(&self) -> u64 {
        self.range.bytes
    }
}

impl Read for Window {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.range.bytes.saturating_sub(self.at);
        let wanted = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        self.file.seek(SeekFrom::Start(self.range.offset + self.at))?;
        let count = self.file.read(&mut buffer[..wanted])?;
        self.at += count as u64;
        Ok(count)
    }
}

impl Seek for Window {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.range.bytes.checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_uri_leads_out_of_the_folder() {
        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().join("root");
        fs::create_dir_all(root.join("a")).unwrap();
        fs::write(outer.path().join("secret"), "").unwrap();
        fs::write(root.join("a/one two.ts"), "").unwrap();
        std::os::unix::fs::symlink(outer.path().join("secret"), root.join("link")).unwrap();
        let folder = Folder::open(&root).unwrap();

        for uri in ["one two.ts", "one%20two.ts", "./one%20two.ts?t=1", "../a/one two.ts"] {
            assert_eq!(folder.resolve("a/index.m3u8", uri), Ok("a/one two.ts".into()), "{uri}");
        }
        for uri in
            ["../../secret", "%2e%2e/%2E./secret", "/etc/passwd", "http://h/x", "file:x", "../link", "a\0"]
        {
            assert_eq!(folder.resolve("a/index.m3u8", uri), Err(Astray::Outside), "{uri}");
        }
        for uri in ["three.ts", ".", "%zz"] {
            assert_eq!(folder.resolve("a/index.m3u8", uri), Err(Astray::Missing), "{uri}");
        }
    }
}
