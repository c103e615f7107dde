#![forbid(unsafe_code)]
//! The books of one pool of one device.
pub mod words;
use crate::error::Error;
use crate::types::{Address, Stamp, StreamSlot};
pub use words::*;

/// One pool of one device.
#[derive(Debug)]
pub struct Heap;
#[allow(unused, missing_docs)]
impl Heap {
    pub fn new(page_bytes: u64) -> Result<Self, Error> {
        todo!()
    }
    pub fn page_bytes(&self) -> u64 {
        todo!()
    }
    pub fn add_range(&mut self, start: Address, bytes: u64) -> Result<(), Error> {
        todo!()
    }
    pub fn remove_range(&mut self, start: Address) -> Result<(), Error> {
        todo!()
    }
    pub fn add_segment(&mut self, start: Address, bytes: u64, stamp: Stamp) -> Result<(), Error> {
        todo!()
    }
    pub fn take(&mut self, request: &Request) -> Result<Option<Block>, Error> {
        todo!()
    }
    pub fn claim_growth(
        &mut self,
        request: &Request,
        max_new_bytes: u64,
    ) -> Result<Option<Growth>, Error> {
        todo!()
    }
    pub fn growth_needed(&self, request: &Request) -> Option<u64> {
        todo!()
    }
    pub fn commit_growth(&mut self, growth: Growth) -> Result<Block, Error> {
        todo!()
    }
    pub fn abort_growth(&mut self, growth: Growth) -> Result<(), Error> {
        todo!()
    }
    pub fn claim_pages(
        &mut self,
        bytes: u64,
        usable: &dyn Fn(Stamp) -> bool,
    ) -> Result<Vec<PageRun>, Error> {
        todo!()
    }
    pub fn stamps(&self, run: PageRun, each: &mut dyn FnMut(Stamp)) {
        todo!()
    }
    pub fn commit_unmap(&mut self, run: PageRun) -> Result<(), Error> {
        todo!()
    }
    pub fn abort_unmap(&mut self, run: PageRun) -> Result<(), Error> {
        todo!()
    }
    pub fn claim_segments(
        &mut self,
        bytes: u64,
        usable: &dyn Fn(Stamp) -> bool,
    ) -> Result<Vec<PageRun>, Error> {
        todo!()
    }
    pub fn commit_remove(&mut self, run: PageRun) -> Result<(), Error> {
        todo!()
    }
    pub fn abort_remove(&mut self, run: PageRun) -> Result<(), Error> {
        todo!()
    }
    pub fn release(
        &mut self,
        address: Address,
        epoch: impl FnOnce(StreamSlot) -> u64,
    ) -> Result<Block, FreeError> {
        todo!()
    }
    pub fn release_to_limbo(
        &mut self,
        address: Address,
        epoch: impl FnOnce(StreamSlot) -> u64,
    ) -> Result<Block, FreeError> {
        todo!()
    }
    pub fn settle(&mut self, address: Address) -> Result<Block, FreeError> {
        todo!()
    }
    pub fn find(&self, address: Address) -> Option<Block> {
        todo!()
    }
    pub fn classify(&self, address: Address) -> Standing {
        todo!()
    }
    pub fn figures(&self) -> Figures {
        todo!()
    }
    pub fn largest_free(&self, stream: StreamSlot) -> u64 {
        todo!()
    }
    pub fn largest_free_of_any(&self) -> u64 {
        todo!()
    }
    pub fn largest_gap(&self) -> u64 {
        todo!()
    }
    pub fn blocks(&self) -> impl Iterator<Item = BlockView> + '_ {
        std::iter::empty()
    }
    pub fn check(&self) {
        todo!()
    }
}
