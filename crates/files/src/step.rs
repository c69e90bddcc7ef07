//! Changes of files after which something is seen, final or gone.

failpoint::steps![
    /// Each in one place, on a disk or in a bucket. Its name is its failpoint's.
    HandOver,
    HandOverObject,
    SendDirect,
    SendGeneration,
    PlaceGeneration,
    AddIndex,
    Arrive,
    ArriveObject,
    Seal,
    BeginParts,
    CompleteParts,
    Show,
    ClearShown,
    ClearParts,
    TakeOutput,
    SendOutput,
    PlaceArchive,
    SendArchive,
    KeepOutputs,
    KeepObject,
    Discard,
    DiscardObjects,
    ReceiveSource,
    ReceiveObject,
    AdoptSource,
    AdoptObject,
    RemoveSource,
    GrowUpload,
    PutPiece,
    JoinPieces,
    RemovePieces,
    EndUpload,
    TakeWatched,
    ClearUpload,
    ClearVideo,
    ClearVideoObjects,
    ClearExecution,
    ClearExecutionObjects,
    ClearSource,
    ClearObject,
    ClearGeneration,
    ClearGenerationObjects,
    GiveUp,
    MarkFolder,
    MarkBucket,
    NoteMark,
    NoteMarkObject,
];

impl Step {
    pub fn around<T, E>(self, change: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        self.reaches("before");
        let changed = change()?;
        self.reaches("after");
        Ok(changed)
    }

    /// As [`Step::around`] for what takes its time.
    pub async fn across<T, E>(self, change: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        self.reaches("before");
        let changed = change.await?;
        self.reaches("after");
        Ok(changed)
    }

    fn reaches(self, moment: &str) {
        failpoint::reached(&self.name(), moment);
    }
}
