//! A reading that goes on where an answer was cut, in the same version of the object.
//!
//! The client below us goes on by itself, but counts from the first request: of an object that is on its way for longer
//! than that, no cut would be healed, however well the rest came.

use super::{Error, REPETITIONS, Result};
use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, TryStreamExt};
use object_store::GetResult;
use std::ops::Range;

struct Resumed<Ask> {
    /// For these bytes of the object.
    ask: Ask,
    name: String,
    etag: Option<String>,
    left: Range<u64>,
    answer: BoxStream<'static, object_store::Result<Bytes>>,
    /// How often it was asked again since the last byte came.
    in_vain: usize,
}

/// All that was asked for, though it may take several answers; an end without an error is the end.
pub(super) fn resumed<Ask, Asked>(name: &str, first: GetResult, ask: Ask) -> BoxStream<'static, Result<Bytes>>
where
    Ask: Fn(Range<u64>) -> Asked + Send + 'static,
    Asked: Future<Output = object_store::Result<GetResult>> + Send,
{
    let reading = Resumed {
        ask,
        name: name.into(),
        etag: first.meta.e_tag.clone(),
        left: first.range.clone(),
        answer: first.into_stream(),
        in_vain: 0,
    };
    let next = async |mut reading: Resumed<Ask>| Ok(reading.next().await?.map(|block| (block, reading)));
    stream::try_unfold(reading, next).boxed()
}

impl<Ask, Asked> Resumed<Ask>
where
    Ask: Fn(Range<u64>) -> Asked,
    Asked: Future<Output = object_store::Result<GetResult>>,
{
    async fn next(&mut self) -> Result<Option<Bytes>> {
        while !self.left.is_empty() {
            let broken = match self.answer.try_next().await {
                Ok(Some(block)) if block.is_empty() => continue,
                Ok(Some(block)) => return Ok(Some(self.came(block))),
                Ok(None) => self.ended_early(),
                Err(error) => Error::of(&self.name, error),
            };
            self.ask_again(broken).await?;
        }
        Ok(None)
    }

    fn came(&mut self, block: Bytes) -> Bytes {
        self.left.start += block.len() as u64;
        self.in_vain = 0;
        block
    }

    fn ended_early(&self) -> Error {
        let why = format!("the answer ends at byte {}, and not at {}", self.left.start, self.left.end);
        Error::Away { name: self.name.clone(), why }
    }

    /// An answer that does not begin is an error at once: the client has asked for it for a minute by then.
    async fn ask_again(&mut self, broken: Error) -> Result<()> {
        // Without an ETag nobody could tell one version from another.
        let (Some(_), Some(wait)) = (&self.etag, REPETITIONS.get(self.in_vain)) else { return Err(broken) };
        tracing::debug!("reading {} broke off at byte {}: {broken}", self.name, self.left.start);
        self.in_vain += 1;
        tokio::time::sleep(*wait).await;
        let answer = (self.ask)(self.left.clone()).await.map_err(|error| Error::of(&self.name, error))?;
        if answer.meta.e_tag != self.etag || answer.range != self.left {
            return Err(Error::Changed(self.name.clone()));
        }
        self.answer = answer.into_stream();
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use object_store::{GetResultPayload, ObjectMeta};
    use std::collections::VecDeque;
    use std::sync::{Arc, Mutex};

    const OBJECT: &[u8] = b"what was asked for, from the first byte to the last";

    /// How an answer goes: of which version it is, and how much of it comes before it is cut.
    #[derive(Clone, Copy)]
    struct Answer(Option<&'static str>, usize, Cut);

    #[derive(Clone, Copy)]
    enum Cut {
        WithAnError,
        Silently,
    }

    use Cut::{Silently, WithAnError};

    fn answer(range: Range<u64>, Answer(etag, bytes, cut): Answer) -> GetResult {
        let asked = &OBJECT[range.start as usize..range.end as usize];
        let came = &asked[..bytes.min(asked.len())];
        let cut_off = || object_store::Error::Generic { store: "test", source: "cut".into() };
        let mut blocks = vec![Ok(Bytes::from_static(came))];
        if let (true, WithAnError) = (came.len() < asked.len(), cut) {
            blocks.push(Err(cut_off()));
        }
        let meta = ObjectMeta {
            location: "a".into(),
            last_modified: std::time::SystemTime::UNIX_EPOCH.into(),
            size: OBJECT.len() as u64,
            e_tag: etag.map(str::to_owned),
            version: None,
        };
        GetResult {
            payload: GetResultPayload::Stream(stream::iter(blocks).boxed()),
            meta,
            range,
            attributes: object_store::Attributes::default(),
            extensions: object_store::Extensions::default(),
        }
    }

    /// What is read of these answers, one after the other, and where each was asked to begin.
    async fn read(answers: &[Answer]) -> (Result<Vec<u8>>, Vec<u64>) {
        let mut answers: VecDeque<_> = answers.iter().copied().collect();
        let first = answer(0..OBJECT.len() as u64, answers.pop_front().unwrap());
        let (answers, asked) = (Mutex::new(answers), Arc::new(Mutex::new(Vec::new())));
        let ask = {
            let asked = asked.clone();
            move |range: Range<u64>| {
                asked.lock().unwrap().push(range.start);
                let next = answers.lock().unwrap().pop_front().unwrap();
                std::future::ready(Ok(answer(range, next)))
            }
        };
        let read = resumed("a", first, ask).map_ok(|block| block.to_vec()).try_concat().await;
        let asked = asked.lock().unwrap().clone();
        (read, asked)
    }

    #[tokio::test(start_paused = true)]
    async fn a_reading_goes_on_at_the_byte_where_it_was_cut() {
        for cut in [WithAnError, Silently] {
            let (whole, asked) =
                read(&[Answer(Some("v1"), 7, cut), Answer(Some("v1"), 13, cut), Answer(Some("v1"), 99, cut)])
                    .await;

            assert_eq!(whole.unwrap(), OBJECT);
            assert_eq!(asked, [7, 20]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn as_long_as_bytes_come_no_number_of_cuts_is_too_many() {
        let (whole, asked) = read(&[Answer(Some("v1"), 1, WithAnError); OBJECT.len()]).await;

        assert_eq!(whole.unwrap(), OBJECT);
        assert_eq!(asked.len(), OBJECT.len() - 1);
    }

    #[tokio::test(start_paused = true)]
    async fn tries_that_bring_nothing_come_to_an_end() {
        let nothing = Answer(Some("v1"), 0, Silently);
        let some = Answer(Some("v1"), 5, Silently);
        let (broken, asked) = read(&[nothing, nothing, some, nothing, nothing, nothing, nothing]).await;

        assert!(broken.unwrap_err().is_absence());
        assert_eq!(asked, [0, 0, 5, 5, 5]);
    }

    #[tokio::test(start_paused = true)]
    async fn two_versions_of_an_object_are_never_mixed() {
        let (changed, _) =
            read(&[Answer(Some("v1"), 7, WithAnError), Answer(Some("v2"), 99, Silently)]).await;
        assert!(matches!(changed, Err(Error::Changed(_))), "{changed:?}");

        let (unnamed, asked) = read(&[Answer(None, 7, WithAnError), Answer(None, 99, Silently)]).await;
        assert!(matches!(unnamed, Err(Error::Away { .. })), "{unnamed:?}");
        assert_eq!(asked, Vec::<u64>::new());
    }
}
