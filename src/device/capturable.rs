#![forbid(unsafe_code)]
//! Captures that are found: of streams that were opened as capturable, nobody tells when they are
//! captured. So each call that the books serve asks all of them first, and begins and ends the graphs
//! itself. Such a graph is destroyed when the driver says that nothing is left of it.
//!
//! A capture that begins during a call is found by the next one. `looks == some stream is capturable,
//! or some found graph is not destroyed`.

use std::sync::atomic::{AtomicBool, Ordering};

use super::books::Books;
use super::{Device, LOOKING, Named};
use crate::driver::{Context, Inside, StreamHandle};
use crate::error::{Error, sentence};
use crate::graphs::GraphName;
use crate::mutants::{mutant, slow_mutant};
use crate::sync::Guard;

impl Device {
    /// Keeps a stream's handle until it is retired, and asks in each call whether it is captured.
    pub(crate) fn open_capturable(&self, stream: Named) -> Result<(), Error> {
        if !self.driver.can_watch_captures() {
            return Err(Error::NotSupported(sentence!(
                "this driver cannot say when a captured graph is gone, which needs CUDA 11.3: open \
                 the stream without CUDDY_STREAM_CAPTURABLE, and call cuddy_graph_begin()"
            )));
        }
        let Some(slot) = self.hold_stream(stream)? else {
            return Err(Error::InvalidStream(sentence!(
                "a default stream cannot be opened as capturable: create one, or call \
                 cuddy_graph_begin()"
            )));
        };
        let mut books = self.books.lock();
        books.streams.make_capturable(slot);
        self.front.end_era();
        self.looks.store(true, Ordering::Release);
        Ok(())
    }

    /// Finds captures that began, that ended, and graphs that are gone.
    #[inline]
    pub(super) fn look_for_captures(&self) -> Result<(), Error> {
        match self.looks.load(Ordering::Acquire) && !mutant("capturable-not-asked") {
            true => self.find_captures(),
            false => Ok(()),
        }
    }

    #[cold]
    fn find_captures(&self) -> Result<(), Error> {
        {
            let looking = self.looking.lock();
            let home = self.books.lock().home;
            // A device that was reset has no streams to ask: the next miss sees it.
            let Ok(inside) = self.driver.enter(Context(home.context), self.id, &self.calls) else {
                return Ok(());
            };
            if inside.context_id().map_or(true, |id| id.is_some_and(|id| id != home.id)) {
                return Ok(());
            }
            let mut handles = Vec::new();
            for handle in self.books.lock().streams.capturable() {
                handles.try_reserve(1).map_err(|_| Error::HostOutOfMemory)?;
                handles.push(handle);
            }
            let _ = slow_mutant("capturable-asks-the-retired");
            for handle in handles {
                self.look_at(&inside, handle)?;
            }
            self.look_on(&looking);
        }
        // Observers are told of what goes back: no lock is held.
        while let Some(name) = self.take_gone() {
            self.destroy_graph(name, Named { raw: Named::ANY, context: None })?;
        }
        Ok(())
    }

    /// Begins or ends the graph of one stream, as the driver says.
    fn look_at(&self, inside: &Inside<'_>, handle: usize) -> Result<(), Error> {
        let now = inside.capture_of(StreamHandle(handle))?;
        let found = self.found(handle);
        if let Some((name, capture)) = found {
            if capture == now {
                return Ok(());
            }
            self.end_graph(name)?;
        }
        if now.is_none() {
            return Ok(());
        }
        self.learn_captures()?;
        if self.books.lock().graphs.begun().any(|graph| graph.capture == now) {
            return Ok(());
        }
        let Some((number, gone)) = inside.watch_capture(StreamHandle(handle))? else {
            return Ok(());
        };
        let name = self.begin_graph(Named { raw: handle, context: None }, None)?;
        let mut books = self.books.lock();
        let graph = books.graphs.get(name)?;
        (graph.capture, graph.gone) = (Some(number), Some(gone));
        Ok(())
    }

    /// The found graph that a stream is captured into, as far as is known, and its capture.
    fn found(&self, handle: usize) -> Option<(GraphName, Option<u64>)> {
        let books = self.books.lock();
        let mut found = books.graphs.found();
        let (name, graph) = found.find(|(_, graph)| graph.begun && graph.handle == handle)?;
        Some((name, graph.capture))
    }

    /// A found graph of which the driver has nothing left: the caller's to destroy.
    fn take_gone(&self) -> Option<GraphName> {
        if mutant("capturable-never-gone") {
            return None;
        }
        let mut books = self.books.lock();
        let is_gone = |gone: &AtomicBool| gone.load(Ordering::Acquire);
        let (name, _) =
            books.graphs.found().find(|(_, graph)| graph.gone.as_deref().is_some_and(is_gone))?;
        books.graphs.get(name).ok()?.gone = None;
        Some(name)
    }

    /// Looks again in the next call, if there is anything to look at.
    fn look_on(&self, _looking: &Guard<'_, (), LOOKING>) {
        let books = self.books.lock();
        let any = books.streams.capturable().next().is_some();
        self.looks.store(any || books.graphs.found().next().is_some(), Ordering::Release);
    }

    /// A stream's handle is about to be forgotten, before anybody asks again.
    pub(super) fn end_found(
        &self,
        handle: StreamHandle,
        _looking: &Guard<'_, (), LOOKING>,
    ) -> Result<(), Error> {
        match self.found(handle.0) {
            Some((name, _)) => self.end_graph(name),
            None => Ok(()),
        }
    }

    /// The context is gone, with its captures and all that was made of them.
    pub(super) fn forget_found(&self, books: &mut Books) {
        for graph in books.graphs.found_mut() {
            if std::mem::take(&mut graph.begun) {
                self.captures.fetch_sub(1, Ordering::Relaxed);
            }
            if let Some(gone) = &graph.gone {
                gone.store(true, Ordering::Release);
            }
        }
    }
}
